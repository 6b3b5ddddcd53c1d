// Journal: everything that went into the engine's decisions, in order, so that a run can be replayed.
//
// Records are appended by the engine thread only: a submitted request, a cancel, a pause, a finish_at, an event of the
// tiers, a plan's limits and digest, a step's result (token ids, not logprobs), each with a sequence number and the
// engine's time.
// Replaying the inputs through a fresh Scheduler gives the same plans (tests/engine/journal_test.cpp), and
// counters recomputed from it equal the metrics.
//
// A bounded ring: beyond `capacity` records the oldest go and dropped() counts them. Memory only, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "barg/request.h"
#include "base/hash.h"
#include "sched/plan.h"
#include "sched/tier_plan.h"

namespace barg::engine {

struct JournalSubmit {
  std::shared_ptr<const Request> request;  ///< with its seed drawn
};
struct JournalCancel {
  RequestId request{};
  bool timeout = false;  ///< the queue timeout, not the client
};
struct JournalFinishAt {
  RequestId request{};
  std::int32_t choice = 0;
  std::int32_t output_tokens = 0;
};
struct JournalPause {
  RequestId request{};
  bool paused = false;
};
/// Something came of a lookup or a load.
struct JournalTier {
  sched::TierEvent event;
};
/// The scheduler was asked for a plan.
struct JournalPlan {
  StepId step{};    ///< 0 = there was nothing to do (kept with tiers only: asking may start a lookup)
  Digest digest{};  ///< over the whole plan
};
struct JournalResult {
  sched::StepResult result;  ///< logprobs stripped
};

struct JournalRecord {
  std::uint64_t sequence = 0;
  double time_s = 0;
  std::variant<JournalSubmit, JournalCancel, JournalFinishAt, JournalPause, JournalTier, JournalPlan,
               JournalResult>
      what;
};

class Journal {
 public:
  explicit Journal(std::size_t capacity) : capacity_(capacity) {}

  void append(double time_s, decltype(JournalRecord::what) what);
  /// Copy of what is there, oldest first. Any thread.
  std::vector<JournalRecord> records() const;
  std::uint64_t dropped() const;

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::deque<JournalRecord> records_;  // guarded by mutex_
  std::uint64_t next_ = 1;             // guarded by mutex_
  std::uint64_t dropped_ = 0;          // guarded by mutex_
};

/// SHA-256 over every field of a plan except its forecast.
Digest plan_digest(const sched::StepPlan& plan);

}  // namespace barg::engine
