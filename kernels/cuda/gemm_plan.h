// What a GEMM launch looks like: which tile a block takes, how the columns are cut into slices and whether blocks share
// these out. Host only, pure, any thread. The slices follow from the matrix alone; all else changes no bit of the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cuda/gemm.cuh"

namespace barg::cuda {

/// Of the tiles in gemm.cuh.
enum class GemmTile : std::uint8_t { kNarrow, kMiddle, kWide };

/// What there is a kernel for, by its name in files ("Q4_K"); nothing for other types.
inline std::optional<GemmFormat> gemm_format(std::string_view name) {
  for (const GemmFormat f : {GemmFormat::kF16, GemmFormat::kBF16, GemmFormat::kQ8_0, GemmFormat::kQ4_0, GemmFormat::kQ4_1,
                             GemmFormat::kQ4_K, GemmFormat::kQ6_K}) {
    if (name == gemm_layout(f).name) return f;
  }
  return std::nullopt;
}

/// Why a matrix [n, k] of the type of that name cannot be multiplied with activations of 16 bits; empty: it can.
inline std::string gemm_refusal(std::string_view name, Half activations, std::int64_t n, std::int64_t k) {
  const std::string what = "weights of type " + std::string(name);
  const std::optional<GemmFormat> format = gemm_format(name);
  if (!format) return what + " have no CUDA kernel; there are F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K and Q6_K";
  const bool f16 = activations == Half::kF16;
  if (*format == (f16 ? GemmFormat::kBF16 : GemmFormat::kF16)) {
    return what + " are not multiplied with activations in " + (f16 ? "f16" : "bf16") + ", only with their own type";
  }
  const std::int64_t multiple = std::max(gemm_layout(*format).block, 8);
  if (n < 1 || k < 1 || n > (1 << 24) || k > (1 << 24) || k % multiple != 0) {
    return what + " with " + std::to_string(n) + " rows of " + std::to_string(k) +
           " numbers: there must be 1 to 16777216 of both, " + "and rows of a multiple of " + std::to_string(multiple);
  }
  return {};
}

/// The most rows, a multiple of 16, whose file bytes fit a staging buffer; 0: not even 16 do. REQUIRES a k not refused.
constexpr std::int64_t gemm_staging_rows(GemmFormat f, std::int32_t k, std::int64_t bytes) {
  return bytes / (std::int64_t{k} / gemm_layout(f).block * gemm_layout(f).block_bytes) / kGemmTileRows * kGemmTileRows;
}

struct GemmPlanParams {
  GemmFormat format;
  std::int32_t n, k;  ///< not refused
  bool gated;
  std::int32_t rows;     ///< of x, at least 1
  std::int32_t workers;  ///< multiprocessors
};

struct GemmPlan {
  GemmTile tile{};
  GemmWork work{};
  std::int32_t grid = 0;
  std::int32_t counters = 0;
  std::int64_t partial_bytes = 0;
};

namespace gemm {
struct TileSize {
  std::int32_t tiles, cols;  ///< of W, of 16 rows; rows of x
};
constexpr TileSize tile_size(GemmTile t) {
  switch (t) {
    case GemmTile::kNarrow: return {4, 8};
    case GemmTile::kMiddle: return {4, 64};
    case GemmTile::kWide: return {8, 128};
  }
  return {};
}
constexpr std::int32_t blocks(std::int32_t n, std::int32_t size) { return (n + size - 1) / size; }
}  // namespace gemm

/// Slices of a matrix: with one row of x about 264 blocks of 64 matrix rows, two for each multiprocessor of the largest
/// cards, in slices of at least 256 columns. Part of the numerics: a change here is a new kernel epoch.
constexpr std::int32_t gemm_slices(GemmFormat f, std::int32_t n, std::int32_t k, bool gated) {
  constexpr std::int32_t kBlocks = 264, kMost = 8, kLeastColumns = 256;
  const std::int32_t row_blocks = gemm::blocks(gemm_tiles(n, gated), 4);
  const std::int32_t wanted = (kBlocks + row_blocks / 2) / row_blocks;
  const std::int32_t most = std::min(kMost, gemm_layout(f).units(k) * gemm_layout(f).columns / kLeastColumns);
  return std::max(1, std::min(wanted, most));
}

/// A plan with this tile; `shared_out` only where there is more than one slice.
constexpr GemmPlan plan_gemm(const GemmPlanParams& p, GemmTile tile, bool shared_out) {
  const gemm::TileSize size = gemm::tile_size(tile);
  GemmPlan plan;
  plan.tile = tile;
  GemmWork& w = plan.work;
  w.tiles = gemm_tiles(p.n, p.gated);
  w.units = gemm_layout(p.format).units(p.k);
  w.row_blocks = gemm::blocks(w.tiles, size.tiles);
  w.col_blocks = gemm::blocks(p.rows, size.cols);
  w.slices = gemm_slices(p.format, p.n, p.k, p.gated);
  w.shared_out = shared_out && w.slices > 1;
  const std::int32_t places = w.row_blocks * w.col_blocks;
  plan.grid = w.shared_out ? places * w.slices : places;
  if (w.shared_out) plan.counters = places;
  if (w.slices > 1) {
    plan.partial_bytes = std::int64_t{plan.grid} * size.tiles * kGemmTileRows * size.cols * std::int64_t{sizeof(float)};
  }
  return plan;
}

/// With few rows of x, slices go to blocks of their own where that keeps more multiprocessors busy: up to two small blocks
/// each, or half of one large block.
constexpr GemmPlan plan_gemm(const GemmPlanParams& p) {
  const GemmTile tile = p.rows <= 8 ? GemmTile::kNarrow : p.rows <= 64 ? GemmTile::kMiddle : GemmTile::kWide;
  const gemm::TileSize size = gemm::tile_size(tile);
  const std::int32_t places = gemm::blocks(gemm_tiles(p.n, p.gated), size.tiles) * gemm::blocks(p.rows, size.cols);
  return plan_gemm(p, tile, tile == GemmTile::kWide ? 2 * places <= p.workers : places < 2 * p.workers);
}

/// Scratch of a product with up to p.rows rows of x. Not that of p.rows: blocks share slices out for some number of rows
/// and no longer for a larger one, so that fewer rows may need more.
struct GemmScratch {
  std::int64_t partial_bytes = 0;
  std::int64_t counters = 0;  ///< with those of whatever is fused with the product
};
constexpr GemmScratch gemm_scratch(GemmPlanParams p);

// What comes behind a product in the same launch (GemmNorm, GemmRope). It spares a launch, about 1.3 us of a graph and 2.5 us
// of a small kernel, but one block does the whole of a row (its rows one after another, a row a warp), or of a head. So with
// many rows it takes longer than a kernel of its own; `*_pays` says up to where it does not, on an H200, before that has
// been measured.

/// Whether there is a kernel for it.
constexpr bool gemm_has_behind(const GemmPlan& plan) { return gemm::tile_size(plan.tile).cols <= kGemmBehindRows; }
constexpr std::int32_t gemm_norm_counters(const GemmPlan& plan) { return plan.work.col_blocks; }
constexpr std::int32_t gemm_rope_counters(const GemmPlan& plan, std::int32_t num_q_heads, std::int32_t num_kv_heads) {
  return (num_q_heads + num_kv_heads) * plan.work.col_blocks;
}

constexpr GemmScratch gemm_scratch(GemmPlanParams p) {
  constexpr std::int32_t kLeastHead = 64;
  GemmScratch most;
  const std::int32_t all = p.rows;
  const auto take = [&](std::int32_t rows) {
    p.rows = std::min(rows, all);
    const GemmPlan plan = plan_gemm(p);
    const std::int64_t behind = gemm_has_behind(plan) ? std::int64_t{p.n / kLeastHead + 1} * plan.work.col_blocks : 0;
    most.partial_bytes = std::max(most.partial_bytes, plan.partial_bytes);
    most.counters = std::max(most.counters, plan.counters + behind);
  };
  for (const GemmTile tile : {GemmTile::kNarrow, GemmTile::kMiddle}) take(gemm::tile_size(tile).cols);
  const std::int32_t step = gemm::tile_size(GemmTile::kWide).cols;
  for (std::int32_t rows = 0; rows < all; rows += step) take(rows + step);
  return most;
}

namespace gemm {
/// Rows that a warp of the last block takes.
constexpr std::int32_t turns(std::int32_t rows) { return blocks(rows, rows <= 8 ? 2 : 4); }
}  // namespace gemm

/// A row of n numbers takes about (n + 1024) / 4096 us.
constexpr bool gemm_norm_pays(std::int32_t rows, std::int32_t n) {
  return rows <= kGemmBehindRows && gemm::turns(rows) * (std::int64_t{n} + 1024) <= 15565;  // 3.8 us
}
/// A row of a head takes about 0.8 us.
constexpr bool gemm_rope_pays(std::int32_t rows) { return rows <= kGemmBehindRows && 8 * gemm::turns(rows) <= 38; }

/// f.operator()<Shape>() with the GemmShape of a format, type of activations and tile; false: there is no kernel for it.
template <class Function>
bool with_gemm_shape(GemmFormat format, Half type, GemmTile tile, const Function& f) {
  const auto tiled = [&]<GemmFormat F, Half T>() {
    switch (tile) {
      case GemmTile::kNarrow: f.template operator()<NarrowGemm<F, T>>(); break;
      case GemmTile::kMiddle: f.template operator()<MiddleGemm<F, T>>(); break;
      case GemmTile::kWide: f.template operator()<WideGemm<F, T>>(); break;
    }
    return true;
  };
  const auto typed = [&]<GemmFormat F>() {
    return type == Half::kF16 ? tiled.template operator()<F, Half::kF16>() : tiled.template operator()<F, Half::kBF16>();
  };
  switch (format) {
    case GemmFormat::kF16: return type == Half::kF16 && tiled.template operator()<GemmFormat::kF16, Half::kF16>();
    case GemmFormat::kBF16: return type == Half::kBF16 && tiled.template operator()<GemmFormat::kBF16, Half::kBF16>();
    case GemmFormat::kQ8_0: return typed.template operator()<GemmFormat::kQ8_0>();
    case GemmFormat::kQ4_0: return typed.template operator()<GemmFormat::kQ4_0>();
    case GemmFormat::kQ4_1: return typed.template operator()<GemmFormat::kQ4_1>();
    case GemmFormat::kQ4_K: return typed.template operator()<GemmFormat::kQ4_K>();
    case GemmFormat::kQ6_K: return typed.template operator()<GemmFormat::kQ6_K>();
  }
  return false;
}

}  // namespace barg::cuda
