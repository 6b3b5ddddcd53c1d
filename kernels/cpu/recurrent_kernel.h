// The recurrent mixers, written once for the vector back ends over Wide (avx2.h, avx512.h). Their namesakes in
// recurrent_scalar.cpp are the specification.
//
// A state is walked token by token, its columns side by side in registers: columns are independent, so threads
// take ranges of (sequence, head, columns), never of tokens, and a chunk of a prompt gives the bits of single
// steps.
//
// Include from one translation unit of each instruction set, after its Wide; everything is in an unnamed
// namespace for the reason given there.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "math.h"
// Needs the functions of the header above.
#include "cpu/recurrent_state.h"

namespace barg::ops::cpu {
namespace {

constexpr std::int32_t kColumns = 4 * kLanes;  // of a state that one item walks

inline std::int32_t column_blocks(std::int32_t columns) { return (columns + kColumns - 1) / kColumns; }

/// f(segment, unit) for every segment and unit; `elements` of one unit and row.
template <class F>
inline void for_each_unit(Stream& s, const Segment* segments, std::int32_t count, std::int32_t units,
                          std::int64_t elements, F&& f) {
  if (count == 0) return;
  const std::int64_t rows = rows_of(segments, count) / count + 1;
  const auto work = static_cast<std::int32_t>(min_of<std::int64_t>(rows * elements, 1 << 30));
  parallel_rows(s, count * units, work, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t i = begin; i < end; ++i) f(segments[i / units], i % units);
  });
}

// --- convolution -----------------------------------------------------------------------------------------

template <int K>
inline void conv_channels(const Conv1dParams& p, const Segment& s, std::int32_t c) {
  const int n = p.channels - c;  // at least one, at most kLanes are used
  Wide::Reg u[K], w[K];
  const float* from = state_before(p.state, s, s.pos_begin);
  for (int t = 0; t < K; ++t) w[t] = Wide::load_some(p.weight + std::int64_t{t} * p.channels + c, n);
  for (int t = 0; t + 1 < K; ++t)
    u[t] = from != nullptr ? Wide::load_some(from + std::int64_t{t} * p.channels + c, n) : Wide::zero();
  const Wide::Reg bias = p.bias != nullptr ? Wide::load_some(p.bias + c, n) : Wide::zero();
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t at = (s.row_begin + i) * p.x_stride + c;
    u[K - 1] = Wide::load_some(p.x + at, n);
    if (p.in_gate != nullptr) u[K - 1] = Wide::mul(u[K - 1], Wide::load_some(p.in_gate + at, n));
    Wide::Reg v = bias;
    for (int t = 0; t < K; ++t) v = Wide::fma(u[t], w[t], v);
    if (p.silu) v = Wide::silu(v);
    if (p.out_gate != nullptr) v = Wide::mul(v, Wide::load_some(p.out_gate + at, n));
    Wide::store_some(p.out + (s.row_begin + i) * p.out_stride + c, n, v);
    for (int t = 0; t + 1 < K; ++t) u[t] = u[t + 1];
    if (!leaves_block(p.state, s, s.pos_begin + i)) continue;
    float* to = state_at(p.state, s, s.pos_begin + i);
    for (int t = 0; t + 1 < K; ++t) Wide::store_some(to + std::int64_t{t} * p.channels + c, n, u[t]);
  }
}

inline void run_conv1d(Stream& stream, const Conv1dParams& p) {
  const std::int32_t groups = (p.channels + kLanes - 1) / kLanes;
  for_each_unit(stream, p.segments, p.num_segments, groups, kLanes * 8,
                [&](const Segment& s, std::int32_t unit) {
                  const std::int32_t c = unit * kLanes;
                  if (p.kernel == 2) return conv_channels<2>(p, s, c);
                  if (p.kernel == 3) return conv_channels<3>(p, s, c);
                  conv_channels<4>(p, s, c);
                });
}

// --- gated delta rule ------------------------------------------------------------------------------------

inline void normalise_row(float* x, std::int32_t dim, float scale) {
  Wide::Reg lanes = Wide::zero();
  for (std::int32_t i = 0; i < dim; i += kLanes) {
    const Wide::Reg v = Wide::load_some(x + i, dim - i);
    lanes = Wide::fma(v, v, lanes);
  }
  const Wide::Reg inverse = Wide::set(1.0f / __builtin_sqrtf(Wide::fold(lanes) + 1e-6f));
  const Wide::Reg factor = Wide::set(scale);
  for (std::int32_t i = 0; i < dim; i += kLanes) {
    const Wide::Reg v = Wide::mul(Wide::load_some(x + i, dim - i), inverse);
    Wide::store_some(x + i, dim - i, Wide::mul(v, factor));
  }
}

/// N registers of columns from column c on; the last may be narrower (`tail` columns).
template <int N>
struct Columns {
  std::int32_t tail;
  Wide::Reg load(const float* p, int j) const {
    return j + 1 < N ? Wide::load(p + j * kLanes) : Wide::load_some(p + j * kLanes, tail);
  }
  void store(float* p, int j, Wide::Reg v) const {
    if (j + 1 < N) return Wide::store(p + j * kLanes, v);
    Wide::store_some(p + j * kLanes, tail, v);
  }
};

template <int N>
inline void delta_columns(const DeltaNetParams& p, const Segment& s, std::int32_t h, std::int32_t c,
                          Columns<N> columns) {
  const std::int32_t key_head = p.tiled ? h % p.key_heads : h / (p.value_heads / p.key_heads);
  const std::int64_t keys = std::int64_t{p.key_heads} * p.key_dim;
  const std::int64_t offset = std::int64_t{h} * p.key_dim * p.value_dim + c;
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t row = s.row_begin + i;
    const float* q = p.qkv + row * p.qkv_stride + std::int64_t{key_head} * p.key_dim;
    const float* k = q + keys;
    const float* v = p.qkv + row * p.qkv_stride + 2 * keys + std::int64_t{h} * p.value_dim + c;
    const float decay = exp(p.decay[h] * softplus(p.a[row * p.gate_stride + h] + p.dt_bias[h]));
    const Wide::Reg g = Wide::set(decay);
    const Wide::Reg beta = Wide::set(sigmoid(p.b[row * p.gate_stride + h]));
    float* after = state_at(p.state, s, s.pos_begin + i) + offset;
    const float* before = state_before(p.state, s, s.pos_begin + i);
    if (before != nullptr) {
      before += offset;
    } else {  // zeros: written, then read like any other state
      for (std::int32_t j = 0; j < p.key_dim; ++j) {
        for (int n = 0; n < N; ++n) columns.store(after + std::int64_t{j} * p.value_dim, n, Wide::zero());
      }
      before = after;
    }
    Wide::Reg m[N], e[N], o[N];
    for (int n = 0; n < N; ++n) m[n] = o[n] = Wide::zero();
    for (std::int32_t j = 0; j < p.key_dim; ++j) {
      const Wide::Reg kj = Wide::set(k[j]);
      const float* from = before + std::int64_t{j} * p.value_dim;
      for (int n = 0; n < N; ++n) m[n] = Wide::fma(kj, Wide::mul(columns.load(from, n), g), m[n]);
    }
    for (int n = 0; n < N; ++n) e[n] = Wide::mul(beta, Wide::sub(columns.load(v, n), m[n]));
    for (std::int32_t j = 0; j < p.key_dim; ++j) {
      const Wide::Reg kj = Wide::set(k[j]), qj = Wide::set(q[j]);
      const std::int64_t at = std::int64_t{j} * p.value_dim;
      for (int n = 0; n < N; ++n) {
        const Wide::Reg next = Wide::fma(kj, e[n], Wide::mul(columns.load(before + at, n), g));
        columns.store(after + at, n, next);
        o[n] = Wide::fma(qj, next, o[n]);
      }
    }
    float* out = p.out + (row * p.value_heads + h) * p.value_dim + c;
    for (int n = 0; n < N; ++n) columns.store(out, n, o[n]);
  }
}

/// Calls f with Columns<N> for the `count` columns from an item's first one on, at most kColumns.
template <class F>
inline void with_columns(std::int32_t count, F&& f) {
  if (count > 3 * kLanes) return f(Columns<4>{count - 3 * kLanes});
  if (count > 2 * kLanes) return f(Columns<3>{count - 2 * kLanes});
  if (count > kLanes) return f(Columns<2>{count - kLanes});
  f(Columns<1>{count});
}

inline void run_delta_net(Stream& stream, const DeltaNetParams& p) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(p.key_dim));
  for_each_unit(stream, p.segments, p.num_segments, 2 * p.key_heads, p.key_dim * 4,
                [&](const Segment& s, std::int32_t unit) {
                  for (std::int32_t i = 0; i < s.row_count; ++i)
                    normalise_row(p.qkv + (s.row_begin + i) * p.qkv_stride + std::int64_t{unit} * p.key_dim,
                                  p.key_dim, unit < p.key_heads ? scale : 1.0f);
                });
  const std::int32_t blocks = column_blocks(p.value_dim);
  for_each_unit(stream, p.segments, p.num_segments, p.value_heads * blocks,
                std::int64_t{p.key_dim} * kColumns, [&](const Segment& s, std::int32_t unit) {
                  const std::int32_t c = unit % blocks * kColumns;
                  with_columns(min_of(kColumns, p.value_dim - c),
                               [&](auto columns) { delta_columns(p, s, unit / blocks, c, columns); });
                });
}

// --- Mamba-2 ---------------------------------------------------------------------------------------------

template <int N>
inline void mamba_columns(const Mamba2Params& p, const Segment& s, std::int32_t h, std::int32_t first,
                          Columns<N> columns) {
  const std::int32_t group = h / (p.heads / p.groups);
  const std::int64_t inner = std::int64_t{p.heads} * p.head_dim;
  const std::int64_t offset = std::int64_t{h} * p.state_size * p.head_dim + first;
  const Wide::Reg skip = Wide::set(p.skip[h]);
  for (std::int32_t i = 0; i < s.row_count; ++i) {
    const std::int64_t row = s.row_begin + i;
    const float* x = p.xbc + row * p.xbc_stride + std::int64_t{h} * p.head_dim + first;
    const float* b = p.xbc + row * p.xbc_stride + inner + std::int64_t{group} * p.state_size;
    const float* c = b + std::int64_t{p.groups} * p.state_size;
    const float step = time_step(p, p.dt[row * p.dt_stride + h], h);
    const Wide::Reg d = Wide::set(step), g = Wide::set(exp(p.decay[h] * step));
    float* after = state_at(p.state, s, s.pos_begin + i) + offset;
    const float* before = state_before(p.state, s, s.pos_begin + i);
    const bool zeros = before == nullptr;
    if (!zeros) before += offset;
    Wide::Reg u[N], y[N], xs[N];
    for (int n = 0; n < N; ++n) {
      xs[n] = columns.load(x, n);
      u[n] = Wide::mul(d, xs[n]);
      y[n] = Wide::zero();
    }
    for (std::int32_t j = 0; j < p.state_size; ++j) {
      const Wide::Reg bj = Wide::set(b[j]), cj = Wide::set(c[j]);
      const std::int64_t at = std::int64_t{j} * p.head_dim;
      for (int n = 0; n < N; ++n) {
        const Wide::Reg old = zeros ? Wide::zero() : columns.load(before + at, n);
        const Wide::Reg next = Wide::fma(old, g, Wide::mul(u[n], bj));
        columns.store(after + at, n, next);
        y[n] = Wide::fma(cj, next, y[n]);
      }
    }
    float* out = p.out + (row * p.heads + h) * p.head_dim + first;
    for (int n = 0; n < N; ++n) columns.store(out, n, Wide::fma(skip, xs[n], y[n]));
  }
}

inline void run_mamba2(Stream& stream, const Mamba2Params& p) {
  const std::int32_t blocks = column_blocks(p.head_dim);
  for_each_unit(stream, p.segments, p.num_segments, p.heads * blocks, std::int64_t{p.state_size} * kColumns,
                [&](const Segment& s, std::int32_t unit) {
                  const std::int32_t c = unit % blocks * kColumns;
                  with_columns(min_of(kColumns, p.head_dim - c),
                               [&](auto columns) { mamba_columns(p, s, unit / blocks, c, columns); });
                });
}

// --- gates -----------------------------------------------------------------------------------------------

inline void gated_norm_part(const GatedNormParams& p, std::int32_t r, std::int32_t part) {
  const std::int64_t at = (std::int64_t{r} * p.groups + part) * p.dim;
  const float* x = p.x + at;
  const float* gate = p.gate + r * p.gate_stride + std::int64_t{part} * p.dim;
  const float* weight = p.shared ? p.weight : p.weight + std::int64_t{part} * p.dim;
  const Wide::Reg scale = Wide::set(p.gate_scale);
  const auto s = [&](std::int32_t i) {
    return Wide::silu(Wide::mul(Wide::load_some(gate + i, p.dim - i), scale));
  };
  const auto t = [&](std::int32_t i) {
    const Wide::Reg v = Wide::load_some(x + i, p.dim - i);
    return p.gate_first ? Wide::mul(v, s(i)) : v;
  };
  if (!p.norm) {
    for (std::int32_t i = 0; i < p.dim; i += kLanes) {
      const Wide::Reg v = Wide::mul(Wide::load_some(x + i, p.dim - i), s(i));
      Wide::store_some(p.out + at + i, p.dim - i, Wide::mul(v, Wide::load_some(weight + i, p.dim - i)));
    }
    return;
  }
  Wide::Reg lanes = Wide::zero();
  for (std::int32_t i = 0; i < p.dim; i += kLanes) {
    const Wide::Reg v = t(i);  // a missing lane is a zero, whatever its gate
    lanes = Wide::fma(v, v, lanes);
  }
  const float mean = Wide::fold(lanes) / static_cast<float>(p.dim);
  const Wide::Reg inverse = Wide::set(1.0f / __builtin_sqrtf(mean + p.eps));
  for (std::int32_t i = 0; i < p.dim; i += kLanes) {
    const Wide::Reg y = Wide::mul(Wide::mul(t(i), inverse), Wide::load_some(weight + i, p.dim - i));
    Wide::store_some(p.out + at + i, p.dim - i, p.gate_first ? y : Wide::mul(y, s(i)));
  }
}

inline void run_gated_norm(Stream& stream, const GatedNormParams& p) {
  parallel_rows(stream, p.rows, p.groups * p.dim * 4, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      for (std::int32_t part = 0; part < p.groups; ++part) gated_norm_part(p, r, part);
    }
  });
}

inline void run_sigmoid_mul(Stream& stream, const SigmoidMulParams& p) {
  parallel_rows(stream, p.rows, p.dim * 4, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      const float* x = p.x + std::int64_t{r} * p.dim;
      const float* gate = p.gate + r * p.gate_stride;
      float* out = p.out + std::int64_t{r} * p.dim;
      for (std::int32_t i = 0; i < p.dim; i += kLanes) {
        const Wide::Reg v = Wide::sigmoid(Wide::load_some(gate + i, p.dim - i));
        Wide::store_some(out + i, p.dim - i, Wide::mul(Wide::load_some(x + i, p.dim - i), v));
      }
    }
  });
}

}  // namespace
}  // namespace barg::ops::cpu
