// Gated activations: the CPU's bits, float64, accesses, seeded errors.
#include "cuda/elementwise.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;
using ops::Activation;

struct GateCase {
  Activation activation = Activation::kSilu;
  Half half = Half::kBF16;
  int rows = 3, dim = 576, gap = 0;  ///< floats between the rows of gate and up
  float scale = 1;
  bool special = false, in_place = false;
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct GateResult {
  std::vector<float> gate, up, out;
  std::vector<std::uint16_t> half;
  test::Findings findings;
};

GateResult run_gate(const GateCase& c) {
  std::mt19937 random(static_cast<unsigned>(c.dim + c.rows));
  std::normal_distribution<float> normal(0, 4);
  GateResult r;
  const auto numbers = static_cast<std::size_t>(c.rows) * static_cast<std::size_t>(c.dim);
  const std::vector<float> specials = {0, -0.0F, INFINITY, -INFINITY, NAN, 3e38F, -3e38F, 1e-40F, -89, -104, 88, 20};
  for (std::size_t i = 0; i < numbers; ++i) {
    r.gate.push_back(c.special ? specials[i % specials.size()] : normal(random));
    r.up.push_back(c.special ? specials[i / specials.size() % specials.size()] : normal(random));
  }
  Device device(c.schedule);
  const std::size_t stride = static_cast<std::size_t>(c.dim + c.gap), dim = static_cast<std::size_t>(c.dim);
  std::vector<float> gate(static_cast<std::size_t>(c.rows) * stride), up(gate.size());
  for (std::size_t i = 0; i < numbers; ++i) {
    gate[i / dim * stride + i % dim] = r.gate[i];
    up[i / dim * stride + i % dim] = r.up[i];
  }
  GateMulArgs args{};
  args.gate = test::uploaded(device, gate, "gate");
  args.up = test::uploaded(device, up, "up");
  args.in_stride = static_cast<std::int64_t>(stride);
  args.rows = c.rows;
  args.dim = c.dim;
  args.out = c.in_place ? const_cast<float*>(args.up) : test::room<float>(device, numbers, "out");
  args.half = test::room<std::uint16_t>(device, numbers, "half");
  args.gate_scale = c.scale;
  device.set_fault(c.fault);
  device.count_sites(true);
  const LaunchShape shape{.grid_x = gate_mul_grid(c.rows, c.dim), .threads = kGateThreads};
  if (c.activation == Activation::kSilu) {
    if (c.half == Half::kF16) launch<gate_mul_kernel<Activation::kSilu, Half::kF16>>(device.stream(), shape, args);
    if (c.half == Half::kBF16) launch<gate_mul_kernel<Activation::kSilu, Half::kBF16>>(device.stream(), shape, args);
  } else {
    if (c.half == Half::kF16) launch<gate_mul_kernel<Activation::kGeluTanh, Half::kF16>>(device.stream(), shape, args);
    if (c.half == Half::kBF16) launch<gate_mul_kernel<Activation::kGeluTanh, Half::kBF16>>(device.stream(), shape, args);
  }
  r.findings = test::findings(device);
  r.out = test::downloaded(device, args.out, numbers);
  r.half = test::downloaded(device, args.half, numbers);
  return r;
}

bool same(float a, float b) { return ops::float_bits(a) == ops::float_bits(b) || (std::isnan(a) && std::isnan(b)); }

/// The CPU's function of one number, to the bit.
bool is_the_cpus(const GateCase& c, const GateResult& r) {
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    const float g = r.gate[i] * c.scale;
    const float want = (c.activation == Activation::kSilu ? ops::silu(g) : ops::gelu_tanh(g)) * r.up[i];
    if (!same(r.out[i], want)) return false;
    if (std::isnan(want)) continue;
    if (r.half[i] != (c.half == Half::kF16 ? ops::f32_to_f16(want) : ops::f32_to_bf16(want))) return false;
  }
  return true;
}

double worst_error(const GateCase& c, const GateResult& r) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    const double g = static_cast<double>(r.gate[i]) * c.scale;
    const double gelu = g / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
    const double want = (c.activation == Activation::kSilu ? g / (1 + std::exp(-g)) : gelu) * r.up[i];
    error += std::pow(r.out[i] - want, 2);
    size += want * want;
  }
  return std::sqrt(error / size);
}

TEST(GateMul, IsThatOfTheCpuAndNearDoubles) {
  int turn = 0;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const Half half : {Half::kF16, Half::kBF16}) {
      for (const int dim : {4, 36, 576, 1536}) {
        GateCase c{.activation = activation, .half = half, .rows = 1 + turn % 5, .dim = dim, .gap = 4 * (turn % 3)};
        c.scale = turn % 4 == 0 ? 0.7F : 1.0F;
        c.schedule = test::schedule(turn++);
        const GateResult r = run_gate(c);
        EXPECT_EQ(r.findings.text, "");
        EXPECT_TRUE(is_the_cpus(c, r)) << dim;
        EXPECT_LT(worst_error(c, r), 5e-7) << dim;
      }
    }
  }
}

TEST(GateMul, NumbersAtTheEndsOfTheRange) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    GateCase c{.activation = activation, .special = true};
    EXPECT_TRUE(is_the_cpus(c, run_gate(c)));
  }
}

TEST(GateMul, MayOverwriteWhatItReads) {
  const GateCase c{.in_place = true};
  const GateResult r = run_gate(c);
  EXPECT_EQ(r.findings.text, "");
  EXPECT_TRUE(is_the_cpus(c, r));
}

TEST(GateMul, AccessesAreWide) {
  const GateResult r = run_gate({.rows = 4, .dim = 1536});
  test::expect_wide(r.findings);
}

TEST(GateMul, SeededErrorsAreSeen) {
  GateCase c;
  c.fault = test::value("gate.scaled", [](double x) { return x * 1.0001; });
  EXPECT_FALSE(is_the_cpus(c, run_gate(c)));
}

}  // namespace
}  // namespace barg::cuda
