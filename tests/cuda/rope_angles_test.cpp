// cos and sin of positions: the CPU's bits, float64, accesses, seeded errors.
#include "cuda/rope_angles.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cpu_reference.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;

struct AnglesCase {
  int count = 64;
  float scale = 1;
  std::vector<std::int32_t> positions{0, 1, 2, 5, 4095, 131071, 1 << 20};
  emu::Schedule schedule{};
  emu::Fault fault{};
};

struct AnglesResult {
  std::vector<float> frequencies, cos, sin;
  test::Findings findings;
};

AnglesResult run_angles(const AnglesCase& c) {
  Device device(c.schedule);
  AnglesResult r;
  for (int i = 0; i < c.count; ++i)
    r.frequencies.push_back(i == c.count / 2 ? 0 : static_cast<float>(std::pow(5e5, -static_cast<double>(i) / c.count)));
  const std::size_t numbers = c.positions.size() * r.frequencies.size();
  RopeAnglesArgs args{};
  args.frequencies = test::uploaded(device, r.frequencies, "frequencies");
  args.count = c.count;
  args.scale = c.scale;
  args.positions = test::uploaded(device, c.positions, "positions");
  args.rows = static_cast<int>(c.positions.size());
  args.cos = test::room<float>(device, numbers, "cos");
  args.sin = test::room<float>(device, numbers, "sin");
  device.set_fault(c.fault);
  device.count_sites(true);
  launch<rope_angles_kernel>(device.stream(), rope_angles_launch(args.rows, c.count), args);
  r.findings = test::findings(device);
  r.cos = test::downloaded(device, args.cos, numbers);
  r.sin = test::downloaded(device, args.sin, numbers);
  return r;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return ops::float_bits(x) == ops::float_bits(y); });
}

bool are_the_cpus(const AnglesCase& c, const AnglesResult& r) {
  const auto [cos, sin] = cpu::rope_angles(r.frequencies, c.scale, c.positions);
  return same_bits(r.cos, cos) && same_bits(r.sin, sin);
}

TEST(RopeAngles, AreTheCpusBits) {
  int turn = 0;
  for (const int count : {1, 3, 32, 48, 64, 128}) {
    for (const float scale : {1.0F, 1.13862944F}) {
      const AnglesCase c{.count = count, .scale = scale, .schedule = test::schedule(turn++)};
      const AnglesResult r = run_angles(c);
      EXPECT_EQ(r.findings.text, "");
      EXPECT_TRUE(are_the_cpus(c, r)) << count << " " << scale;
    }
  }
}

TEST(RopeAngles, AreTheCpusBitsAtEveryPosition) {
  AnglesCase c{.count = 2};
  c.positions.clear();
  for (int i = 0; i < 3000; ++i) c.positions.push_back(i);
  const AnglesResult r = run_angles(c);
  EXPECT_TRUE(are_the_cpus(c, r));
  for (std::size_t i = 0; i < r.cos.size(); ++i) {
    const double angle = static_cast<double>(c.positions[i / 2]) * r.frequencies[i % 2];
    EXPECT_NEAR(r.cos[i], std::cos(angle), 1e-7);
    EXPECT_NEAR(r.sin[i], std::sin(angle), 1e-7);
  }
}

TEST(RopeAngles, AccessesAreWide) {  // plain ones, which the checker's build alone counts
  if (emu::hooked()) test::expect_wide(run_angles({}).findings);
}

TEST(RopeAngles, SeededErrorsAreSeen) {
  AnglesCase c{.scale = 1.5F};
  EXPECT_TRUE(are_the_cpus(c, run_angles(c)));
  c.fault = test::value("angles.position", [](double x) { return x + 1; });
  EXPECT_FALSE(are_the_cpus(c, run_angles(c)));
  c.fault = test::value("angles.scale", [](double x) { return x * x; });
  EXPECT_FALSE(are_the_cpus(c, run_angles(c)));
}

}  // namespace
}  // namespace barg::cuda
