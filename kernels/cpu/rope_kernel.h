// Rotation and the KV write, written once for the vector back ends over Wide (avx2.h, avx512.h). `rotate` and
// `rope_kv_write` in ops_scalar.cpp are the specification.
//
// Include from one translation unit of each instruction set, after its Wide; everything is in an unnamed
// namespace for the reason given there. Thread rule: rows are independent, threads take ranges of them.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"

namespace barg::ops::cpu {
namespace {

void rotate(float* x, const float* cos, const float* sin, std::int32_t half) {
  for (std::int32_t i = 0; i < half; i += 16) {
    const int n = half - i;
    const Wide::Reg a = Wide::load_some(x + i, n);
    const Wide::Reg b = Wide::load_some(x + half + i, n);
    const Wide::Reg c = Wide::load_some(cos + i, n);
    const Wide::Reg s = Wide::load_some(sin + i, n);
    Wide::store_some(x + i, n, Wide::sub(Wide::mul(a, c), Wide::mul(b, s)));
    Wide::store_some(x + half + i, n, Wide::add(Wide::mul(b, c), Wide::mul(a, s)));
  }
}

/// `count` elements of k down a column of the K plane, and of v along a row of the V plane.
template <class T>
inline void put(const T* k, const T* v, std::int32_t count, T* column, std::int32_t stride, T* row) {
  for (std::int32_t i = 0; i < count; ++i) column[std::int64_t{i} * stride] = k[i];
  if (count == 16) {
    __builtin_memcpy(row, v, 16 * sizeof(T));
  } else {
    for (std::int32_t i = 0; i < count; ++i) row[i] = v[i];
  }
}

/// The codes of x, element d at codes[d * stride], and their scale.
void store_codes(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* x, std::byte* codes,
                 std::int32_t stride) {
  std::uint32_t max_bits = 0;
  for (std::int32_t d = 0; d < kv.head_dim; d += 16) {
    const std::uint32_t bits = Wide::max_magnitude(Wide::load_some(x + d, kv.head_dim - d));
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const TokenScale scale = token_scale(kv.dtype, max_bits);
  __builtin_memcpy(plane + scales_offset(kv) + slot * 4, &scale.scale, 4);
  for (std::int32_t d = 0; d < kv.head_dim; d += 16) {
    const std::int32_t count = min_of(16, kv.head_dim - d);
    alignas(16) std::uint8_t some[16] = {};
    if (scale.inverse != 0.0f) {
      const Wide::Reg wide = Wide::load_some(x + d, count);
      if (kv.dtype == DType::kF8E4M3) {
        Wide::store_f8(some, wide, scale.inverse);
      } else {
        Wide::store_i8(some, wide, scale.inverse);
      }
    }
    for (std::int32_t i = 0; i < count; ++i)
      codes[std::int64_t{d + i} * stride] = static_cast<std::byte>(some[i]);
  }
}

void store_kv(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* k, const float* v) {
  if (has_token_scales(kv.dtype)) {
    std::byte* const values = plane + kv.v_offset;
    store_codes(kv, plane, slot, k, plane + slot, kv.block_tokens);
    return store_codes(kv, values, slot, v, values + std::int64_t{slot} * kv.head_dim, 1);
  }
  const std::int32_t tokens = kv.block_tokens;
  std::byte* values = plane + kv.v_offset;
  for (std::int32_t d = 0; d < kv.head_dim; d += 16) {
    const std::int32_t count = min_of(16, kv.head_dim - d);
    const std::int64_t k_at = std::int64_t{d} * tokens + slot;
    const std::int64_t v_at = std::int64_t{slot} * kv.head_dim + d;
    if (kv.dtype == DType::kF32) {
      put(k + d, v + d, count, reinterpret_cast<float*>(plane) + k_at, tokens,
          reinterpret_cast<float*>(values) + v_at);
      continue;
    }
    alignas(64) std::uint16_t half[2][16];
    const Wide::Reg wide[2] = {Wide::load_some(k + d, count), Wide::load_some(v + d, count)};
    for (int i = 0; i < 2; ++i) {
      if (kv.dtype == DType::kF16) {
        Wide::store_f16(half[i], wide[i]);
      } else {
        Wide::store_bf16(half[i], wide[i]);
      }
    }
    put(half[0], half[1], count, reinterpret_cast<std::uint16_t*>(plane) + k_at, tokens,
        reinterpret_cast<std::uint16_t*>(values) + v_at);
  }
}

void rope_row(const RopeKvParams& p, const Segment& segment, std::int32_t i) {
  const KvLayerView& kv = p.kv;
  const std::int64_t row = segment.row_begin + i;
  const std::int32_t position = segment.pos_begin + i;
  const BlockId block = segment.block_table[position / kv.block_tokens];
  const std::int32_t slot = position % kv.block_tokens;
  const std::int32_t half = p.rotary_dim / 2;
  const float* cos = p.cos + row * half;
  const float* sin = p.sin + row * half;
  for (std::int32_t h = 0; h < p.num_q_heads; ++h) {
    rotate(p.q + row * p.q_stride + std::int64_t{h} * kv.head_dim, cos, sin, half);
  }
  for (std::int32_t h = 0; h < kv.num_kv_heads; ++h) {
    float* k = p.k + row * p.kv_stride + std::int64_t{h} * kv.head_dim;
    rotate(k, cos, sin, half);
    store_kv(kv, kv_plane(kv, block, h), slot, k, p.v + row * p.kv_stride + std::int64_t{h} * kv.head_dim);
  }
}

/// Ranges of all rows, whatever segments they belong to.
void run_rope(Stream& stream, const RopeKvParams& p) {
  std::int32_t rows = 0;
  for (std::int32_t i = 0; i < p.num_segments; ++i) rows += p.segments[i].row_count;
  const std::int32_t per_row = (p.num_q_heads + 2 * p.kv.num_kv_heads) * p.kv.head_dim;
  parallel_rows(stream, rows, per_row, [&](std::int32_t begin, std::int32_t end) {
    std::int32_t before = 0;  // rows of earlier segments
    for (std::int32_t i = 0; i < p.num_segments && before < end; ++i) {
      const Segment& segment = p.segments[i];
      const std::int32_t last = min_of(segment.row_count, end - before);
      for (std::int32_t r = begin > before ? begin - before : 0; r < last; ++r) rope_row(p, segment, r);
      before += segment.row_count;
    }
  });
}

}  // namespace
}  // namespace barg::ops::cpu
