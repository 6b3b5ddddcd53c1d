// SpeedMeter: what a kind of tier does at present, from its last reads.
//
// Reads overlap, so a read's own time says little about how fast many are. Time is counted in rounds: from the first
// read in flight until none is, cut after half a second. A round gives one pair (latency, bandwidth) that explains
// the time it took; the medians over the last three are the answer, so that one stutter changes nothing and a tier
// that changes is believed after two rounds. Reads that were given up say something too: hardly more than what had come
// by then can come in that time.
//
// Threads: the owner's lock. Pure: time comes in as an argument.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "store/stack.h"

namespace barg::store {

class SpeedMeter {
 public:
  void started(std::uint64_t bytes, double now) {
    queued_ += bytes;
    if (in_flight_++ == 0) round_ = {.start = now, .whole = true};
    round_.largest = std::max(round_.largest, static_cast<double>(bytes));
  }

  void finished(std::uint64_t bytes, bool ok, double now) {
    queued_ -= bytes;
    --in_flight_;
    if (ok) {
      if (round_.reads++ == 0) round_.first = now;
      if (round_.first < now) round_.later += static_cast<double>(bytes);
      round_.came += static_cast<double>(bytes);
      round_.last = now;
    } else {
      round_.gave_up = true;
    }
    if (in_flight_ == 0) {
      end(now);
    } else if (now - round_.start >= kLongestRound && (round_.reads >= kLeastReads || round_.gave_up)) {
      const double largest = round_.largest;
      end(now);
      round_ = {.start = now, .largest = largest};
    }
  }

  TierSpeed speed(double now) const {
    TierSpeed out;
    out.queued_bytes = static_cast<double>(queued_);
    out.measured = ended_ > 0 || round_.came > 0;
    if (!out.measured) return out;
    const bool first = ended_ == 0;  // the first round has not ended: what has come of it says
    const Pair p = first ? pair(round_, round_.last) : Pair{median(&Pair::latency), median(&Pair::bytes_per_s)};
    out.latency_s = p.latency;
    out.bytes_per_s = p.bytes_per_s;
    out.age_s = now - (first ? round_.last : measured_at_);
    return out;
  }

 private:
  struct Round {
    double start = 0;
    bool whole = false;          ///< began with nothing in flight: its latency shows
    double largest = 0;          ///< bytes of one read
    double came = 0, later = 0;  ///< bytes that came; of them behind the first
    double first = 0, last = 0;  ///< when
    std::uint64_t reads = 0;     ///< that came
    bool gave_up = false;
  };
  struct Pair {
    double latency = 0, bytes_per_s = 0;
  };

  /// latency + came / bytes_per_s = the time it took. How much of it was latency: what comes behind the first read
  /// shows the bandwidth; but completions come in clusters, so it is bounded by the whole.
  static Pair pair(const Round& r, double now) {
    double time = std::max(r.last - r.start, kLeastTime), came = r.came;
    const double until_now = std::max(now - r.start, kLeastTime);
    if (r.gave_up && (came == 0 || (came + r.largest) / until_now < came / time)) {
      time = until_now;
      came += r.largest;
    }
    const double whole = came / time;
    if (!r.whole) return {0, whole};
    const double behind = r.last > r.first ? r.later / (r.last - r.first) : kClusters * whole;
    const double bandwidth = r.came > 0 ? std::clamp(behind, whole, kClusters * whole) : whole;
    return {std::max(0.0, time - came / bandwidth), bandwidth};
  }

  void end(double now) {
    if (round_.came == 0 && !round_.gave_up) return;
    if (!round_.whole && now - round_.start < kLeastRest) return;  // completions come in clusters
    const Pair p = pair(round_, now);
    // Nothing came: it is slower than that, which is news only if it had the time, and was thought to be faster.
    if (round_.came == 0 && (now - round_.start < kPatience || ended_ == 0 || p.bytes_per_s >= median(&Pair::bytes_per_s)))
      return;
    pairs_[ended_++ % kRounds] = p;
    measured_at_ = now;
  }

  double median(double Pair::* field) const {
    std::array<double, kRounds> all{};
    const std::size_t n = std::min<std::size_t>(ended_, kRounds);
    for (std::size_t i = 0; i < n; ++i) all[i] = pairs_[i].*field;
    std::sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
    return n % 2 == 1 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2;
  }

  static constexpr std::size_t kRounds = 3;
  static constexpr double kLongestRound = 0.5;     ///< s
  static constexpr std::uint64_t kLeastReads = 8;  ///< of a round that is cut, if none was given up
  static constexpr double kLeastRest = 0.1;        ///< s: of what is behind a cut
  static constexpr double kPatience = 0.02;        ///< s: a read that is given up sooner says nothing
  static constexpr double kClusters = 4;
  static constexpr double kLeastTime = 1e-9;

  std::uint64_t in_flight_ = 0, queued_ = 0, ended_ = 0;
  double measured_at_ = 0;
  Round round_;
  std::array<Pair, kRounds> pairs_{};
};

}  // namespace barg::store
