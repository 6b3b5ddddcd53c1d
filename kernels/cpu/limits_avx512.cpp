// Ceilings of the AVX-512 kernels: sixteen independent chains, so that latency never shows.
#include <immintrin.h>

#include "cpu/limit_loops.h"

namespace barg::ops::cpu {
namespace {

constexpr int kChains = 16;

void f32_loop(std::int64_t rounds) {
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (__m512& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& a : acc) {
      a = _mm512_fmadd_ps(a, x, x);
      asm volatile("" : "+v"(a));
    }
  }
}

void int8_loop(std::int64_t rounds) {
  __m512i acc[kChains];
#pragma GCC unroll 16
  for (__m512i& a : acc) a = _mm512_setzero_si512();
  const __m512i w = _mm512_set1_epi8(15);
  const __m512i x = _mm512_set1_epi8(-3);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512i& a : acc) {
      a = _mm512_dpbusd_epi32(a, w, x);
      asm volatile("" : "+v"(a));
    }
  }
}

__attribute__((target("avx512bf16"))) void bf16_loop(std::int64_t rounds) {
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (__m512& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3c00);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512& a : acc) {
      a = _mm512_dpbf16_ps(a, x, x);
      asm volatile("" : "+v"(a));
    }
  }
}

}  // namespace

LimitLoops limit_loops_avx512() {
  const LimitLoop int8{int8_loop, kChains * 64 * 2.0};
  LimitLoops loops{.f32 = {f32_loop, kChains * 16 * 2.0}, .int8 = int8, .int4 = int8, .bf16 = {}};
  if (__builtin_cpu_supports("avx512bf16")) loops.bf16 = {bf16_loop, kChains * 32 * 2.0};
  return loops;
}

}  // namespace barg::ops::cpu
