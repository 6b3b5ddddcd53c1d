// The recurrent mixers and their gates, scalar: the specification (see ops_scalar.cpp).
#include "cpu/layout.h"
#include "cpu/pool.h"
#include "math.h"
// Needs the functions of the header above.
#include "cpu/recurrent_state.h"

namespace barg::ops::cpu {
namespace {

template <class F>
void parallel_for(Stream& s, int items, F&& f) {
  s.pool.run(
      items, [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f);
}

void conv_channel(const Conv1dParams& p, const Segment& s, std::int32_t c) {
  float u[kMaxConvKernel] = {};  // of the last positions, oldest first, the token's own at the end
  const std::int32_t old = p.kernel - 1;
  if (const float* from = state_before(p.state, s, s.pos_begin)) {
    for (std::int32_t t = 0; t < old; ++t) u[t] = from[std::int64_t{t} * p.channels + c];
  }
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t row = s.row_begin + i;
    u[old] = p.x[row * p.x_stride + c];
    if (p.in_gate != nullptr) u[old] *= p.in_gate[row * p.x_stride + c];
    float v = p.bias != nullptr ? p.bias[c] : 0.0f;
    for (std::int32_t t = 0; t < p.kernel; ++t) v = fma(u[t], p.weight[std::int64_t{t} * p.channels + c], v);
    if (p.silu) v = silu(v);
    if (p.out_gate != nullptr) v *= p.out_gate[row * p.x_stride + c];
    p.out[row * p.out_stride + c] = v;
    for (std::int32_t t = 0; t < old; ++t) u[t] = u[t + 1];
    if (!leaves_block(p.state, s, s.pos_begin + i)) continue;
    float* to = state_at(p.state, s, s.pos_begin + i);
    for (std::int32_t t = 0; t < old; ++t) to[std::int64_t{t} * p.channels + c] = u[t];
  }
}

/// x = x * (1 / sqrt(sum x^2 + 1e-6)) * scale.
void normalise(float* x, std::int32_t dim, float scale) {
  float lanes[kLanes] = {};
  for (std::int32_t i = 0; i < dim; ++i) lanes[i % kLanes] = fma(x[i], x[i], lanes[i % kLanes]);
  const float inverse = 1.0f / __builtin_sqrtf(fold_lanes(lanes) + 1e-6f);
  for (std::int32_t i = 0; i < dim; ++i) x[i] = x[i] * inverse * scale;
}

void delta_head(const DeltaNetParams& p, const Segment& s, std::int32_t h) {
  const std::int32_t key_head = p.tiled ? h % p.key_heads : h / (p.value_heads / p.key_heads);
  const std::int64_t keys = std::int64_t{p.key_heads} * p.key_dim;
  const std::int64_t offset = std::int64_t{h} * p.key_dim * p.value_dim;
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t row = s.row_begin + i;
    const float* q = p.qkv + row * p.qkv_stride + std::int64_t{key_head} * p.key_dim;
    const float* k = q + keys;
    const float* v = p.qkv + row * p.qkv_stride + 2 * keys + std::int64_t{h} * p.value_dim;
    const float g = exp(p.decay[h] * softplus(p.a[row * p.gate_stride + h] + p.dt_bias[h]));
    const float beta = sigmoid(p.b[row * p.gate_stride + h]);
    const float* before = state_before(p.state, s, s.pos_begin + i);
    float* after = state_at(p.state, s, s.pos_begin + i) + offset;
    float* out = p.out + (row * p.value_heads + h) * p.value_dim;
    for (std::int32_t c = 0; c < p.value_dim; ++c) {
      const auto decayed = [&](std::int32_t j) {
        return (before != nullptr ? before[offset + std::int64_t{j} * p.value_dim + c] : 0.0f) * g;
      };
      float m = 0.0f, o = 0.0f;
      for (std::int32_t j = 0; j < p.key_dim; ++j) m = fma(k[j], decayed(j), m);
      const float e = beta * (v[c] - m);
      for (std::int32_t j = 0; j < p.key_dim; ++j) {
        const float next = fma(k[j], e, decayed(j));
        after[std::int64_t{j} * p.value_dim + c] = next;
        o = fma(q[j], next, o);
      }
      out[c] = o;
    }
  }
}

void mamba_head(const Mamba2Params& p, const Segment& s, std::int32_t h) {
  const std::int32_t group = h / (p.heads / p.groups);
  const std::int64_t inner = std::int64_t{p.heads} * p.head_dim;
  const std::int64_t offset = std::int64_t{h} * p.state_size * p.head_dim;
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t row = s.row_begin + i;
    const float* x = p.xbc + row * p.xbc_stride + std::int64_t{h} * p.head_dim;
    const float* b = p.xbc + row * p.xbc_stride + inner + std::int64_t{group} * p.state_size;
    const float* c = b + std::int64_t{p.groups} * p.state_size;
    const float d = time_step(p, p.dt[row * p.dt_stride + h], h);
    const float g = exp(p.decay[h] * d);
    const float* before = state_before(p.state, s, s.pos_begin + i);
    float* after = state_at(p.state, s, s.pos_begin + i) + offset;
    float* out = p.out + (row * p.heads + h) * p.head_dim;
    for (std::int32_t j = 0; j < p.head_dim; ++j) {
      const float u = d * x[j];
      float y = 0.0f;
      for (std::int32_t n = 0; n < p.state_size; ++n) {
        const std::int64_t at = std::int64_t{n} * p.head_dim + j;
        const float next = fma(before != nullptr ? before[offset + at] : 0.0f, g, u * b[n]);
        after[at] = next;
        y = fma(c[n], next, y);
      }
      out[j] = fma(p.skip[h], x[j], y);
    }
  }
}

void gated_norm_part(const GatedNormParams& p, std::int32_t r, std::int32_t part) {
  const std::int64_t at = (std::int64_t{r} * p.groups + part) * p.dim;
  const float* x = p.x + at;
  const float* gate = p.gate + r * p.gate_stride + std::int64_t{part} * p.dim;
  const float* weight = p.shared ? p.weight : p.weight + std::int64_t{part} * p.dim;
  const auto s = [&](std::int32_t i) { return silu(gate[i] * p.gate_scale); };
  const auto t = [&](std::int32_t i) { return p.gate_first ? x[i] * s(i) : x[i]; };
  float lanes[kLanes] = {};
  for (std::int32_t i = 0; i < p.dim; ++i) lanes[i % kLanes] = fma(t(i), t(i), lanes[i % kLanes]);
  const float mean = fold_lanes(lanes) / static_cast<float>(p.dim);
  const float inverse = 1.0f / __builtin_sqrtf(mean + p.eps);
  for (std::int32_t i = 0; i < p.dim; ++i) {
    if (!p.norm) {
      p.out[at + i] = x[i] * s(i) * weight[i];
    } else {
      const float y = t(i) * inverse * weight[i];
      p.out[at + i] = p.gate_first ? y : y * s(i);
    }
  }
}

}  // namespace

void sigmoid_mul_scalar(Stream&, const SigmoidMulParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    for (std::int32_t i = 0; i < p.dim; ++i) {
      const std::int64_t at = std::int64_t{r} * p.dim + i;
      p.out[at] = p.x[at] * sigmoid(p.gate[r * p.gate_stride + i]);
    }
  }
}

void conv1d_scalar(Stream& stream, const Conv1dParams& p) {
  parallel_for(stream, p.num_segments * p.channels,
               [&](int i) { conv_channel(p, p.segments[i / p.channels], i % p.channels); });
}

void delta_net_scalar(Stream& stream, const DeltaNetParams& p) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(p.key_dim));
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    for (std::int32_t j = 0; j < p.segments[i].row_count; ++j) {
      float* row = p.qkv + (p.segments[i].row_begin + j) * p.qkv_stride;
      for (std::int32_t h = 0; h < 2 * p.key_heads; ++h)
        normalise(row + std::int64_t{h} * p.key_dim, p.key_dim, h < p.key_heads ? scale : 1.0f);
    }
  }
  parallel_for(stream, p.num_segments * p.value_heads,
               [&](int i) { delta_head(p, p.segments[i / p.value_heads], i % p.value_heads); });
}

void mamba2_scalar(Stream& stream, const Mamba2Params& p) {
  parallel_for(stream, p.num_segments * p.heads,
               [&](int i) { mamba_head(p, p.segments[i / p.heads], i % p.heads); });
}

void gated_norm_scalar(Stream&, const GatedNormParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    for (std::int32_t part = 0; part < p.groups; ++part) gated_norm_part(p, r, part);
  }
}

}  // namespace barg::ops::cpu
