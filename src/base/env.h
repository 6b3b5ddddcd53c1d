// The seams for everything timed or random. Real implementations here; virtual ones for tests, so that the
// core runs in a simulator and any run can be replayed.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace barg {

/// Monotonic seconds. Safe from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

/// A clock that moves only when told to (tests and simulator; one thread).
class ManualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double now_ = 0;
};

/// splitmix64: small, fast, and the same everywhere. Not for secrets.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, n), n > 0.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

/// A seed nobody can predict.
inline std::uint64_t random_seed() {
  std::random_device d;
  return (static_cast<std::uint64_t>(d()) << 32) ^ d();
}

}  // namespace barg
