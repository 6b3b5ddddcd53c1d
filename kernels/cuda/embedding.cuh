// Rows of the embedding table, dequantised: out[r, i] = table[id of r, i] * scale. The table is a matrix as the GEMM
// has it, so that one that is the output layer too lies in memory once. A number has the bits that the CPU computes with.
//
// Four threads take a block of 32 columns of a row, each from what one lane of the tensor cores would read, which holds two
// rows: whole sectors are read, and neighbours write whole sectors.
#pragma once

#include "cuda/gemm_unit.cuh"

namespace barg::cuda {

struct EmbedArgs {
  const std::byte* weight;      ///< [V, H], packed (gemm.h); 16-byte aligned
  std::int32_t n, k;            ///< V; H: a multiple of 8
  const std::int32_t* ids;      ///< [R]: an id, or -1 - i for previous[i]
  const std::int32_t* previous; ///< ids that an earlier launch chose, or nullptr where no id is negative
  std::int32_t rows;            ///< R
  float scale;
  float* out;  ///< [R, H], 8-byte aligned. What is no id in [0, V), as where nothing could be chosen, gives zeros
};

inline constexpr int kEmbedThreads = 128;
inline constexpr int kEmbedTile = 8 * kEmbedThreads;  ///< numbers of a row that a block takes

BARG_DEVICE constexpr LaunchShape embed_launch(int rows, int dim) {
  return {.grid_x = rows, .grid_y = (dim + kEmbedTile - 1) / kEmbedTile, .threads = kEmbedThreads};
}

template <GemmFormat F>
class EmbedRow {
 public:
  BARG_DEVICE explicit EmbedRow(const EmbedArgs& p) : p_(p) {}

  /// Columns 32 block + 8 j + 2 t and + 1, j = 0 .. 3, of row `row`.
  BARG_DEVICE void run(int row, int block, int t) const {
    float y[8] = {};
    const int id = find(row);
    if (id >= 0 && id < p_.n) read(id, block, t, y);
    BARG_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int column = 32 * block + 8 * j + 2 * t;
      if (column >= p_.k) return;
      const float scale = seeded("embed.scale", p_.scale);
      store8(p_.out + static_cast<std::int64_t>(row) * p_.k + column,
             {{float_bits(y[2 * j] * scale), float_bits(y[2 * j + 1] * scale)}});
    }
  }

 private:
  using Unit = GemmUnit<F>;

  BARG_DEVICE int find(int row) const {
    const int id = p_.ids[row];
    return seeded("embed.id", id < 0 ? p_.previous[-1 - id] : id);
  }

  BARG_DEVICE void read(int id, int block, int t, float (&y)[8]) const {
    constexpr int kBlocks = Unit::kColumns / 32;
    const int units = (p_.k + Unit::kColumns - 1) / Unit::kColumns;
    const std::int64_t at = static_cast<std::int64_t>(id / kGemmTileRows) * units + block / kBlocks;
    const Unit unit(p_.weight + at * Unit::kBytes);
    const int row = id % kGemmTileRows, lane = seeded("embed.lane", row / 2 * 4 + t);
    const int step = 2 * (block % kBlocks);
    Vec16 codes = codes_of(unit.codes(step, lane));
    const std::uint32_t high = unit.high(step, lane);
    BARG_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (Unit::kPlain && s == 1) codes = codes_of(unit.codes(step + 1, lane));
      const GemmFactor factor = unit.factor(row, step + s);
      BARG_UNROLL
      for (int i = 0; i < 4; ++i)
        y[4 * s + i] = Unit::number(factor, codes.x, high, step + s, row % 2 + i / 2 * 2, i % 2);
    }
  }

  static BARG_DEVICE Vec16 codes_of(const std::uint32_t* words) {
    if constexpr (Unit::kCodeWords == 2) {
      const Vec8 v = load8(words);
      return {{v.x[0], v.x[1], 0, 0}};
    } else {
      return load16(words);
    }
  }

  const EmbedArgs& p_;
};

template <GemmFormat F>
BARG_KERNEL embed_kernel(EmbedArgs p) {
  const int at = block_y() * kEmbedThreads + thread_id();
  if (block_x() < p.rows && at / 4 * 32 < p.k) EmbedRow<F>(p).run(block_x(), at / 4, at % 4);
}

}  // namespace barg::cuda
