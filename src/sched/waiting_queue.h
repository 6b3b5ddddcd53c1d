// WaitingQueue: sequences that hold no blocks, in the order in which they should enter.
//
// Order: effective class, then resumed before new, then seniority (first admission for the resumed, arrival
// for the new). The effective class is the request's own, less one for every `ageing_s` it has been in the
// engine, so nothing waits behind a better class for ever.
//
// Engine thread only. Borrows sequences; they outlive their stay.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "sched/sequence.h"

namespace barg::sched {

class WaitingQueue {
 public:
  explicit WaitingQueue(double ageing_s) : ageing_s_(ageing_s) {}

  void insert(Sequence& s);
  /// REQUIRES `s` to be in the queue.
  void erase(Sequence& s);
  /// A waiting sequence's token count grew (a result in flight when it was preempted).
  void grew(std::int32_t tokens) { tokens_ += tokens; }

  std::int64_t size() const;
  std::int64_t tokens() const { return tokens_; }
  /// The first `count` sequences in order at time `now`.
  std::vector<Sequence*> front(double now, std::size_t count) const;
  /// Those never admitted that arrived before `t`, in order of arrival.
  std::vector<Sequence*> unadmitted_since(double t) const;

 private:
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const { return rank(*a) < rank(*b); }
  };
  /// Within one class: resumed first, then by age.
  static std::uint64_t rank(const Sequence& s) {
    return s.first_scheduled != 0 ? s.first_scheduled : (std::uint64_t{1} << 63) + s.arrival;
  }
  int effective_class(const Sequence& s, double now) const;

  double ageing_s_;
  std::int64_t tokens_ = 0;
  std::array<std::set<Sequence*, Before>, 3> classes_;  // by the request's own class
};

}  // namespace barg::sched
