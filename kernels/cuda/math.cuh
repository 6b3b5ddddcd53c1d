// Elementary functions of kernels and the conversions that the device has no instruction for, in operations that the
// host's twins round alike: device and emulated device get the same bits, and exp(), sin_cos() and float_to_f8() those of
// kernels/math.h, which the CPU's kernels use.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

BARG_DEVICE float infinity() { return bits_float(0x7f800000u); }

/// 2^x within 2 units in the last place; 0 below -126; NaN of NaN. REQUIRES x < 128.
BARG_DEVICE float exp2(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x + kRound;
  const float r = x - (shifted - kRound);
  // 1 + r P(r) on [-1/2, 1/2]: Cephes' exp2f.
  float y = 1.535336188319500e-4f;
  y = fma(y, r, 1.339887440266574e-3f);
  y = fma(y, r, 9.618437357674640e-3f);
  y = fma(y, r, 5.550332471162809e-2f);
  y = fma(y, r, 2.402264791363012e-1f);
  y = fma(y, r, 6.931472028550421e-1f);
  y = fma(y, r, 1.0f);
  // The integer is in the low bits of `shifted`.
  const float scale = bits_float((float_bits(shifted) << 23) + 0x3f800000u);
  return x < -126.0f ? 0.0f : y * scale;
}

/// e^x, to the bit that of ops::exp.
BARG_DEVICE float exp(float x) {
  constexpr float kRound = 12582912.0f;
  x = x < -104.0f ? -104.0f : x;  // written so that a NaN passes
  x = x > 89.0f ? 89.0f : x;
  const float shifted = fma(x, 1.44269504088896341f, kRound);
  const float n = shifted - kRound;
  float r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  const float y = fma(p, r * r, r) + 1.0f;
  // 2^n in two factors: n reaches -150 and 128, and only the last product may round.
  const auto in = static_cast<std::int32_t>(float_bits(shifted) - float_bits(kRound));
  const std::int32_t n1 = in >> 1;
  const std::int32_t n2 = in - n1;
  const float s1 = bits_float(static_cast<std::uint32_t>(n1 + 127) << 23);
  const float s2 = bits_float(static_cast<std::uint32_t>(n2 + 127) << 23);
  return y * s1 * s2;
}

/// sin and cos of 0 <= x < 2^31 * pi, to the bit those of ops::sin_cos.
BARG_DEVICE void sin_cos(double x, float* sin, float* cos) {
  const auto k = static_cast<std::int64_t>(x * 6.36619772367581382433e-01 + 0.5);  // of a positive number, the floor
  const auto turns = static_cast<double>(k);
  const double r = (x - turns * 1.57079632673412561417e+00) - turns * 6.07710050650619224932e-11;
  const double z = r * r;
  double s = z * 1.58969099521155010221e-10 + -2.50507602534068634195e-08;
  s = z * s + 2.75573137070700676789e-06;
  s = z * s + -1.98412698298579493134e-04;
  s = z * s + 8.33333333332248946124e-03;
  s = z * s + -1.66666666666666324348e-01;
  s = r + r * z * s;
  double c = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
  c = z * c + -2.75573143513906633035e-07;
  c = z * c + 2.48015872894767294178e-05;
  c = z * c + -1.38888888888741095749e-03;
  c = z * c + 4.16666666666666019037e-02;
  c = 1.0 - 0.5 * z + z * z * c;
  const bool odd = (k & 1) != 0;
  const double up = odd ? c : s, along = odd ? s : c;
  *sin = static_cast<float>((k & 2) != 0 ? -up : up);
  *cos = static_cast<float>(((k + 1) & 2) != 0 ? -along : along);
}

/// To e4m3fn, nearest even; beyond 448 it gives 448. REQUIRES no NaN.
BARG_DEVICE std::uint8_t float_to_f8(float x) {
  const std::uint32_t bits = float_bits(x);
  const std::uint32_t sign = bits >> 24 & 0x80u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x43e00000u) magnitude = 0x43e00000u;  // 448
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: adding 2^14 puts the unit of the last place at 2^-9, so the addition does the rounding.
    return static_cast<std::uint8_t>(sign | (float_bits(bits_float(magnitude) + 16384.0f) - 0x46800000u));
  }
  const std::uint32_t odd = magnitude >> 20 & 1u;
  return static_cast<std::uint8_t>(sign | (magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20);
}

/// The codes in bits 0-7 and 16-23 of `codes` as a pair of bf16, exactly: their bits are those of a bf16 whose exponent
/// is smaller by 120. (The codes of NaN, which nobody writes, give 480.)
BARG_DEVICE std::uint32_t f8_pair_to_bfloat(std::uint32_t codes) {
  constexpr std::uint32_t kTwoTo120 = 0x7b807b80u;
  return multiply_bfloat2((codes & 0x00800080u) << 8 | (codes & 0x007f007fu) << 4, kTwoTo120);
}

}  // namespace barg::cuda
