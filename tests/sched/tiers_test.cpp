// The scheduler above tiers: random runs with every fault of a tier against the oracle, and named behaviours.
// BARG_TEST_LONG in the environment (scripts/test --full) multiplies the number of runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "support/sim.h"

namespace barg::test::tiers_test {
namespace {

SimConfig tight(int depth) {
  SimConfig c;
  c.block_tokens = 8;
  c.groups = {{0, 26}};
  c.pipeline_depth = depth;
  c.requests = 30;
  c.tiers.enabled = true;
  c.tiers.lookup_timeout_s = 0.02;
  c.tiers.planner.deadline_floor_s = 0.005;
  c.tiers.planner.trial_blocks = 3;
  c.tier.bytes_per_s = {0, 1e7, 1e6, 2e5};
  c.tier.dram_parts = 40;
  return c;
}

void add_faults(SimConfig& c) {
  c.tier.jitter = 3;
  c.tier.missing_rate = 0.05;
  c.tier.corrupt_rate = 0.05;
  c.tier.drop_save_rate = 0.1;
  c.tier.silent_rate = 0.02;
  c.tier.speed_lie = 8;
  c.tier.hang_rate = 0.05;
  c.deaf_rate = 0.3;
  c.cancel_rate = 0.06;
  c.reader_rate = 0.1;
}

struct TierTotals {
  sched::TierCounters sum;
  std::uint64_t preemptions = 0;
  Sim::Operations operations;
  void add(Sim& sim) {
    const sched::TierCounters& c = sim.scheduler().tier_counters();
    preemptions += sim.scheduler().counters().preemptions;
    operations += sim.operations();
    for (std::size_t i = 0; i < sum.plans.size(); ++i) sum.plans[i] += c.plans[i];
    for (std::size_t i = 0; i < sum.saves.size(); ++i) sum.saves[i] += c.saves[i];
    for (std::size_t i = 0; i < sum.blocks_restored.size(); ++i)
      sum.blocks_restored[i] += c.blocks_restored[i];
    sum.lookup_timeouts += c.lookup_timeouts;
    sum.late_events += c.late_events;
    sum.trials += c.trials;
    sum.more_legs += c.more_legs;
    sum.parts_failed += c.parts_failed;
    sum.parts_cancelled += c.parts_cancelled;
    sum.blocks_passed += c.blocks_passed;
    sum.loads_cancelled += c.loads_cancelled;
    sum.deadlines += c.deadlines;
    sum.load_waits += c.load_waits;
    sum.tokens_restored += c.tokens_restored;
    sum.measured += c.measured;
  }
};

void expect_operations(const TierTotals& totals, std::uint64_t least) {
  const Sim::Operations& o = totals.operations;
  std::printf("[ counted  ] %llu operations: %llu submits, %llu aborts, %llu timeouts, %llu completions\n",
              static_cast<unsigned long long>(o.total()), static_cast<unsigned long long>(o.submits),
              static_cast<unsigned long long>(o.aborts), static_cast<unsigned long long>(o.timeouts),
              static_cast<unsigned long long>(o.completions));
  EXPECT_GE(o.total(), least);
}

TEST(Tiers, RandomRunsWithFaults) {
  const int runs = std::getenv("BARG_TEST_LONG") != nullptr ? 300 : 26;
  TierTotals totals;
  std::uint64_t seed = 100;
  for (int depth : {0, 1, 2}) {
    for (const auto mode :
         {sched::RestoreMode::kAuto, sched::RestoreMode::kReload, sched::RestoreMode::kBoth}) {
      for (const int second : {0, 1, 2}) {  // alone; with a window; with states
        for (const bool faults : {false, true}) {
          SimConfig c = tight(depth);
          c.tiers.planner.mode = mode;
          if (second == 1) c.groups.push_back({24, 16});
          if (second == 2) c.groups.push_back({0, 11, 2});
          if (faults) add_faults(c);
          run_seeds(c, seed, runs, totals);
          if (HasFailure()) return;
          seed += 1000;
        }
      }
    }
  }
  const sched::TierCounters& t = totals.sum;
  for (const std::uint64_t n : t.plans) EXPECT_GT(n, 100U);
  for (const std::uint64_t n : t.saves) EXPECT_GT(n, 100U);
  for (std::size_t p = 1; p < sched::kNumPlaces; ++p) EXPECT_GT(t.blocks_restored[p], 30U) << p;
  EXPECT_GT(t.lookup_timeouts, 10U);
  EXPECT_GT(t.late_events, 10U);
  EXPECT_GT(t.trials, 10U);
  EXPECT_GT(t.more_legs, 10U);
  EXPECT_GT(t.parts_failed, 100U);
  EXPECT_GT(t.parts_cancelled, 100U);
  EXPECT_GT(t.blocks_passed, 10U);
  EXPECT_GT(t.loads_cancelled, 10U);
  EXPECT_GT(t.deadlines, 10U);
  EXPECT_GT(t.load_waits, 10U);
  EXPECT_GT(t.measured, 100U);
  EXPECT_GT(totals.preemptions, 100U);
  expect_operations(totals, 100'000);
}

/// The same in one life of a scheduler: what leaks a little at a time has the time to.
TEST(Tiers, OneLongRunWithFaults) {
  if (std::getenv("BARG_TEST_LONG") == nullptr) GTEST_SKIP() << "skipped: ten seconds; set BARG_TEST_LONG";
  SimConfig c = tight(1);
  c.groups.push_back({24, 16});
  add_faults(c);
  c.requests = 30'000;
  c.cancel_rate = 0.2;
  c.unfinished_most = 30;
  TierTotals totals;
  run_seeds(c, 7, 1, totals);
  expect_operations(totals, 100'000);
}

// ---- plans of long contexts

std::int64_t hashed = 0;
Digest counted_key(const Digest& parent, const kv::TokenView& log, std::int32_t index, std::int32_t block) {
  ++hashed;
  return kv::block_key(parent, log, index, block);
}

TEST(Tiers, PlansOfDecodesLookAtNoContext) {
  for (const std::int32_t context : {1024, 131072}) {
    SimConfig c;
    c.groups = {{0, context / 16 + 40}};
    c.max_model_len = context + 600;
    c.budget = 8192;
    c.vocab = 1000;
    c.itl_target_ms = 1e9;
    c.stretch_max = 1e9;
    c.key = &counted_key;
    c.check_every_step = false;
    c.tiers.enabled = true;
    Sim sim(c, 3);
    const auto r = make_request(sim.random_tokens(context), 300);
    const std::vector<Digest> digests = sim.preload(r->prompt, {sched::Place::kDram});
    ASSERT_EQ(static_cast<std::int32_t>(digests.size()), context / 16);
    sim.submit(r);
    while (sim.scheduler().facts().running_tokens != 1) sim.step();
    EXPECT_GT(sim.scheduler().tier_counters().tokens_restored, static_cast<std::uint64_t>(context / 2));
    const std::int64_t before = hashed;
    const double begin = sim.plan_seconds();
    std::int64_t plans = 0;
    for (; sim.scheduler().unfinished() > 0; ++plans) sim.step();
    const double us = 1e6 * (sim.plan_seconds() - begin) / static_cast<double>(plans);
    EXPECT_LE(hashed - before, 300 / 16 + 2) << "blocks of the context were hashed again";
    RecordProperty("us_per_plan_at_" + std::to_string(context), std::to_string(us));
  }
}

}  // namespace
}  // namespace barg::test::tiers_test
