// linear and gated_linear, recipe f32, AVX-512. The order of operations is in linear_f32.h.
#include "cpu/blocks_avx512.h"
#include "cpu/linear_avx512.h"
// Needs the lanes above.
#include "cpu/linear_f32.h"

namespace barg::ops::cpu {
namespace {

struct Avx512 : Avx512Lanes {
  using Ints = __m512i;
  using F32 = cpu::F32;
  using F16 = cpu::F16;
  using BF16 = cpu::BF16;
  static constexpr bool kPairs = true;  // many rows: 12 x 32
  static constexpr bool kWideQuantised = true;

  /// Rows of a register shape: at most 24 accumulators of 32 registers.
  static constexpr int max_rows(int panels) { return panels <= 2 ? 12 : 6; }

  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  static Ints load_ints(const std::byte* p) { return load_i(p); }

  /// A unit's bytes as they are, or its low (half 0) or high nibbles as quantised numbers.
  template <DType T>
  static Ints bytes(Ints unit, int half) {
    if constexpr (T == DType::kQ8_0) return unit;
    const Ints nibbles =
        _mm512_and_si512(half == 0 ? unit : _mm512_srli_epi16(unit, 4), _mm512_set1_epi8(15));
    return T == DType::kQ4_0 ? _mm512_sub_epi8(nibbles, _mm512_set1_epi8(8)) : nibbles;
  }
  /// Byte i of every lane times 2^24: moved to the top of the lane, which extends the sign for nothing.
  template <DType T>
  static Vec number(Ints bytes, int i) {
    const int at = i << 24 | 0x808080;  // 0x80: a zero
    const Ints top = _mm512_set4_epi32(at | 12 << 24, at | 8 << 24, at | 4 << 24, at);
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(bytes, top));
  }

  // Converted blocks.
  template <DType T>
  static Ints codes(const std::byte* block, int g) {
    const Ints codes = converted_codes<T>(block, g);
    return code_offset(T) == 0 ? codes : _mm512_sub_epi8(codes, _mm512_set1_epi8(code_offset(T)));
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
};

}  // namespace

void linear_f32_avx512(Stream& s, const LinearParams& p) { linear_f32<Avx512>(s, p); }
void gated_f32_avx512(Stream& s, const GatedLinearParams& p) { gated_f32<Avx512>(s, p); }

}  // namespace barg::ops::cpu
