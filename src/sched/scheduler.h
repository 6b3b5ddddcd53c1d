// Scheduler: decides what each step computes. Pure: no clock (times are arguments), thread, device or I/O, so
// any run can be replayed from its inputs, byte for byte.
//
// A step (src/README.md, scheduling): decode every running sequence, oldest service first; spend the rest of
// the token budget on prefill, started ones first, in chunks that keep the predicted step time under the
// inter-token target; admit waiting sequences whose whole known length fits beside what running prefills
// still need; preempt only when a running sequence cannot get its next block: lowest class, youngest first,
// never the oldest.
//
// Invariants:
//  1. A returned plan is launched, and steps execute in the order of their ids. At most pipeline_depth + 1
//     plans are outstanding; plan() returns nullopt beyond that. Results are applied in launch order.
//  2. If a sequence is unfinished and not paused and nothing is outstanding, plan() returns a non-empty plan,
//     or every such sequence waits for the tiers: next_deadline() says when plan() goes on without them.
//  3. Every sequence gets exactly one event with finish != kNone, and is named in exactly one
//     Effects::released after the last plan that names it has been applied (or at once, if none is in flight).
//  4. The oldest running sequence (by first admission) is never preempted, so every sequence finishes that is
//     not paused for ever.
//
// Threads: engine thread only, except check_request() and the constructor's arguments, which are constant.
// Not here: sampling, text, admission of requests into the process (see facts()), memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "barg/config.h"
#include "barg/request.h"
#include "barg/result.h"
#include "kv/manager.h"
#include "sched/cost_model.h"
#include "sched/plan.h"
#include "sched/restore.h"
#include "sched/sequence.h"
#include "sched/tier_plan.h"
#include "sched/waiting_queue.h"

namespace barg::sched {

struct SchedulerConfig {
  SchedulerOptions options;  ///< values must be in range (checked)
  std::int32_t max_rows =
      0;  ///< rows a step may have (RunnerInfo::max_rows); 0 = options.max_num_batched_tokens
  std::int32_t max_model_len = 0;  ///< prompt plus output
  std::vector<TokenId> end_ids;
  kv::ManagerOptions kv;
  std::string key_root;         ///< RunnerInfo::key_root
  std::int32_t bypass_max = 8;  ///< sequences that may overtake one that waits for blocks
  /// Prefill stretches a step to at most this many times the step that all who are in or about to enter will take
  /// once they decode (or a third of the inter-token target, if that is more): tokens come evenly, not just in time.
  double stretch_max = 3;
  TierRules tiers;  ///< disabled: nothing of tiers costs anything
  /// A prompt is computed in one step, of which every row is wanted: its tokens see each other. REQUIRES no prefix
  /// caching, max_model_len <= max_rows, and requests that embed.
  bool whole_prompts = false;
};

struct SequenceSpec {
  SeqId id{};                              ///< never used before
  std::shared_ptr<const Request> request;  ///< with its seed drawn
  std::int32_t choice = 0;
};

/// What the engine must do after a call: post events, tell the runner to forget sequences.
struct Effects {
  std::vector<TokenEvent> events;
  std::vector<SeqId> released;
};

/// For admission control, gauges and Retry-After.
struct QueueFacts {
  std::int64_t waiting = 0;           ///< sequences without blocks
  std::int64_t waiting_deferred = 0;  ///< of these: wait for a prefix that another sequence is computing
  std::int64_t waiting_tokens = 0;    ///< known tokens of waiting sequences
  std::int64_t running = 0;           ///< sequences that hold blocks
  std::int64_t running_tokens = 0;    ///< rows running sequences still have to compute
  std::int64_t paused = 0;            ///< sequences whose readers are behind
  std::int64_t finishing = 0;         ///< finished, but named by a step in flight
  std::int64_t asking = 0;            ///< waiting for the answer to a lookup in the tiers
  std::int64_t loading = 0;           ///< running, and blocks of theirs are being read from the tiers
};

/// Only ever grow.
struct Counters {
  std::uint64_t steps = 0;
  std::uint64_t mixed_steps = 0;        ///< prefill and decode rows in one step
  std::uint64_t computed_tokens = 0;    ///< rows planned
  std::uint64_t recomputed_tokens = 0;  ///< of these: computed before and lost by preemption
  std::uint64_t dropped_tokens = 0;     ///< sampled, but stale or behind a finish
  std::uint64_t late_tokens = 0;        ///< accepted from a step launched before a preemption
  std::uint64_t preemptions = 0;
  std::uint64_t pauses = 0;
  std::uint64_t admissions = 0;  ///< resumptions included
  std::uint64_t bypasses = 0;
  std::uint64_t deferrals = 0;       ///< plans in which a sequence waited for a prefix in production
  std::uint64_t prefix_queries = 0;  ///< tokens looked up at first admissions
  std::uint64_t prefix_hits = 0;     ///< of these: served
  std::uint64_t resume_hits = 0;     ///< tokens served from the cache when a preempted sequence resumed
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerConfig config);

  /// Would add() accept sequences of this request? kInvalidValue or kContextLengthExceeded with the field
  /// named. Reads constants only: any thread.
  Result<void> check_request(const Request& request) const;

  /// Queues a sequence. `now` is seconds on the engine's clock, never decreasing over all calls.
  Result<void> add(SequenceSpec spec, double now);

  /// All choices of a request end with kAbort. Idempotent, legal in every state and for unknown ids.
  Effects cancel(RequestId request, double now);
  /// All choices end with kError and `error`. Idempotent like cancel().
  Effects fail(RequestId request, const Error& error, double now);
  /// Choice `choice` ends with kStop: a stop string was found at its `output_tokens`-th token. The tokens
  /// already sent stay sent; the final event carries none.
  Effects finish_at(RequestId request, std::int32_t choice, std::int32_t output_tokens, double now);

  /// No choice of the request is planned, or each is again from where it was. Idempotent, legal in every
  /// state and for unknown ids.
  void pause(RequestId request, bool paused);

  /// The next step, or nullopt: nothing can be done before a result comes back (or nothing is left to do).
  std::optional<StepPlan> plan(double now);
  /// REQUIRES `result` to be of the oldest outstanding plan.
  /// What it leaves of `result` is memory that may be used again.
  Effects apply(StepResult&& result, double now);
  Effects apply(const StepResult& result, double now) { return apply(StepResult(result), now); }
  /// The memory of effects that have been carried out, for later ones. Nobody must call it.
  void recycle(Effects&& effects);

  // -- tiers below the device's pool (scheduler_tiers.cpp)
  /// Appends what the tiers have to do, in order. Call it after every plan(), also after one that returned
  /// nullopt, and submit everything before the plan is launched; after add() it has what a new sequence asks. What was cancelled since the last call comes
  /// first, then what the plan evicts.
  void take_tier_commands(std::vector<TierCommand>& out);
  void on_tier_event(const TierEvent& event, double now);
  /// plan() has something to do at this time even if nothing happens until then.
  std::optional<double> next_deadline() const;
  const TierCounters& tier_counters() const { return tier_counters_; }

  std::int64_t outstanding_plans() const { return static_cast<std::int64_t>(launched_.size()); }
  /// Sequences that have not had their last event.
  std::int64_t unfinished() const { return unfinished_; }
  /// Of these, paused.
  std::int64_t paused() const { return paused_; }
  /// Requests of which no choice was ever scheduled and that arrived before `t` (queue timeout), oldest
  /// first.
  std::vector<RequestId> unscheduled_since(double t) const;

  QueueFacts facts() const;
  /// Tokens of the prompt that admission would find in the device's pool now.
  std::int32_t cached_tokens(const Request& request);
  const Counters& counters() const { return counters_; }
  const CostModel& cost_model() const { return cost_; }
  const kv::KvManager& kv() const { return kv_; }
  /// Sequences that hold blocks, in order of admission. Valid until the next non-const call.
  const std::vector<Sequence*>& running() const { return running_; }

  /// CHECKs every invariant of scheduler and KV. Costly; tests call it after every operation.
  void check_integrity() const;
  /// Tests only: fault injection into block allocation.
  kv::KvManager& kv_for_test() { return kv_; }

 private:
  /// The plan being built. Sequences in it can still be preempted: then their rows leave it.
  struct Draft {
    StepId id{};
    std::vector<Sequence*> items;  // rows in Sequence::drafted
    std::vector<kv::TailCopy> copies;
    std::int32_t budget = 0;  // rows left
    StepCost cost;
    double allowed_s = 0;  // prefill may grow the step up to here
    std::int32_t decodes = 0;
    std::int32_t prefills = 0;
    bool preempted = false;
  };
  struct LaunchedItem {
    Sequence* seq = nullptr;
    std::uint32_t epoch = 0;
    std::int32_t start = 0, count = 0, logits_begin = 0;
  };
  struct Launched {
    StepId id{};
    StepCost cost;
    std::vector<LaunchedItem> items;
  };
  // -- scheduler_plan.cpp
  void start_draft();
  void service_order(std::vector<Sequence*>& out) const;
  void prefill_order(std::vector<Sequence*>& out) const;
  void serve(Sequence& s, std::int32_t rows);
  std::int32_t make_room(Sequence& s, std::int32_t rows);
  Sequence* choose_victim(const Sequence& s) const;
  void preempt(Sequence& s);
  void give_back(Sequence& s);
  void add_rows(Sequence& s, std::int32_t rows);
  std::int64_t joining() const;
  double allowed_seconds(const StepCost& decodes, std::int32_t count) const;
  void allow_prefill();
  std::int32_t chunk(std::int32_t start, std::int32_t outstanding, bool share) const;
  std::int32_t rows_within_target(std::int32_t start, std::int32_t most) const;
  void admit_waiting(double now);
  enum class Admitted : std::uint8_t { kYes, kNoBlocks, kNoTime, kTooLong };
  Admitted admit(Sequence& s, double now, bool share);
  void enter(Sequence& s, std::int32_t hit, double now);
  bool in_production(Sequence& s);
  bool full() const;
  std::vector<std::int64_t> kept_blocks() const;
  void add_needs(std::vector<std::int64_t>& keep) const;
  std::int32_t unfinished_prefills() const;
  void top_up();
  StepPlan launch();
  PlanItem plan_item(Sequence& s, StepPlan& plan);
  void append_tables(const Sequence& s, std::int32_t start, StepPlan& plan) const;

  // -- scheduler_tiers.cpp; all REQUIRE tiers_
  struct Tiers {
    std::vector<TierCommand> cancels, saves, reads, background;  // to be taken in this order
    std::vector<Sequence*> active;                               // that have asked, load or may load more
    std::unordered_map<std::uint64_t, Sequence*> lookups, loads;
    std::uint64_t last_id = 0;
    std::int32_t recomputed = 0;  // runs, since a slow tier was measured
    /// Where the last load passed its deadline: bytes a second it had reached. 0 = it ended in time.
    std::array<double, kNumPlaces> passed{};
    std::vector<kv::LoadSlot> slots;      // scratch
    std::vector<kv::Departed> departed;   // scratch
    double block_bytes = 0, tail_bytes = 0;  // read for each block; for the windows at the end of a run
  };
  void begin_tiers(double now);
  void end_tiers();
  bool may_enter(Sequence& s, double now);
  bool being_loaded(Sequence& s, std::int32_t index);
  void ask(Sequence& s, std::int32_t first, std::int32_t last, double now);
  void take_answer(const LookupAnswer& answer);
  void take_part(const PartLoaded& part, double now);
  void find_run(Restore& r);
  std::int32_t window_end(const Restore& r, std::int32_t first, std::int32_t last) const;
  PrefillLoad prefill_load() const;
  std::int32_t loadable(std::int32_t blocks) const;
  void choose_restore(Sequence& s, std::int32_t hit);
  bool reserve_run(Sequence& s);
  void start_load(Sequence& s, double now);
  void begin_restore(Sequence& s, bool loads, bool first_admission, double now);
  void follow_load(Sequence& s, double now);
  std::int32_t meeting_point(const Sequence& s) const;
  void adopt(Sequence& s);
  void pass(Sequence& s, std::int32_t to);
  void note_deadline(Sequence& s, double now);
  void give_up_load(Sequence& s);
  void end_load(Sequence& s, double now);
  void load_more(Sequence& s, double now);
  void cancel_load(Sequence& s);
  void leave_restore(Sequence& s);
  void note_progress(Sequence& s, double now);
  Sequence* loading_victim(const Sequence& s, const Sequence& oldest) const;
  std::int64_t reloading() const;
  void check_tiers() const;

  // -- scheduler.cpp
  bool reads_cache(const Sequence& s) const;
  Effects finish_all(RequestId request, FinishReason reason, const Error* error, double now);
  void apply_item(const LaunchedItem& item, ItemResult& result, double now, Effects& effects);
  void accept_prompt_logprobs(Sequence& s, const LaunchedItem& item, ItemResult& result);
  FinishReason accept(Sequence& s, OutputToken token, double now, TokenEvent& event);
  TokenEvent new_event(const Sequence& s) const;
  void finish(Sequence& s, FinishReason reason, TokenEvent event, Effects& effects);
  void forget_if_idle(Sequence& s, Effects& effects);
  void leave_running(Sequence& s);
  Effects lose_device(const Error& error, double now);

  const SchedulerConfig config_;
  kv::KvManager kv_;
  CostModel cost_;
  Counters counters_;
  WaitingQueue waiting_;
  std::vector<Sequence*> running_;                                          // hold blocks
  std::unordered_map<std::uint64_t, std::unique_ptr<Sequence>> sequences_;  // by SeqId
  std::unordered_map<std::uint64_t, std::vector<Sequence*>> requests_;      // by RequestId
  std::vector<Launched> launched_;                                          // oldest first; a few
  Draft draft_;
  std::vector<Digest> producing_;  // blocks that the draft's prefills work on, while somebody waits
  // Memory of plans, steps and effects that are done with, so that a step in the steady state allocates
  // nothing.
  std::vector<Sequence*> order_;  // scratch of plan()
  std::vector<StepPlan> spare_plans_;
  std::vector<std::vector<LaunchedItem>> spare_items_;
  std::vector<std::vector<OutputToken>> spare_tokens_;
  Effects spare_effects_;
  std::unique_ptr<Tiers> tiers_;  // nullptr: none
  TierCounters tier_counters_;
  std::int64_t unfinished_ = 0, paused_ = 0;
  std::int64_t deferred_ = 0;  // at the last plan
  std::uint64_t arrivals_ = 0, admitted_ = 0, last_step_ = 0;
};

}  // namespace barg::sched
