// Walking over the blocks of a recurrent state (ops.h, StateView). Everything is static: see math.h.
#pragma once

#include "ops.h"

namespace barg::ops::cpu {

static inline float* state_block(const StateView& v, BlockId block) {
  return reinterpret_cast<float*>(v.base + static_cast<std::int64_t>(block) * v.block_stride);
}

/// What the token at position p writes.
static inline float* state_at(const StateView& v, const Segment& s, std::int32_t p) {
  return state_block(v, s.block_table[p / v.block_tokens]);
}

/// What it reads; nullptr: zeros.
static inline const float* state_before(const StateView& v, const Segment& s, std::int32_t p) {
  return p == 0 ? nullptr : state_at(v, s, p - 1);
}

/// The token at position p is the last that writes its block in this call.
static inline bool leaves_block(const StateView& v, const Segment& s, std::int32_t p) {
  return (p + 1) % v.block_tokens == 0 || p + 1 == s.pos_begin + s.row_count;
}

static inline std::int32_t rows_of(const Segment* segments, std::int32_t count) {
  std::int32_t rows = 0;
  for (std::int32_t i = 0; i < count; ++i) rows += segments[i].row_count;
  return rows;
}

/// Of Mamba-2's step: dt behind its bias, positive and within its limits.
static inline float time_step(const Mamba2Params& p, float raw, std::int32_t head) {
  const float d = softplus(fma(raw, p.dt_scale, p.dt_bias[head]));
  const float low = d < p.dt_min ? p.dt_min : d;
  return low > p.dt_max ? p.dt_max : low;
}

}  // namespace barg::ops::cpu
