// SpeedMeter: what a kind of tier does at present, from its completed reads.
//
// Reads overlap, so a read's own time says little about how fast many are. Time is counted in episodes, from
// the first read in flight until none is: after an episode's first completion, what comes in the time that
// passes is bandwidth; a read that had the tier for itself is latency. Decayed by completed reads, so a tier
// that changes is believed after some tens of parts.
//
// Threads: the owner's lock. Pure: time comes in as an argument.
#pragma once

#include <algorithm>
#include <cstdint>

#include "store/stack.h"

namespace barg::store {

class SpeedMeter {
 public:
  /// True: nothing else is in flight. Hand it back to finished().
  bool started(std::uint64_t bytes, double now) {
    queued_ += bytes;
    if (in_flight_++ > 0) return false;
    last_ = now;
    first_ = true;
    return true;
  }

  void finished(std::uint64_t bytes, bool alone, bool ok, double seconds, double now) {
    queued_ -= bytes;
    --in_flight_;
    if (!ok) return;
    const auto size = static_cast<double>(bytes);
    if (alone && in_flight_ == 0) {
      latency_ = samples_ == 0 || latency_ == 0 ? seconds : latency_ + kLatencyShare * (seconds - latency_);
    } else if (latency_ == 0) {
      latency_ = seconds;
    }
    bytes_ = bytes_ * kKept + size;
    busy_ = busy_ * kKept + (now - last_);
    if (!first_) {
      next_bytes_ = next_bytes_ * kKept + size;
      next_busy_ = next_busy_ * kKept + (now - last_);
    }
    first_ = false;
    last_ = now;
    ++samples_;
    measured_at_ = now;
  }

  TierSpeed speed(double now) const {
    TierSpeed out;
    out.measured = samples_ > 0;
    out.queued_bytes = static_cast<double>(queued_);
    if (!out.measured) return out;
    out.latency_s = latency_;
    out.age_s = now - measured_at_;
    // Completions come in clusters, and a few of them say nothing about the time between: bounded by the
    // whole.
    const double whole = bytes_ / std::max(busy_, 1e-9);
    const double next = next_busy_ > 0 ? next_bytes_ / next_busy_ : whole;
    out.bytes_per_s = std::clamp(next_bytes_ > 0 ? next : whole, whole, kClusters * whole);
    return out;
  }

 private:
  static constexpr double kKept = 0.98;  ///< a read's weight halves with every 34 more
  static constexpr double kLatencyShare = 0.25;
  static constexpr double kClusters = 4;

  std::uint64_t in_flight_ = 0, queued_ = 0, samples_ = 0;
  double last_ = 0, measured_at_ = 0;
  bool first_ = true;
  double latency_ = 0;
  double bytes_ = 0, busy_ = 0;            ///< of all completions
  double next_bytes_ = 0, next_busy_ = 0;  ///< of those after an episode's first
};

}  // namespace barg::store
