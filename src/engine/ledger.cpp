#include "engine/ledger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace barg::engine {
namespace {

// Weight of the past per step (rows and seconds) and per answer: about the last 20 of each count.
constexpr double kDecay = 0.95;

KvUsage kv_usage(const kv::Usage& usage) {
  KvUsage out;
  for (const auto& g : usage.groups) {
    out.total_blocks += g.total;
    out.active_blocks += g.open + g.sealed;
    out.cached_blocks += g.cached;
    out.fenced_blocks += g.fenced;
    out.free_blocks += g.blank;
  }
  out.usage = usage.used;
  out.waste_tail = usage.waste_tail;
  out.waste_reserved = usage.waste_reserved;
  out.waste_fenced = usage.waste_fenced;
  return out;
}

}  // namespace

Ledger::Ledger(Admission& admission, runtime::Runner& runner, std::int32_t max_model_len)
    : admission_(admission), runner_(runner), metrics_(max_model_len), published_(max_model_len) {}

void Ledger::refuse(const Request& request, const Engine::Sink& sink, const Error& error, double arrived) {
  for (std::int32_t c = 0; c < request.n; ++c) {
    TokenEvent event;
    event.request = request.id;
    event.choice = c;
    event.finish = FinishReason::kError;
    event.error = error;
    event.stats.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
    event.stats.arrived_s = arrived;
    event.stats.seed = request.sampling.seed.value_or(0);
    sink(std::move(event));
  }
}

std::vector<sched::SequenceSpec> Ledger::open(std::shared_ptr<const Request> request, Engine::Sink sink,
                                              double arrived) {
  std::vector<sched::SequenceSpec> specs;
  const RequestId id = request->id;
  if (open_.contains(id)) {
    admission_.leave(static_cast<std::int64_t>(request->prompt.size()));
    admission_.count(Rejection::kInvalid);
    refuse(*request, sink, Error{ErrorCode::kInvalidValue, "this request id is in use", "id", 0}, arrived);
    forget();
    return specs;
  }
  for (std::int32_t c = 0; c < request->n; ++c) {
    const SeqId seq{next_seq_++};
    sequences_.emplace(seq, Registered{.request = request, .choice = c});
    specs.push_back({.id = seq, .request = request, .choice = c});
  }
  Open open;
  open.choices.resize(static_cast<std::size_t>(request->n));
  open.unfinished = request->n;
  open.arrived_s = arrived;
  open.sink = std::move(sink);
  open.request = std::move(request);
  open_.emplace(id, std::move(open));
  return specs;
}

void Ledger::leave_queue(Open& open) {
  if (!open.waiting) return;
  open.waiting = false;
  admission_.leave(static_cast<std::int64_t>(open.request->prompt.size()));
}

void Ledger::on_launch(const sched::StepPlan& plan, double planned_at, double now) {
  metrics_.plan_seconds.observe(now - planned_at);
  launched_rows_.push_back(plan.rows());
  for (const auto& item : plan.items) {
    const auto found = sequences_.find(item.seq);
    CHECK(found != sequences_.end());
    auto& sequence = found->second;
    if (sequence.at_runner) continue;
    sequence.at_runner = true;
    runner_.add_sequence(item.seq, sequence.request, sequence.choice);
    const auto open = open_.find(sequence.request->id);
    if (open == open_.end() || !open->second.waiting) continue;
    leave_queue(open->second);
    open->second.first_scheduled_s = now;
    metrics_.request_queue_time.observe(now - open->second.arrived_s);
  }
}

void Ledger::on_result(const sched::StepResult& result) {
  CHECK(!launched_rows_.empty());
  const double rows = launched_rows_.front();
  launched_rows_.erase(launched_rows_.begin());
  smoothed_rows_ = smoothed_rows_ * kDecay + rows;
  smoothed_seconds_ = smoothed_seconds_ * kDecay + result.seconds;
  metrics_.device_seconds += result.seconds;
  metrics_.step_seconds.observe(result.seconds);
  metrics_.iteration_tokens_total.observe(rows);
  for (const auto& item : result.items) {
    if (item.status != sched::ItemStatus::kBadLogits) continue;
    const auto found = sequences_.find(item.seq);
    if (found == sequences_.end() || std::exchange(found->second.corrupted, true)) continue;
    ++metrics_.corrupted_requests;
  }
}

void Ledger::count_tokens(Open& open, Choice& choice, const TokenEvent& event, double now) {
  const auto count = static_cast<std::int32_t>(event.tokens.size());
  if (count == 0) return;
  metrics_.generation_tokens += static_cast<std::uint64_t>(count);
  if (choice.tokens == 0) {
    choice.first_token_s = now;
    if (count > 1) metrics_.inter_token_latency.observe(0, static_cast<std::uint64_t>(count - 1));
  } else {
    metrics_.inter_token_latency.observe((now - choice.last_token_s) / count,
                                         static_cast<std::uint64_t>(count));
  }
  choice.last_token_s = now;
  choice.tokens += count;
  open.most_tokens = std::max(open.most_tokens, choice.tokens);
  if (open.counted_first) return;
  open.counted_first = true;
  metrics_.time_to_first_token.observe(now - open.arrived_s);
  metrics_.request_prefill_time.observe(now - open.first_scheduled_s);
}

void Ledger::count_finish(Open& open, Choice& choice, const TokenEvent& event, double now) {
  CHECK(!choice.finished);
  choice.finished = true;
  ++metrics_.finished[static_cast<std::size_t>(event.finish)];
  metrics_.request_generation_tokens.observe(choice.tokens);
  if (choice.tokens > 0) {
    const double decode = choice.last_token_s - choice.first_token_s;
    metrics_.request_decode_time.observe(decode);
    if (choice.tokens > 1) metrics_.time_per_output_token.observe(decode / (choice.tokens - 1));
  }
  if (event.finish != FinishReason::kError && event.finish != FinishReason::kAbort) {
    const double past = smoothed_outputs_ == 0 ? choice.tokens : smoothed_outputs_;
    smoothed_outputs_ = past * kDecay + choice.tokens * (1 - kDecay);
  }
  if (--open.unfinished == 0) count_request_end(open, now);
}

void Ledger::count_prompt(Open& open, const RequestStats& stats) {
  if (open.counted_prompt) return;
  open.counted_prompt = true;
  const auto prompt = static_cast<std::uint64_t>(open.request->prompt.size());
  const auto cached = static_cast<std::uint64_t>(stats.cached_tokens);
  metrics_.prompt_tokens += prompt;
  metrics_.prompt_tokens_cached += cached;
  metrics_.prompt_tokens_computed += prompt - cached;
  for (std::size_t p = 0; p < stats.cached_by_place.size(); ++p) {
    metrics_.tiers.cached_tokens[p] += static_cast<std::uint64_t>(stats.cached_by_place[p]);
  }
  metrics_.request_prefill_kv_computed_tokens.observe(static_cast<double>(prompt - cached));
}

void Ledger::count_request_end(const Open& open, double now) {
  const auto& request = *open.request;
  const auto prompt = static_cast<double>(request.prompt.size());
  metrics_.request_params_n.observe(request.n);
  metrics_.request_params_max_tokens.observe(request.sampling.max_tokens);
  metrics_.request_prompt_tokens.observe(prompt);
  metrics_.request_max_num_generation_tokens.observe(open.most_tokens);
  metrics_.e2e_request_latency.observe(now - open.arrived_s);
  if (open.waiting) return;  // no step ever named it
  metrics_.request_inference_time.observe(now - open.first_scheduled_s);
}

void Ledger::count_event(Open& open, const TokenEvent& event, double now) {
  auto& choice = open.choices[static_cast<std::size_t>(event.choice)];
  count_tokens(open, choice, event, now);
  // Also without a token: max_tokens = 0.
  const bool scored = event.finish == FinishReason::kLength || !event.embedding.empty();
  if (event.choice == 0 && (choice.tokens > 0 || scored)) count_prompt(open, event.stats);
  if (event.finish == FinishReason::kNone) return;
  count_finish(open, choice, event, now);
  if (open.unfinished > 0) return;
  leave_queue(open);
  closing_.push_back(event.request);
}

void Ledger::publish_queue(const sched::Scheduler& scheduler) {
  const auto facts = scheduler.facts();
  metrics_.num_requests_running = facts.running;
  metrics_.num_requests_waiting = facts.waiting;
  metrics_.waiting_deferred = facts.waiting_deferred;
  metrics_.num_requests_paused = facts.paused;
  metrics_.waiting_capacity = facts.waiting - facts.waiting_deferred;
  publish_copy();
}

void Ledger::publish(const sched::Scheduler& scheduler) {
  const auto& counters = scheduler.counters();
  scheduler.kv().usage(usage_);
  metrics_.kv = kv_usage(usage_);
  metrics_.prefix_cache_queries = counters.prefix_queries;
  metrics_.prefix_cache_hits = counters.prefix_hits;
  metrics_.num_preemptions = counters.preemptions;
  metrics_.prompt_tokens_recomputed = counters.recomputed_tokens;
  metrics_.steps = counters.steps;
  metrics_.mixed_steps = counters.mixed_steps;
  metrics_.tiers.restore = scheduler.tier_counters();
  metrics_.tokens_per_second = smoothed_seconds_ > 0 ? smoothed_rows_ / smoothed_seconds_ : 0;
  admission_.set_speed(metrics_.tokens_per_second, smoothed_outputs_);
  publish_queue(scheduler);
}

void Ledger::publish_copy() {
  std::lock_guard lock(mutex_);
  published_ = metrics_;
}

void Ledger::post(sched::Effects&& effects, const sched::Scheduler& scheduler, double now) {
  for (auto& event : effects.events) {
    const auto found = open_.find(event.request);
    CHECK(found != open_.end());
    auto& open = found->second;
    event.stats.arrived_s = open.arrived_s;  // the scheduler knows only when the engine thread saw it
    event.stats.seed = *open.request->sampling.seed;
    count_event(open, event, now);
  }
  publish(scheduler);
  for (auto& event : effects.events) open_.find(event.request)->second.sink(std::move(event));
  for (const RequestId id : closing_) {
    open_.erase(id);
    forget();
  }
  closing_.clear();
  for (const SeqId seq : effects.released) {
    const auto found = sequences_.find(seq);
    CHECK(found != sequences_.end());
    if (found->second.at_runner) runner_.remove_sequence(seq);
    sequences_.erase(found);
  }
}

std::vector<RequestId> Ledger::open_requests() const {
  std::vector<RequestId> out;
  out.reserve(open_.size());
  for (const auto& [id, open] : open_) out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

EngineMetrics Ledger::published() const {
  const std::int64_t arriving = arriving_.load();
  std::lock_guard lock(mutex_);
  EngineMetrics m = published_;
  m.num_requests_waiting += arriving;
  m.waiting_capacity += arriving;
  return m;
}

}  // namespace barg::engine
