// The journal: replaying it through a fresh scheduler gives the same plans, byte for byte, and counters
// recomputed from it are the metrics.
#include "engine/journal.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "engine/engine_impl.h"
#include "engine/step_loop.h"
#include "engine/tiers_support.h"
#include "support/engine_client.h"
#include "support/engine_fake.h"

namespace barg::engine::journal_test {
namespace {

using test::EngineClient;

sched::SchedulerConfig scheduler_of(const Config& config, const runtime::RunnerInfo& info) {
  sched::SchedulerConfig out;
  out.options = config.scheduler;
  out.max_rows = info.max_rows;
  out.max_model_len = info.max_model_len;
  out.end_ids = info.end_ids;
  out.key_root = info.key_root;
  out.kv.block_tokens = info.block_tokens;
  out.kv.groups = {{.num_blocks = info.num_blocks[0], .block_bytes = info.block_bytes[0]}};
  return out;
}

/// What a reader of the journal alone can count.
struct Recount {
  std::uint64_t generation_tokens = 0, prompt_tokens = 0, cached = 0, queue_timeouts = 0, requests = 0,
                steps = 0, tier_events = 0;
  std::map<FinishReason, std::uint64_t> finished;
  std::set<RequestId> corrupted;
};

class Replay {
 public:
  explicit Replay(sched::SchedulerConfig config) : scheduler_(std::move(config)) {}

  void run(const std::vector<JournalRecord>& records) {
    for (const auto& r : records) {
      now_ = r.time_s;
      std::visit([&](const auto& what) { take(what); }, r.what);
    }
  }

  const sched::Scheduler& scheduler() const { return scheduler_; }
  Recount count;

 private:
  void take(const JournalSubmit& s) {
    ++count.requests;
    for (std::int32_t k = 0; k < s.request->n; ++k) {
      ASSERT_TRUE(scheduler_.add({.id = SeqId{++seq_}, .request = s.request, .choice = k}, now_));
    }
    prompts_[s.request->id] = s.request->prompt.size();
  }
  void take(const JournalCancel& c) {
    if (c.timeout) {
      ++count.queue_timeouts;
      tally(scheduler_.fail(c.request, queue_timeout_error(1), now_));
    } else {
      tally(scheduler_.cancel(c.request, now_));
    }
  }
  void take(const JournalFinishAt& f) {
    tally(scheduler_.finish_at(f.request, f.choice, f.output_tokens, now_));
  }
  void take(const JournalPause& p) { scheduler_.pause(p.request, p.paused); }
  void take(const JournalTier& t) {
    ++count.tier_events;
    scheduler_.on_tier_event(t.event, now_);
  }
  void take(const JournalPlan& p) {
    auto plan = scheduler_.plan(now_);
    scheduler_.take_tier_commands(commands_);
    commands_.clear();
    ASSERT_EQ(plan.has_value(), p.step != StepId{});
    if (!plan) return;
    EXPECT_EQ(plan->id, p.step);
    ASSERT_EQ(plan_digest(*plan), p.digest) << "step " << static_cast<std::uint64_t>(p.step);
    ++count.steps;
  }
  void take(const JournalResult& r) { tally(scheduler_.apply(r.result, now_)); }

  void tally(const sched::Effects& effects) {
    for (const auto& e : effects.events) {
      count.generation_tokens += e.tokens.size();
      if (e.choice == 0 && !e.tokens.empty() && prompts_.contains(e.request)) {
        count.prompt_tokens += prompts_.extract(e.request).mapped();
        count.cached += static_cast<std::uint64_t>(e.stats.cached_tokens);
      }
      if (e.finish != FinishReason::kNone) ++count.finished[e.finish];
    }
  }

  sched::Scheduler scheduler_;
  std::vector<sched::TierCommand> commands_;
  std::uint64_t seq_ = 0;
  double now_ = 0;
  std::map<RequestId, std::size_t> prompts_;
};

/// With `tiers`, a pool and a DRAM tier below it on which more prefixes pass than the pool holds.
void replay_gives_the_same(bool tiers) {
  std::uint64_t preemptions = 0, hits = 0, stops = 0, aborts = 0, errors = 0, restored = 0, tier_events = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Rng rng(seed);
    Config config;
    config.scheduler.pipeline_depth = static_cast<std::int32_t>(seed % 3);
    config.scheduler.max_num_seqs = 8;
    config.scheduler.max_num_batched_tokens = static_cast<std::int32_t>(8 + rng.below(56));
    auto info = test::fake_info(static_cast<std::int64_t>(16 + rng.below(20)));
    info.block_bytes = {static_cast<std::int64_t>(info.block_tokens * sizeof(std::uint64_t))};
    config.kv.restore = std::array{"auto", "reload", "both"}[seed / 3 % 3];
    Journal journal(1 << 20);
    test::SharedClock clock;
    auto gate = std::make_shared<test::Gate>();
    std::shared_ptr<store::TierStack> stack;
    if (tiers) {
      auto opened = store::open_stack(std::array{std::string("dram:size=1MiB")}, runtime::domain_of(info, "test"), clock);
      ASSERT_TRUE(opened) << opened.error().message;
      stack = std::move(opened->stack);
    }
    auto engine = make_engine(config, std::make_unique<test::GatedRunner>(info, gate), clock,
                              {.journal = &journal, .tiers = stack});
    ASSERT_TRUE(engine);
    EngineClient client(**engine);
    std::vector<RequestId> ids;
    for (int i = 0; i < 60; ++i) {
      Request r;
      const auto kind = rng.below(tiers ? 9 : 4);  // so many shared prefixes
      for (std::uint64_t t = 0, n = 10 + rng.below(70); t < n; ++t) {
        r.prompt.push_back(static_cast<TokenId>(100 + kind * 100 + t));
      }
      if (rng.below(20) == 0) r.prompt.back() = test::Gate::kNanToken;
      r.sampling.max_tokens = static_cast<std::int32_t>(1 + rng.below(40));
      r.n = rng.below(6) == 0 ? 2 : 1;
      r.priority = static_cast<Priority>(rng.below(3));
      ids.push_back(client.submit(r));
      clock.advance(0.25 * rng.uniform());
      const RequestId some = ids[rng.below(ids.size())];
      if (rng.below(6) == 0) (*engine)->cancel(some);
      if (rng.below(8) == 0) (*engine)->finish_at(some, 0, 1);
      if (rng.below(8) == 0) client.wait_tokens(some, 1 + rng.below(3));
    }
    for (const RequestId id : ids) client.wait(id);
    while ((*engine)->active() > 0 || gate->registered() > 0) std::this_thread::yield();
    const auto metrics = (*engine)->metrics();
    const auto records = journal.records();
    ASSERT_EQ(journal.dropped(), 0U);

    auto replayed = scheduler_of(config, info);
    replayed.tiers.enabled = tiers;
    replayed.tiers.planner.mode =
        std::array{sched::RestoreMode::kAuto, sched::RestoreMode::kReload, sched::RestoreMode::kBoth}[seed / 3 % 3];
    Replay replay(std::move(replayed));
    replay.run(records);
    const auto& count = replay.count;
    EXPECT_EQ(count.generation_tokens, metrics.generation_tokens);
    EXPECT_EQ(count.prompt_tokens, metrics.prompt_tokens);
    EXPECT_EQ(count.cached, metrics.prompt_tokens_cached);
    EXPECT_EQ(count.steps, metrics.steps);
    EXPECT_EQ(count.steps, metrics.step_seconds.count());
    EXPECT_EQ(count.requests, metrics.e2e_request_latency.count());
    for (const auto reason :
         {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError}) {
      EXPECT_EQ(count.finished.contains(reason) ? count.finished.at(reason) : 0,
                metrics.finished[static_cast<std::size_t>(reason)])
          << finish_reason_name(reason);
    }
    EXPECT_EQ(replay.scheduler().counters().preemptions, metrics.num_preemptions);
    EXPECT_EQ(replay.scheduler().counters().prefix_hits, metrics.prefix_cache_hits);
    EXPECT_EQ(replay.scheduler().counters().prefix_queries, metrics.prefix_cache_queries);
    EXPECT_EQ(replay.scheduler().tier_counters().tokens_restored, metrics.tiers.restore.tokens_restored);
    restored += metrics.tiers.restore.tokens_restored;
    tier_events += count.tier_events;
    preemptions += metrics.num_preemptions;
    hits += metrics.prefix_cache_hits;
    stops += metrics.finished[static_cast<std::size_t>(FinishReason::kStop)];
    aborts += metrics.finished[static_cast<std::size_t>(FinishReason::kAbort)];
    errors += metrics.finished[static_cast<std::size_t>(FinishReason::kError)];
  }
  EXPECT_GT(preemptions, 0U);
  EXPECT_GT(hits, 0U);
  EXPECT_GT(stops, 0U);
  EXPECT_GT(aborts, 0U);
  EXPECT_GT(errors, 0U);
  EXPECT_EQ(restored > 0, tiers);
  EXPECT_EQ(tier_events > 0, tiers);
}

TEST(Journal, ReplayGivesTheSamePlansAndCounters) { replay_gives_the_same(false); }
TEST(Journal, ReplayWithTiersGivesTheSamePlansAndCounters) { replay_gives_the_same(true); }

TEST(Journal, RingForgetsTheOldest) {
  Journal journal(3);
  for (std::uint64_t i = 1; i <= 5; ++i) journal.append(0, JournalCancel{RequestId{i}, false});
  const auto records = journal.records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].sequence, 3U);
  EXPECT_EQ(std::get<JournalCancel>(records[2].what).request, RequestId{5});
  EXPECT_EQ(journal.dropped(), 2U);
}

TEST(Journal, DigestSeesEveryField) {
  sched::StepPlan plan;
  plan.id = StepId{1};
  plan.items.push_back({.seq = SeqId{1}, .count = 1});
  plan.tokens = {5};
  plan.tables = {{0, 1}};
  plan.block_ids = {7};
  const auto base = plan_digest(plan);
  const auto differs = [&](auto change) {
    auto copy = plan;
    change(copy);
    return plan_digest(copy) != base;
  };
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.id = StepId{2}; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.items[0].epoch = 1; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.items[0].sample = true; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.items[0].output_index = 3; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.tokens[0] = 6; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.block_ids[0] = 8; }));
  EXPECT_TRUE(differs([](sched::StepPlan& p) { p.copies.push_back({0, 1, 2, 3}); }));
  EXPECT_FALSE(differs([](sched::StepPlan& p) { p.predicted_s = 9; }));
}

}  // namespace
}  // namespace barg::engine::journal_test
