// What rope_kv.cuh is told. Plain data; any thread, host and device, every compiler.
#pragma once

#include <cstdint>

#include "ops.h"

namespace barg::cuda {

struct RopeKvArgs {
  float* q;        ///< [R, nq, D], row stride q_stride floats; rotated in place
  const float* k;  ///< [R, nkv, D], row stride kv_stride
  const float* v;
  std::int64_t q_stride, kv_stride;
  const float* q_norm;  ///< [D], or nullptr: no norm
  const float* k_norm;  ///< [D], or nullptr
  float norm_eps, norm_offset;  ///< weights are offset + weight
  const float* cos;     ///< [R, rotary_dim / 2], with the attention factor of yarn and longrope in it
  const float* sin;
  std::int32_t rotary_dim;  ///< even, at most D; 0: no rotation
  bool interleaved;         ///< pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  std::int32_t num_q_heads;
  std::int32_t rows;
  ops::KvLayerView kv;
  const ops::Segment* segments;  ///< rows in none of them are left alone
  std::int32_t num_segments;
};

}  // namespace barg::cuda
