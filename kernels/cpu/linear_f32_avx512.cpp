// linear and gated_linear, recipe f32, AVX-512. The order of operations is in linear_f32.h.
#include "cpu/avx512.h"
#include "cpu/linear_f32.h"
#include "cpu/quantise_avx512.h"

namespace barg::ops::cpu {
namespace {

struct Avx512 {
  using Vec = __m512;
  using Ints = __m512i;
  using F32 = cpu::F32;
  using F16 = cpu::F16;
  using BF16 = cpu::BF16;
  static constexpr int kWidth = 16;
  static constexpr bool kPairs = true;  // many rows: 12 x 32

  /// Rows of a register shape: at most 24 accumulators of 32 registers.
  static constexpr int max_rows(int panels) { return panels <= 2 ? 12 : 6; }

  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec set1(float x) { return _mm512_set1_ps(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec silu(Vec x) { return silu16(x); }
  static float largest(Vec v) { return max16(v); }
  static bool any_nan(Vec v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
  static void pin(Vec& v) { asm volatile("" : "+v"(v)); }
  static Ints load_ints(const std::byte* p) { return load_i(p); }

  /// Byte i of every lane, or its low (half 0) or high nibble, as a quantised number.
  template <DType T>
  static Vec number(Ints unit, int i, int half) {
    if constexpr (T == DType::kQ8_0) {
      return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(unit, 24 - 8 * i), 24));
    } else {  // the permutation looks at the low four bits of a lane
      constexpr float kZero = T == DType::kQ4_0 ? 8.0f : 0.0f;
      const Vec table = _mm512_setr_ps(0 - kZero, 1 - kZero, 2 - kZero, 3 - kZero, 4 - kZero, 5 - kZero, 6 - kZero,
                                       7 - kZero, 8 - kZero, 9 - kZero, 10 - kZero, 11 - kZero, 12 - kZero,
                                       13 - kZero, 14 - kZero, 15 - kZero);
      return _mm512_permutexvar_ps(_mm512_srli_epi32(unit, 8 * i + 4 * half), table);
    }
  }

  static void quantise(const Vec* v, const QuantisedRows& out, std::int64_t row, int b) {
    quantise_block(v[0], v[1], out, row, b);
  }
};

}  // namespace

void linear_f32_avx512(Stream& s, const LinearParams& p) { linear_f32<Avx512>(s, p); }
void gated_f32_avx512(Stream& s, const GatedLinearParams& p) { gated_f32<Avx512>(s, p); }

}  // namespace barg::ops::cpu
