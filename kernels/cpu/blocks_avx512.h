// Converted blocks of a panel (blocks.h), sixteen columns at a time. Include only from *_avx512.cpp.
//
// `block` is the block's first word of the first column: word i of the sixteen columns lies at block + 64 i.
//
// Everything is in an unnamed namespace, for the reason given in avx512.h. Thread rule: pure functions.
#pragma once

#include "cpu/avx512.h"

namespace barg::ops::cpu {
namespace {

inline __m512i block_word(const std::byte* block, int i) { return load_i(block + i * kPanel * 4); }

/// Elements 4g .. 4g + 3 of each column: signed bytes, or unsigned ones of which code_offset() is still to be
/// taken off (blocks.h, signed_codes). Of kFP8 as stored.
template <DType T>
[[gnu::always_inline]] inline __m512i converted_codes(const std::byte* block, int g) {
  constexpr int kFirst = header_words(T);
  const auto bits = [&](int word, int to) __attribute__((always_inline)) {
    const __m512i ones =
        _mm512_and_si512(_mm512_srli_epi32(block_word(block, kFirst + word), g), _mm512_set1_epi8(1));
    return _mm512_slli_epi32(ones, to);
  };
  if constexpr (T == DType::kS8Per16 || T == DType::kS8Min || T == DType::kFP8) {
    return block_word(block, kFirst + g);
  } else if constexpr (T == DType::kU2MinPer16 || T == DType::kS3Per16) {
    const __m512i pairs = _mm512_and_si512(_mm512_srli_epi32(block_word(block, kFirst + g / 4), g % 4 * 2),
                                           _mm512_set1_epi8(3));
    return T == DType::kS3Per16 ? _mm512_or_si512(pairs, bits(2, 2)) : pairs;
  } else {
    const __m512i nibbles = _mm512_and_si512(_mm512_srli_epi32(block_word(block, kFirst + g % 4), g / 4 * 4),
                                             _mm512_set1_epi8(15));
    if constexpr (T == DType::kU4Min) return nibbles;
    if constexpr (T == DType::kU5Min) return _mm512_or_si512(nibbles, bits(4, 4));
    const auto* table = reinterpret_cast<const __m128i*>(T == DType::kIQ4 ? kIQ4Table : kFP4Table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table)), nibbles);
  }
}

/// The f16 in the lower half of every lane.
inline __m512 low_halves(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }

/// Byte `at` of every lane.
inline __m512 lane_byte(__m512i words, int at) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(words, 8 * at), _mm512_set1_epi32(255)));
}

template <DType T>
inline __m512 converted_scales(const std::byte* block, int half) {
  if constexpr (T == DType::kU2MinPer16)
    return _mm512_mul_ps(low_halves(block_word(block, 0)), lane_byte(block_word(block, 1), half));
  return _mm512_castsi512_ps(block_word(block, per_16(T) ? half : 0));
}

template <DType T>
inline __m512 converted_minima(const std::byte* block, int half) {
  if constexpr (T == DType::kU2MinPer16) {
    const __m512 m = low_halves(_mm512_srli_epi32(block_word(block, 0), 16));
    return _mm512_xor_ps(_mm512_mul_ps(m, lane_byte(block_word(block, 1), 2 + half)), _mm512_set1_ps(-0.0f));
  }
  return _mm512_castsi512_ps(block_word(block, 1));
}

/// Byte i of every lane of converted_codes as a number.
template <DType T>
[[gnu::always_inline]] inline __m512 converted_number(__m512i codes, int i) {
  const __m512i top = _mm512_slli_epi32(codes, 24 - 8 * i);
  if constexpr (T == DType::kFP8) {
    // The bits of a f32 whose exponent is 120 too small. Exact, also of what is below e4m3's normal range.
    const __m512i magnitude = _mm512_and_si512(_mm512_srli_epi32(top, 4), _mm512_set1_epi32(0x07f00000));
    const __m512i sign = _mm512_and_si512(top, _mm512_set1_epi32(INT32_MIN));
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(magnitude, sign)),
                         _mm512_castsi512_ps(_mm512_set1_epi32((127 + 120) << 23)));
  }
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
}

}  // namespace
}  // namespace barg::ops::cpu
