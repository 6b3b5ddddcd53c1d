// The contract's scalar functions against double precision and against exhaustive 16-bit tables.
#include "math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>

namespace barg::ops::math_test {
namespace {

const float kInf = std::bit_cast<float>(0x7f800000u);

/// |got - want| in units of the last place of `want` rounded to f32 (subnormals: of 2^-149).
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0.0 : 1e9;
  int exponent = 0;
  std::frexp(want, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(got - want) / unit;
}

TEST(Math, ExpIsWithinTwoUlpOverADenseSample) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 1021) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float x = bits_float(bits | sign);
      worst = std::max(worst, ulps(exp(x), std::exp(static_cast<double>(x))));
    }
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Math, ExpAtItsEdges) {
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_EQ(exp(-0.0f), 1.0f);
  EXPECT_EQ(float_bits(exp(-kInf)), 0u);
  EXPECT_EQ(exp(kInf), kInf);
  EXPECT_EQ(exp(-104.5f), 0.0f);
  EXPECT_GT(exp(-103.0f), 0.0f);  // subnormal, not flushed
  EXPECT_LT(exp(88.7228f), kInf);
  EXPECT_EQ(exp(88.73f), kInf);
  EXPECT_TRUE(std::isnan(exp(std::nanf(""))));
}

TEST(Math, LogIsWithinTwoUlpOverADenseSample) {
  double worst = 0.0;
  for (std::uint32_t bits = 1; bits < 0x7f800000u; bits += 509) {
    const float x = bits_float(bits);
    worst = std::max(worst, ulps(log(x), std::log(static_cast<double>(x))));
  }
  for (std::uint32_t bits = 0x3f700000u; bits < 0x3f900000u; bits += 3) {  // around 1, where log is small
    const float x = bits_float(bits);
    worst = std::max(worst, ulps(log(x), std::log(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Math, LogAtItsEdges) {
  EXPECT_EQ(log(0.0f), -kInf);
  EXPECT_EQ(log(-0.0f), -kInf);
  EXPECT_EQ(log(1.0f), 0.0f);
  EXPECT_EQ(log(kInf), kInf);
  EXPECT_TRUE(std::isnan(log(-1.0f)));
  EXPECT_TRUE(std::isnan(log(std::nanf(""))));
}

TEST(Math, SiluAgreesWithDouble) {
  for (float x = -80.0f; x < 80.0f; x += 0.01f) {
    const double want = x / (1.0 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(silu(x), want, std::abs(want) * 5e-7 + 1e-35) << x;
  }
}

TEST(Math, GeluAgreesWithDouble) {
  for (float x = -80.0f; x < 80.0f; x += 0.01f) {
    const double wide = x, u = std::sqrt(2 / std::numbers::pi) * (wide + 0.044715 * wide * wide * wide);
    const double want = wide / (1 + std::exp(-2 * u));
    EXPECT_NEAR(gelu_tanh(x), want, std::abs(want) * (1e-6 + 5e-7 * std::abs(u)) + 1e-35) << x;
  }
  EXPECT_EQ(gelu_tanh(kInf), kInf);
  EXPECT_EQ(gelu_tanh(3e38f), 3e38f);
  EXPECT_EQ(gelu_tanh(-1e20f), 0.0f);
}

TEST(Math, ErfAgreesWithDoubleAndIsOdd) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0x42000000u; bits += 97) {
    const float x = bits_float(bits);
    const double want = std::erf(static_cast<double>(x));
    worst = std::max(worst, std::abs(erf(x) - want));
    EXPECT_NEAR(erf(x), want, std::abs(want) * 2e-7 + 3e-45) << x;
    EXPECT_EQ(erf(-x), -erf(x)) << x;
  }
  EXPECT_LE(worst, 1e-7);
  EXPECT_EQ(erf(kInf), 1.0f);
  EXPECT_EQ(erf(-kInf), -1.0f);
  EXPECT_TRUE(std::isnan(erf(std::nanf(""))));
}

TEST(Math, GeluByErfAgreesWithDouble) {
  for (float x = -80.0f; x < 80.0f; x += 0.01f) {
    const double wide = x, want = wide / 2 * (1 + std::erf(wide * std::sqrt(0.5)));
    EXPECT_NEAR(gelu_erf(x), want, std::abs(wide) * 1e-7) << x;
  }
  EXPECT_EQ(gelu_erf(3e38f), 3e38f);
  EXPECT_EQ(gelu_erf(-1e20f), 0.0f);
}

TEST(Math, TanhIsWithinTwoUlpAndOdd) {
  double worst = 0.0;
  for (std::uint32_t bits = 0; bits < 0x42000000u; bits += 97) {
    const float x = bits_float(bits);
    worst = std::max(worst, ulps(tanh(x), std::tanh(static_cast<double>(x))));
    EXPECT_EQ(tanh(-x), -tanh(x)) << x;
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(tanh(kInf), 1.0f);
  EXPECT_EQ(tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::isnan(tanh(std::nanf(""))));
  EXPECT_EQ(tanh(-0.0f), 0.0f);
}

double half_value(std::uint16_t h) {
  const int exponent = h >> 10 & 31;
  const int fraction = h & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (h & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Math, EveryHalfWidensExactlyAndComesBack) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<std::uint16_t>(h);
    const float wide = f16_to_f32(half);
    if ((h >> 10 & 31) == 31) {
      EXPECT_EQ(std::isnan(wide), (h & 1023) != 0);
      if ((h & 1023) == 0) {
        EXPECT_EQ(f32_to_f16(wide), half);
      }
      continue;
    }
    EXPECT_EQ(wide, half_value(half)) << h;
    EXPECT_EQ(f32_to_f16(wide), half) << h;
  }
}

TEST(Math, HalvesRoundToNearestEven) {
  for (std::uint32_t h = 0; h < 0x7bff; ++h) {  // between two neighbours: below, at and above the middle
    const double low = half_value(static_cast<std::uint16_t>(h));
    const double high = half_value(static_cast<std::uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact in f32
    EXPECT_EQ(f32_to_f16(middle), h % 2 == 0 ? h : h + 1) << h;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h) << h;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, kInf)), h + 1) << h;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7fc00000u)) & 0x7e00, 0x7e00);
}

TEST(Math, BrainFloatsRoundToNearestEven) {
  for (std::uint32_t h = 0; h < 0x7f80; ++h) {
    const std::uint32_t bits = h << 16;
    EXPECT_EQ(f32_to_bf16(bits_float(bits)), h);
    EXPECT_EQ(f32_to_bf16(bits_float(bits + 0x7fff)), h);
    EXPECT_EQ(f32_to_bf16(bits_float(bits + 0x8000)), h % 2 == 0 ? h : h + 1);
    EXPECT_EQ(f32_to_bf16(bits_float(bits + 0x8001)), h + 1);
    EXPECT_EQ(float_bits(bf16_to_f32(static_cast<std::uint16_t>(h))), bits);
  }
  EXPECT_EQ(f32_to_bf16(bits_float(0x7f800001u)), 0x7fc0);
}

TEST(Math, LanesFoldInHalves) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = i == 0 ? 1e8f : i == 8 ? -1e8f : 1.0f;
  EXPECT_EQ(fold_lanes(lanes), 14.0f);  // lane 0 meets lane 8 first; any other order loses the ones
}

}  // namespace
}  // namespace barg::ops::math_test
