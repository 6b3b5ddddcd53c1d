// The device's elementary functions, as the host's twins compute them.
#include "cuda/math.cuh"

#include <gtest/gtest.h>

#include <cmath>

namespace barg::cuda {
namespace {

TEST(CudaMath, Exp2IsThatOfDoubles) {
  for (float x = -126; x < 127; x += 0.0137f) {
    const double want = std::exp2(static_cast<double>(x));
    EXPECT_NEAR(exp2(x), want, want * 2.4e-7) << x;
  }
  EXPECT_EQ(exp2(0.0f), 1.0f);
  EXPECT_EQ(exp2(-3.0f), 0.125f);
  EXPECT_EQ(exp2(-126.5f), 0.0f);
  EXPECT_EQ(exp2(-1e30f), 0.0f);
  EXPECT_EQ(exp2(-infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(exp2(std::nanf(""))));
}

TEST(CudaMath, ExpAndCodesAreTheCpusBits) {
  for (std::uint32_t bits = 0; bits < 0xffc00000u; bits += 65521) {
    const float x = bits_float(bits);
    if (std::isnan(x)) continue;
    ASSERT_EQ(float_bits(exp(x)), float_bits(ops::exp(x))) << x;
    ASSERT_EQ(float_to_f8(x), ops::f32_to_f8(x)) << x;
  }
}

TEST(CudaMath, CodesBecomeBf16Exactly) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const std::uint32_t pair = f8_pair_to_bfloat(code | (code ^ 0x80u) << 16 | 0xff00u);
    const float want = 256 * ops::f8_to_f32_256th(static_cast<std::uint8_t>(code));
    EXPECT_EQ(ops::bf16_to_f32(static_cast<std::uint16_t>(pair)), want) << code;
    EXPECT_EQ(ops::bf16_to_f32(static_cast<std::uint16_t>(pair >> 16)), -want) << code;
  }
}

}  // namespace
}  // namespace barg::cuda
