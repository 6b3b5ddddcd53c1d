// Ceilings of the AVX2 kernels: twelve independent chains, so that latency never shows.
#include <immintrin.h>

#include "cpu/limit_loops.h"

namespace barg::ops::cpu {
namespace {

constexpr int kChains = 12;

void f32_loop(std::int64_t rounds) {
  __m256 acc[kChains];
#pragma GCC unroll 12
  for (__m256& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (__m256& a : acc) {
      a = _mm256_fmadd_ps(a, x, x);
      asm volatile("" : "+x"(a));
    }
  }
}

/// What the empty asm hides from the compiler it must compute again.
inline __m256i fresh(__m256i v) {
  asm volatile("" : "+x"(v));
  return v;
}

/// vpmaddubsw that cannot be moved out of a loop: `w` might have changed.
inline __m256i products(__m256i& w, __m256i x) {
  asm volatile("" : "+x"(w));
  return _mm256_maddubs_epi16(w, x);
}

void int8_loop(std::int64_t rounds) {
  constexpr int kInts = 8;
  __m256i acc[kInts];
#pragma GCC unroll 8
  for (__m256i& a : acc) a = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i w = _mm256_set1_epi8(15);
  const __m256i x = _mm256_set1_epi8(-3);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (__m256i& a : acc) {
      a = fresh(_mm256_add_epi32(a, _mm256_madd_epi16(products(w, x), ones)));
    }
  }
}

void int4_loop(std::int64_t rounds) {
  constexpr int kInts = 6;
  __m256i acc[kInts];
#pragma GCC unroll 6
  for (__m256i& a : acc) a = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i w = _mm256_set1_epi8(15);
  const __m256i x = _mm256_set1_epi8(-3);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 6
    for (__m256i& a : acc) {
      __m256i pairs = products(w, x);
#pragma GCC unroll 3
      for (int g = 0; g < 3; ++g) pairs = fresh(_mm256_add_epi16(pairs, products(w, x)));
      a = fresh(_mm256_add_epi32(a, _mm256_madd_epi16(pairs, ones)));
    }
  }
}

}  // namespace

LimitLoops limit_loops_avx2() {
  return {.f32 = {f32_loop, kChains * 8 * 2.0},
          .int8 = {int8_loop, 8 * 32 * 2.0},
          .int4 = {int4_loop, 6 * 4 * 32 * 2.0},
          .bf16 = {}};
}

}  // namespace barg::ops::cpu
