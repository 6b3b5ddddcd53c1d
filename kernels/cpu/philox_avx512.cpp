// gumbel_filter with AVX-512: 32 ids at a time, counters in 64-bit lanes so that the halves of each product
// stay where the next round wants them. Same hits as philox_scalar.cpp.
#include <immintrin.h>

#include "cpu/philox.h"

namespace barg::ops::cpu {
namespace {

/// Eight counters as vpmuludq likes them: the low half of every lane counts, the high half is rubbish.
struct State {
  __m512i c0, c1, c2, c3;
};

/// Counter 4i of lane order 0 4 1 5 2 6 3 7: unpacking the words then gives ids in order.
inline State start(std::uint32_t counter, __m512i position, __m512i choice) {
  const __m512i lanes = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  return {_mm512_add_epi64(_mm512_set1_epi64(counter), lanes), position, choice, _mm512_setzero_si512()};
}

inline void round_of(State& s, __m512i m0, __m512i m1, __m512i k0, __m512i k1) {
  const __m512i p0 = _mm512_mul_epu32(s.c0, m0);
  const __m512i p1 = _mm512_mul_epu32(s.c2, m1);
  s.c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), s.c1, k0, 0x96);
  s.c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), s.c3, k1, 0x96);
  s.c1 = p1;
  s.c3 = p0;
}

/// Hits among 16 ids.
inline __mmask16 hits_of(__m512i words, const float* x, __m512 max, __m512 slope, __m512 offset) {
  const __m512 level = _mm512_cvtepi32_ps(_mm512_srli_epi32(words, 8));
  const __m512 bits = _mm512_cvtepi32_ps(_mm512_castps_si512(level));
  const __m512 bar = _mm512_fmadd_ps(_mm512_sub_ps(_mm512_loadu_ps(x), max), slope, offset);
  return _mm512_cmp_ps_mask(bits, bar, _CMP_LE_OQ);
}

inline std::uint32_t hits_of(const State& s, const float* x, __m512 max, __m512 slope, __m512 offset) {
  constexpr __mmask16 kHigh = 0xAAAA;
  const __m512i w01 = _mm512_mask_mov_epi32(s.c0, kHigh, _mm512_slli_epi64(s.c1, 32));
  const __m512i w23 = _mm512_mask_mov_epi32(s.c2, kHigh, _mm512_slli_epi64(s.c3, 32));
  const std::uint32_t low = hits_of(_mm512_unpacklo_epi64(w01, w23), x, max, slope, offset);
  const std::uint32_t high = hits_of(_mm512_unpackhi_epi64(w01, w23), x + 16, max, slope, offset);
  return low | high << 16;
}

}  // namespace

std::int32_t gumbel_filter_avx512(const GumbelFilterParams& p) {
  const __m512i m0 = _mm512_set1_epi64(kPhiloxM0), m1 = _mm512_set1_epi64(kPhiloxM1);
  const __m512i position = _mm512_set1_epi64(p.position), choice = _mm512_set1_epi64(p.choice);
  const __m512 max = _mm512_set1_ps(p.max), slope = _mm512_set1_ps(p.slope);
  const __m512 offset = _mm512_set1_ps(p.offset);
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < p.num_blocks; ++i) {
    const std::int32_t begin = p.blocks[i] * kBlockMax;
    if (begin + kBlockMax > p.dim) {
      count += gumbel_filter_ids(p, begin, p.dim, p.hits + count);
      continue;
    }
    // Two independent chains hide the latency of the products.
    const auto counter = static_cast<std::uint32_t>(begin) / 4;
    State a = start(counter, position, choice);
    State b = start(counter + 8, position, choice);
    auto k0 = static_cast<std::uint32_t>(p.seed);
    auto k1 = static_cast<std::uint32_t>(p.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m512i v0 = _mm512_set1_epi64(k0), v1 = _mm512_set1_epi64(k1);
      round_of(a, m0, m1, v0, v1);
      round_of(b, m0, m1, v0, v1);
      k0 += kPhiloxK0;
      k1 += kPhiloxK1;
    }
    const float* x = p.x + begin;
    std::uint64_t mask = hits_of(a, x, max, slope, offset);
    mask |= static_cast<std::uint64_t>(hits_of(b, x + 32, max, slope, offset)) << 32;
    for (; mask != 0; mask &= mask - 1) p.hits[count++] = begin + __builtin_ctzll(mask);
  }
  return count;
}

}  // namespace barg::ops::cpu
