// Scheduler: arrivals, results and ends. plan() is in scheduler_plan.cpp.
#include "sched/scheduler.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace barg::sched {
namespace {

std::uint64_t raw(SeqId id) { return static_cast<std::uint64_t>(id); }
std::uint64_t raw(RequestId id) { return static_cast<std::uint64_t>(id); }

SchedulerConfig normalised(SchedulerConfig c) {
  const std::int32_t budget = c.options.max_num_batched_tokens;
  c.max_rows = c.max_rows > 0 ? std::min(c.max_rows, budget) : budget;
  CHECK(c.max_rows >= 1 && c.options.max_num_seqs >= 1 && c.max_model_len >= 1 && c.bypass_max >= 0);
  CHECK(!c.whole_prompts || (c.max_model_len <= c.max_rows && !c.kv.enable_prefix_caching));
  CHECK(c.options.pipeline_depth >= 0 && c.options.pipeline_depth <= 2);
  CHECK(c.options.itl_target_ms > 0 && c.options.watermark >= 0 && c.options.watermark < 1);
  CHECK(c.tiers.load_share > 0 && c.tiers.load_share <= 1 && c.tiers.lookup_timeout_s > 0);
  c.tiers.enabled = c.tiers.enabled && c.kv.enable_prefix_caching;
  c.kv.track_evictions = c.tiers.enabled;
  for (const kv::GroupSpec& g : c.kv.groups)  // less would end before the first snapshot
    c.tiers.planner.trial_blocks = std::max(c.tiers.planner.trial_blocks, g.interval);
  return c;
}

/// No token is sampled at or beyond this position.
std::int32_t length_limit(const Request& r, std::int32_t max_model_len) {
  const std::int64_t wanted = static_cast<std::int64_t>(r.prompt.size()) + std::max(0, r.sampling.max_tokens);
  return static_cast<std::int32_t>(std::min<std::int64_t>(wanted, max_model_len));
}

/// Tokens whose KV is ever computed: the last one sampled is not.
std::int32_t most_computed(const Request& r, std::int32_t max_model_len) {
  const std::int32_t limit = length_limit(r, max_model_len);
  return limit > static_cast<std::int32_t>(r.prompt.size()) ? limit - 1 : limit;
}

constexpr std::size_t kSpareSteps = 4;  // more than ever are on their way

std::string count(std::int64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

Scheduler::Scheduler(SchedulerConfig config)
    : config_(normalised(std::move(config))), kv_(config_.kv), waiting_(config_.options.ageing_s) {
  if (!config_.tiers.enabled) return;
  tiers_ = std::make_unique<Tiers>();
  for (const kv::GroupSpec& g : config_.kv.groups) {
    const auto bytes = static_cast<double>(g.block_bytes);
    if (g.kind == kv::GroupKind::kFull) {
      tiers_->block_bytes += bytes;
    } else {
      const std::int32_t window = g.kind == kv::GroupKind::kSlidingWindow ? g.window : 0;
      tiers_->tail_bytes += bytes * (window / config_.kv.block_tokens + 1);
    }
  }
  if (tiers_->block_bytes == 0) tiers_->block_bytes = tiers_->tail_bytes;  // windows alone
}

// ---- arrivals

Result<void> Scheduler::check_request(const Request& r) const {
  if (r.prompt.empty()) return barg::fail(ErrorCode::kInvalidValue, "The prompt is empty.", "prompt");
  if (r.sampling.max_tokens < 0) {
    return barg::fail(ErrorCode::kInvalidValue, "max_tokens must be at least 0.", "max_tokens");
  }
  const auto prompt = static_cast<std::int64_t>(r.prompt.size());
  const std::int64_t longest = config_.max_model_len - (r.sampling.max_tokens > 0 ? 1 : 0);
  if (prompt > longest) {
    return barg::fail(ErrorCode::kContextLengthExceeded,
                      "This model's maximum context length is " + count(config_.max_model_len, "token") +
                          ", and the prompt has " + count(prompt, "token") + ".",
                      "prompt");
  }
  const std::int32_t needed = most_computed(r, config_.max_model_len);
  for (std::int32_t g = 0; g < kv_.num_groups(); ++g) {
    const std::int64_t total = kv_.total(g);
    if (kv_.blocks_needed(g, needed, 1) <= total) continue;
    const std::int64_t capacity = total * kv_.block_tokens();
    const std::string room =
        "The KV cache holds " + count(capacity, "token") + " and the prompt has " + count(prompt, "token");
    if (prompt > capacity) return barg::fail(ErrorCode::kContextLengthExceeded, room + ".", "prompt");
    return barg::fail(ErrorCode::kInvalidValue,
                      room + ": max_tokens may be at most " + std::to_string(capacity - prompt + 1) + ".",
                      "max_tokens");
  }
  return {};
}

Result<void> Scheduler::add(SequenceSpec spec, double now) {
  CHECK(spec.request != nullptr && !sequences_.contains(raw(spec.id)));
  if (auto ok = check_request(*spec.request); !ok) return ok;
  auto owned = std::make_unique<Sequence>();
  Sequence& s = *owned;
  s.id = spec.id;
  s.choice = spec.choice;
  s.request = std::move(spec.request);
  s.limit = length_limit(*s.request, config_.max_model_len);
  s.expected = s.prompt();
  s.arrival = ++arrivals_;
  s.kv = kv_.open(kv::root_key(config_.key_root, s.request->cache_salt));
  s.stats.prompt_tokens = s.prompt();
  s.stats.arrived_s = now;
  s.stats.seed = s.request->sampling.seed.value_or(0);
  if (s.scores_prompt())
    s.prompt_logprobs.push_back({.id = s.request->prompt[0], .logprob = 0, .rank = 0, .top = {}});
  requests_[raw(s.request->id)].push_back(&s);
  waiting_.insert(s);
  ++unfinished_;
  sequences_.emplace(raw(s.id), std::move(owned));
  // It asks the tiers now if its turn may come in the next plan: asking there would cost it a step.
  if (tiers_ != nullptr && waiting_.size() <= config_.tiers.lookups_most && !full()) (void)may_enter(s, now);
  return {};
}

/// Prompt scores need the logits of every prompt row, so such a sequence computes all of them once.
bool Scheduler::reads_cache(const Sequence& s) const {
  const bool scoring = s.scores_prompt() && static_cast<std::int32_t>(s.prompt_logprobs.size()) < s.prompt();
  return config_.kv.enable_prefix_caching && !scoring;
}

// ---- ends

Effects Scheduler::cancel(RequestId request, double now) {
  return finish_all(request, FinishReason::kAbort, nullptr, now);
}

Effects Scheduler::fail(RequestId request, const Error& error, double now) {
  return finish_all(request, FinishReason::kError, &error, now);
}

Effects Scheduler::finish_all(RequestId request, FinishReason reason, const Error* error, double) {
  Effects effects;
  const auto it = requests_.find(raw(request));
  if (it == requests_.end()) return effects;
  for (Sequence* s : std::vector<Sequence*>(it->second)) {
    if (s->state == SeqState::kFinished) continue;
    TokenEvent event = new_event(*s);
    if (error != nullptr) event.error = *error;
    finish(*s, reason, std::move(event), effects);
  }
  return effects;
}

Effects Scheduler::finish_at(RequestId request, std::int32_t choice, std::int32_t, double) {
  Effects effects;
  const auto it = requests_.find(raw(request));
  if (it == requests_.end()) return effects;
  for (Sequence* s : std::vector<Sequence*>(it->second)) {
    if (s->choice != choice || s->state == SeqState::kFinished) continue;
    finish(*s, FinishReason::kStop, new_event(*s), effects);
    break;
  }
  return effects;
}

void Scheduler::pause(RequestId request, bool paused) {
  const auto it = requests_.find(raw(request));
  if (it == requests_.end()) return;
  for (Sequence* s : it->second) {
    if (s->state == SeqState::kFinished || (s->state == SeqState::kPaused) == paused) continue;
    if (!paused) {
      s->state = SeqState::kWaiting;
      waiting_.insert(*s);
      --paused_;
      continue;
    }
    if (s->restore != nullptr) leave_restore(*s);
    s->state == SeqState::kWaiting ? waiting_.erase(*s) : give_back(*s);
    s->state = SeqState::kPaused;
    ++paused_;
    ++counters_.pauses;
  }
}

TokenEvent Scheduler::new_event(const Sequence& s) const {
  TokenEvent event;
  event.request = s.request->id;
  event.choice = s.choice;
  event.first_index = s.emitted;
  return event;
}

/// Sends the last event and gives everything back; steps in flight keep the blocks fenced and the id alive.
void Scheduler::finish(Sequence& s, FinishReason reason, TokenEvent event, Effects& effects) {
  CHECK(s.state != SeqState::kFinished);
  if (s.state == SeqState::kWaiting) {
    waiting_.erase(s);
  } else if (s.state == SeqState::kPaused) {
    --paused_;
  } else {
    leave_running(s);
  }
  if (s.restore != nullptr) leave_restore(s);
  s.state = SeqState::kFinished;
  --unfinished_;
  kv_.release(s.kv, s.in_flight > 0 ? s.last_step : StepId{});
  kv_.close(s.kv);
  event.finish = reason;
  event.stats = s.stats;
  effects.events.push_back(std::move(event));
  forget_if_idle(s, effects);
}

void Scheduler::forget_if_idle(Sequence& s, Effects& effects) {
  if (s.state != SeqState::kFinished || s.in_flight > 0) return;
  effects.released.push_back(s.id);
  const auto it = requests_.find(raw(s.request->id));
  std::erase(it->second, &s);
  if (it->second.empty()) requests_.erase(it);
  sequences_.erase(raw(s.id));
}

void Scheduler::leave_running(Sequence& s) {
  const auto it = std::find(running_.begin(), running_.end(), &s);
  CHECK(it != running_.end());
  running_.erase(it);
}

// ---- results

Effects Scheduler::apply(StepResult&& result, double now) {
  CHECK(!launched_.empty() && launched_.front().id == result.id);
  if (result.fatal) return lose_device(*result.fatal, now);
  Launched step = std::move(launched_.front());
  launched_.erase(launched_.begin());
  CHECK(step.items.size() == result.items.size());
  kv_.retire(step.id);
  cost_.observe(step.cost, result.seconds);
  Effects effects = std::move(spare_effects_);
  for (std::size_t i = 0; i < step.items.size(); ++i) {
    CHECK(step.items[i].seq->id == result.items[i].seq);
    --step.items[i].seq->in_flight;  // one by one: a sequence named further down must not be forgotten yet
    apply_item(step.items[i], result.items[i], now, effects);
  }
  if (spare_plans_.size() < kSpareSteps) spare_plans_.push_back(std::move(result.spent));
  if (spare_items_.size() < kSpareSteps) spare_items_.push_back(std::move(step.items));
  return effects;
}

void Scheduler::recycle(Effects&& effects) {
  const auto most = static_cast<std::size_t>(config_.options.max_num_seqs);
  for (TokenEvent& event : effects.events) {
    if (event.tokens.capacity() == 0 || spare_tokens_.size() >= most) continue;  // the sink kept it
    event.tokens.clear();
    spare_tokens_.push_back(std::move(event.tokens));
  }
  effects.events.clear();
  effects.released.clear();
  spare_effects_ = std::move(effects);
}

void Scheduler::apply_item(const LaunchedItem& item, ItemResult& result, double now, Effects& effects) {
  Sequence& s = *item.seq;
  if (s.state == SeqState::kFinished) {
    counters_.dropped_tokens += result.tokens.size();
    return forget_if_idle(s, effects);
  }
  if (result.status == ItemStatus::kBadLogits) {
    const Error error{ErrorCode::kBadNumbers, "The model produced invalid numbers for this request.", "", 0};
    Effects ended = finish_all(s.request->id, FinishReason::kError, &error, now);
    std::move(ended.events.begin(), ended.events.end(), std::back_inserter(effects.events));
    std::move(ended.released.begin(), ended.released.end(), std::back_inserter(effects.released));
    return;
  }
  if (item.epoch == s.epoch) s.processed = std::max(s.processed, item.start + item.count);
  accept_prompt_logprobs(s, item, result);
  TokenEvent event = new_event(s);
  FinishReason finished = FinishReason::kNone;
  std::int32_t position = result.position;
  for (OutputToken& t : result.tokens) {
    // By rule: the next token of the log, whichever epoch computed it; everything else is stale.
    if (position++ == s.known() && finished == FinishReason::kNone) {
      counters_.late_tokens += item.epoch != s.epoch ? 1 : 0;
      finished = accept(s, std::move(t), now, event);
    } else {
      ++counters_.dropped_tokens;
    }
  }
  if (s.request->embeds) {
    // Whichever epoch computed it: the bits are the same.
    event.embedding = std::move(result.pooled);
    if (!event.embedding.empty()) finished = FinishReason::kStop;
  } else if (s.limit == s.prompt() && s.processed == s.prompt()) {
    finished = FinishReason::kLength;
  }
  if (s.state == SeqState::kRunning) {
    kv_.publish(s.kv, s.log(), std::min(s.scheduled, s.known()), s.in_flight > 0 ? s.last_step : StepId{});
    kv_.advance(s.kv, s.processed);
    if (s.restore != nullptr) note_progress(s, now);
  }
  s.emitted = s.known() - s.prompt();
  const bool scored = s.scores_prompt() && static_cast<std::int32_t>(s.prompt_logprobs.size()) == s.prompt();
  if (scored && !s.prompt_logprobs_sent && (finished != FinishReason::kNone || !event.tokens.empty())) {
    event.prompt_logprobs = s.prompt_logprobs;
    s.prompt_logprobs_sent = true;
  }
  if (finished != FinishReason::kNone) return finish(s, finished, std::move(event), effects);
  if (event.tokens.empty()) return;
  event.stats = s.stats;
  effects.events.push_back(std::move(event));
}

void Scheduler::accept_prompt_logprobs(Sequence& s, const LaunchedItem& item, ItemResult& result) {
  if (!s.scores_prompt()) return;
  std::int32_t position = item.start + 1 + item.logits_begin;
  for (TokenLogprobs& l : result.prompt_logprobs) {
    const bool next = position == static_cast<std::int32_t>(s.prompt_logprobs.size());
    if (next && position < s.prompt()) s.prompt_logprobs.push_back(std::move(l));
    ++position;
  }
}

FinishReason Scheduler::accept(Sequence& s, OutputToken token, double now, TokenEvent& event) {
  const TokenId id = token.id;
  const SamplingParams& p = s.request->sampling;
  const auto index = static_cast<std::int32_t>(s.outputs.size());
  if (s.state == SeqState::kWaiting) waiting_.grew(1);
  s.outputs.push_back(id);
  s.expected = std::max(s.expected, s.known());
  s.stats.last_token_s = now;
  if (index == 0) s.stats.first_token_s = now;
  if (event.tokens.capacity() == 0 && !spare_tokens_.empty()) {
    event.tokens = std::move(spare_tokens_.back());
    spare_tokens_.pop_back();
  }
  event.tokens.push_back(std::move(token));
  const auto in = [id](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const bool stops = in(p.stop_token_ids) || (!p.ignore_eos && in(config_.end_ids));
  if (stops && index >= p.min_tokens) {
    event.stop_token = id;
    return FinishReason::kStop;
  }
  return s.known() >= s.limit ? FinishReason::kLength : FinishReason::kNone;
}

/// Nothing computed so far can be trusted or continued; no further result will come.
Effects Scheduler::lose_device(const Error& error, double now) {
  for (const Launched& step : launched_) {
    for (const LaunchedItem& item : step.items) --item.seq->in_flight;
  }
  launched_.clear();
  if (tiers_ != nullptr) {
    order_ = tiers_->active;
    for (Sequence* s : order_) leave_restore(*s);  // while the loads are known
  }
  kv_.retire(static_cast<StepId>(last_step_));
  kv_.forget_cache();
  Effects effects;
  std::vector<Sequence*> all;
  for (const auto& [id, s] : sequences_) all.push_back(s.get());
  std::sort(all.begin(), all.end(),
            [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; });
  for (Sequence* s : all) {
    if (s->state == SeqState::kFinished) {
      forget_if_idle(*s, effects);
      continue;
    }
    TokenEvent event = new_event(*s);
    event.error = error;
    finish(*s, FinishReason::kError, std::move(event), effects);
  }
  static_cast<void>(now);
  return effects;
}

// ---- facts

std::vector<RequestId> Scheduler::unscheduled_since(double t) const {
  std::vector<RequestId> out;
  for (const Sequence* s : waiting_.unadmitted_since(t)) {
    const auto& siblings = requests_.at(raw(s->request->id));
    const auto started = [](const Sequence* x) { return x->first_scheduled != 0; };
    if (siblings.front() == s && std::none_of(siblings.begin(), siblings.end(), started))
      out.push_back(s->request->id);
  }
  return out;
}

std::int32_t Scheduler::cached_tokens(const Request& request) {
  if (!config_.kv.enable_prefix_caching || request.sampling.prompt_logprobs) return 0;
  const kv::KvSeq s = kv_.open(kv::root_key(config_.key_root, request.cache_salt));
  const kv::TokenView log{request.prompt, {}, request.spans};
  const std::int32_t tokens = kv_.match(s, log, log.size());
  kv_.close(s);
  return tokens;
}

QueueFacts Scheduler::facts() const {
  QueueFacts f;
  f.waiting = waiting_.size();
  f.waiting_tokens = waiting_.tokens();
  f.waiting_deferred = std::min(deferred_, f.waiting);
  f.running = static_cast<std::int64_t>(running_.size());
  for (const Sequence* s : running_) f.running_tokens += s->outstanding();
  f.paused = paused_;
  f.finishing = static_cast<std::int64_t>(sequences_.size()) - unfinished_;
  if (tiers_ == nullptr) return f;
  f.asking = static_cast<std::int64_t>(tiers_->lookups.size());
  f.loading = static_cast<std::int64_t>(tiers_->loads.size());
  return f;
}

void Scheduler::check_integrity() const {
  kv_.check_integrity();
  std::int64_t waiting = 0, running = 0, paused = 0, finished = 0, waiting_tokens = 0;
  std::unordered_map<const Sequence*, std::int32_t> in_flight;
  for (const Launched& step : launched_) {
    for (const LaunchedItem& item : step.items) ++in_flight[item.seq];
  }
  CHECK(outstanding_plans() <= config_.options.pipeline_depth + 1);
  for (const auto& [id, s] : sequences_) {
    s->check();
    CHECK(s->in_flight == in_flight[s.get()] && s->drafted == 0);
    CHECK(s->state != SeqState::kFinished || s->in_flight > 0);
    CHECK(s->state == SeqState::kFinished || s->expected - s->known() <= s->in_flight);
    waiting += s->state == SeqState::kWaiting ? 1 : 0;
    waiting_tokens += s->state == SeqState::kWaiting ? s->known() : 0;
    running += s->state == SeqState::kRunning ? 1 : 0;
    paused += s->state == SeqState::kPaused ? 1 : 0;
    finished += s->state == SeqState::kFinished ? 1 : 0;
    if (s->state == SeqState::kWaiting || s->state == SeqState::kPaused) {
      for (std::int32_t g = 0; g < kv_.num_groups(); ++g) CHECK(kv_.held(s->kv, g) == 0);
    }
    CHECK(s->bypassed <= config_.bypass_max);
  }
  CHECK(waiting == waiting_.size() && waiting_tokens == waiting_.tokens());
  // Sequences that load take no place from others: when their loads end, there may be too many for a while.
  const std::int64_t places = (tiers_ != nullptr ? 2 : 1) * std::int64_t{config_.options.max_num_seqs};
  CHECK(running == static_cast<std::int64_t>(running_.size()) && running <= places);
  if (tiers_ != nullptr) check_tiers();
  CHECK(paused == paused_ && waiting + running + paused == unfinished_ && finished == facts().finishing);
}

}  // namespace barg::sched
