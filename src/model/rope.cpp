#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace barg::model {
namespace {

/// llama3: long waves are stretched by `factor`, short ones kept, those between blended.
double llama3_frequency(const RopeSpec& s, double f) {
  const double wave = 2 * std::numbers::pi / f;
  if (wave < s.original_max_positions / s.high_freq_factor) return f;
  if (wave > s.original_max_positions / s.low_freq_factor) return f / s.factor;
  const double t =
      (s.original_max_positions / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - t) * f / s.factor + t * f;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& spec) {
  std::vector<float> out(static_cast<std::size_t>(spec.rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    double f = std::pow(spec.theta, -2.0 * static_cast<double>(i) / spec.rotary_dim);
    if (spec.kind == RopeSpec::Kind::kLinear) f /= spec.factor;
    if (spec.kind == RopeSpec::Kind::kLlama3) f = llama3_frequency(spec, f);
    if (!spec.divisors.empty()) f /= static_cast<double>(spec.divisors[i]);
    out[i] = static_cast<float>(f);
  }
  return out;
}

void sin_cos(double x, float* sin, float* cos) {
  // x = k pi/2 + r, |r| <= pi/4; pi/2 in two parts (the first has 33 bits, so k times it is exact for k <
  // 2^20); then fdlibm's polynomials for sin and cos of r.
  constexpr double kTwoOverPi = 6.36619772367581382433e-01;
  constexpr double kPio2Hi = 1.57079632673412561417e+00;
  constexpr double kPio2Lo = 6.07710050650619224932e-11;
  const double k = std::floor(x * kTwoOverPi + 0.5);
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

void rope_rows(const std::vector<float>& frequencies, const std::int32_t* positions, std::int32_t rows,
               float* cos, float* sin) {
  const std::size_t n = frequencies.size();
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = static_cast<std::size_t>(r) * n + i;
      sin_cos(static_cast<double>(positions[r]) * static_cast<double>(frequencies[i]), sin + at, cos + at);
    }
  }
}

}  // namespace barg::model
