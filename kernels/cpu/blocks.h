// Converted blocks (ops.h): their geometry, and what scale, minimum and code of an element are. This is the
// specification; vector code reads the same numbers eight or sixteen columns at a time.
//
// A block is seen as words of 32 bits through a callable, because a row of the file's matrix has them side by
// side and a panel 16 apart.
//
// Everything here is static: see math.h. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "math.h"
#include "ops.h"

namespace barg::ops::cpu {

/// Each half of a block has a scale of its own.
static constexpr bool per_16(DType t) {
  return t == DType::kS8Per16 || t == DType::kU2MinPer16 || t == DType::kS3Per16 || t == DType::kFP4Per16;
}

static constexpr bool has_minimum(DType t) {
  return t == DType::kQ4_1 || t == DType::kS8Min || t == DType::kU5Min || t == DType::kU4Min ||
         t == DType::kU2MinPer16;
}

/// Codes that vector code has as signed bytes; the others are unsigned and below 32, less code_offset().
static constexpr bool signed_codes(DType t) {
  return t == DType::kQ8_0 || t == DType::kS8Per16 || t == DType::kS8Min || t == DType::kIQ4 ||
         t == DType::kFP4 || t == DType::kFP4Per16;
}

static constexpr int code_offset(DType t) { return t == DType::kQ4_0 ? 8 : t == DType::kS3Per16 ? 4 : 0; }

/// Of a converted block: before its codes.
static constexpr int header_words(DType t) { return per_16(t) || has_minimum(t) ? 2 : 1; }

static constexpr int block_words(DType t) { return static_cast<int>(block_bytes(t) / 4); }

static constexpr std::int32_t table_code(DType t, unsigned nibble) {
  return t == DType::kIQ4 ? kIQ4Table[nibble] : kFP4Table[nibble];
}

/// The integer code of element e. REQUIRES t != kFP8.
template <class Word>
static inline int converted_code(DType t, const Word& word, int e) {
  const int first = header_words(t);
  const auto byte = [&](int w, int at) { return word(first + w) >> (8 * at) & 255u; };
  const auto nibble = [&] { return byte(e % 16 / 4, e % 4) >> (e < 16 ? 0 : 4) & 15u; };
  switch (t) {
    case DType::kS8Per16:
    case DType::kS8Min:
      return static_cast<std::int8_t>(byte(e / 4, e % 4));
    case DType::kU4Min:
      return static_cast<int>(nibble());
    case DType::kU5Min:
      return static_cast<int>(nibble() | (byte(4, e % 4) >> (e / 4) & 1u) << 4);
    case DType::kIQ4:
    case DType::kFP4:
    case DType::kFP4Per16:
      return table_code(t, nibble());
    default:
      break;
  }
  const unsigned pair = byte(e / 16, e % 4) >> (e / 4 % 4 * 2) & 3u;
  if (t == DType::kU2MinPer16) return static_cast<int>(pair);
  return static_cast<int>(pair | (byte(2, e % 4) >> (e / 4) & 1u) << 2) - code_offset(t);
}

template <class Word>
static inline float converted_scale(DType t, const Word& word, int half) {
  if (t == DType::kU2MinPer16) {
    return f16_to_f32(static_cast<std::uint16_t>(word(0))) * static_cast<float>(word(1) >> (8 * half) & 255u);
  }
  return bits_float(word(per_16(t) ? half : 0));
}

/// REQUIRES has_minimum(t).
template <class Word>
static inline float converted_minimum(DType t, const Word& word, int half) {
  if (t != DType::kU2MinPer16) return bits_float(word(1));
  const float m = f16_to_f32(static_cast<std::uint16_t>(word(0) >> 16));
  return -(m * static_cast<float>(word(1) >> (16 + 8 * half) & 255u));
}

template <class Word>
static inline float converted_weight(DType t, const Word& word, int e) {
  const float scale = converted_scale(t, word, e / 16);
  if (t == DType::kFP8) {
    const std::uint32_t codes = word(1 + e / 4);
    return scale * (f8_to_f32_256th(static_cast<std::uint8_t>(codes >> (8 * (e % 4)))) * 256.0f);
  }
  const float product = scale * static_cast<float>(converted_code(t, word, e));
  return has_minimum(t) ? product + converted_minimum(t, word, e / 16) : product;
}

/// A row's words.
struct RowWords {
  const std::byte* block;
  std::uint32_t operator()(int i) const {
    std::uint32_t v;
    __builtin_memcpy(&v, block + i * 4, sizeof(v));
    return v;
  }
};

/// A column's words in a panel of 16.
struct PanelWords {
  const std::byte* block;
  int column;
  std::uint32_t operator()(int i) const {
    std::uint32_t v;
    __builtin_memcpy(&v, block + (i * 16 + column) * 4, sizeof(v));
    return v;
  }
};

}  // namespace barg::ops::cpu
