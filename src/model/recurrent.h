// The mixers that keep a state: convolution alone (LFM2), gated delta rule (Qwen3-Next, Qwen3.5), Mamba-2.
// Each reads the rows of one projection of the norm, laid out as below, and leaves its result in rows of
// RecurrentSpec::inner() numbers, which the output projection reads.
//
//   delta rule   [ q | k | v | z | b | a ]      q, k by group, v, z, b, a by head
//   Mamba-2      [ z | x | B | C | dt ]         x, z, dt by head, B, C by group
//   convolution  [ in gate | out gate | x ]     u = in gate * x; out gate * conv(u)
//
// Internal to the decoder, like step.h. One thread; allocates nothing.
#pragma once

#include "model/decoder_spec.h"
#include "model/step.h"
#include "model/weights.h"

namespace barg::model {

/// What a file calls the projections and the convolution, behind "blk.N.".
struct RecurrentNames {
  const char *in, *conv, *out;
};
constexpr RecurrentNames recurrent_names(MixerKind kind) {
  if (kind == MixerKind::kConv) return {"shortconv.in_proj", "shortconv.conv", "shortconv.out_proj"};
  return {"ssm_in", "ssm_conv1d", "ssm_out"};
}

/// Width of the rows above.
std::int64_t recurrent_in_width(MixerKind kind, const RecurrentSpec& r);

/// Rows of the batch and where their sequences keep their states.
struct RecurrentRows {
  float* in;       ///< [rows, recurrent_in_width], overwritten
  float* context;  ///< [rows, inner]
  std::int32_t rows;
  ops::StateView state;
  std::span<const ops::Segment> segments;
};

/// REQUIRES a recurrent kind.
void mix_recurrent(const StepOps& step, MixerKind kind, const RecurrentWeights& w, const RecurrentRows& rows);

}  // namespace barg::model
