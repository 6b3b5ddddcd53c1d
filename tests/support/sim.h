// Sim: drives a Scheduler and a FakeDevice with seeded random (or scripted) inputs, checks every invariant
// after every operation, and keeps a journal of the inputs from which the run can be replayed byte for byte.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/env.h"
#include "sched/scheduler.h"
#include "support/fake_runner.h"
#include "support/fake_tiers.h"

namespace barg::test {

struct SimConfig {
  std::int32_t block_tokens = 16;
  std::vector<FakeGroup> groups{{0, 24}};
  std::int32_t pipeline_depth = 0;
  std::int32_t budget = 32;
  std::int32_t max_num_seqs = 6;
  std::int32_t max_model_len = 160;
  bool prefix_caching = true;
  kv::Eviction eviction = kv::Eviction::kS3Fifo;
  double itl_target_ms = 10;
  double stretch_max = 3;
  double watermark = 0.02;
  std::int32_t vocab = 50;
  double fault_rate = 0;  ///< block allocations that fail
  kv::BlockKeyFn key = &kv::block_key;
  bool check_every_step = true;
  // -- random traffic
  std::int32_t requests = 12;
  std::int32_t unfinished_most = 1 << 30;  ///< sequences; nothing is submitted while there are so many
  std::int32_t prompt_max = 90;
  std::int32_t output_max = 40;
  std::int32_t prefixes = 3;  ///< shared prompt beginnings
  double cancel_rate = 0.02;
  double reader_rate = 0;   ///< a reader falls behind, or catches up
  double pause_rate = 0.3;  ///< iterations that collect nothing although something could be collected
  // -- tiers below the device's pool
  sched::TierRules tiers;
  FakeTierConfig tier;
  double deaf_rate = 0;  ///< plans before which no event of the tiers is taken

  sched::SchedulerConfig scheduler() const {
    sched::SchedulerConfig c;
    c.options.max_num_seqs = max_num_seqs;
    c.options.max_num_batched_tokens = budget;
    c.options.itl_target_ms = itl_target_ms;
    c.stretch_max = stretch_max;
    c.options.watermark = watermark;
    c.options.pipeline_depth = pipeline_depth;
    c.options.ageing_s = 0.5;
    c.max_model_len = max_model_len;
    c.end_ids = {2};
    c.kv.block_tokens = block_tokens;
    c.kv.enable_prefix_caching = prefix_caching;
    c.kv.key = key;
    c.kv.eviction = eviction;
    for (const FakeGroup& g : groups) {
      const auto kind = g.interval > 0 ? kv::GroupKind::kRecurrent
                        : g.window > 0 ? kv::GroupKind::kSlidingWindow
                                       : kv::GroupKind::kFull;
      c.kv.groups.push_back({kind, g.window, g.num_blocks, static_cast<std::int64_t>(tier.part_bytes),
                             std::max(g.interval, 1)});
    }
    c.key_root = "fake";
    c.tiers = tiers;
    return c;
  }
};

/// One input of the scheduler, in order: enough to replay it.
struct JournalEntry {
  enum class Kind : std::uint8_t { kAdd, kCancel, kFinishAt, kPause, kPlan, kApply, kTier } kind;
  double now = 0;
  sched::SequenceSpec spec;
  RequestId request{};
  std::int32_t choice = 0, output_tokens = 0;
  sched::StepResult result;
  sched::TierEvent event{};
};

/// Every byte of the commands that matters.
inline std::string command_bytes(const std::vector<sched::TierCommand>& commands) {
  std::string out;
  const auto put = [&out](auto v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); };
  const auto block = [&](const sched::StoredBlock& b) {
    put(b.digest), put(b.parent), put(b.depth), put(b.fingerprint);
  };
  for (const sched::TierCommand& c : commands) {
    put(c.index());
    if (const auto* save = std::get_if<sched::SaveCommand>(&c)) {
      put(save->why), put(save->group), put(save->block), put(save->uses), block(save->stored);
    } else if (const auto* lookup = std::get_if<sched::LookupCommand>(&c)) {
      put(lookup->id), put(lookup->deadline);
      for (const auto& b : lookup->blocks) block(b);
    } else if (const auto* load = std::get_if<sched::LoadCommand>(&c)) {
      put(load->id), put(load->deadline);
      for (const auto& p : load->parts) put(p.index), put(p.group), put(p.block), block(p.stored);
    } else if (const auto* cancel = std::get_if<sched::CancelLoadCommand>(&c)) {
      put(cancel->id);
    } else {
      const auto& parts = std::get<sched::CancelPartsCommand>(c);
      put(parts.id), put(parts.first), put(parts.last);
    }
  }
  return out;
}

/// Every byte of a plan that matters.
inline std::string plan_bytes(const sched::StepPlan& p) {
  std::string out;
  const auto put = [&out](std::int64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(static_cast<std::int64_t>(p.id));
  for (const auto& i : p.items) {
    for (std::int64_t v : {static_cast<std::int64_t>(i.seq), std::int64_t{i.epoch}, std::int64_t{i.start},
                           std::int64_t{i.count}, std::int64_t{i.token_offset}, std::int64_t{i.table_offset},
                           static_cast<std::int64_t>(i.want), std::int64_t{i.logits_begin},
                           std::int64_t{i.sample}, std::int64_t{i.output_index}}) {
      put(v);
    }
  }
  for (TokenId t : p.tokens) put(t);
  for (const auto& t : p.tables) put(t.offset), put(t.length);
  for (BlockId b : p.block_ids) put(b);
  for (const auto& c : p.copies) put(c.group), put(c.src), put(c.dst), put(c.tokens);
  out.append(reinterpret_cast<const char*>(&p.predicted_s), sizeof p.predicted_s);
  return out;
}

/// One choice of exactly `max_tokens` tokens.
inline std::shared_ptr<Request> make_request(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  auto r = std::make_shared<Request>();
  r->prompt = std::move(prompt);
  r->sampling.max_tokens = max_tokens;
  r->sampling.ignore_eos = true;
  r->sampling.seed = 7;
  return r;
}

class Sim {
 public:
  /// Seconds of a step; the default is a machine with a fixed cost, a cost per row and one per key.
  using CostFn = double (*)(const Sim&, const sched::StepPlan&);

  Sim(const SimConfig& config, std::uint64_t seed)
      : config_(config),
        rng_(seed),
        scheduler_(config.scheduler()),
        device_(config.groups, config.block_tokens, config.vocab) {
    if (config.fault_rate > 0) {
      scheduler_.kv_for_test().set_allocation_hook([this] { return rng_.uniform() >= config_.fault_rate; });
    }
    if (config.tiers.enabled) open_tiers(seed);
    for (std::int32_t i = 0; i < std::max(1, config.prefixes); ++i) {
      prefixes_.push_back(random_tokens(config.prompt_max));
    }
  }

  // ---- scripted use

  RequestId submit(std::shared_ptr<Request> r) {
    r->id = static_cast<RequestId>(++requests_);
    if (!r->sampling.seed) r->sampling.seed = requests_;
    for (std::int32_t c = 0; c < r->n; ++c) {
      sched::SequenceSpec spec{static_cast<SeqId>(++sequences_), r, c};
      const auto ok = scheduler_.add(spec, now_);
      EXPECT_TRUE(ok.has_value()) << (ok ? "" : ok.error().message);
      journal_.push_back({.kind = JournalEntry::Kind::kAdd, .now = now_, .spec = spec, .result = {}});
      device_.add(spec.id, r, c);
      live_.emplace(spec.id, r->id);
      const auto d = choices_.emplace(std::pair{r->id, c}, Delivered(Truth(r, c, config_.vocab))).first;
      if (tiers_ != nullptr) tell_tiers(d->second.truth);
    }
    check();
    return r->id;
  }

  bool plan() {
    const std::vector<const sched::Sequence*> before(scheduler_.running().begin(),
                                                     scheduler_.running().end());
    if (tiers_ != nullptr && rng_.uniform() >= config_.deaf_rate) take_tier_events();
    journal_.push_back({.kind = JournalEntry::Kind::kPlan, .now = now_, .spec = {}, .result = {}});
    const double begin = steady_.now();
    auto p = scheduler_.plan(now_);
    plan_seconds_ += steady_.now() - begin;
    plans_.push_back(p ? plan_bytes(*p) : std::string());
    check_oldest(before);
    if (tiers_ != nullptr) submit_tier_commands(p ? &*p : nullptr);
    if (!p) {
      // Nothing in flight and something unfinished: there must be a next step (unless allocations were
      // failed), or the tiers are waited for until some time.
      EXPECT_TRUE(!outstanding_.empty() || scheduler_.unfinished() == scheduler_.paused() ||
                  config_.fault_rate > 0 || scheduler_.next_deadline())
          << "stalled";
      check();
      return false;
    }
    check_plan(*p);
    outstanding_.push_back(std::move(*p));
    check();
    return true;
  }

  void collect() {
    ASSERT_FALSE(outstanding_.empty());
    const sched::StepPlan plan = std::move(outstanding_.front());
    outstanding_.pop_front();
    sched::StepResult result = device_.execute(plan);
    result.seconds = cost_(*this, plan);
    now_ += result.seconds;
    last_step_s_ = result.seconds;
    journal_.push_back({.kind = JournalEntry::Kind::kApply, .now = now_, .spec = {}, .result = result});
    take(scheduler_.apply(std::move(result), now_));
    check();
  }

  void cancel(RequestId id) {
    journal_.push_back(
        {.kind = JournalEntry::Kind::kCancel, .now = now_, .spec = {}, .request = id, .result = {}});
    cut(id);
    take(scheduler_.cancel(id, now_));
    check();
  }

  void finish_at(RequestId id, std::int32_t choice, std::int32_t output_tokens) {
    journal_.push_back({.kind = JournalEntry::Kind::kFinishAt,
                        .now = now_,
                        .spec = {},
                        .request = id,
                        .choice = choice,
                        .output_tokens = output_tokens,
                        .result = {}});
    choices_.at({id, choice}).cut = true;
    take(scheduler_.finish_at(id, choice, output_tokens, now_));
    check();
  }

  void pause(RequestId id, bool paused) {
    journal_.push_back({.kind = JournalEntry::Kind::kPause,
                        .now = now_,
                        .spec = {},
                        .request = id,
                        .choice = paused ? 1 : 0,
                        .result = {}});
    scheduler_.pause(id, paused);
    check();
  }

  void step() {
    while (plan()) {
    }
    outstanding_.empty() ? wait_for_tiers() : collect();
  }

  /// The full blocks of a prompt lie at these places (repeated).
  std::vector<Digest> preload(const std::vector<TokenId>& prompt, const std::vector<sched::Place>& places) {
    auto r = std::make_shared<Request>();
    r->prompt = prompt;
    r->sampling.max_tokens = 0;
    Truth truth(r, 0, config_.vocab);
    const std::vector<Digest> digests = tell_tiers(truth);
    for (std::size_t i = 0; i < digests.size(); ++i) tiers_->put(digests[i], places[i % places.size()]);
    return digests;
  }

  /// Time goes on to the next thing that a tier does, and it is told.
  bool tier_event() {
    const auto next = tiers_->next();
    if (!next) return false;
    now_ = std::max(now_, *next);
    take_tier_events();
    return true;
  }
  /// From now on events of the tiers are taken before every plan.
  void hear() { config_.deaf_rate = 0; }
  /// Time goes on to the scheduler's next deadline.
  bool pass_deadline() {
    const auto deadline = scheduler_.next_deadline();
    if (!deadline) return false;
    now_ = std::max(now_, *deadline);
    return true;
  }

  /// With nothing to compute: time goes on to what happens next. Nothing if nothing does.
  void wait_for_tiers() {
    if (tiers_ == nullptr) return;
    std::optional<double> next = tiers_->next();
    if (const auto d = scheduler_.next_deadline(); d && (!next || *d < *next)) next = d;
    if (next) now_ = std::max(now_, *next);
  }

  /// Runs until all is done. A finite bound stands for liveness.
  void drain(std::int64_t max_steps = 100000) {
    while ((scheduler_.unfinished() > 0 || !outstanding_.empty()) && max_steps-- > 0) {
      step();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(scheduler_.unfinished(), 0) << "not finished in time";
  }

  // ---- random use

  std::vector<TokenId> random_tokens(std::int32_t n) {
    std::vector<TokenId> out;
    for (std::int32_t i = 0; i < n; ++i)
      out.push_back(static_cast<TokenId>(rng_.below(static_cast<std::uint64_t>(config_.vocab))));
    return out;
  }

  std::shared_ptr<Request> random_request() {
    auto r = std::make_shared<Request>();
    const auto& prefix = prefixes_[rng_.below(prefixes_.size())];
    const auto shared =
        static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(config_.prompt_max) + 1));
    r->prompt.assign(prefix.begin(), prefix.begin() + shared);
    const auto own =
        static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(config_.prompt_max - shared) + 1));
    const auto tail = random_tokens(rng_.below(3) == 0 ? 0 : own);
    r->prompt.insert(r->prompt.end(), tail.begin(), tail.end());
    if (r->prompt.empty()) r->prompt.push_back(1);
    if (rng_.below(3) == 0) {  // exactly at block edges
      const std::size_t whole =
          r->prompt.size() - r->prompt.size() % static_cast<std::size_t>(config_.block_tokens);
      if (whole > 0) r->prompt.resize(whole);
    }
    SamplingParams& p = r->sampling;
    p.max_tokens = 1 + static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(config_.output_max)));
    p.ignore_eos = rng_.below(2) == 0;
    if (rng_.below(4) == 0) p.stop_token_ids = {3, 4};
    if (rng_.below(4) == 0) p.min_tokens = static_cast<std::int32_t>(rng_.below(5));
    if (rng_.below(8) == 0) {
      p.prompt_logprobs = 1;
      if (rng_.below(2) == 0) p.max_tokens = 0;
    }
    r->n = rng_.below(5) == 0 ? 2 + static_cast<std::int32_t>(rng_.below(3)) : 1;
    r->priority = static_cast<Priority>(rng_.below(3));
    r->cache_salt = rng_.below(4) == 0 ? "other" : "";
    p.seed = rng_.below(3);
    return r;
  }

  void run_random() {
    std::int32_t left = config_.requests;
    while ((left > 0 || scheduler_.unfinished() > 0 || !outstanding_.empty()) &&
           !::testing::Test::HasFailure()) {
      if (left > 0 && scheduler_.unfinished() < config_.unfinished_most && rng_.below(3) == 0) {
        auto r = random_request();
        if (scheduler_.check_request(*r)) {
          submit(std::move(r));
        } else {
          ++refused_;
        }
        --left;
      }
      if (rng_.uniform() < config_.cancel_rate && requests_ > 0) {
        const RequestId id = random_id();
        if (rng_.below(2) == 0) {
          cancel(id);
        } else if (choices_.contains({id, 0})) {
          finish_at(id, 0, 1);
        }
      }
      if (requests_ > 0 && (rng_.uniform() < config_.reader_rate || all_paused())) {
        pause(random_id(), !all_paused() && rng_.below(2) == 0);
      }
      const bool launched = plan();
      if (!outstanding_.empty() && (!launched || rng_.uniform() >= config_.pause_rate)) collect();
      if (!launched && outstanding_.empty()) wait_for_tiers();
    }
    finish_checks();
  }

  /// One of the latest, or of all from the oldest that lives on: ends that come twice are among them, but long runs
  /// do not consist of them.
  RequestId random_id() {
    std::uint64_t before = requests_ - std::min<std::uint64_t>(requests_, 30);
    if (!live_.empty()) before = std::min(before, static_cast<std::uint64_t>(live_.begin()->second) - 1);
    return static_cast<RequestId>(before + 1 + rng_.below(requests_ - before));
  }

  bool all_paused() const { return scheduler_.paused() > 0 && scheduler_.paused() == scheduler_.unfinished(); }

  /// At the end of everything: nothing is held, every choice had its one end, every id came back once.
  void finish_checks() {
    ASSERT_TRUE(errors_in_device().empty()) << errors_in_device();
    for (const auto& g : scheduler_.kv().usage().groups) {
      EXPECT_EQ(g.open + g.sealed + g.fenced, 0);
    }
    EXPECT_TRUE(live_.empty());
    EXPECT_EQ(scheduler_.facts().waiting + scheduler_.facts().running + scheduler_.facts().finishing, 0);
    for (auto& [key, d] : choices_) check_delivered(d);
    if (tiers_ != nullptr) check_tiers_at_end();
  }

  /// The journal's inputs through a fresh scheduler give the same plans.
  void check_replay() const {
    SimConfig c = config_;
    ASSERT_EQ(c.fault_rate, 0);
    sched::Scheduler fresh(c.scheduler());
    std::size_t plan = 0;
    for (const JournalEntry& e : journal_) {
      switch (e.kind) {
        case JournalEntry::Kind::kAdd:
          ASSERT_TRUE(fresh.add(e.spec, e.now).has_value());
          break;
        case JournalEntry::Kind::kCancel:
          fresh.cancel(e.request, e.now);
          break;
        case JournalEntry::Kind::kFinishAt:
          fresh.finish_at(e.request, e.choice, e.output_tokens, e.now);
          break;
        case JournalEntry::Kind::kPause:
          fresh.pause(e.request, e.choice == 1);
          break;
        case JournalEntry::Kind::kTier:
          fresh.on_tier_event(e.event, e.now);
          break;
        case JournalEntry::Kind::kApply:
          fresh.apply(e.result, e.now);
          break;
        case JournalEntry::Kind::kPlan: {
          const auto p = fresh.plan(e.now);
          ASSERT_EQ(p ? plan_bytes(*p) : std::string(), plans_[plan]) << "plan " << plan;
          std::vector<sched::TierCommand> commands;
          fresh.take_tier_commands(commands);
          ASSERT_TRUE(tiers_ == nullptr || command_bytes(commands) == commands_[plan]) << "plan " << plan;
          ++plan;
        }
      }
    }
  }

  // ---- what tests look at

  struct Delivered {
    explicit Delivered(Truth t) : truth(std::move(t)) {}
    Truth truth;
    std::vector<TokenId> tokens;
    std::vector<TokenLogprobs> prompt_logprobs;
    FinishReason finish = FinishReason::kNone;
    RequestStats stats;
    bool cut = false;  ///< cancelled or stopped from outside
    std::vector<double> times;
  };
  Delivered& delivered(RequestId id, std::int32_t choice = 0) { return choices_.at({id, choice}); }
  sched::Scheduler& scheduler() { return scheduler_; }
  FakeDevice& device() { return device_; }
  FakeTiers& tiers() { return *tiers_; }
  /// What was done to the scheduler from outside, apart from steps: a cancel counts if it ended a choice.
  struct Operations {
    std::uint64_t submits = 0, aborts = 0, timeouts = 0, completions = 0;
    std::uint64_t total() const { return submits + aborts + timeouts + completions; }
    Operations& operator+=(const Operations& o) {
      submits += o.submits, aborts += o.aborts, timeouts += o.timeouts, completions += o.completions;
      return *this;
    }
  };
  Operations operations() const {
    const sched::TierCounters& c = scheduler_.tier_counters();
    const auto aborted = [](const auto& choice) { return choice.second.finish == FinishReason::kAbort; };
    const auto completed = [](const JournalEntry& e) { return e.kind == JournalEntry::Kind::kTier; };
    return {.submits = requests_,
            .aborts = static_cast<std::uint64_t>(std::count_if(choices_.begin(), choices_.end(), aborted)),
            .timeouts = c.lookup_timeouts + c.deadlines,
            .completions = static_cast<std::uint64_t>(std::count_if(journal_.begin(), journal_.end(), completed))};
  }
  /// Real time that the scheduler has spent in plan().
  double plan_seconds() const { return plan_seconds_; }
  const std::deque<sched::StepPlan>& outstanding() const { return outstanding_; }
  double now() const { return now_; }
  void set_now(double t) { now_ = t; }
  /// The commands of the last plan.
  const std::vector<sched::TierCommand>& last_commands() const { return last_commands_; }
  void fail(RequestId id) {
    cut(id);
    take(scheduler_.fail(id, Error{ErrorCode::kInternal, "asked for", "", 0}, now_));
    check();
  }
  void lose_device() {
    ASSERT_FALSE(outstanding_.empty());
    sched::StepResult result{.id = outstanding_.front().id, .items = {}, .seconds = 0, .fatal = {}};
    result.fatal = Error{ErrorCode::kInternal, "lost", "", 0};
    outstanding_.clear();
    for (auto& [key, d] : choices_) d.cut = true;
    take(scheduler_.apply(std::move(result), now_));
  }
  double last_step_s() const { return last_step_s_; }
  void set_cost(CostFn f) { cost_ = f; }
  double slowness = 1;  ///< multiplies every step's time
  std::int64_t refused() const { return refused_; }
  std::string errors_in_device() const {
    std::string out;
    for (const auto& e : device_.errors()) out += e + "\n";
    if (tiers_ != nullptr) {
      for (const auto& e : tiers_->errors()) out += e + "\n";
    }
    return out;
  }

  static double default_cost(const Sim& sim, const sched::StepPlan& plan) {
    double keys = 0;
    for (const auto& i : plan.items) keys += sched::StepCost::of(i.start, i.count).keys;
    return sim.slowness * (1e-3 + 2e-4 * plan.rows() + 2e-9 * keys);
  }

 private:
  /// Its answer is no longer owed in full.
  void cut(RequestId id) {
    for (auto it = choices_.lower_bound({id, 0}); it != choices_.end() && it->first.first == id; ++it) {
      it->second.cut = true;
    }
  }

  void take(const sched::Effects& effects) {
    for (const TokenEvent& e : effects.events) {
      Delivered& d = choices_.at({e.request, e.choice});
      EXPECT_EQ(d.finish, FinishReason::kNone) << "an event behind the last";
      EXPECT_EQ(e.first_index, static_cast<std::int32_t>(d.tokens.size())) << "tokens are not contiguous";
      for (const OutputToken& t : e.tokens) {
        d.tokens.push_back(t.id);
        d.times.push_back(now_);
      }
      if (!e.prompt_logprobs.empty()) {
        EXPECT_TRUE(d.prompt_logprobs.empty());
        d.prompt_logprobs = e.prompt_logprobs;
      }
      d.finish = e.finish;
      d.stats = e.stats;
    }
    for (SeqId id : effects.released) {
      EXPECT_EQ(live_.erase(id), 1U) << "released twice";
      device_.remove(id);
    }
  }

  void check_delivered(Delivered& d) {
    FinishReason why = FinishReason::kNone;
    std::vector<TokenId> expected = d.truth.outputs(config_.max_model_len, {2}, why);
    EXPECT_NE(d.finish, FinishReason::kNone);
    const bool outside = d.finish == FinishReason::kStop || d.finish == FinishReason::kError;
    if (d.finish == FinishReason::kAbort || (d.cut && outside)) {
      ASSERT_LE(d.tokens.size(), expected.size());
      expected.resize(d.tokens.size());
    } else {
      EXPECT_EQ(d.finish, why);
      check_scores(d);
    }
    EXPECT_EQ(d.tokens, expected);
    const auto& by_place = d.stats.cached_by_place;
    EXPECT_EQ(by_place[0] + by_place[1] + by_place[2] + by_place[3], d.stats.cached_tokens);
    EXPECT_LE(d.stats.cached_tokens, d.stats.prompt_tokens);
  }

  void check_scores(Delivered& d) {
    const Request& r = d.truth.request();
    const bool wanted = r.sampling.prompt_logprobs.has_value() && &d == &choices_.at({r.id, 0});
    ASSERT_EQ(d.prompt_logprobs.size(), wanted ? r.prompt.size() : 0U);
    for (std::size_t i = 1; i < d.prompt_logprobs.size(); ++i) {
      EXPECT_EQ(d.prompt_logprobs[i].id, r.prompt[i]);
      EXPECT_EQ(d.prompt_logprobs[i].logprob, FakeDevice::logprob(d.truth, static_cast<std::int32_t>(i) - 1));
    }
  }

  /// The oldest running sequence is never preempted.
  void check_oldest(const std::vector<const sched::Sequence*>& before) {
    const sched::Sequence* oldest = nullptr;
    for (const sched::Sequence* s : before) {
      if (oldest == nullptr || s->first_scheduled < oldest->first_scheduled) oldest = s;
    }
    if (oldest == nullptr) return;
    EXPECT_EQ(oldest->state, sched::SeqState::kRunning) << "the oldest was preempted";
  }

  void check_plan(const sched::StepPlan& p) {
    EXPECT_LE(p.rows(), config_.budget);
    EXPECT_LE(static_cast<std::int32_t>(p.items.size()), config_.max_num_seqs);
    EXPECT_GT(p.rows(), 0);
    EXPECT_LE(static_cast<std::int32_t>(outstanding_.size()), config_.pipeline_depth);
    std::set<SeqId> seqs;
    std::set<std::pair<std::int32_t, BlockId>> written;
    for (const auto& c : p.copies) EXPECT_TRUE(written.insert({c.group, c.dst}).second);
    for (const auto& i : p.items) {
      EXPECT_TRUE(seqs.insert(i.seq).second);
      EXPECT_TRUE(live_.contains(i.seq));
      EXPECT_GT(i.count, 0);
      for (std::int32_t g = 0; g < p.num_groups; ++g) check_writes(p, i, g, written);
    }
  }

  /// One writer per block, and a block that begins a new life is in no step that is still running.
  void check_writes(const sched::StepPlan& p, const sched::PlanItem& i, std::int32_t g,
                    std::set<std::pair<std::int32_t, BlockId>>& written) {
    const auto table = p.tables[static_cast<std::size_t>(i.table_offset + g)];
    const std::int32_t span = scheduler_.kv().span(g);
    for (std::int32_t index = i.start / span; index < table.length; ++index) {
      const BlockId b = p.block_ids[static_cast<std::size_t>(table.offset + index)];
      const bool copied = index == i.start / span && written.contains({g, b});
      EXPECT_TRUE(copied || written.insert({g, b}).second) << "two writers of one block in one step";
      EXPECT_LE(scheduler_.kv().pool(g)[b].refs, 1 + twins(p, i, index, span)) << "written while shared";
      if (index * span < i.start) continue;
      for (const auto& other : outstanding_)
        EXPECT_FALSE(names(other, g, b)) << "reused under a running step";
    }
  }

  /// Other items that compute the same block in this step: they may share ours from the next step on.
  static std::int32_t twins(const sched::StepPlan& p, const sched::PlanItem& i, std::int32_t index,
                            std::int32_t span) {
    std::int32_t n = 0;
    for (const auto& other : p.items) {
      const std::int32_t begin = index * span, end = begin + span;
      if (other.seq != i.seq && other.start < end && other.start + other.count >= end) ++n;
    }
    return n;
  }

  static bool names(const sched::StepPlan& p, std::int32_t g, BlockId b) {
    return names_any(p, [&](std::int32_t group, BlockId block) { return group == g && block == b; });
  }

  void check() {
    if (!config_.check_every_step) return;
    scheduler_.check_integrity();
    for (const sched::Sequence* s : scheduler_.running()) {
      const auto [it, fresh] = seniority_.emplace(s->id, s->first_scheduled);
      EXPECT_EQ(it->second, s->first_scheduled) << "seniority was lost";
    }
    for (std::int32_t g = 0; g < scheduler_.kv().num_groups(); ++g) {
      const kv::BlockPool& pool = scheduler_.kv().pool(g);
      for (BlockId b = 0; b < pool.size(); ++b) {
        if (pool[b].state == kv::BlockState::kBlank) device_.poison(g, b);
      }
    }
    EXPECT_TRUE(errors_in_device().empty()) << errors_in_device();
  }

  // ---- tiers

  void open_tiers(std::uint64_t seed) {
    const auto groups = static_cast<std::int32_t>(config_.groups.size());
    tiers_ = std::make_unique<FakeTiers>(config_.tier, device_, groups, seed);
    tiers_->is_reserved = [this](std::int32_t g, BlockId b) {
      const kv::Block& block = scheduler_.kv().pool(g)[b];
      bool in_flight = false;
      for (const auto& p : outstanding_) in_flight = in_flight || names(p, g, b);
      return block.state == kv::BlockState::kOpen && block.refs == 1 && !in_flight;
    };
  }

  /// Every full block that this choice can ever have.
  std::vector<Digest> tell_tiers(Truth& truth) {
    FinishReason why{};
    const std::vector<TokenId> outputs = truth.outputs(config_.max_model_len, {2}, why);
    const Request& r = truth.request();
    const kv::TokenView log{r.prompt, outputs, r.spans};
    Digest parent = kv::root_key("fake", r.cache_salt);
    std::vector<Digest> digests;
    const std::int32_t b = config_.block_tokens;
    for (std::int32_t i = 0; (i + 1) * b <= log.size(); ++i) {
      const Digest digest = config_.key(parent, log, i, b);
      FakeTiers::Content content;
      for (std::int32_t j = i * b; j < (i + 1) * b; ++j) content.push_back(truth.content(j));
      tiers_->know({digest, parent, i, kv::block_fingerprint(log, i, b)}, std::move(content));
      digests.push_back(parent = digest);
    }
    return digests;
  }

  void take_tier_events() {
    std::vector<sched::TierEvent> events;
    tiers_->poll(now_, events);
    for (const sched::TierEvent& e : events) {
      journal_.push_back(
          {.kind = JournalEntry::Kind::kTier, .now = now_, .spec = {}, .result = {}, .event = e});
      scheduler_.on_tier_event(e, now_);
      if (config_.check_every_step) scheduler_.check_integrity();
    }
  }

  void submit_tier_commands(const sched::StepPlan* plan) {
    std::vector<sched::TierCommand> commands;
    scheduler_.take_tier_commands(commands);
    commands_.push_back(command_bytes(commands));
    last_commands_ = commands;
    for (sched::TierCommand& c : commands) tiers_->submit(std::move(c), now_);
    if (plan != nullptr) tiers_->check_plan(*plan);
  }

  /// Counters recomputed from what the tiers saw; everything that was begun has ended.
  void check_tiers_at_end() {
    std::vector<sched::TierCommand> rest;  // what the last ends cancelled
    scheduler_.take_tier_commands(rest);
    for (sched::TierCommand& c : rest) tiers_->submit(std::move(c), now_);
    EXPECT_TRUE(tiers_->idle()) << "loads that nobody waits for";
    EXPECT_FALSE(scheduler_.next_deadline());
    EXPECT_EQ(scheduler_.facts().asking + scheduler_.facts().loading, 0);
    ASSERT_TRUE(errors_in_device().empty()) << errors_in_device();
    const sched::TierCounters& c = scheduler_.tier_counters();
    const FakeTiers::Counts& seen = tiers_->counts;
    EXPECT_EQ(c.lookups, seen.lookups);
    EXPECT_EQ(c.blocks_asked, seen.blocks_asked);
    EXPECT_EQ(c.loads, seen.loads);
    EXPECT_EQ(c.parts_asked, seen.parts_asked);
    EXPECT_EQ(c.parts_asked, c.parts_loaded + c.parts_failed + c.parts_cancelled);
    EXPECT_EQ(c.parts_asked, seen.ok + seen.failed + seen.cancelled);
    const std::uint64_t late_parts = seen.ok + seen.failed - c.parts_loaded - c.parts_failed;
    EXPECT_EQ(c.late_events, seen.answers - c.answers + late_parts);
    EXPECT_EQ(c.saves, seen.saves);
    std::uint64_t blocks = 0;
    for (const std::uint64_t n : c.blocks_restored) blocks += n;
    EXPECT_EQ(c.tokens_restored, blocks * static_cast<std::uint64_t>(config_.block_tokens));
    std::uint64_t measured = 0;
    for (const std::uint64_t n : c.regret) measured += n;
    EXPECT_EQ(c.measured, measured);
    std::vector<sched::TierEvent> late;
    tiers_->poll(now_ + 1e9, late);
    for (const sched::TierEvent& e : late) scheduler_.on_tier_event(e, now_);  // of lookups: nobody minds
    scheduler_.check_integrity();
  }

  SimConfig config_;
  Rng rng_;
  sched::Scheduler scheduler_;
  FakeDevice device_;
  std::unique_ptr<FakeTiers> tiers_;  // nullptr: none
  std::deque<sched::StepPlan> outstanding_;
  std::vector<std::vector<TokenId>> prefixes_;
  std::map<std::pair<RequestId, std::int32_t>, Delivered> choices_;
  std::map<SeqId, RequestId> live_;
  std::map<SeqId, std::uint64_t> seniority_;  // order of first admission
  std::vector<JournalEntry> journal_;
  std::vector<std::string> plans_, commands_;
  std::vector<sched::TierCommand> last_commands_;
  SteadyClock steady_;
  double plan_seconds_ = 0;
  CostFn cost_ = &default_cost;
  double now_ = 0, last_step_s_ = 0;
  std::uint64_t requests_ = 0, sequences_ = 0;
  std::int64_t refused_ = 0;
};

/// Random runs, one for each seed from `first_seed` on; `totals` adds up those that went well.
template <class Totals>
void run_seeds(const SimConfig& config, std::uint64_t first_seed, int runs, Totals& totals) {
  for (int i = 0; i < runs; ++i) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(i);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sim sim(config, seed);
    sim.run_random();
    if (::testing::Test::HasFailure()) return;
    if (config.fault_rate == 0 && i % 8 == 0) sim.check_replay();
    totals.add(sim);
  }
}

}  // namespace barg::test
