// Thousands of random schedules against the oracle: every sequence gives what it gives alone.
// BARG_TEST_LONG in the environment (scripts/test --full) multiplies the number of schedules by 20.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/sim.h"

namespace barg::test::random_test {
namespace {

int runs_per_config(int runs) { return std::getenv("BARG_TEST_LONG") != nullptr ? 20 * runs : runs; }

struct Totals {
  sched::Counters sum;
  void add(Sim& sim) {
    const sched::Counters& c = sim.scheduler().counters();
    sum.steps += c.steps;
    sum.mixed_steps += c.mixed_steps;
    sum.preemptions += c.preemptions;
    sum.pauses += c.pauses;
    sum.prefix_hits += c.prefix_hits;
    sum.resume_hits += c.resume_hits;
    sum.dropped_tokens += c.dropped_tokens;
    sum.late_tokens += c.late_tokens;
    sum.deferrals += c.deferrals;
    sum.bypasses += c.bypasses;
    sum.recomputed_tokens += c.recomputed_tokens;
    sum.computed_tokens += c.computed_tokens;
  }
};

std::vector<std::vector<FakeGroup>> group_sets(std::int32_t b) {
  // Pools just above what one longest sequence needs, so that sequences fight.
  const std::int64_t full = 160 / b + 3;
  return {{{0, full}},
          {{24, 12}},
          {{0, full}, {40, 14}},
          {{20, 10}, {0, full}, {0, full + 2}},
          {{0, full}, {0, 7, 2}},             // states, a snapshot for every second block
          {{0, 9, 1}},                        // states alone
          {{0, 8, 3}, {24, 12}, {0, full}}};
}

class RandomSchedules : public ::testing::TestWithParam<std::tuple<int, int, int, bool>> {};

TEST_P(RandomSchedules, EveryChoiceEqualsItsRunAlone) {
  const auto [block, depth, budget, caching] = GetParam();
  Totals totals;
  std::uint64_t seed = 1000;
  for (const auto& groups : group_sets(block)) {
    SimConfig c;
    c.block_tokens = block;
    c.groups = groups;
    c.pipeline_depth = depth;
    c.budget = budget;
    c.prefix_caching = caching;
    run_seeds(c, seed, runs_per_config(12), totals);
    if (HasFailure()) return;
    seed += 100000;
  }
  EXPECT_EQ(totals.sum.prefix_hits > 0, caching);
  EXPECT_GT(totals.sum.dropped_tokens, 0U);  // of cancelled sequences, and behind stops
  if (budget == 1) return;                   // one sequence at a time: nothing to fight about
  EXPECT_GT(totals.sum.mixed_steps, 0U);
  EXPECT_GT(totals.sum.preemptions, 0U);
  EXPECT_GT(totals.sum.recomputed_tokens, 0U);
}

TEST(RandomSchedules, TokensInFlightSurviveAPreemption) {
  Totals totals;
  for (int depth : {1, 2}) {
    SimConfig c;
    c.block_tokens = 4;
    c.groups = {{0, 43}};
    c.pipeline_depth = depth;
    run_seeds(c, 5000, runs_per_config(40), totals);
  }
  EXPECT_GT(totals.sum.late_tokens, 0U);
}

INSTANTIATE_TEST_SUITE_P(Matrix, RandomSchedules,
                         ::testing::Combine(::testing::Values(4, 16, 32), ::testing::Values(0, 1, 2),
                                            ::testing::Values(1, 5, 32, 200), ::testing::Bool()));

TEST(RandomSchedules, FailedAllocationsOnlyDelay) {
  Totals totals;
  for (int depth : {0, 1, 2}) {
    SimConfig c;
    c.block_tokens = 8;
    c.groups = {{0, 26}, {24, 16}};
    c.pipeline_depth = depth;
    c.fault_rate = 0.2;
    run_seeds(c, 7000, runs_per_config(40), totals);
  }
  EXPECT_GT(totals.sum.preemptions, 0U);
}

TEST(RandomSchedules, ManyStormsOfCancels) {
  Totals totals;
  for (int depth : {0, 2}) {
    SimConfig c;
    c.block_tokens = 8;
    c.groups = {{0, 30}};
    c.pipeline_depth = depth;
    c.cancel_rate = 0.3;
    c.requests = 40;
    run_seeds(c, 9000, runs_per_config(40), totals);
  }
}

TEST(RandomSchedules, ReadersFallBehindAndCatchUp) {
  Totals totals;
  for (int depth : {0, 1, 2}) {
    SimConfig c;
    c.block_tokens = 8;
    c.groups = {{0, 26}, {24, 16}};
    c.pipeline_depth = depth;
    c.reader_rate = 0.3;
    c.cancel_rate = 0.05;
    run_seeds(c, 13000, runs_per_config(60), totals);
  }
  EXPECT_GT(totals.sum.pauses, 1000U);
  EXPECT_GT(totals.sum.resume_hits, 0U);
  EXPECT_GT(totals.sum.late_tokens, 0U);
}

TEST(RandomSchedules, LooseSpaceHitsAndNeverPreempts) {
  Totals totals;
  SimConfig c;
  c.groups = {{0, 400}};
  c.pipeline_depth = 1;
  c.requests = 30;
  c.max_num_seqs = 16;
  run_seeds(c, 11000, runs_per_config(40), totals);
  EXPECT_EQ(totals.sum.preemptions, 0U);
  EXPECT_EQ(totals.sum.recomputed_tokens, 0U);
  EXPECT_GT(totals.sum.prefix_hits, 0U);
  EXPECT_GT(totals.sum.deferrals, 0U);
}

}  // namespace
}  // namespace barg::test::random_test
