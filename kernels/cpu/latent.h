// Latent attention: geometry and the KV write, in plain operations of math.h, shared by all instruction sets.
//
// A block's plane: [tokens][dim] elements, and of fp8 and int8 then [tokens] f32 scales of c (the first value_dim
// numbers), [tokens] f32 scales of k_pe (the rest).
//
// Everything is static: see math.h. Thread rule: pure functions.
#pragma once

#include "cpu/layout.h"

namespace barg::ops::cpu {

/// What one slot of a partial result holds for 16 heads: max, sum, and value_dim accumulators of each.
inline constexpr int kLatentHeads = 16;
inline constexpr int kLatentSlots = 96;

static constexpr std::size_t latent_slot_floats(std::int32_t value_dim) {
  return static_cast<std::size_t>(value_dim + 2) * kLatentHeads;
}

/// Scales of part 0 (c) or 1 (k_pe) of a block's plane.
static inline std::byte* latent_scales(const KvLayerView& kv, std::byte* plane, int part) {
  return plane + scales_offset(kv) + std::int64_t{part} * kv.block_tokens * 4;
}

static inline std::uint8_t latent_code(DType type, float x, float inverse) {
  if (inverse == 0.0f) return 0;
  const float limit = code_limit(type);
  float t = x * inverse;
  t = t < limit ? t : limit;
  t = t > -limit ? t : -limit;
  if (type == DType::kF8E4M3) return f32_to_f8(t);
  return static_cast<std::uint8_t>(static_cast<std::int8_t>((t + math::kRound) - math::kRound));
}

/// Numbers [from, from + count) of the token in `slot`, and the scale of that part where they are codes.
static inline void store_latent(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* x,
                                std::int32_t from, std::int32_t count) {
  std::byte* to = plane + (std::int64_t{slot} * kv.head_dim + from) *
                              static_cast<std::int64_t>(element_bytes(kv.dtype));
  if (kv.dtype == DType::kF32) {
    __builtin_memcpy(to, x, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  if (!has_token_scales(kv.dtype)) {
    for (std::int32_t i = 0; i < count; ++i) {
      const std::uint16_t h = kv.dtype == DType::kF16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
      __builtin_memcpy(to + 2 * i, &h, 2);
    }
    return;
  }
  std::uint32_t max_bits = 0;  // magnitudes compare like integers, and a NaN is above them all
  for (std::int32_t i = 0; i < count; ++i) {
    const std::uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const TokenScale scale = token_scale(kv.dtype, max_bits);
  __builtin_memcpy(latent_scales(kv, plane, from > 0 ? 1 : 0) + slot * 4, &scale.scale, 4);
  for (std::int32_t i = 0; i < count; ++i)
    to[i] = static_cast<std::byte>(latent_code(kv.dtype, x[i], scale.inverse));
}

/// Pairs (i, i + half) or (2i, 2i + 1): a' = a cos - b sin, b' = b cos + a sin, both products rounded. The result
/// has its pairs at (i, i + half) either way: queries and keys agree.
static inline void rotate_latent(const float* x, const float* cos, const float* sin, std::int32_t half,
                                 bool interleaved, float* out) {
  for (std::int32_t i = 0; i < half; ++i) {
    const float a = interleaved ? x[2 * i] : x[i];
    const float b = interleaved ? x[2 * i + 1] : x[i + half];
    out[i] = a * cos[i] - b * sin[i];
    out[i + half] = b * cos[i] + a * sin[i];
  }
}

static inline void latent_row(const LatentWriteParams& p, const Segment& segment, std::int32_t i) {
  const KvLayerView& kv = p.kv;
  const std::int64_t row = segment.row_begin + i;
  const std::int32_t position = segment.pos_begin + i;
  const std::int32_t slot = position % kv.block_tokens;
  const std::int32_t half = p.rotary_dim / 2;
  const std::int32_t value_dim = kv.head_dim - p.rotary_dim;
  const float* cos = p.cos + row * half;
  const float* sin = p.sin + row * half;
  for (std::int32_t h = 0; h < p.num_q_heads; ++h) {
    rotate_latent(p.q_pe + row * p.q_stride + h * p.q_head_stride, cos, sin, half, p.interleaved,
                  p.query + (row * p.num_q_heads + h) * kv.head_dim + value_dim);
  }
  float k_pe[kMaxLatentDim];
  rotate_latent(p.k_pe + row * p.pe_stride, cos, sin, half, p.interleaved, k_pe);
  std::byte* plane = kv_plane(kv, segment.block_table[position / kv.block_tokens], 0);
  store_latent(kv, plane, slot, p.c + row * p.c_stride, 0, value_dim);
  store_latent(kv, plane, slot, k_pe, value_dim, p.rotary_dim);
}

}  // namespace barg::ops::cpu
