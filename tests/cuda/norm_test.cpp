// RMSNorm of rows and of groups against float64; its order of additions; a row alone and among others; seeded errors.
#include "cuda/norm.cuh"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;
using emu::Order;

struct NormCase {
  int rows = 3, groups = 1, dim = 576;
  int gap = 0;  ///< floats between the rows of x, and of out
  bool own_weights = false, in_place = false, halves = true;
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct NormResult {
  std::vector<float> x, weight, out;
  std::vector<std::uint16_t> half;  ///< [rows, groups, dim]
  test::Findings findings;
};

constexpr float kOffset = 1, kEps = 1e-5f;

NormResult run_norm(const NormCase& c) {
  std::mt19937 random(static_cast<unsigned>(c.dim));
  std::normal_distribution<float> normal(0, 3);
  NormResult r;
  for (int i = 0; i < c.dim * (c.own_weights ? c.groups : 1); ++i) r.weight.push_back(normal(random));
  const int stride = c.groups * c.dim + c.gap;
  for (int i = 0; i < c.rows * stride; ++i) r.x.push_back(normal(random));
  Device device(c.schedule);
  const auto dense = static_cast<std::size_t>(c.rows * c.groups * c.dim);
  NormArgs args{};
  args.x = test::uploaded(device, r.x, "x");
  args.x_stride = args.out_stride = stride;
  args.weight = test::uploaded(device, r.weight, "weight");
  args.weight_stride = c.own_weights ? c.dim : 0;
  args.offset = kOffset;
  args.eps = kEps;
  args.rows = c.rows;
  args.groups = c.groups;
  args.dim = c.dim;
  const std::vector<float> nines(r.x.size(), 999);
  args.out = c.in_place ? const_cast<float*>(args.x) : test::uploaded(device, nines, "out");
  args.half = c.halves ? test::room<std::uint16_t>(device, dense, "half") : nullptr;
  device.set_fault(c.fault);
  device.count_sites(true);
  launch<norm_kernel<Half::kBF16>>(device.stream(), norm_launch(c.rows, c.groups), args);
  r.findings = test::findings(device);
  r.out = test::downloaded(device, args.out, r.x.size());
  if (c.halves) r.half = test::downloaded(device, args.half, dense);
  return r;
}

std::size_t place(const NormCase& c, int row, int group, int i) {
  return static_cast<std::size_t>(row * (c.groups * c.dim + c.gap) + group * c.dim + i);
}
float weight_of(const NormCase& c, const NormResult& r, int group, int i) {
  return r.weight[static_cast<std::size_t>((c.own_weights ? group * c.dim : 0) + i)];
}

/// Against float64, relative; -1 where the 16 bits are not those of the numbers, or what is no group's was written.
double error_of(const NormCase& c, const NormResult& r) {
  double error = 0, size = 0;
  for (int row = 0; row < c.rows; ++row) {
    for (int group = 0; group < c.groups; ++group) {
      double sum = 0;
      for (int i = 0; i < c.dim; ++i) sum += std::pow(static_cast<double>(r.x[place(c, row, group, i)]), 2);
      for (int i = 0; i < c.dim; ++i) {
        const std::size_t at = place(c, row, group, i);
        const double weight = static_cast<double>(weight_of(c, r, group, i)) + kOffset;
        const double want = r.x[at] / std::sqrt(sum / c.dim + kEps) * weight;
        error += std::pow(r.out[at] - want, 2);
        size += want * want;
        const auto dense = static_cast<std::size_t>((row * c.groups + group) * c.dim + i);
        if (c.halves && r.half[dense] != ops::f32_to_bf16(r.out[at])) return -1;
      }
    }
    for (int i = 0; i < c.gap; ++i) {
      const std::size_t at = place(c, row, c.groups, i);
      if (r.out[at] != (c.in_place ? r.x[at] : 999)) return -1;
    }
  }
  return std::sqrt(error / size);
}
bool is_that_of_doubles(const NormCase& c, const NormResult& r) {
  const double error = error_of(c, r);
  return error >= 0 && error < 3e-7;
}

class Norm : public testing::TestWithParam<int> {};

TEST_P(Norm, IsThatOfDoubles) {
  int turn = 0;
  for (const int groups : {1, 3}) {
    for (const int gap : {0, 5}) {
      for (const bool in_place : {false, true}) {
        NormCase c{.groups = groups, .dim = GetParam(), .gap = gap, .in_place = in_place};
        c.own_weights = turn % 3 == 0;
        c.halves = turn % 4 != 3;
        c.schedule = test::schedule(turn++);
        const NormResult r = run_norm(c);
        EXPECT_EQ(r.findings.text, "");
        EXPECT_TRUE(is_that_of_doubles(c, r)) << "turn " << turn << ": " << error_of(c, r);
      }
    }
  }
}

/// 256 threads' sums, folded in halves.
float sum_of_squares(const float* x, int dim) {
  std::array<float, 256> sums{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(dim); ++i) sums[i % 256] = std::fma(x[i], x[i], sums[i % 256]);
  for (std::size_t width = 128; width >= 1; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

TEST_P(Norm, AddsInItsOrder) {
  const NormCase c{.dim = GetParam(), .schedule = test::schedule(5)};
  const NormResult r = run_norm(c);
  for (int row = 0; row < c.rows; ++row) {
    const float mean = sum_of_squares(r.x.data() + row * c.dim, c.dim) / static_cast<float>(c.dim);
    const float scale = 1.0F / std::sqrt(mean + kEps);
    for (int i = 0; i < c.dim; ++i) {
      const std::size_t at = place(c, row, 0, i);
      ASSERT_EQ(r.out[at], r.x[at] * scale * (weight_of(c, r, 0, i) + kOffset)) << row << " " << i;
    }
  }
}

TEST_P(Norm, ARowIsTheSameAloneAndAmongOthers) {
  const int dim = GetParam();
  const NormResult alone = run_norm({.rows = 1, .dim = dim});
  const NormResult among = run_norm({.rows = 5, .dim = dim, .schedule = {.blocks = Order::kRandom}});
  EXPECT_EQ(alone.out, std::vector<float>(among.out.begin(), among.out.begin() + dim));
}

INSTANTIATE_TEST_SUITE_P(Dims, Norm, testing::Values(1, 31, 128, 256, 576, 1000));

TEST(NormAccesses, AreWide) {  // plain ones, which the checker's build alone counts
  if (emu::hooked()) test::expect_wide(run_norm({.dim = 1024}).findings);
}

TEST(NormFaults, EachIsSeen) {
  const test::Kind numbers = test::Kind::kDeadlock;
  struct Mutant {
    const char* name;
    test::Kind detector;  ///< kDeadlock: the numbers are wrong
    emu::Fault fault;
  };
  const std::vector<Mutant> mutants = {
      {"no barrier behind the sums", test::Kind::kRace,
       test::fault_at(emu::Fault::Kind::kNoBarrier, "norm.cuh", "All sums are there", "sync_block();")},
      {"another eps", numbers, test::value("norm.eps", [](double x) { return x + 0.1; })},
  };
  for (const Mutant& m : mutants) {
    if (m.detector == test::Kind::kRace && !emu::hooked()) continue;
    const NormCase c{.fault = m.fault};
    const NormResult r = run_norm(c);
    EXPECT_TRUE(m.detector == numbers ? !is_that_of_doubles(c, r) : r.findings.kinds.contains(m.detector)) << m.name;
  }
}

}  // namespace
}  // namespace barg::cuda
