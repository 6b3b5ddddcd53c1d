#include "engine/step_loop.h"

#include <limits>
#include <optional>
#include <utility>

namespace barg::engine {
namespace {

/// A result as the journal keeps it: everything the scheduler decides from, no log-probabilities, no plan.
sched::StepResult without_logprobs(const sched::StepResult& result) {
  sched::StepResult out{
      .id = result.id, .items = result.items, .seconds = result.seconds, .fatal = result.fatal};
  for (auto& item : out.items) {
    for (auto& token : item.tokens) token.logprobs.reset();
    if (!item.pooled.empty()) item.pooled.assign(1, 0.0F);  // that it was there
    for (auto& entry : item.prompt_logprobs) {
      entry = TokenLogprobs{.id = entry.id, .logprob = 0, .rank = 0, .top = {}};
    }
  }
  return out;
}

}  // namespace

StepLoop::StepLoop(sched::SchedulerConfig config, const Deps& deps)
    : deps_(deps),
      scheduler_(std::move(config)),
      ledger_(deps.admission, deps.runner, deps.runner.info().max_model_len),
      inbox_(std::numeric_limits<std::size_t>::max()) {}

void StepLoop::run() {
  do {
    drain();
  } while (step() || !closing_);
}

/// Everything after drain. False when the device is idle and nothing is left to plan.
bool StepLoop::step() {
  if (dead_) return false;
  auto next = plan();
  const bool launched = next.has_value();
  if (launched) deps_.runner.launch(std::move(*next));
  auto result = deps_.runner.collect(/*wait=*/!launched);
  waits_for_tiers_ = tiers_ != nullptr && !launched && !result;
  if (result) {
    const double now = deps_.clock.now();
    if (deps_.journal != nullptr) record(now, JournalResult{without_logprobs(*result)});
    ledger_.on_result(*result);
    std::optional<Error> lost;
    if (result->fatal) {
      if (!dead_) lost = *result->fatal;
      lose_device();  // first: whoever sees the error finds the door closed
      result->fatal = Error{ErrorCode::kUnavailable, kDeviceLost, {}, 0};
    }
    auto effects = scheduler_.apply(std::move(*result), now);
    ledger_.post(std::move(effects), scheduler_, now);
    // Sinks take what they want of an event; what they leave is memory for the next step.
    scheduler_.recycle(std::move(effects));
    deps_.runner.recycle(std::move(*result));
    if (lost && deps_.lost) deps_.lost(*lost);
  }
  return launched || result || !idle();
}

/// The next plan, with everything done that must be before it is launched.
std::optional<sched::StepPlan> StepLoop::plan() {
  for (;;) {
    if (tiers_ != nullptr) take_tier_events();
    const double now = deps_.clock.now();
    auto plan = scheduler_.plan(now);
    const double planned = deps_.clock.now();
    if (plan || tiers_ != nullptr) {
      const bool digested = plan && deps_.journal != nullptr;
      record(now, JournalPlan{plan ? plan->id : StepId{}, digested ? plan_digest(*plan) : Digest{}});
    }
    const bool asked = tiers_ != nullptr && submit_tier_commands();
    if (!plan && asked) continue;  // tiers of this machine have answered by now
    if (plan) {
      ledger_.on_launch(*plan, now, planned);
      ledger_.publish_queue(scheduler_);  // a step may be long: the gauges tell who runs in it
    }
    return plan;
  }
}

void StepLoop::take_tier_events() {
  tiers_->poll(events_);
  if (events_.empty()) return;
  const double now = deps_.clock.now();
  for (const sched::TierEvent& event : events_) {
    if (deps_.journal != nullptr) record(now, JournalTier{event});
    scheduler_.on_tier_event(event, now);
  }
  events_.clear();
}

/// True if something was looked up.
bool StepLoop::submit_tier_commands() {
  scheduler_.take_tier_commands(commands_);
  bool asked = false;
  for (sched::TierCommand& command : commands_) {
    asked |= std::holds_alternative<sched::LookupCommand>(command);
    tiers_->submit(std::move(command));
  }
  commands_.clear();
  return asked;
}

std::vector<Message> StepLoop::next_messages() {
  if (closing_) return inbox_.drain();
  if (dead_ || idle()) return inbox_.wait_drain();
  if (!waits_for_tiers_) return inbox_.drain();
  const auto deadline = scheduler_.next_deadline();
  if (!deadline) return inbox_.wait_drain();
  return inbox_.wait_drain_for(*deadline - deps_.clock.now());
}

void StepLoop::drain() {
  auto messages = next_messages();
  const double now = deps_.clock.now();
  for (auto& message : messages) {
    std::visit([&](auto&& m) { take(std::forward<decltype(m)>(m), now); }, std::move(message));
  }
  if (!messages.empty()) ledger_.publish_queue(scheduler_);
  if (!dead_ && tiers_ != nullptr && !messages.empty()) submit_tier_commands();
  if (!dead_) expire(now);
  if (inbox_.closed() && messages.empty() && !closing_) cancel_everything(now);
}

void StepLoop::take(SubmitMessage&& message, double now) {
  ledger_.arrived(message.request->n);
  if (dead_) {
    deps_.admission.leave(static_cast<std::int64_t>(message.request->prompt.size()));
    ledger_.refuse(*message.request, message.sink,
                   Error{ErrorCode::kUnavailable, kDeviceLost, {}, 0},
                   message.arrived_s);
    ledger_.forget();
    return;
  }
  const RequestId id = message.request->id;
  if (!message.pins.empty()) tiers_->pin(message.pins, now + message.request->cache_pin_s);
  record(now, JournalSubmit{message.request});
  for (auto& spec : ledger_.open(std::move(message.request), std::move(message.sink), message.arrived_s)) {
    if (auto added = scheduler_.add(std::move(spec), now); !added) {
      // Checked at submit against the same limits; should they ever differ, the request ends with the reason.
      ledger_.post(scheduler_.fail(id, added.error(), now), scheduler_, now);
      return;
    }
  }
}

void StepLoop::take(CancelMessage&& message, double now) {
  if (dead_) return;
  record(now, JournalCancel{message.request, /*timeout=*/false});
  ledger_.post(scheduler_.cancel(message.request, now), scheduler_, now);
}

void StepLoop::take(FinishAtMessage&& message, double now) {
  if (dead_) return;
  record(now, JournalFinishAt{message.request, message.choice, message.output_tokens});
  ledger_.post(scheduler_.finish_at(message.request, message.choice, message.output_tokens, now), scheduler_,
               now);
}

void StepLoop::take(PauseMessage&& message, double now) {
  if (dead_) return;
  record(now, JournalPause{message.request, message.paused});
  scheduler_.pause(message.request, message.paused);
}

void StepLoop::take(ForecastMessage&& message, double) {
  const sched::QueueFacts facts = scheduler_.facts();
  const double speed = deps_.admission.tokens_per_second();
  Forecast f{.cached_tokens = dead_ ? 0 : scheduler_.cached_tokens(*message.request),
             .waiting = facts.waiting,
             .running = facts.running};
  if (speed > 0) {
    const auto own = static_cast<double>(message.request->prompt.size()) - f.cached_tokens;
    f.queue_s = static_cast<double>(facts.waiting_tokens) / speed;
    f.first_token_s = f.queue_s + own / speed;
  }
  message.sink(f);
}

void StepLoop::expire(double now) {
  if (deps_.queue_timeout_s <= 0) return;
  for (const RequestId id : scheduler_.unscheduled_since(now - deps_.queue_timeout_s)) {
    record(now, JournalCancel{id, /*timeout=*/true});
    ledger_.count_timeout();
    ledger_.post(scheduler_.fail(id, queue_timeout_error(deps_.admission.retry_after()), now), scheduler_,
                 now);
  }
}

void StepLoop::cancel_everything(double now) {
  closing_ = true;
  if (dead_) return;
  for (const RequestId id : ledger_.open_requests()) {
    record(now, JournalCancel{id, /*timeout=*/false});
    ledger_.post(scheduler_.cancel(id, now), scheduler_, now);
  }
}

/// Nothing more is planned or accepted; apply() ends every request.
void StepLoop::lose_device() {
  if (std::exchange(dead_, true)) return;
  if (tiers_ != nullptr) tiers_->drop_saves();
  deps_.admission.fail();
}

void StepLoop::record(double now, decltype(JournalRecord::what) what) {
  if (deps_.journal != nullptr) deps_.journal->append(now, std::move(what));
}

Error queue_timeout_error(double retry_after_s) {
  return Error{ErrorCode::kTimeout, "the request waited too long for its first step", {}, retry_after_s};
}

}  // namespace barg::engine
