// RMSNorm of rows: out = x / sqrt(mean(x^2) + eps) * (w + offset), one block a row.
//
// The sum of squares is that of the contract: element i goes to virtual lane i % 16 in ascending order, lanes fold in
// halves. Threads t of the first 16 x 16 take lane t % 16's elements of a fixed part of the row, parts fold left.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

struct RmsNormArgs {
  const float* x;
  const float* weight;
  float* out;
  std::uint16_t* half;  ///< also in 16 bits, or nullptr
  float offset, eps;
  int dim;
};

inline constexpr int kNormThreads = 256;

template <Half T>
BARG_KERNEL rms_norm_kernel(RmsNormArgs p) {
  BARG_SHARED(float, sums, kNormThreads);
  const float* const x = p.x + static_cast<std::size_t>(block_x()) * p.dim;
  const int t = thread_id();
  float sum = 0;
  for (int i = t; i < p.dim; i += kNormThreads) sum = fma(x[i], x[i], sum);
  sums[t] = sum;
  sync_block();
  for (int width = kNormThreads / 2; width >= 1; width /= 2) {
    if (t < width) sums[t] = sums[t] + sums[t + width];
    sync_block();
  }
  const float scale = divide(1.0f, sqrt_rn(divide(sums[0], static_cast<float>(p.dim)) + p.eps));
  const std::size_t row = static_cast<std::size_t>(block_x()) * p.dim;
  for (int i = t; i < p.dim; i += kNormThreads) {
    const float y = x[i] * scale * (p.weight[i] + p.offset);
    if (p.out != nullptr) p.out[row + i] = y;
    if (p.half != nullptr) p.half[row + i] = T == Half::kBF16 ? float_to_bfloat(y) : float_to_half(y);
  }
}

}  // namespace barg::cuda
