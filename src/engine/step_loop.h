// StepLoop: the engine thread. Owns scheduler and ledger, drives the runner.
//
//   stage    | reads                | changes
//   ---------+----------------------+--------------------------------------------------------------
//   drain    | inbox                | scheduler: add, cancel, finish_at, fail (queue timeout)
//   events   | tiers                | scheduler: answers of lookups, parts that were loaded
//   plan     | scheduler            | a StepPlan that reserves everything the step needs
//   commands | scheduler            | tiers: saves (before launch: the step may overwrite the blocks), lookups, loads
//   launch   | plan                 | runner: the device starts (or queues) the step
//   collect  | runner               | the oldest step's result; waits when nothing else can be done
//   apply    | result               | scheduler: tokens, finishes, freed blocks
//   post     | effects              | metrics published, sinks called, sequences given back
//
// Pipeline depths 0, 1 and 2 are this one loop: the scheduler refuses to plan beyond its depth, and then the
// loop waits for a result. With nothing to do, or nothing but loads to wait for, it sleeps in the inbox: an event of the
// tiers is a message there, and a deadline ends the sleep. Without tiers the two stages are a null check. Threads: run()
// on one thread; inbox() and ledger()'s marked methods from any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "barg/engine.h"
#include "base/env.h"
#include "base/queue.h"
#include "engine/admission.h"
#include "engine/journal.h"
#include "engine/ledger.h"
#include "runtime/runner.h"
#include "runtime/tier_service.h"
#include "sched/scheduler.h"

namespace barg::engine {

struct SubmitMessage {
  std::shared_ptr<const Request> request;
  Engine::Sink sink;
  double arrived_s = 0;
  std::vector<Digest> pins;  ///< blocks of the prompt that the tiers are to keep
};
struct CancelMessage {
  RequestId request{};
};
struct FinishAtMessage {
  RequestId request{};
  std::int32_t choice = 0;
  std::int32_t output_tokens = 0;
};
struct PauseMessage {
  RequestId request{};
  bool paused = false;
};
struct ForecastMessage {
  std::shared_ptr<const Request> request;
  std::function<void(const Forecast&)> sink;
};
/// The tiers have events.
struct WakeMessage {};
using Message =
    std::variant<SubmitMessage, CancelMessage, FinishAtMessage, PauseMessage, ForecastMessage, WakeMessage>;

/// What a request gets that waited longer than server.queue_timeout_s for its first step.
Error queue_timeout_error(double retry_after_s);

class StepLoop {
 public:
  struct Deps {
    runtime::Runner& runner;
    const Clock& clock;
    Admission& admission;
    Journal* journal = nullptr;  ///< may be nullptr
    double queue_timeout_s = 0;  ///< 0 = none
    std::function<void(const Error&)> lost{};  ///< EngineExtras::lost
  };

  /// Everything in `deps` outlives the loop.
  StepLoop(sched::SchedulerConfig config, const Deps& deps);

  /// Until the inbox is closed; then everything that still runs is cancelled, and it returns when the device
  /// is idle and every sink has had its last event.
  void run();

  /// Before run(). `tiers` outlives run().
  void use_tiers(runtime::TierService* tiers) { tiers_ = tiers; }

  Queue<Message>& inbox() { return inbox_; }
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  const sched::Scheduler& scheduler() const { return scheduler_; }

 private:
  void drain();
  std::vector<Message> next_messages();
  bool step();
  std::optional<sched::StepPlan> plan();
  void take_tier_events();
  bool submit_tier_commands();
  void lose_device();
  void take(SubmitMessage&& message, double now);
  void take(CancelMessage&& message, double now);
  void take(FinishAtMessage&& message, double now);
  void take(PauseMessage&& message, double now);
  void take(ForecastMessage&& message, double now);
  void take(WakeMessage&&, double) {}
  void expire(double now);
  void cancel_everything(double now);
  bool idle() const {
    return scheduler_.unfinished() == scheduler_.paused() && scheduler_.outstanding_plans() == 0;
  }
  void record(double now, decltype(JournalRecord::what) what);

  Deps deps_;
  sched::Scheduler scheduler_;
  Ledger ledger_;
  Queue<Message> inbox_;
  runtime::TierService* tiers_ = nullptr;        // nullptr: none
  std::vector<sched::TierCommand> commands_;     // scratch of submit_tier_commands()
  std::vector<sched::TierEvent> events_;         // scratch of take_tier_events()
  bool waits_for_tiers_ = false;                 // nothing is on the device, and nothing can be planned before an event
  bool dead_ = false;     // the device is lost
  bool closing_ = false;  // the inbox is closed and everything was cancelled
};

}  // namespace barg::engine
