// Ledger: the requests that have not had their last event, where their events go, and everything that is
// counted about them. The step loop tells it what happened; it calls sinks and keeps the metrics.
//
// Invariants: (1) A sink gets exactly one final event per choice and none after it; the ledger forgets a
// request with its last one. (2) Metrics are published before the events they count are delivered, so whoever
// saw an event sees it counted. (3) A sequence is handed to the runner when a plan first names it, and taken
// back when the scheduler releases it.
//
// Threads: engine thread only, but published() and active(), which any thread may call.
// It does not: decide anything, touch the scheduler or the device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "barg/engine.h"
#include "barg/request.h"
#include "engine/admission.h"
#include "engine/metrics.h"
#include "runtime/runner.h"
#include "sched/plan.h"
#include "sched/scheduler.h"

namespace barg::engine {

class Ledger {
 public:
  /// `admission` and `runner` outlive the ledger.
  Ledger(Admission& admission, runtime::Runner& runner, std::int32_t max_model_len);

  /// Takes a submitted request and names one new sequence per choice. Empty if the id is in use: the sink has
  /// then been told so.
  std::vector<sched::SequenceSpec> open(std::shared_ptr<const Request> request, Engine::Sink sink,
                                        double arrived);
  /// A plan is about to be launched: its new sequences are registered with the runner, their requests leave
  /// the queue.
  /// It was decided on from `planned_at` until `now`.
  void on_launch(const sched::StepPlan& plan, double planned_at, double now);
  /// A step has come back; call before post() of its effects.
  void on_result(const sched::StepResult& result);
  /// Publishes `gauges` and what the effects count, then delivers the events and gives back released
  /// sequences.
  void post(sched::Effects&& effects, const sched::Scheduler& scheduler, double now);
  void count_timeout() { ++metrics_.queue_timeouts; }
  /// One final event per choice for a request that never became sequences.
  void refuse(const Request& request, const Engine::Sink& sink, const Error& error, double arrived);

  std::vector<RequestId> open_requests() const;
  /// Copy of the last published state; what is still in the inbox counts as waiting.
  EngineMetrics published() const;
  std::int64_t active() const { return active_.load(); }
  /// A request with `choices` choices is on its way: called by the submitter, before the engine thread sees
  /// it.
  void expect(std::int32_t choices) {
    active_.fetch_add(1);
    arriving_.fetch_add(choices);
  }
  /// It has arrived at the engine thread, or could not be sent.
  void arrived(std::int32_t choices) { arriving_.fetch_sub(choices); }
  void forget() { active_.fetch_sub(1); }
  /// Publishes who runs and who waits. The KV gauges stay those of the last result: what a step in flight has
  /// reserved is neither used nor wasted.
  void publish_queue(const sched::Scheduler& scheduler);

 private:
  struct Choice {
    std::int32_t tokens = 0;
    double first_token_s = 0;
    double last_token_s = 0;
    bool finished = false;
  };
  struct Open {
    std::shared_ptr<const Request> request;
    Engine::Sink sink;
    std::vector<Choice> choices;
    std::int32_t unfinished = 0;
    std::int32_t most_tokens = 0;  // of one choice
    bool waiting = true;           // holds a place in Admission
    bool counted_first = false;    // first token of any choice was seen
    bool counted_prompt = false;   // choice 0 finished its prefill
    double arrived_s = 0;
    double first_scheduled_s = 0;
  };
  struct Registered {
    std::shared_ptr<const Request> request;
    std::int32_t choice = 0;
    bool at_runner = false;
    bool corrupted = false;
  };

  void leave_queue(Open& open);
  void count_event(Open& open, const TokenEvent& event, double now);
  void count_tokens(Open& open, Choice& choice, const TokenEvent& event, double now);
  void count_finish(Open& open, Choice& choice, const TokenEvent& event, double now);
  void count_prompt(Open& open, const RequestStats& stats);
  void count_request_end(const Open& open, double now);
  void publish(const sched::Scheduler& scheduler);
  void publish_copy();

  Admission& admission_;
  runtime::Runner& runner_;
  std::unordered_map<RequestId, Open> open_;
  std::unordered_map<SeqId, Registered> sequences_;
  std::vector<std::int32_t> launched_rows_;  // of steps in flight, oldest first; a few
  kv::Usage usage_;                          // scratch of publish()
  std::vector<RequestId> closing_;  // scratch of post()
  std::uint64_t next_seq_ = 1;
  double smoothed_rows_ = 0, smoothed_seconds_ = 0, smoothed_outputs_ = 0;
  EngineMetrics metrics_;
  std::atomic<std::int64_t> active_{0};
  std::atomic<std::int64_t> arriving_{0};  // choices in the inbox

  mutable std::mutex mutex_;
  EngineMetrics published_;  // guarded by mutex_
};

}  // namespace barg::engine
