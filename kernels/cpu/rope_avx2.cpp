// Rotation and the KV write, AVX2. `rotate` and `rope_kv_write` in ops_scalar.cpp are the specification.
#include "cpu/avx2.h"

namespace barg::ops::cpu {
namespace {

void rotate(float* x, const float* cos, const float* sin, std::int32_t half) {
  std::int32_t i = 0;
  for (; i + 8 <= half; i += 8) {
    const __m256 a = _mm256_loadu_ps(x + i);
    const __m256 b = _mm256_loadu_ps(x + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i);
    const __m256 s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(x + half + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

/// Eight floats to 16 bits, round to nearest even.
template <DType T>
inline __m128i narrow(__m256 v) {
  if constexpr (T == DType::kF16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i out = _mm256_blendv_epi8(rounded, quiet, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}

template <DType T>
void store_kv(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* k, const float* v) {
  std::byte* values = plane + kv.v_offset;
  for (std::int32_t d = 0; d < kv.head_dim; d += 8) {
    const __m256 k8 = _mm256_loadu_ps(k + d);
    const __m256 v8 = _mm256_loadu_ps(v + d);
    const std::int64_t at = std::int64_t{d} * kv.block_tokens + slot;
    if constexpr (T == DType::kF32) {
      float* out = reinterpret_cast<float*>(plane) + at;
      for (int i = 0; i < 8; ++i) out[i * kv.block_tokens] = k[d + i];
      _mm256_storeu_ps(reinterpret_cast<float*>(values) + slot * kv.head_dim + d, v8);
    } else {
      alignas(16) std::uint16_t half[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(half), narrow<T>(k8));
      auto* out = reinterpret_cast<std::uint16_t*>(plane) + at;
      for (int i = 0; i < 8; ++i) out[i * kv.block_tokens] = half[i];
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(reinterpret_cast<std::uint16_t*>(values) + slot * kv.head_dim + d),
          narrow<T>(v8));
    }
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
    const float* v = p.v + row * p.kv_stride + std::int64_t{h} * kv.head_dim;
    rotate(k, cos, sin, half);
    std::byte* plane = kv_plane(kv, block, h);
    if (kv.dtype == DType::kF32) store_kv<DType::kF32>(kv, plane, slot, k, v);
    if (kv.dtype == DType::kF16) store_kv<DType::kF16>(kv, plane, slot, k, v);
    if (kv.dtype == DType::kBF16) store_kv<DType::kBF16>(kv, plane, slot, k, v);
  }
}

}  // namespace

void rope_kv_write_avx2(Stream& s, const RopeKvParams& p) {
  const std::int32_t per_row = (p.num_q_heads + 2 * p.kv.num_kv_heads) * p.kv.head_dim;
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    const Segment& segment = p.segments[i];
    parallel_rows(s, segment.row_count, per_row, [&](std::int32_t begin, std::int32_t end) {
      for (std::int32_t r = begin; r < end; ++r) rope_row(p, segment, r);
    });
  }
}

}  // namespace barg::ops::cpu
