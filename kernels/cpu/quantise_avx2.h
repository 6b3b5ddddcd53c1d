// Activations to Form::kInt8, AVX2: quantise_block of ops_scalar.cpp. Producers (rms_norm, attention,
// gated_linear) call it on what they hold in registers; `linear` on rows. q16 is always written: whoever
// fills the rows does not know how many of them, or which weights, will be multiplied.
//
// Include only from *_avx2.cpp; everything is static for the reason given in avx2.h. Thread rule: threads may
// write different blocks of one row at the same time.
#pragma once

#include <immintrin.h>

#include "cpu/layout.h"
#include "math.h"

namespace barg::ops::cpu {

/// op over the eight lanes of `a`, and over those of `b`, in lanes 0 and 1 of the result. For integers only,
/// whose order is free.
template <class Op>
static inline __m128i fold_both(__m256i a, __m256i b, Op op) {
  const __m128i a4 = op(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  const __m128i b4 = op(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  const __m128i two = op(_mm_unpacklo_epi64(a4, b4), _mm_unpackhi_epi64(a4, b4));
  return _mm_shuffle_epi32(op(two, _mm_shuffle_epi32(two, 0xb1)), 0x08);
}

static inline __m256i quantise_eight(__m256 v, __m256 inverse) {
  __m256 t = _mm256_mul_ps(v, inverse);
  t = _mm256_min_ps(t, _mm256_set1_ps(127.0f));  // NaN gives 127
  t = _mm256_max_ps(t, _mm256_set1_ps(-127.0f));
  return _mm256_cvtps_epi32(t);
}

static inline __m256i larger_magnitude(__m256 a, __m256 b) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  return _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a), magnitude),
                          _mm256_and_si256(_mm256_castps_si256(b), magnitude));
}

/// Block b of `row` from its 32 floats.
static inline void quantise_block(__m256 v0, __m256 v1, __m256 v2, __m256 v3, const QuantisedRows& out,
                                  std::int64_t row, int b) {
  const __m128i max = fold_both(larger_magnitude(v0, v1), larger_magnitude(v2, v3),
                                [](__m128i a, __m128i c) { return _mm_max_epi32(a, c); });
  // Both halves side by side in lanes 0 and 1.
  __m128 d = _mm_div_ps(_mm_castsi128_ps(max), _mm_set1_ps(127.0f));
  __m128 inverse = _mm_div_ps(_mm_set1_ps(1.0f), d);
  const __m128 tiny = _mm_cmplt_ps(d, _mm_set1_ps(1.17549435e-38f));
  d = _mm_andnot_ps(tiny, d);
  inverse = _mm_andnot_ps(tiny, inverse);
  const __m256 inverse0 = _mm256_broadcastss_ps(inverse);
  const __m256 inverse1 = _mm256_broadcastss_ps(_mm_movehdup_ps(inverse));
  const __m256i q0 = quantise_eight(v0, inverse0);
  const __m256i q1 = quantise_eight(v1, inverse0);
  const __m256i q2 = quantise_eight(v2, inverse1);
  const __m256i q3 = quantise_eight(v3, inverse1);
  const __m128i sum = fold_both(_mm256_add_epi32(q0, q1), _mm256_add_epi32(q2, q3),
                                [](__m128i a, __m128i c) { return _mm_add_epi32(a, c); });
  // The packs work on 128-bit halves; the permutations put the elements back in order.
  const __m256i low = _mm256_permute4x64_epi64(_mm256_packs_epi32(q0, q1), 0xd8);
  const __m256i high = _mm256_permute4x64_epi64(_mm256_packs_epi32(q2, q3), 0xd8);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
  const std::int64_t at = row * out.k + std::int64_t{b} * kQuantBlock;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + at), bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q16 + at), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q16 + at + kHalfBlock), high);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.scale + out.half(row, b)), _mm_castps_si128(d));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.sum + out.half(row, b)), sum);
  const __m128 s = _mm_cvtepi32_ps(sum);
  const __m128 scaled = _mm_fmadd_ss(_mm_movehdup_ps(d), _mm_movehdup_ps(s), _mm_mul_ss(d, s));
  _mm_store_ss(out.scaled_sum + out.block(row, b), scaled);
}

static inline void quantise_row(const float* x, const QuantisedRows& out, std::int64_t row) {
  for (int b = 0; b < out.k / kQuantBlock; ++b, x += kQuantBlock) {
    quantise_block(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                   _mm256_loadu_ps(x + 24), out, row, b);
  }
}

}  // namespace barg::ops::cpu
