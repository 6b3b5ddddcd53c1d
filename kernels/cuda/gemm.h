// The CUDA GEMM as its callers see it: out = x W^T (+ bias), for every number of rows by one family of kernels (gemm.cuh).
// What formats of weights there are, how a packed matrix lies in the device's memory, parameters. Plain data and constant
// functions; any thread, host and device, every compiler.
//
// Numerics. x has 16 bits, sums are f32, and no weight is rounded: f16 and bf16 are multiplied as they are, and of the
// others the integer codes, which 16 bits hold exactly:
//
//   sum of 32 columns:   dot = sum_k code[k] x[k], in two steps of 16 (Q6_K: each step by itself), by the tensor cores
//   of a slice:          acc = fma(scale, dot, acc), then for Q4_1 and Q4_K acc = fma(minimum, sum_k x[k], acc); 16-bit
//                        weights: the tensor cores go on adding to acc
//   of the row:          total = acc of the first slice; total = total + acc of the next, in order
//   Q4_K: scale = d * a and minimum = -(dmin * b) with the six bits a and b of 32 columns; Q6_K: scale = d * a, of 16. Both
//   are exact in f32.
//
// Slices are runs of columns that follow from the matrix alone (gemm_plan.h), so a row of the result depends on that row of
// x and on the matrix: not on the other rows, their number, the tile that a block takes, or who computes which slice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kv_layout.h"
#include "cuda/rope_kv.h"
#include "ops.h"

namespace barg::cuda {

/// What a file stores.
enum class GemmFormat : std::uint8_t { kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K };

inline constexpr int kGemmTileRows = 16;

// A packed matrix is made of units of 16 rows and `columns` columns, [tile of rows][unit], each as the tensor cores' lanes
// read it. Lane l = 4 g + t has in step s of 16 columns, register r, half h: row 2 g + r % 2 and column
// 16 s + 2 t + 8 (r / 2) + h. So the rows of the tensor cores' rows g and g + 8 are neighbours. A unit is a run of words:
//
//   codes     [block of 32 columns][lane][code_words], steps 2 b and 2 b + 1 of block b:
//               16 bits [step][lane][r]: half h in bits 16 h
//               Q8_0    word 2 s + r / 2: r, h in byte r % 2 + 2 h
//               4 bits  word s: r, h in bits 4 r + 16 h
//   high      [block][lane] Q6_K's bits 4 and 5: r, h of step s in bits 2 (4 s + r) + 16 h
//   scales    [block][scale_words][g] of rows 2 g and 2 g + 1:
//               Q8_0, Q4_0, Q4_1 f16 x 2; Q4_1's second word: minima
//               Q4_K    bytes: a of both rows, b of both rows; Q6_K: a of both rows for 16 columns, for the next 16
//   supers    Q4_K [row] d, dmin; Q6_K [g] d of both rows
//
// What lies beyond the matrix is 0.
struct GemmLayout {
  const char* name;                 ///< of the format, in files
  std::int32_t block, block_bytes;  ///< of the file: elements, bytes
  std::int32_t columns;             ///< of a unit
  std::int32_t code_words, high_words, scale_words, super_words;

  constexpr std::int32_t blocks() const { return columns / 32; }
  constexpr std::int32_t high_at() const { return 4 * blocks() * 32 * code_words; }  ///< bytes from the unit's start
  constexpr std::int32_t scales_at() const { return high_at() + 4 * blocks() * 32 * high_words; }
  constexpr std::int32_t supers_at() const { return scales_at() + 4 * blocks() * 8 * scale_words; }
  constexpr std::int32_t bytes() const { return supers_at() + 4 * super_words; }
  constexpr std::int32_t units(std::int32_t k) const { return (k + columns - 1) / columns; }
};

constexpr GemmLayout gemm_layout(GemmFormat f) {
  switch (f) {
    case GemmFormat::kF16: return {"F16", 1, 2, 64, 8, 0, 0, 0};
    case GemmFormat::kBF16: return {"BF16", 1, 2, 64, 8, 0, 0, 0};
    case GemmFormat::kQ8_0: return {"Q8_0", 32, 34, 64, 4, 0, 1, 0};
    case GemmFormat::kQ4_0: return {"Q4_0", 32, 18, 64, 2, 0, 1, 0};
    case GemmFormat::kQ4_1: return {"Q4_1", 32, 20, 64, 2, 0, 2, 0};
    case GemmFormat::kQ4_K: return {"Q4_K", 256, 144, 128, 2, 0, 1, 16};
    case GemmFormat::kQ6_K: return {"Q6_K", 256, 210, 128, 2, 1, 1, 8};
  }
  return {};
}

/// Tiles of 16 rows of a product with n outputs; a gated one takes two for 16 outputs, gate's and up's in turn.
constexpr std::int32_t gemm_tiles(std::int32_t n, bool gated) {
  return (n + kGemmTileRows - 1) / kGemmTileRows * (gated ? 2 : 1);
}
/// Of a packed matrix [n, k].
constexpr std::int64_t gemm_weight_bytes(GemmFormat f, std::int32_t n, std::int32_t k) {
  return std::int64_t{gemm_tiles(n, false)} * gemm_layout(f).units(k) * gemm_layout(f).bytes();
}

/// What the planner decides of a launch (gemm_plan.h).
struct GemmWork {
  std::int32_t tiles, units;            ///< of the product, of a matrix
  std::int32_t row_blocks, col_blocks;  ///< blocks of threads along n and along the rows of x
  std::int32_t slices;                  ///< slice s: units [units * s / slices, units * (s + 1) / slices)
  bool shared_out;                      ///< each slice to a block of its own; the block that comes last folds them
};

/// Rows of x up to which a kernel for so few also does what comes behind the product (GemmNorm, GemmRope): the block that
/// comes last of those with a part of it does.
inline constexpr std::int32_t kGemmBehindRows = 64;

/// RMSNorm of the rows of `out` behind the product, bit for bit norm.cuh's. REQUIRES out, 16-byte aligned, n and out_stride
/// multiples of 4, not gated.
struct GemmNorm {
  const float* weight;  ///< [N], 16-byte aligned; nullptr: no norm
  float offset, eps;    ///< weights are offset + weight
  std::uint16_t* half;  ///< [R, N] dense, 8-byte aligned
  float* out;           ///< the same in f32, 16-byte aligned, or nullptr
  std::int32_t* counters;  ///< gemm_norm_counters() of them, all 0; a launch leaves them so
};

/// Norm of heads, rotation and KV write behind the product of q, k and v, bit for bit rope_kv.cuh's. REQUIRES out, where
/// args.q, k and v lie, with its stride; head_dim at least 64; not gated. The product's rows count, not those of args.
struct GemmRope {
  RopeKvArgs args;
  KvType type;
  std::int32_t* counters;  ///< gemm_rope_counters() of them, all 0; a launch leaves them so. nullptr: no rotation
};

/// v = x W^T (+ bias); gated, with two matrices: v = act(gate) * up. Then out = v, or out = out + v, and half = out's
/// number in 16 bits.
struct GemmArgs {
  const std::byte* weight;  ///< gemm_weight_bytes(), packed; 16-byte aligned; gated: of the gate
  const std::byte* up;      ///< the same of up; nullptr unless gated
  const std::uint16_t* x;   ///< [R, K] in the kernel's 16 bits, row stride x_stride: a multiple of 8; 16-byte aligned
  std::int64_t x_stride;
  std::int32_t rows, n, k;  ///< R > 0; n: outputs; k: a multiple of 8
  const float* bias;        ///< [N], 8-byte aligned, or nullptr; of the gate
  const float* up_bias;     ///< the same
  float* out;               ///< [R, N], row stride out_stride: even; 8-byte aligned. Or nullptr
  std::int64_t out_stride;
  std::uint16_t* half;  ///< [R, N], row stride half_stride: even; 4-byte aligned. Or nullptr
  std::int64_t half_stride;
  bool accumulate;  ///< REQUIRES out
  bool gated;
  ops::Activation activation;
  GemmWork work;
  float* partials;         ///< GemmPlan::partial_bytes, 16-byte aligned; nullptr with one slice
  std::int32_t* counters;  ///< GemmPlan::counters of them, all 0; a launch leaves them so
  GemmNorm norm{};         ///< at most one of these, and only with a plan that gemm_has_behind()
  GemmRope rope{};
};

/// Repacks rows of a file's matrix that lie in a staging buffer of the device: any run of whole tiles, so that the buffer
/// may be as small as 16 rows.
struct GemmRepackArgs {
  const std::byte* rows;  ///< [count] rows of k / block blocks as the file has them, any alignment
  std::int32_t count, k;  ///< fewer than a multiple of 16 only at the matrix's end. k: a multiple of the file's block
  std::byte* weight;        ///< the packed matrix
  std::int32_t first_tile;  ///< of the packed matrix, where the rows go
};

inline constexpr int kGemmRepackThreads = 128;

/// Blocks of a repack's launch.
constexpr std::int32_t gemm_repack_grid(GemmFormat f, std::int32_t count, std::int32_t k) {
  const std::int64_t pieces = gemm_weight_bytes(f, count, k) / 16;
  return static_cast<std::int32_t>((pieces + kGemmRepackThreads - 1) / kGemmRepackThreads);
}

}  // namespace barg::cuda
