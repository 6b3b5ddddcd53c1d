// RMSNorm of groups of a row (a whole row, or each head): out = x / sqrt(mean(x^2) + eps) * (weight + offset), one block of
// threads a group.
//
// The sum of squares: thread t takes elements t, t + 256, ... in ascending order, then the threads' sums fold in halves
// (128, 64, ..., 1). So it follows from the group's numbers alone.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

struct NormArgs {
  const float* x;         ///< [R, groups, dim], row stride x_stride floats
  std::int64_t x_stride;
  const float* weight;    ///< [dim] of a group, weight_stride floats from one group to the next; 0: all have the same
  std::int64_t weight_stride;
  float offset, eps;
  std::int32_t rows, groups, dim;
  float* out;  ///< [R, groups, dim], row stride out_stride, or nullptr; may be x where the strides are equal
  std::int64_t out_stride;
  std::uint16_t* half;  ///< also in 16 bits, [R, groups, dim] dense, or nullptr
};

inline constexpr int kNormThreads = 256;

BARG_DEVICE constexpr LaunchShape norm_launch(int rows, int groups) {
  return {.grid_x = rows * groups, .threads = kNormThreads};
}

/// The sum of all threads' numbers, in every thread; sums: [kNormThreads]. Each warp folds all of them, so that one barrier
/// does.
BARG_DEVICE float norm_sum(float mine, float* sums) {
  constexpr int kWarps = kNormThreads / 32;
  sums[thread_id()] = mine;
  // All sums are there.
  sync_block();
  float s[kWarps];
  BARG_UNROLL
  for (int w = 0; w < kWarps; ++w) s[w] = sums[32 * w + lane_id()];
  BARG_UNROLL
  for (int width = kWarps / 2; width >= 1; width /= 2) {
    BARG_UNROLL
    for (int w = 0; w < width; ++w) s[w] = s[w] + s[w + width];
  }
  BARG_UNROLL
  for (int width = 16; width >= 1; width /= 2) s[0] = s[0] + shuffle_xor(s[0], width);
  return s[0];
}

template <Half T>
BARG_KERNEL norm_kernel(NormArgs p) {
  BARG_SHARED(float, sums, kNormThreads);
  const int row = block_x() / p.groups, group = block_x() - row * p.groups;
  const std::int64_t first = static_cast<std::int64_t>(group) * p.dim;
  const float* const x = p.x + row * p.x_stride + first;
  const float* const weight = p.weight + group * p.weight_stride;
  float sum = 0;
  for (int i = thread_id(); i < p.dim; i += kNormThreads) sum = fma(x[i], x[i], sum);
  const float mean = divide(norm_sum(sum, sums), static_cast<float>(p.dim));
  const float scale = divide(1.0f, sqrt_rn(mean + seeded("norm.eps", p.eps)));
  const std::int64_t to = row * p.out_stride + first, to_half = static_cast<std::int64_t>(block_x()) * p.dim;
  for (int i = thread_id(); i < p.dim; i += kNormThreads) {
    const float y = x[i] * scale * (weight[i] + p.offset);
    if (p.out != nullptr) p.out[to + i] = y;
    if (p.half != nullptr) p.half[to_half + i] = T == Half::kBF16 ? float_to_bfloat(y) : float_to_half(y);
  }
}

}  // namespace barg::cuda
