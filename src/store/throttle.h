// ThrottledTier: another tier made as slow as one likes, for measuring what the restore planner does about
// it: `barg bench kv` with `disk:...,throttle=8MiB/s,latency=1ms`. Reads and writes each have a line of their
// own: an operation starts when the bytes before it have had their time, and is reported no earlier than its
// own bytes and the latency take. At every moment bytes pass at the rate that holds then, whatever it was
// when they began. What waits in line can still be cancelled, and ends at its deadline without being done.
//
// Threads: all methods from any thread; reports come from a thread of its own or the inner tier's. Owns the
// inner tier. Everything else goes straight to it.
#pragma once

#include <atomic>
#include <memory>

#include "base/env.h"
#include "store/tier.h"

namespace barg::store {

/// May be changed while it is used.
struct ThrottleControl {
  std::atomic<double> bytes_per_s{0};  ///< of each direction; 0 = as fast as the tier is
  std::atomic<double> latency_s{0};
};

/// REQUIRES that clock outlives the tier.
std::unique_ptr<Tier> throttled(std::unique_ptr<Tier> inner, std::shared_ptr<ThrottleControl> control,
                                const Clock& clock);

}  // namespace barg::store
