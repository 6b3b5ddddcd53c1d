// cos and sin of a step's positions, which rope_kv.cuh turns heads by: out[r, i] of the angle positions[r] *
// frequencies[i], times `scale`. To the bit those of the CPU: the angle is exact in f64, and the rest is sin_cos(). A thread
// makes one number of each.
#pragma once

#include "cuda/math.cuh"

namespace barg::cuda {

struct RopeAnglesArgs {
  const float* frequencies;  ///< [count], each >= 0
  std::int32_t count;
  float scale;
  const std::int32_t* positions;  ///< [R], each >= 0
  std::int32_t rows;              ///< R; R * count < 2^31
  float* cos;                     ///< [R, count]
  float* sin;
};

inline constexpr int kAnglesThreads = 256;

BARG_DEVICE constexpr LaunchShape rope_angles_launch(int rows, int count) {
  return {.grid_x = (rows * count + kAnglesThreads - 1) / kAnglesThreads, .threads = kAnglesThreads};
}

BARG_KERNEL rope_angles_kernel(RopeAnglesArgs p) {
  const int at = block_x() * kAnglesThreads + thread_id();
  if (at >= p.rows * p.count) return;
  const int row = at / p.count;
  const double angle = static_cast<double>(seeded("angles.position", p.positions[row])) *
                       static_cast<double>(p.frequencies[at - row * p.count]);
  float s, c;
  sin_cos(angle, &s, &c);
  p.sin[at] = s * seeded("angles.scale", p.scale);
  p.cos[at] = c * p.scale;
}

}  // namespace barg::cuda
