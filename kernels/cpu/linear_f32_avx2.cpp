// linear and gated_linear, recipe f32, AVX2. The order of operations is in linear_f32.h.
#include "cpu/avx2.h"
#include "cpu/blocks_avx2.h"
#include "cpu/linear_f32.h"
#include "cpu/quantise_avx2.h"

namespace barg::ops::cpu {
namespace {

struct Avx2 {
  using Vec = __m256;
  using Ints = __m256i;
  using F32 = cpu::F32;
  using F16 = cpu::F16;
  using BF16 = cpu::BF16;
  static constexpr int kWidth = 8;
  static constexpr bool kPairs = false;          // many rows: 6 x 16
  static constexpr bool kWideQuantised = false;  // scales and units of four panels do not fit

  /// Rows of a register shape: at most 12 accumulators of 16 registers.
  static constexpr int max_rows(int panels) { return panels == 1 ? 6 : panels == 2 ? 3 : 1; }

  static Vec load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec set1(float x) { return _mm256_set1_ps(x); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  static Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec silu(Vec x) { return silu8(x); }
  static Vec gelu_tanh(Vec x) { return gelu_tanh8(x); }
  static Vec gelu_erf(Vec x) { return gelu_erf8(x); }
  static float largest(Vec v) { return max8(v); }
  static bool any_nan(Vec v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
  static void pin(Vec& v) { asm volatile("" : "+x"(v)); }
  static Ints load_ints(const std::byte* p) { return load_i(p); }

  /// A unit's bytes as they are, or its low (half 0) or high nibbles as quantised numbers.
  template <DType T>
  static Ints bytes(Ints unit, int half) {
    if constexpr (T == DType::kQ8_0) return unit;
    const Ints nibbles =
        _mm256_and_si256(half == 0 ? unit : _mm256_srli_epi16(unit, 4), _mm256_set1_epi8(15));
    return T == DType::kQ4_0 ? _mm256_sub_epi8(nibbles, _mm256_set1_epi8(8)) : nibbles;
  }
  /// Byte i of every lane times 2^24: moved to the top of the lane, which extends the sign for nothing.
  template <DType T>
  static Vec number(Ints bytes, int i) {
    const int at = i << 24 | 0x808080;  // 0x80: a zero
    const Ints top = _mm256_setr_epi32(at, at | 4 << 24, at | 8 << 24, at | 12 << 24, at, at | 4 << 24,
                                       at | 8 << 24, at | 12 << 24);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, top));
  }

  // Converted blocks.
  template <DType T>
  static Ints codes(const std::byte* block, int g) {
    const Ints codes = converted_codes<T>(block, g);
    return code_offset(T) == 0 ? codes : _mm256_sub_epi8(codes, _mm256_set1_epi8(code_offset(T)));
  }
  template <DType T>
  static Vec code(Ints codes, int i) {
    return converted_number<T>(codes, i);
  }
  template <DType T>
  static Vec scales(const std::byte* block, int half) {
    return converted_scales<T>(block, half);
  }
  template <DType T>
  static Vec minima(const std::byte* block, int half) {
    return converted_minima<T>(block, half);
  }

  static void quantise(const Vec* v, const QuantisedRows& out, std::int64_t row, int b) {
    quantise_block(v[0], v[1], v[2], v[3], out, row, b);
  }
};

}  // namespace

void linear_f32_avx2(Stream& s, const LinearParams& p) { linear_f32<Avx2>(s, p); }
void gated_f32_avx2(Stream& s, const GatedLinearParams& p) { gated_f32<Avx2>(s, p); }

}  // namespace barg::ops::cpu
