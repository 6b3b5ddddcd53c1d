// TierService: carries out the scheduler's tier commands. The only place where the device's pool and the tiers meet.
//
//   engine thread -- commands --> TierService -- get, put --> store::TierStack (DRAM, disk, remote)
//                 <-- events ---      |
//                                     +-- copies of device blocks (KvAccess)
//
// Invariants:
//  1. When submit(SaveCommand::kEvicted) returns, the block's bytes have been taken or will not be: it may be
//     overwritten. A queued early copy of the same block is dropped, one in progress is waited for (microseconds).
//  2. A block named by a load is written by this service alone, from submit(LoadCommand) until the part's event is
//     polled or a cancel returns. Cancels return within the time of one block's copy.
//  3. Every lookup and every part of a load that is not cancelled ends with one event, by its deadline.
//  4. Bytes enter a device block only after the tier has verified them in host memory.
//  5. Nothing here waits for a disk or a network.
// Early and second-use copies wait in a bounded queue for one thread of low priority; whatever finds it full is dropped
// and counted.
//
// Threads: submit(), poll(), pin() and drop_saves() from the engine thread, stats() from any. `notify` is called from a
// tier thread after an event has been queued; it must be quick. Deadlines are looked at in poll(): who waits for one must
// call it then. Destruction stops everything, writes back nothing more, and joins.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/hash.h"
#include "runtime/kv_access.h"
#include "runtime/runner.h"
#include "sched/tier_plan.h"
#include "store/stack.h"

namespace barg::runtime {

class TierService {
 public:
  virtual ~TierService() = default;
  virtual void submit(sched::TierCommand&& command) = 0;
  /// Appends what has happened, in order.
  virtual void poll(std::vector<sched::TierEvent>& out) = 0;
  /// Every part of these blocks is kept by the tiers until `until`: those that are there now, and those that are saved
  /// before then, which go to every tier.
  virtual void pin(std::span<const Digest> blocks, double until) = 0;
  /// No block is copied out any more that was not copied yet: the device's memory cannot be trusted.
  virtual void drop_saves() = 0;
  virtual store::StackStats stats() const = 0;
};

/// Whose blocks a runner's are in the tiers. `label`: for people.
store::Domain domain_of(const RunnerInfo& info, const std::string& label);

/// Everything given outlives the service. `notify`: see above.
std::unique_ptr<TierService> make_tier_service(KvAccess& access, store::TierStack& stack, const Clock& clock,
                                               std::function<void()> notify);

}  // namespace barg::runtime
