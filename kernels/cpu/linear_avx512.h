// The lanes of linear_items.h on AVX-512, for every recipe. Include only from linear_*_avx512*.cpp.
#pragma once

#include "cpu/avx512.h"
#include "cpu/quantise_avx512.h"

namespace barg::ops::cpu {
namespace {

struct Avx512Lanes {
  using Vec = __m512;
  static constexpr int kWidth = 16;

  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec set1(float x) { return _mm512_set1_ps(x); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec silu(Vec x) { return silu16(x); }
  static Vec gelu_tanh(Vec x) { return gelu_tanh16(x); }
  static Vec gelu_erf(Vec x) { return gelu_erf16(x); }
  static float largest(Vec v) { return max16(v); }
  static bool any_nan(Vec v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  static void pin(Vec& v) { asm volatile("" : "+v"(v)); }

  static void quantise(const Vec* v, const QuantisedRows& out, std::int64_t row, int b) {
    quantise_block(v[0], v[1], out, row, b);
  }
};

}  // namespace
}  // namespace barg::ops::cpu
