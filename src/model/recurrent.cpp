#include "model/recurrent.h"

namespace barg::model {
namespace {

std::int32_t count(std::span<const ops::Segment> segments) {
  return static_cast<std::int32_t>(segments.size());
}

/// The convolution of `channels` columns from `x` on, in place.
void convolve(const StepOps& step, const RecurrentWeights& w, const RecurrentRows& r, float* x,
              std::int64_t stride) {
  const RecurrentSpec& s = step.spec.recurrent;
  step.table.conv1d(step.stream, {.x = x,
                                  .x_stride = stride,
                                  .weight = w.conv,
                                  .bias = w.conv_bias,
                                  .channels = s.channels,
                                  .kernel = s.kernel,
                                  .silu = true,
                                  .out = x,
                                  .out_stride = stride,
                                  .state = r.state,
                                  .segments = r.segments.data(),
                                  .num_segments = count(r.segments)});
}

/// Where the heads' states lie, behind the convolution's.
ops::StateView head_states(const StepOps& step, ops::StateView v) {
  v.base += step.spec.recurrent.conv_bytes();
  return v;
}

void gate(const StepOps& step, const RecurrentWeights& w, const RecurrentRows& r, const float* z,
          std::int64_t stride) {
  const RecurrentSpec& s = step.spec.recurrent;
  step.table.gated_norm(step.stream, {.x = r.context,
                                      .gate = z,
                                      .gate_stride = stride,
                                      .gate_scale = s.in_scales[0],
                                      .weight = w.norm,
                                      .shared = s.shared_norm,
                                      .norm = s.norm,
                                      .gate_first = s.gate_first,
                                      .eps = step.spec.norm.eps,
                                      .rows = r.rows,
                                      .groups = s.norm_groups,
                                      .dim = s.inner() / s.norm_groups,
                                      .out = r.context});
}

void mix_delta(const StepOps& step, const RecurrentWeights& w, const RecurrentRows& r) {
  const RecurrentSpec& s = step.spec.recurrent;
  const std::int64_t stride = recurrent_in_width(MixerKind::kDeltaNet, s);
  float* z = r.in + s.channels;
  convolve(step, w, r, r.in, stride);
  step.table.delta_net(step.stream, {.qkv = r.in,
                                     .qkv_stride = stride,
                                     .a = z + s.inner() + s.heads,
                                     .b = z + s.inner(),
                                     .gate_stride = stride,
                                     .decay = w.decay,
                                     .dt_bias = w.dt_bias,
                                     .key_heads = s.groups,
                                     .value_heads = s.heads,
                                     .key_dim = s.state_size,
                                     .value_dim = s.head_dim,
                                     .tiled = s.tiled,
                                     .out = r.context,
                                     .state = head_states(step, r.state),
                                     .segments = r.segments.data(),
                                     .num_segments = count(r.segments)});
  gate(step, w, r, z, stride);
}

void mix_mamba(const StepOps& step, const RecurrentWeights& w, const RecurrentRows& r) {
  const RecurrentSpec& s = step.spec.recurrent;
  const std::int64_t stride = recurrent_in_width(MixerKind::kMamba2, s);
  float* xbc = r.in + s.inner();
  convolve(step, w, r, xbc, stride);
  step.table.mamba2(step.stream, {.xbc = xbc,
                                  .xbc_stride = stride,
                                  .dt = xbc + s.channels,
                                  .dt_stride = stride,
                                  .dt_scale = s.in_scales[4],
                                  .dt_min = s.dt_min,
                                  .dt_max = s.dt_max,
                                  .decay = w.decay,
                                  .dt_bias = w.dt_bias,
                                  .skip = w.skip,
                                  .heads = s.heads,
                                  .groups = s.groups,
                                  .head_dim = s.head_dim,
                                  .state_size = s.state_size,
                                  .out = r.context,
                                  .state = head_states(step, r.state),
                                  .segments = r.segments.data(),
                                  .num_segments = count(r.segments)});
  gate(step, w, r, r.in, stride);
}

void mix_conv(const StepOps& step, const RecurrentWeights& w, const RecurrentRows& r) {
  const RecurrentSpec& s = step.spec.recurrent;
  step.table.conv1d(step.stream, {.x = r.in + 2 * std::int64_t{s.channels},
                                  .x_stride = recurrent_in_width(MixerKind::kConv, s),
                                  .in_gate = r.in,
                                  .out_gate = r.in + s.channels,
                                  .weight = w.conv,
                                  .bias = w.conv_bias,
                                  .channels = s.channels,
                                  .kernel = s.kernel,
                                  .silu = false,
                                  .out = r.context,
                                  .out_stride = s.channels,
                                  .state = r.state,
                                  .segments = r.segments.data(),
                                  .num_segments = count(r.segments)});
}

}  // namespace

std::int64_t recurrent_in_width(MixerKind kind, const RecurrentSpec& r) {
  const std::int64_t channels = r.channels, inner = r.inner(), heads = r.heads;
  switch (kind) {
    case MixerKind::kDeltaNet:
      return channels + inner + 2 * heads;
    case MixerKind::kMamba2:
    case MixerKind::kAttentionAndMamba2:
      return inner + channels + heads;
    case MixerKind::kConv:
      return 3 * channels;
    default:
      return 0;
  }
}

void mix_recurrent(const StepOps& step, MixerKind kind, const RecurrentWeights& w,
                   const RecurrentRows& rows) {
  switch (kind) {
    case MixerKind::kDeltaNet:
      return mix_delta(step, w, rows);
    case MixerKind::kMamba2:
    case MixerKind::kAttentionAndMamba2:
      return mix_mamba(step, w, rows);
    case MixerKind::kConv:
      return mix_conv(step, w, rows);
    default:
      return;
  }
}

}  // namespace barg::model
