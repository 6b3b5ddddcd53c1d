// Gated activations of rows: out[r, i] = act(gate[r, i] * gate_scale) * up[r, i], four numbers a thread, to the bit what
// ops::silu and ops::gelu_tanh give.
#pragma once

#include "cuda/math.cuh"
#include "ops.h"

namespace barg::cuda {

struct GateMulArgs {
  const float* gate;       ///< [R, I], row stride in_stride floats
  const float* up;         ///< [R, I], row stride in_stride
  std::int64_t in_stride;  ///< a multiple of 4, as I
  std::int32_t rows, dim;  ///< R, I; R * I < 2^31
  float* out;              ///< [R, I] dense, or nullptr; may be gate or up where that is dense
  std::uint16_t* half;     ///< also in 16 bits, or nullptr
  float gate_scale;
};

inline constexpr int kGateThreads = 256;

/// Blocks of a launch.
BARG_DEVICE constexpr int gate_mul_grid(int rows, int dim) {
  return (rows * (dim / 4) + kGateThreads - 1) / kGateThreads;
}

BARG_DEVICE float silu(float x) { return divide(x, 1.0f + exp(-x)); }

/// x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
BARG_DEVICE float gelu_tanh(float x) {
  return divide(x, 1.0f + exp(-(x * fma(x * x, 7.13548162726e-2f, 1.59576912160573071f))));
}

template <ops::Activation kActivation>
BARG_DEVICE float activate(float x) {
  return kActivation == ops::Activation::kSilu ? silu(x) : gelu_tanh(x);
}

template <ops::Activation kActivation, Half T>
BARG_KERNEL gate_mul_kernel(GateMulArgs p) {
  const int quads = p.dim / 4;
  const int i = block_x() * kGateThreads + thread_id();
  if (i >= p.rows * quads) return;
  const int row = i / quads;
  const std::int64_t from = row * p.in_stride + 4 * (i - row * quads), to = std::int64_t{4} * i;
  const Vec16 gate = load16(p.gate + from), up = load16(p.up + from);
  float y[4];
  BARG_UNROLL
  for (int e = 0; e < 4; ++e) {
    const float g = seeded("gate.scaled", bits_float(gate.x[e]) * p.gate_scale);
    y[e] = activate<kActivation>(g) * bits_float(up.x[e]);
  }
  if (p.out != nullptr) store16(p.out + to, {{float_bits(y[0]), float_bits(y[1]), float_bits(y[2]), float_bits(y[3])}});
  if (p.half != nullptr) store8(p.half + to, {{pack2<T>(y[0], y[1]), pack2<T>(y[2], y[3])}});
}

}  // namespace barg::cuda
