// What the halves of a layer work with while a step is computed: its buffers (Step), and the calls they share
// (StepOps). Internal to the decoder and to the files that hold one kind of mixer or feed-forward each.
//
// A half reads rows (the norm of the residual stream, or the stream itself), and leaves its result where
// Output says: added to the stream, or in a buffer from where the decoder brings it there (post norms,
// scales). One thread; allocates nothing; everything borrows from the decoder and its workspace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "model/decoder_spec.h"
#include "model/forward.h"
#include "model/weights.h"
#include "ops.h"

namespace barg::model {

/// Alignment of every buffer of a step, in bytes.
inline constexpr std::size_t kScratchAlign = 64;

/// Where buffers lie in a region of scratch, one behind another from `at` on.
class ScratchPlan {
 public:
  explicit ScratchPlan(std::int32_t rows, std::size_t at = 0) : rows_(static_cast<std::size_t>(rows)), at_(at) {}

  /// The offset of a buffer of n bytes.
  std::size_t bytes(std::size_t n) {
    return std::exchange(at_, (at_ + n + kScratchAlign - 1) / kScratchAlign * kScratchAlign);
  }
  /// Of [rows, width] numbers of four bytes.
  std::size_t numbers(std::int64_t width) { return bytes(rows_ * static_cast<std::size_t>(width) * sizeof(float)); }
  /// Where the next one would lie.
  std::size_t end() const { return at_; }

 private:
  std::size_t rows_, at_;
};

/// Rows between two operations: as floats, prepared for the recipe, or both, as the readers want them.
struct Rows {
  float* x;
  void* prepared;
  bool ready = false;  ///< producers fill `prepared`; else linear prepares the rows there, from x
  float* gathered =
      nullptr;  ///< room for x in the order of a weight's columns (DecoderSpec::reordered_inputs)

  void* produced() const { return ready ? prepared : nullptr; }
};

/// Where a matrix product goes.
struct Output {
  float* y;
  std::int64_t stride;
  bool accumulate = false;
  float* block_max = nullptr;
};

/// cos and sin of the rows' positions, of one rope.
struct Rotation {
  float *cos, *sin;
};

/// The buffers of one step and the batch they belong to.
struct Step {
  const ForwardBatch& batch;
  std::int32_t rows;  ///< of the batch, or after keep_wanted() of those that are wanted
  float* x;           ///< [rows, hidden] the residual stream
  float* sub;         ///< [rows, hidden] a half's result on its way there
  Rotation rotations[kMaxRopes];
  float* query_scales;  ///< [rows]
  float *qkv, *up;
  Rows h, context, act;
  void* attention;
  void* latent;   ///< scratch of latent_half
  void* experts;  ///< scratch of experts_half
  float* laurel;  ///< [rows, hidden] what stands beside attention (altup.h)
  /// [streams][.., hidden], stream_stride floats from one to the next; nullptr where x is all there is.
  float* streams;
  std::int64_t stream_stride;
  float* per_layer;  ///< [rows, layers * width] of per_layer.h
  void* between;     ///< scratch of altup.h and per_layer.h
};

/// The device as the halves of a layer use it.
class StepOps {
 public:
  StepOps(const DecoderSpec& spec, const ops::OpTable& table, ops::Stream& stream, Recipe recipe)
      : spec(spec), table(table), stream(stream), recipe(recipe) {}

  const DecoderSpec& spec;
  const ops::OpTable& table;
  ops::Stream& stream;
  const Recipe recipe;

  bool reads_prepared(const ProjectionPart& p) const {
    return table.prepared_form(recipe, p.weight.dtype) != ops::Form::kF32;
  }

  /// `buffers` without those that no part of `p` reads: what a producer has to write. In recipe bf16 every
  /// product rounds its rows itself.
  Rows wanted(const Projection& p, const Rows& buffers) const;

  /// x as the part's columns want it.
  const float* input(const ProjectionPart& p, const Rows& in, std::int32_t rows) const;

  /// Moves the first `width` numbers of the wanted rows of `rows` to its first rows; `stride` is from row to row,
  /// before and after. Where all are wanted, they lie there.
  void keep_rows(const ForwardBatch& batch, float* rows, std::int64_t stride, std::int64_t width) const;

  /// The one way to multiply by a weight.
  void linear(const ProjectionPart& p, const Rows& in, std::int32_t rows, const Output& out) const;

  /// to = W in, or += ; row-parallel: summed over the ranks, of which the first adds to the residual stream.
  void project(const Projection& p, const Rows& in, std::int32_t rows, const Output& to) const;

  /// The norm of rows [rows, hidden].
  void norm(const float* x, const NormWeights& w, std::int32_t rows, const Rows& to) const;

  /// act(up h), in a buffer of `s`.
  Rows activated(const Step& s, const Projection& up, const Rows& h) const;
  /// act(gate h) * up h, in one of the buffers of `s`. Fused where gate and up are stored alike and the gate
  /// is left as it is: `cut` standard deviations are the bar of what is left of it (LayerSpec::gate_cut).
  Rows gated(const Step& s, const Projection& gate_up, const Projection& reader, const Rows& h,
             std::optional<float> cut = {}) const;

  /// x = x * factor, [rows, hidden].
  void scale(float* x, std::int32_t rows, float factor) const;
};

}  // namespace barg::model
