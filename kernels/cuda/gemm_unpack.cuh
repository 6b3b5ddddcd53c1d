// From the packed units of gemm.h back to rows of 16-bit numbers, for a library's matrix product over many rows of x: each
// weight of gemm_unit.cuh is rounded once more to 16 bits. A thread makes eight numbers of a row.
#pragma once

#include "cuda/gemm_unit.cuh"

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

/// Columns 8 chunk .. 8 chunk + 7 of a row of the unit.
template <GemmFormat F, Half T>
BARG_DEVICE Vec16 gemm_unpacked(const GemmUnit<F>& unit, int row, int chunk) {
  const int step = chunk / 2, r = row % 2 + chunk % 2 * 2;
  const GemmFactor factor = unit.factor(row, step);
  Vec16 v;
  BARG_UNROLL
  for (int t = 0; t < 4; ++t) {
    const int lane = row / 2 * 4 + t;
    const std::uint32_t* const codes = unit.codes(step, lane);
    if constexpr (GemmUnit<F>::kPlain) {
      v.x[t] = codes[r];
    } else {
      const std::uint32_t high = unit.high(step, lane);
      v.x[t] = pack2<T>(unit.number(factor, codes, high, step, r, 0), unit.number(factor, codes, high, step, r, 1));
    }
  }
  return v;
}

template <GemmFormat F, Half T>
BARG_KERNEL gemm_unpack_kernel(GemmUnpackArgs p) {
  constexpr int kColumns = GemmUnit<F>::kColumns;
  const int units = (p.k + kColumns - 1) / kColumns, tile = block_x() / units, unit = block_x() % units;
  const GemmUnit<F> from(p.weight + static_cast<std::int64_t>(block_x()) * GemmUnit<F>::kBytes);
  for (int i = thread_id(); i < kGemmTileRows * kColumns / 8; i += kGemmUnpackThreads) {
    const int row = i % kGemmTileRows, chunk = i / kGemmTileRows, column = unit * kColumns + 8 * chunk;
    const int to = tile * kGemmTileRows + row;
    if (to >= p.n || column >= p.k) continue;
    store16(p.rows + static_cast<std::int64_t>(to) * p.k + column, gemm_unpacked<F, T>(from, row, chunk));
  }
}

}  // namespace barg::cuda
