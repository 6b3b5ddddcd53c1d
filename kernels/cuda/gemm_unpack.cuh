// From the packed units of gemm.h back to rows of 16-bit numbers, for a library's matrix product over many rows of x: each
// weight is scale * code (+ minimum) in f32, rounded once more to 16 bits. A thread makes eight numbers of a row.
#pragma once

#include "cuda/gemm.h"
#include "cuda/prelude.cuh"

namespace barg::cuda {

struct GemmUnpackArgs {
  const std::byte* weight;  ///< packed
  std::int32_t n, k;        ///< as in GemmArgs
  std::uint16_t* rows;  ///< [n, k]; 16-byte aligned, k a multiple of 8
};

inline constexpr int kGemmUnpackThreads = 128;

/// Blocks of a launch.
constexpr std::int32_t gemm_unpack_grid(GemmFormat f, std::int32_t n, std::int32_t k) {
  return gemm_tiles(n, false) * gemm_layout(f).units(k);
}

template <GemmFormat F, Half T>
class GemmUnpack {
 public:
  static constexpr int kColumns = gemm_layout(F).columns, kBytes = gemm_layout(F).bytes();

  /// Columns 8 chunk .. 8 chunk + 7 of the row in the unit.
  BARG_DEVICE GemmUnpack(const std::byte* unit, int row, int chunk)
      : unit_(unit), row_(row), step_(chunk / 2), r_(row % 2 + chunk % 2 * 2) {
    if constexpr (kCodeWords != 8) load_scale();
  }

  BARG_DEVICE Vec16 numbers() const {
    Vec16 v;
    BARG_UNROLL
    for (int t = 0; t < 4; ++t) {
      const int lane = row_ / 2 * 4 + t;
      if constexpr (kCodeWords == 8) {
        v.x[t] = word((step_ * 32 + lane) * 4 + r_);
      } else {
        v.x[t] = pack2<T>(weight(lane, 0), weight(lane, 1));
      }
    }
    return v;
  }

 private:
  static constexpr int kCodeWords = gemm_layout(F).code_words, kScaleWords = gemm_layout(F).scale_words;
  static constexpr int kHigh = gemm_layout(F).high_at() / 4;
  static constexpr int kScales = gemm_layout(F).scales_at() / 4;
  static constexpr int kSupers = gemm_layout(F).supers_at() / 4;

  BARG_DEVICE std::uint32_t word(int i) const { return reinterpret_cast<const std::uint32_t*>(unit_)[i]; }
  static BARG_DEVICE float half(std::uint32_t pair, int i) {
    return half_to_float(static_cast<std::uint16_t>(pair >> 16 * i));
  }

  BARG_DEVICE void load_scale() {
    const int g = row_ / 2, i = row_ % 2;
    const std::uint32_t w = word(kScales + step_ / 2 * kScaleWords * 8 + g);
    if constexpr (F == GemmFormat::kQ6_K) {
      scale_ = half(word(kSupers + g), i) * static_cast<float>(static_cast<std::int8_t>(w >> (8 * i + step_ % 2 * 16)));
    } else if constexpr (F == GemmFormat::kQ4_K) {
      const std::uint32_t d = word(kSupers + row_);
      scale_ = half(d, 0) * static_cast<float>(w >> 8 * i & 255u);
      minimum_ = -(half(d, 1) * static_cast<float>(w >> (16 + 8 * i) & 255u));
    } else {
      scale_ = half(w, i);
      if constexpr (F == GemmFormat::kQ4_1) minimum_ = half(word(kScales + (step_ / 2 * 2 + 1) * 8 + g), i);
    }
  }

  BARG_DEVICE float weight(int lane, int h) const {
    if constexpr (F == GemmFormat::kQ8_0) {
      const std::uint32_t w = word((step_ / 2 * 32 + lane) * 4 + step_ % 2 * 2 + r_ / 2);
      return scale_ * static_cast<float>(static_cast<std::int8_t>(w >> 8 * (r_ % 2 + 2 * h)));
    } else {
      int code = static_cast<int>(word((step_ / 2 * 32 + lane) * 2 + step_ % 2) >> (4 * r_ + 16 * h) & 15u);
      if constexpr (F == GemmFormat::kQ4_0) code -= 8;
      if constexpr (F == GemmFormat::kQ6_K) {
        const std::uint32_t high = word(kHigh + step_ / 2 * 32 + lane) >> (2 * (step_ % 2 * 4 + r_) + 16 * h) & 3u;
        code += static_cast<int>(high << 4) - 32;
      }
      const float product = scale_ * static_cast<float>(code);
      return F == GemmFormat::kQ4_1 || F == GemmFormat::kQ4_K ? product + minimum_ : product;
    }
  }

  const std::byte* unit_;
  int row_, step_, r_;
  float scale_ = 0, minimum_ = 0;
};

template <GemmFormat F, Half T>
BARG_KERNEL gemm_unpack_kernel(GemmUnpackArgs p) {
  constexpr int kColumns = GemmUnpack<F, T>::kColumns, kBytes = GemmUnpack<F, T>::kBytes;
  const int units = (p.k + kColumns - 1) / kColumns, tile = block_x() / units, unit = block_x() % units;
  const std::byte* const from = p.weight + static_cast<std::int64_t>(block_x()) * kBytes;
  for (int i = thread_id(); i < kGemmTileRows * kColumns / 8; i += kGemmUnpackThreads) {
    const int row = i % kGemmTileRows, chunk = i / kGemmTileRows, column = unit * kColumns + 8 * chunk;
    const int to = tile * kGemmTileRows + row;
    if (to >= p.n || column >= p.k) continue;
    store16(p.rows + static_cast<std::int64_t>(to) * p.k + column, GemmUnpack<F, T>(from, row, chunk).numbers());
  }
}

}  // namespace barg::cuda
