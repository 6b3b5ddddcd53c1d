// A unit of a packed matrix (gemm.h) read number by number. A weight is scale * code (+ minimum) in f32, the product and
// the sum each rounded once: the bits that the CPU computes with.
#pragma once

#include "cuda/gemm.h"
#include "cuda/prelude.cuh"

namespace barg::cuda {

/// What the codes of a row are multiplied by in a step of 16 columns, and what is added.
struct GemmFactor {
  float scale = 1, minimum = 0;
};

template <GemmFormat F>
class GemmUnit {
 public:
  static constexpr int kColumns = gemm_layout(F).columns, kBytes = gemm_layout(F).bytes();
  static constexpr int kCodeWords = gemm_layout(F).code_words;
  static constexpr bool kPlain = kCodeWords == 8;  ///< 16 bits, and no factors

  BARG_DEVICE explicit GemmUnit(const std::byte* unit) : unit_(unit) {}

  /// The codes of a lane: of 16 bits those of a step, four words; of the others those of a block of 32 columns.
  BARG_DEVICE const std::uint32_t* codes(int step, int lane) const {
    return words() + (kPlain ? (step * 32 + lane) * 4 : (step / 2 * 32 + lane) * kCodeWords);
  }
  /// Bits 4 and 5 of a lane's codes of a block.
  BARG_DEVICE std::uint32_t high(int step, int lane) const {
    return F == GemmFormat::kQ6_K ? words()[kHigh + step / 2 * 32 + lane] : 0;
  }
  /// Of a row of the tile.
  BARG_DEVICE GemmFactor factor(int row, int step) const {
    if constexpr (kPlain) return {};
    const int g = row / 2, i = row % 2;
    const std::uint32_t w = words()[kScales + step / 2 * kScaleWords * 8 + g];
    if constexpr (F == GemmFormat::kQ6_K) {
      const auto a = static_cast<std::int8_t>(w >> (8 * i + step % 2 * 16));
      return {half(words()[kSupers + g], i) * static_cast<float>(a), 0};
    } else if constexpr (F == GemmFormat::kQ4_K) {
      const std::uint32_t d = words()[kSupers + row];
      const auto a = static_cast<float>(w >> 8 * i & 255u), b = static_cast<float>(w >> (16 + 8 * i) & 255u);
      return {half(d, 0) * a, -(half(d, 1) * b)};
    } else {
      return {half(w, i), F == GemmFormat::kQ4_1 ? half(words()[kScales + (step / 2 * 2 + 1) * 8 + g], i) : 0};
    }
  }

  /// Register r, half h of a step, from its lane's codes.
  static BARG_DEVICE float number(const GemmFactor& f, const std::uint32_t* codes, std::uint32_t high, int step, int r,
                                  int h) {
    const int s = step % 2;
    if constexpr (F == GemmFormat::kF16) {
      return half(codes[r], h);
    } else if constexpr (F == GemmFormat::kBF16) {
      return bfloat_to_float(static_cast<std::uint16_t>(codes[r] >> 16 * h));
    } else if constexpr (F == GemmFormat::kQ8_0) {
      return f.scale * static_cast<float>(static_cast<std::int8_t>(codes[2 * s + r / 2] >> 8 * (r % 2 + 2 * h)));
    } else {
      int code = static_cast<int>(codes[s] >> (4 * r + 16 * h) & 15u);
      if constexpr (F == GemmFormat::kQ4_0) code -= 8;
      if constexpr (F == GemmFormat::kQ6_K) code += static_cast<int>((high >> (2 * (4 * s + r) + 16 * h) & 3u) << 4) - 32;
      const float product = f.scale * static_cast<float>(code);
      return F == GemmFormat::kQ4_1 || F == GemmFormat::kQ4_K ? product + f.minimum : product;
    }
  }

 private:
  static constexpr int kScaleWords = gemm_layout(F).scale_words;
  static constexpr int kHigh = gemm_layout(F).high_at() / 4;
  static constexpr int kScales = gemm_layout(F).scales_at() / 4;
  static constexpr int kSupers = gemm_layout(F).supers_at() / 4;

  BARG_DEVICE const std::uint32_t* words() const { return reinterpret_cast<const std::uint32_t*>(unit_); }
  static BARG_DEVICE float half(std::uint32_t pair, int i) {
    return half_to_float(static_cast<std::uint16_t>(pair >> 16 * i));
  }

  const std::byte* unit_;
};

}  // namespace barg::cuda
