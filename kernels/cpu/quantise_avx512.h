// Activations to Form::kInt8, AVX-512: quantise_block of ops_scalar.cpp with 16 floats, half a block, a
// register. Producers (rms_norm, attention, gated_linear) call it on what they hold in registers; `linear` on
// rows. q16 is left unused.
//
// Include only from *_avx512.cpp; everything is static for the reason given in avx2.h. Thread rule: threads
// may write different blocks of one row at the same time.
#pragma once

#include <immintrin.h>

#include "cpu/layout.h"
#include "math.h"

namespace barg::ops::cpu {

/// op over the 16 lanes of `a`, and over those of `b`, in lanes 0 and 1 of the result. For integers only,
/// whose order is free.
template <class Op>
static inline __m128i fold_both(__m512i a, __m512i b, Op op) {
  const __m512i eight = op(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  const __m512i four = op(eight, _mm512_shuffle_i64x2(eight, eight, 0xb1));
  const __m128i pairs = _mm_unpacklo_epi64(_mm512_castsi512_si128(four), _mm512_extracti32x4_epi32(four, 2));
  const __m128i other = _mm_unpackhi_epi64(_mm512_castsi512_si128(four), _mm512_extracti32x4_epi32(four, 2));
  const __m512i two = op(_mm512_castsi128_si512(pairs), _mm512_castsi128_si512(other));
  const __m512i one = op(two, _mm512_shuffle_epi32(two, static_cast<_MM_PERM_ENUM>(0xb1)));
  return _mm_shuffle_epi32(_mm512_castsi512_si128(one), 0x08);
}

static inline __m512i quantise_half(__m512 v, __m512 inverse) {
  __m512 t = _mm512_mul_ps(v, inverse);
  t = _mm512_min_ps(t, _mm512_set1_ps(127.0f));  // NaN gives 127
  t = _mm512_max_ps(t, _mm512_set1_ps(-127.0f));
  return _mm512_cvtps_epi32(t);
}

/// Block b of `row` from its 32 floats.
static inline void quantise_block(__m512 v0, __m512 v1, const QuantisedRows& out, std::int64_t row, int b) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m128i max = fold_both(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
                                _mm512_and_si512(_mm512_castps_si512(v1), magnitude),
                                [](__m512i a, __m512i c) { return _mm512_max_epi32(a, c); });
  // Both halves side by side in lanes 0 and 1.
  __m128 d = _mm_div_ps(_mm_castsi128_ps(max), _mm_set1_ps(127.0f));
  __m128 inverse = _mm_div_ps(_mm_set1_ps(1.0f), d);
  const __m128 tiny = _mm_cmplt_ps(d, _mm_set1_ps(1.17549435e-38f));
  d = _mm_andnot_ps(tiny, d);
  inverse = _mm_andnot_ps(tiny, inverse);
  const __m512i q0 = quantise_half(v0, _mm512_broadcastss_ps(inverse));
  const __m512i q1 = quantise_half(v1, _mm512_broadcastss_ps(_mm_movehdup_ps(inverse)));
  const __m128i sum = fold_both(q0, q1, [](__m512i a, __m512i c) { return _mm512_add_epi32(a, c); });
  auto* bytes = reinterpret_cast<__m128i*>(out.q + row * out.k + std::int64_t{b} * kQuantBlock);
  _mm_storeu_si128(bytes, _mm512_cvtepi32_epi8(q0));
  _mm_storeu_si128(bytes + 1, _mm512_cvtepi32_epi8(q1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.scale + out.half(row, b)), _mm_castps_si128(d));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.sum + out.half(row, b)), sum);
  const __m128 s = _mm_cvtepi32_ps(sum);
  const __m128 scaled = _mm_fmadd_ss(_mm_movehdup_ps(d), _mm_movehdup_ps(s), _mm_mul_ss(d, s));
  _mm_store_ss(out.scaled_sum + out.block(row, b), scaled);
}

static inline void quantise_row(const float* x, const QuantisedRows& out, std::int64_t row) {
  for (int b = 0; b < out.k / kQuantBlock; ++b) {
    quantise_block(_mm512_loadu_ps(x + b * kQuantBlock), _mm512_loadu_ps(x + b * kQuantBlock + kHalfBlock),
                   out, row, b);
  }
}

}  // namespace barg::ops::cpu
