// gumbel_filter with AVX2: 32 ids at a time, counters in 64-bit lanes so that the halves of each product stay
// where the next round wants them. Same hits as philox_scalar.cpp.
#include <immintrin.h>

#include "cpu/philox.h"

namespace barg::ops::cpu {
namespace {

/// Four counters as vpmuludq likes them: the low half of every lane counts, the high half is rubbish.
struct State {
  __m256i c0, c1, c2, c3;
};

/// Lane order 0 2 1 3: unpacking the words then gives ids in order.
inline State start(std::uint32_t counter, __m256i position, __m256i choice) {
  const __m256i lanes = _mm256_setr_epi64x(0, 2, 1, 3);
  return {_mm256_add_epi64(_mm256_set1_epi64x(counter), lanes), position, choice, _mm256_setzero_si256()};
}

inline void round_of(State& s, __m256i m0, __m256i m1, __m256i k0, __m256i k1) {
  const __m256i p0 = _mm256_mul_epu32(s.c0, m0);
  const __m256i p1 = _mm256_mul_epu32(s.c2, m1);
  s.c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(s.c1, k0));
  s.c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(s.c3, k1));
  s.c1 = p1;
  s.c3 = p0;
}

/// Hits among 8 ids.
inline std::uint32_t hits_of(__m256i words, const float* x, __m256 max, __m256 slope, __m256 offset) {
  const __m256 level = _mm256_cvtepi32_ps(_mm256_srli_epi32(words, 8));
  const __m256 bits = _mm256_cvtepi32_ps(_mm256_castps_si256(level));
  const __m256 bar = _mm256_fmadd_ps(_mm256_sub_ps(_mm256_loadu_ps(x), max), slope, offset);
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(bits, bar, _CMP_LE_OQ)));
}

inline std::uint32_t hits_of(const State& s, const float* x, __m256 max, __m256 slope, __m256 offset) {
  constexpr int kHigh = 0xAA;
  const __m256i w01 = _mm256_blend_epi32(s.c0, _mm256_slli_epi64(s.c1, 32), kHigh);
  const __m256i w23 = _mm256_blend_epi32(s.c2, _mm256_slli_epi64(s.c3, 32), kHigh);
  return hits_of(_mm256_unpacklo_epi64(w01, w23), x, max, slope, offset) |
         hits_of(_mm256_unpackhi_epi64(w01, w23), x + 8, max, slope, offset) << 8;
}

}  // namespace

std::int32_t gumbel_filter_avx2(const GumbelFilterParams& p) {
  const __m256i m0 = _mm256_set1_epi64x(kPhiloxM0), m1 = _mm256_set1_epi64x(kPhiloxM1);
  const __m256i position = _mm256_set1_epi64x(p.position), choice = _mm256_set1_epi64x(p.choice);
  const __m256 max = _mm256_set1_ps(p.max), slope = _mm256_set1_ps(p.slope);
  const __m256 offset = _mm256_set1_ps(p.offset);
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < 2 * p.num_blocks; ++i) {
    const std::int32_t begin = p.blocks[i / 2] * kBlockMax + i % 2 * 32;
    if (begin + 32 > p.dim) {
      count += gumbel_filter_ids(p, begin, p.dim, p.hits + count);
      continue;
    }
    // Two independent chains hide the latency of the products.
    const auto counter = static_cast<std::uint32_t>(begin) / 4;
    State a = start(counter, position, choice);
    State b = start(counter + 4, position, choice);
    auto k0 = static_cast<std::uint32_t>(p.seed);
    auto k1 = static_cast<std::uint32_t>(p.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m256i v0 = _mm256_set1_epi64x(k0), v1 = _mm256_set1_epi64x(k1);
      round_of(a, m0, m1, v0, v1);
      round_of(b, m0, m1, v0, v1);
      k0 += kPhiloxK0;
      k1 += kPhiloxK1;
    }
    const float* x = p.x + begin;
    std::uint32_t mask = hits_of(a, x, max, slope, offset);
    mask |= hits_of(b, x + 16, max, slope, offset) << 16;
    for (; mask != 0; mask &= mask - 1) p.hits[count++] = begin + __builtin_ctz(mask);
  }
  return count;
}

}  // namespace barg::ops::cpu
