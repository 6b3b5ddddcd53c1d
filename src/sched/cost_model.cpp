#include "sched/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace barg::sched {
namespace {

constexpr double kDecay = 0.97;            // of old samples in the shape: a memory of about 30 steps
constexpr double kScaleGain = 0.3;         // how much of a ratio is believed at once
constexpr double kRatioMax = 2.5;          // one outlier moves the scale by at most kRatioMax^kScaleGain
constexpr double kPull = 0.02;             // towards the shape before, in samples of relative error
constexpr std::int64_t kFirstSamples = 3;  // believed whole: the start values are guesses

/// Solves the active rows of a symmetric 3x3 system by elimination; inactive unknowns stay 0.
std::array<double, 3> solve(std::array<std::array<double, 3>, 3> a, std::array<double, 3> b,
                            const std::array<bool, 3>& active) {
  std::array<double, 3> x{};
  for (std::size_t i = 0; i < 3; ++i) {
    if (active[i]) continue;
    for (std::size_t j = 0; j < 3; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = 1;
    b[i] = 0;
  }
  for (std::size_t i = 0; i < 3; ++i) {  // positive definite (the pull): no pivoting needed
    for (std::size_t j = i + 1; j < 3; ++j) {
      const double f = a[j][i] / a[i][i];
      for (std::size_t k = i; k < 3; ++k) a[j][k] -= f * a[i][k];
      b[j] -= f * b[i];
    }
  }
  for (std::size_t i = 3; i-- > 0;) {
    double v = b[i];
    for (std::size_t k = i + 1; k < 3; ++k) v -= a[i][k] * x[k];
    x[i] = v / a[i][i];
  }
  return x;
}

}  // namespace

double CostModel::shape(const Vec& x) const { return theta_[0] * x[0] + theta_[1] * x[1] + theta_[2] * x[2]; }

double CostModel::predict(const StepCost& step) const { return scale_ * shape({1, step.rows, step.keys}); }

void CostModel::observe(const StepCost& step, double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds)) return;
  const double ratio = seconds / predict(step);
  if (samples_ < kFirstSamples) {
    scale_ *= samples_ == 0 ? ratio : std::sqrt(ratio);
  } else {
    scale_ *= std::pow(std::clamp(ratio, 1 / kRatioMax, kRatioMax), kScaleGain);
  }
  ++samples_;
  most_rows_ = std::max(most_rows_, step.rows);
  rows_sum_ = kDecay * rows_sum_ + step.rows;
  seconds_sum_ = kDecay * seconds_sum_ + seconds;

  const Vec x{1, step.rows, step.keys};
  // A clamped target, so that one stalled step does not bend the shape.
  const double expected = shape(x);
  const double t = std::clamp(seconds / scale_, expected / kRatioMax, expected * kRatioMax);
  for (std::size_t i = 0; i < kN; ++i) {
    for (std::size_t j = 0; j < kN; ++j) normal_[i][j] = kDecay * normal_[i][j] + x[i] * x[j] / (t * t);
    moment_[i] = kDecay * moment_[i] + x[i] / t;
  }
  refit();
}

void CostModel::refit() {
  // Work in units of the present shape, so that all unknowns are near 1 and the pull means the same for each.
  Vec unit;
  for (std::size_t i = 0; i < kN; ++i) unit[i] = std::max(theta_[i], 1e-10);
  std::array<Vec, kN> a = normal_;
  Vec b = moment_;
  for (std::size_t i = 0; i < kN; ++i) {
    for (std::size_t j = 0; j < kN; ++j) a[i][j] *= unit[i] * unit[j];
    a[i][i] += kPull;
    b[i] = b[i] * unit[i] + kPull * theta_[i] / unit[i];
  }
  std::array<bool, kN> active{true, true, true};
  Vec y = solve(a, b, active);
  for (std::size_t round = 0; round < kN && *std::min_element(y.begin(), y.end()) < 0; ++round) {
    for (std::size_t i = 0; i < kN; ++i) active[i] = active[i] && y[i] > 0;
    y = solve(a, b, active);
  }
  for (std::size_t i = 0; i < kN; ++i) theta_[i] = std::max(y[i] * unit[i], 1e-12);
}

double CostModel::trusted_rows() const { return std::max(kFirstRows, 2 * most_rows_); }

double CostModel::rows_per_second() const { return seconds_sum_ > 0 ? rows_sum_ / seconds_sum_ : 0; }

}  // namespace barg::sched
