// What is done to rows between the large kernels: against the host's arithmetic to the bit, accesses, seeded errors.
#include "cuda/rows.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cuda/device_kernel.h"
#include "support.h"

namespace barg::cuda {
namespace {

using emu::Device;
using Ids = std::vector<std::int32_t>;

template <class T>
T number(std::size_t i) {
  return static_cast<T>(sizeof(T) == 4 ? test::normal_of(i) : static_cast<float>(i % 65521));
}
template <class T>
std::vector<T> numbers(std::size_t count, std::size_t first = 0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = number<T>(first + i);
  return v;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return ops::float_bits(x) == ops::float_bits(y); });
}

// ---- keep_rows

struct KeepCase {
  int rows = 40, width = 64, gap = 0, shift = 0;  ///< shift: elements before the first row
  Ids wanted{};
  emu::Schedule schedule{};
};

/// Whether rows are those that are wanted, and all else is as it was.
template <class T>
bool keeps(const KeepCase& c, test::Findings* found = nullptr) {
  const auto stride = static_cast<std::size_t>(c.width + c.gap), shift = static_cast<std::size_t>(c.shift);
  Device device(c.schedule);
  std::vector<T> all = numbers<T>(shift + static_cast<std::size_t>(c.rows) * stride);
  T* const memory = test::uploaded(device, all, "rows");
  const KeepRowsArgs<T> args{memory + shift, static_cast<std::int64_t>(stride), c.width,
                             test::uploaded(device, c.wanted, "wanted"), static_cast<std::int32_t>(c.wanted.size())};
  device.count_sites(true);
  launch<keep_rows_kernel<T>>(device.stream(), keep_rows_launch(c.width, sizeof(T)), args);
  const test::Findings findings = test::findings(device);
  EXPECT_EQ(findings.text, "");
  if (found != nullptr) *found = findings;
  for (std::size_t i = 0; i < c.wanted.size(); ++i) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(c.width); ++k)
      all[shift + i * stride + k] = number<T>(shift + static_cast<std::size_t>(c.wanted[i]) * stride + k);
  }
  return all == test::downloaded(device, memory, all.size());
}

const std::vector<Ids>& choices() {
  static const std::vector<Ids> all = [] {
    Ids every(40), last(17), odd(20), runs;
    std::iota(every.begin(), every.end(), 0);
    std::iota(last.begin(), last.end(), 23);
    for (int i = 0; i < 20; ++i) odd[static_cast<std::size_t>(i)] = 2 * i + 1;
    for (int i = 0; i < 40; ++i)
      if (i % 11 < 7) runs.push_back(i);
    return std::vector<Ids>{{}, {0}, {39}, {0, 1, 2, 39}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, every, last, odd, runs};
  }();
  return all;
}

TEST(KeepRows, MovesThoseThatAreWanted) {
  int turn = 0;
  for (const Ids& wanted : choices()) {
    for (const int width : {4, 64, 300, 1100}) {
      const KeepCase c{.width = width, .gap = 4 * (turn % 2), .wanted = wanted, .schedule = test::schedule(turn)};
      EXPECT_TRUE(keeps<float>(c)) << width << " turn " << turn;
      if (width % 8 == 0) {
        EXPECT_TRUE(keeps<std::uint16_t>(c)) << width << " turn " << turn;
      }
      ++turn;
    }
  }
}

TEST(KeepRows, OfAnyWidthStrideAndPlace) {
  int turn = 0;
  for (const int width : {1, 7, 64, 129}) {
    for (const int gap : {0, 1, 4}) {
      for (const int shift : {0, 1}) {
        KeepCase c{.width = width, .gap = gap, .shift = shift, .wanted = choices()[8]};
        c.schedule = test::schedule(turn++);
        EXPECT_TRUE(keeps<float>(c)) << width << " " << gap << " " << shift;
        EXPECT_TRUE(keeps<std::uint16_t>(c)) << width << " " << gap << " " << shift;
      }
    }
  }
}

TEST(KeepRows, AccessesAreWide) {
  test::Findings found;
  EXPECT_TRUE(keeps<float>({.width = 512, .wanted = choices()[7]}, &found));
  test::expect_wide(found);
}

TEST(KeepRows, ItsNameIsThatOfTheDevicesCode) {  // as nvcc says it
  EXPECT_STREQ(kernel<keep_rows_kernel<float>>().name, "_ZN4barg4cuda16keep_rows_kernelIfEEvNS0_12KeepRowsArgsIT_EE");
}

// ---- half_rows

template <Half T>
void expect_halves(int rows, int dim, int gap, int turn) {
  const auto stride = static_cast<std::size_t>(dim + gap), columns = static_cast<std::size_t>(dim);
  Device device(test::schedule(turn));
  const std::vector<float> x = numbers<float>(static_cast<std::size_t>(rows) * stride);
  const std::size_t count = static_cast<std::size_t>(rows) * columns;
  const HalfRowsArgs args{test::uploaded(device, x, "x"), static_cast<std::int64_t>(stride), rows, dim,
                          test::room<std::uint16_t>(device, count, "half")};
  device.count_sites(true);
  launch<half_rows_kernel<T>>(device.stream(), half_rows_launch(rows, dim), args);
  const test::Findings findings = test::findings(device);
  EXPECT_EQ(findings.text, "");
  if (dim >= 512) test::expect_wide(findings);
  const std::vector<std::uint16_t> half = test::downloaded(device, args.half, count);
  for (std::size_t i = 0; i < count; ++i) {
    const float from = x[i / columns * stride + i % columns];
    ASSERT_EQ(half[i], T == Half::kF16 ? ops::f32_to_f16(from) : ops::f32_to_bf16(from)) << i;
  }
}

TEST(HalfRows, AreRoundedToNearest) {
  int turn = 0;
  for (const int dim : {4, 8, 36, 512, 1032}) {
    for (const int gap : {0, 4}) {
      expect_halves<Half::kF16>(1 + turn % 4, dim, gap, turn);
      expect_halves<Half::kBF16>(1 + turn % 4, dim, gap, turn);
      ++turn;
    }
  }
}

// ---- add_scaled, scale_logits

/// Whether x is what one fused multiply-add makes of it.
bool adds(std::size_t count, const emu::Schedule& schedule, const emu::Fault& fault = {}) {
  Device device(schedule);
  std::vector<float> x = numbers<float>(count), y = numbers<float>(count, count);
  const AddScaledArgs args{test::uploaded(device, x, "x"), test::uploaded(device, y, "y"), 0.3F,
                           static_cast<std::int64_t>(count)};
  device.set_fault(fault);
  launch<add_scaled_kernel>(device.stream(), add_scaled_launch(args.count), args);
  EXPECT_EQ(test::findings(device).text, "");
  for (std::size_t i = 0; i < count; ++i) x[i] = std::fma(y[i], 0.3F, x[i]);
  return same_bits(x, test::downloaded(device, args.x, count));
}

TEST(AddScaled, IsOneFusedMultiplyAdd) {
  int turn = 0;
  for (const std::size_t count : {1U, 3U, 4U, 5U, 1022U, 1024U, 1025U, 4099U}) {
    EXPECT_TRUE(adds(count, test::schedule(turn++))) << count;
  }
  EXPECT_FALSE(adds(8, {}, test::value("add.scale", [](double x) { return x * x; })));
}

TEST(ScaleLogits, TouchesRowsAlone) {
  int turn = 0;
  for (const int dim : {1, 31, 1023, 1024, 1025, 2600}) {
    for (const int gap : {0, 3}) {
      const int rows = 3;
      const std::size_t stride = static_cast<std::size_t>(dim + gap);
      Device device(test::schedule(turn++));
      std::vector<float> x = numbers<float>(rows * stride);
      const float scale = 0.08125F;
      const ScaleLogitsArgs args{test::uploaded(device, x, "x"), static_cast<std::int64_t>(stride), rows, dim, scale};
      launch<scale_logits_kernel>(device.stream(), scale_logits_launch(rows, dim), args);
      EXPECT_EQ(test::findings(device).text, "");
      for (std::size_t i = 0; i < x.size(); ++i)
        if (i % stride < static_cast<std::size_t>(dim)) x[i] *= scale;
      EXPECT_TRUE(same_bits(x, test::downloaded(device, args.x, x.size()))) << dim;
    }
  }
}

}  // namespace
}  // namespace barg::cuda
