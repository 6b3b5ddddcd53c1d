// CostModel: how long a step will take, learnt from the steps before it.
//
//   seconds = scale * (a + b * rows + c * keys)     a, b, c >= 0
//
// rows: all rows of the step; keys: sum over its rows of the number of keys a row attends to. The shape (a,
// b, c) is a decayed least-squares fit of relative errors, pulled towards what it was (steps without prefill
// say nothing about b). `scale` follows the ratio of measured to predicted time quickly, so a machine that
// becomes twice as slow is believed within a few steps; each ratio is clamped, so one outlier moves it
// little.
//
// Pure and deterministic. Engine thread only.
#pragma once

#include <array>
#include <cstdint>

namespace barg::sched {

struct StepCost {
  double rows = 0;
  double keys = 0;

  /// `count` rows of one sequence that start at position `start`.
  static StepCost of(std::int32_t start, std::int32_t count) {
    const double n = count;
    return {n, n * start + n * (n + 1) / 2};
  }
  StepCost& operator+=(const StepCost& o) {
    rows += o.rows;
    keys += o.keys;
    return *this;
  }
  friend StepCost operator+(StepCost a, const StepCost& b) { return a += b; }
};

class CostModel {
 public:
  double predict(const StepCost& step) const;
  /// What a step took. Values that are not positive and finite are ignored.
  void observe(const StepCost& step, double seconds);

  /// Most rows ever seen in one step times two: how far predict() may be trusted. At least kFirstRows.
  double trusted_rows() const;
  /// Smoothed rows per second of the steps seen; 0 before the first.
  double rows_per_second() const;
  std::int64_t samples() const { return samples_; }

  static constexpr double kFirstRows = 32;

 private:
  static constexpr std::size_t kN = 3;
  using Vec = std::array<double, kN>;

  double shape(const Vec& x) const;
  void refit();

  Vec theta_{1e-3, 1e-3, 1e-7};
  double scale_ = 1;
  std::array<Vec, kN> normal_{};  // decayed sum of x x^T / t^2
  Vec moment_{};                  // decayed sum of x / t
  double most_rows_ = 0;
  double rows_sum_ = 0, seconds_sum_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace barg::sched
