// The vector-math functions of the numerics contract, scalar form: exp, log, tanh, erf, silu, gelu, the 16-bit and
// 8-bit float formats and the one reduction tree. Every back end must return these bits; libm is never asked.
//
// Invariants:
//  1. Each function is a fixed sequence of IEEE-754 single operations under round-to-nearest-even. A fused
//     multiply-add happens where `fma` is written and nowhere else (-ffp-contract=off).
//  2. exp and log are within 2 ulp of the real value for every float; results below the normal range are
//     rounded once (no flush to zero).
//  3. NaN in gives NaN out; which NaN is not part of the contract.
//
// Everything is `static inline`: each translation unit keeps its own copy, so a copy built for AVX2 can never
// be linked into code that runs without it. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace barg::ops {

static inline std::uint32_t float_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
static inline float bits_float(std::uint32_t b) { return __builtin_bit_cast(float, b); }

/// round(a * b + c) with one rounding, in hardware or in software.
static inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

namespace math {
// exp: x = n ln2 + r, |r| <= ln2 / 2; e^r = 1 + r + r^2 P(r) (Cephes' minimax P); ln2 in two parts.
inline constexpr float kLog2e = 1.44269504088896341f;
inline constexpr float kLn2Hi = 0.693359375f;
inline constexpr float kLn2Lo = -2.12194440e-4f;
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float kExpMax = 89.0f;       // overflows to inf by itself
inline constexpr float kExpMin = -104.0f;     // rounds to 0 by itself
inline constexpr float kExpP[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                   4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
// log: x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); log(1 + f) = f - f^2 / 2 + f^3 Q(f) (Cephes).
inline constexpr std::int32_t kSqrtHalfBits = 0x3f3504f3;
inline constexpr float kLogQ[9] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                   -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                   2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
// gelu_tanh: 2 sqrt(2 / pi), and that times 0.044715.
inline constexpr float kGeluLinear = 1.59576912160573071f;
inline constexpr float kGeluCubic = 7.13548162726e-2f;
// tanh: x + x^3 P(x^2) (Cephes) up to kTanhSmall.
inline constexpr float kTanhSmall = 0.625f;
inline constexpr float kTanhP[5] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                    1.33314422036e-1f, -3.33332819422e-1f};
// erf: x + x P(x^2) below kErfSmall, above it 1 - exp(-Q(|x|)), least squares towards the smallest largest error;
// from kErfMax on it is 1.
inline constexpr float kErfSmall = 0.9277f;
inline constexpr float kErfMax = 4.0f;
inline constexpr float kErfP[6] = {-5.987234180793166e-4f, 4.992981906980276e-3f, -2.676690556108952e-2f,
                                   1.128183901309967e-1f,  -3.761249780654907e-1f, 1.2837915122509003e-1f};
inline constexpr float kErfQ[7] = {-1.9512433209456503e-4f, 3.035441506654024e-3f, -2.2196777164936066e-2f,
                                   1.0387095808982849e-1f,  6.372490525245667e-1f, 1.1276373863220215f,
                                   2.045884757535532e-4f};
inline constexpr float kSqrtHalf = 0.70710678118654752f;
}  // namespace math

static inline float exp(float x) {
  x = x < math::kExpMin ? math::kExpMin : x;  // written so that a NaN passes
  x = x > math::kExpMax ? math::kExpMax : x;
  const float shifted = fma(x, math::kLog2e, math::kRound);
  const float n = shifted - math::kRound;
  float r = fma(n, -math::kLn2Hi, x);
  r = fma(n, -math::kLn2Lo, r);
  float p = math::kExpP[0];
  for (int i = 1; i < 6; ++i) p = fma(p, r, math::kExpP[i]);
  const float y = fma(p, r * r, r) + 1.0f;
  // 2^n in two factors: n reaches -150 and 128, and only the last product may round.
  const auto in = static_cast<std::int32_t>(float_bits(shifted) - float_bits(math::kRound));
  const std::int32_t n1 = in >> 1;
  const std::int32_t n2 = in - n1;
  const float s1 = bits_float(static_cast<std::uint32_t>(n1 + 127) << 23);
  const float s2 = bits_float(static_cast<std::uint32_t>(n2 + 127) << 23);
  return y * s1 * s2;
}

/// log(0) = -inf, log of a negative number is NaN, log(inf) = inf.
static inline float log(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  if (!(x < __builtin_inff())) return x;
  std::int32_t e = 0;
  if (x < 1.17549435e-38f) {  // subnormal: scale into the normal range, exactly
    x *= 8388608.0f;
    e = -23;
  }
  const auto ix = static_cast<std::int32_t>(float_bits(x)) - math::kSqrtHalfBits;
  e += ix >> 23;
  const float f = bits_float(static_cast<std::uint32_t>((ix & 0x7fffff) + math::kSqrtHalfBits)) - 1.0f;
  const auto fe = static_cast<float>(e);
  const float z = f * f;
  float q = math::kLogQ[0];
  for (int i = 1; i < 9; ++i) q = fma(q, f, math::kLogQ[i]);
  float y = q * f * z;
  y = fma(fe, math::kLn2Lo, y);
  y = fma(-0.5f, z, y);
  return fma(fe, math::kLn2Hi, f + y);
}

static inline float silu(float x) { return x / (1.0f + exp(-x)); }
static inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

/// log(1 + e^x). What rounding 1 + e^x has lost comes back as a factor; above 20 it is x, as elsewhere.
static inline float softplus(float x) {
  if (x > 20.0f) return x;
  const float e = exp(x);
  const float u = 1.0f + e;
  return u == 1.0f ? e : log(u) * (e / (u - 1.0f));
}

/// x / 2 (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
static inline float gelu_tanh(float x) {
  return x / (1.0f + exp(-(x * fma(x * x, math::kGeluCubic, math::kGeluLinear))));
}

/// Below 0.625 an odd polynomial, above it 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
static inline float tanh(float x) {
  const float magnitude = bits_float(float_bits(x) & 0x7fffffffu);
  const float z = x * x;
  float p = math::kTanhP[0];
  for (int i = 1; i < 5; ++i) p = fma(p, z, math::kTanhP[i]);
  if (magnitude < math::kTanhSmall) return fma(p * z, x, x);
  const float large = 1.0f - 2.0f / (exp(magnitude + magnitude) + 1.0f);
  return bits_float(float_bits(large) | (float_bits(x) & 0x80000000u));
}

/// Within 1e-7 everywhere.
static inline float erf(float x) {
  const float magnitude = bits_float(float_bits(x) & 0x7fffffffu);
  const float z = x * x;
  float p = math::kErfP[0];
  for (int i = 1; i < 6; ++i) p = fma(p, z, math::kErfP[i]);
  if (magnitude < math::kErfSmall) return fma(p, x, x);
  const float t = magnitude > math::kErfMax ? math::kErfMax : magnitude;  // written so that a NaN passes
  float q = math::kErfQ[0];
  for (int i = 1; i < 7; ++i) q = fma(q, t, math::kErfQ[i]);
  const float large = 1.0f - exp(-q);
  return bits_float(float_bits(large) | (float_bits(x) & 0x80000000u));
}

/// (x / 2) (1 + erf(x / sqrt(2))).
static inline float gelu_erf(float x) { return (0.5f * x) * (1.0f + erf(x * math::kSqrtHalf)); }

/// IEEE binary16 to f32, exact.
static inline float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  const std::uint32_t fraction = h & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, an exact product
    return bits_float(sign | float_bits(static_cast<float>(fraction) * 5.9604644775390625e-8f));
  }
  if (exponent == 31) {
    const std::uint32_t quiet = fraction != 0 ? 0x400000u : 0u;  // as the hardware conversion does
    return bits_float(sign | 0x7f800000u | quiet | fraction << 13);
  }
  return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/// f32 to IEEE binary16, round to nearest even; overflow gives inf, NaN stays a (quiet) NaN.
static inline std::uint16_t f32_to_f16(float x) {
  const std::uint32_t bits = float_bits(x);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the unit of the last place at 2^-24, so the addition does the rounding.
    return static_cast<std::uint16_t>(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
  }
  const std::uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

static inline float bf16_to_f32(std::uint16_t h) { return bits_float(static_cast<std::uint32_t>(h) << 16); }

/// f32 to bfloat16, round to nearest even; NaN stays a (quiet) NaN.
static inline std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// f32 to e4m3fn (sign, 4 bits of exponent with bias 7, 3 of fraction, no infinities), round to nearest even;
/// beyond 448 it gives 448. REQUIRES no NaN.
static inline std::uint8_t f32_to_f8(float x) {
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

/// 1/256 of what an e4m3fn code says, exact: its bits are those of a binary16 whose bias is larger by 8. (The
/// codes of NaN, which nobody writes, give 1.875.)
static inline float f8_to_f32_256th(std::uint8_t code) {
  return f16_to_f32(static_cast<std::uint16_t>((code & 0x80u) << 8 | (code & 0x7fu) << 7));
}

/// Every float sum over a row: element i is accumulated into lane i % kLanes in ascending order, then the
/// lanes fold in halves (8, 4, 2, 1).
inline constexpr int kLanes = 16;
static inline float fold_lanes(const float* lanes) {
  float t[kLanes / 2];
  for (int i = 0; i < 8; ++i) t[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) t[i] += t[i + 4];
  for (int i = 0; i < 2; ++i) t[i] += t[i + 2];
  return t[0] + t[1];
}

/// Of 0 <= x < 2^31 * pi, within 1e-9 and rounded to f32: the same bits on every machine, whatever its libm.
static inline void sin_cos(double x, float* sin, float* cos) {
  // x = k pi/2 + r, |r| <= pi/4; pi/2 in two parts (the first has 33 bits, so k times it is exact for k <
  // 2^20); then fdlibm's polynomials for sin and cos of r.
  constexpr double kTwoOverPi = 6.36619772367581382433e-01;
  constexpr double kPio2Hi = 1.57079632673412561417e+00;
  constexpr double kPio2Lo = 6.07710050650619224932e-11;
  const double k = __builtin_floor(x * kTwoOverPi + 0.5);
  const double r = (x - k * kPio2Hi) - k * kPio2Lo;
  const double z = r * r;
  const double s =
      r + r * z *
              (-1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 +
                              z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
  const double c = 1.0 - 0.5 * z +
                   z * z *
                       (4.16666666666666019037e-02 +
                        z * (-1.38888888888741095749e-03 +
                             z * (2.48015872894767294178e-05 +
                                  z * (-2.75573143513906633035e-07 +
                                       z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  const auto quadrant = static_cast<std::int64_t>(k) & 3;
  const double sines[4] = {s, c, -s, -c};
  *sin = static_cast<float>(sines[quadrant]);
  *cos = static_cast<float>(sines[(quadrant + 1) & 3]);
}

}  // namespace barg::ops
