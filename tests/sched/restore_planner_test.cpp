// The restore planner: a table of choices, properties (monotone, never worse than the singles), and regret
// against every split and end.
#include "sched/restore_planner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/env.h"

namespace barg::sched::restore_planner_test {
namespace {

constexpr double kBlockBytes = 1 << 16;

/// A model that has learnt: 1 ms a step, 1 ms a row, 0.1 us a key.
CostModel learnt(double row_s = 1e-3, double key_s = 1e-7) {
  CostModel m;
  Rng rng(1);
  for (int i = 0; i < 400; ++i) {
    const auto start = static_cast<std::int32_t>(rng.below(4000));
    const StepCost c = StepCost::of(start, 1 + static_cast<std::int32_t>(rng.below(512)));
    m.observe(c, 1e-3 + row_s * c.rows + key_s * c.keys);
  }
  return m;
}

struct Case {
  CostModel model = learnt();
  std::vector<Place> places;
  RestoreInput in;
  PlannerRules rules;

  explicit Case(std::vector<Place> p) : places(std::move(p)) {
    in.block_tokens = 16;
    in.block_bytes = kBlockBytes;
    for (std::size_t i = 1; i < kNumPlaces; ++i)
      in.speeds[i] = {.measured = true, .latency_s = 1e-4, .bytes_per_s = 1e9};
    in.prefill.chunk_rows = 512;
  }
  Case(std::size_t n, Place p) : Case(std::vector<Place>(n, p)) {}

  RestorePlan plan() {
    in.places = places;
    in.prefill.cost = &model;
    return plan_restore(in, rules);
  }
  PlaceSpeed& speed(Place p) { return in.speeds[static_cast<std::size_t>(p)]; }
  /// Bytes a second at which reading the run takes as long as computing it.
  double break_even() {
    in.prefill.cost = &model;
    const auto n = static_cast<double>(places.size());
    return n * kBlockBytes / prefill_seconds(in.prefill, in.first * 16, static_cast<std::int32_t>(n) * 16);
  }
};

std::vector<Place> mixed(std::initializer_list<std::pair<int, Place>> runs) {
  std::vector<Place> out;
  for (const auto& [n, p] : runs) out.insert(out.end(), static_cast<std::size_t>(n), p);
  return out;
}

TEST(RestorePlanner, ChoosesByTheBreakEven) {
  Case c(64, Place::kDisk);
  const double even = c.break_even();
  struct Row {
    double share;
    RestoreChoice choice;
  };
  for (const Row& row :
       {Row{100, RestoreChoice::kReload}, Row{0.01, RestoreChoice::kRecompute}, Row{1, RestoreChoice::kBoth},
        Row{0.5, RestoreChoice::kBoth}, Row{2, RestoreChoice::kBoth}}) {
    c.speed(Place::kDisk).bytes_per_s = row.share * even;
    const RestorePlan p = c.plan();
    EXPECT_EQ(p.choice, row.choice) << row.share;
    EXPECT_EQ(p.last, row.choice == RestoreChoice::kRecompute ? 0 : 64) << row.share;
    EXPECT_EQ(p.descending, row.choice == RestoreChoice::kBoth);
  }
  c.speed(Place::kDisk).bytes_per_s = even;
  const RestorePlan p = c.plan();
  EXPECT_LT(p.both_s, std::min(p.reload_s, p.recompute_s) / 1.8);  // half the work at each end
}

TEST(RestorePlanner, TheEndOfARunIsCutWhereReadingStopsPaying) {
  Case c(mixed({{40, Place::kDram}, {40, Place::kRemote}}));
  c.speed(Place::kRemote).bytes_per_s = 0.02 * c.break_even();
  c.in.first = 3;
  const RestorePlan p = c.plan();
  EXPECT_EQ(p.choice, RestoreChoice::kReload);
  EXPECT_EQ(p.first, 3);
  EXPECT_EQ(p.last, 43);
  EXPECT_LT(p.reload_s, p.recompute_s);
}

TEST(RestorePlanner, TiersAreReadSideBySide) {
  Case c(mixed({{50, Place::kDisk}, {50, Place::kRemote}}));
  c.speed(Place::kDisk) =
      c.speed(Place::kRemote) = {.measured = true, .latency_s = 0, .bytes_per_s = 50 * kBlockBytes};
  EXPECT_NEAR(c.plan().reload_s, 1, 1e-9);
  c.speed(Place::kDisk).queued_bytes = 50 * kBlockBytes;
  EXPECT_NEAR(c.plan().reload_s, 2, 1e-9);
  c.speed(Place::kDisk).latency_s = 1;
  EXPECT_GT(c.plan().reload_s, 2);
}

TEST(RestorePlanner, ATierThatIsDownIsAbsent) {
  Case c(mixed({{5, Place::kDram}, {5, Place::kDisk}, {5, Place::kDram}}));
  c.speed(Place::kDisk).up = false;
  RestorePlan p = c.plan();
  EXPECT_EQ(p.choice, RestoreChoice::kReload);
  EXPECT_EQ(p.last, 5);
  c.places.assign(7, Place::kDisk);
  for (const RestoreMode mode : {RestoreMode::kAuto, RestoreMode::kReload, RestoreMode::kBoth}) {
    c.rules.mode = mode;
    p = c.plan();
    EXPECT_EQ(p.choice, RestoreChoice::kRecompute);
    EXPECT_EQ(p.first, p.last);
  }
  c.places = {Place::kNowhere, Place::kDram};
  EXPECT_EQ(c.plan().choice, RestoreChoice::kRecompute);
}

TEST(RestorePlanner, WhatNobodyHasMeasuredIsTriedFirst) {
  Case c(mixed({{30, Place::kDram}, {70, Place::kDisk}}));
  c.speed(Place::kDisk) = {};
  RestorePlan p = c.plan();
  EXPECT_EQ(p.choice, RestoreChoice::kReload);
  EXPECT_TRUE(p.trial);
  EXPECT_EQ(p.last, 30 + c.rules.trial_blocks);
  EXPECT_GE(p.deadline_s, p.recompute_s);
  c.places.resize(40);
  p = c.plan();
  EXPECT_EQ(p.last, 40);
  EXPECT_TRUE(p.trial);
  c.speed(Place::kDisk) = c.speed(Place::kDram);
  EXPECT_FALSE(c.plan().trial);
}

TEST(RestorePlanner, ARecomputedRunIsReadAtItsFarEndToLearnTheSpeedAgain) {
  Case c(64, Place::kDisk);
  c.speed(Place::kDisk).bytes_per_s = 0.001 * c.break_even();
  EXPECT_EQ(c.plan().choice, RestoreChoice::kRecompute);
  c.in.explore = true;
  const RestorePlan p = c.plan();
  EXPECT_EQ(p.choice, RestoreChoice::kBoth);
  EXPECT_TRUE(p.trial);
  EXPECT_EQ(p.first, 64 - c.rules.trial_blocks);
  EXPECT_EQ(p.last, 64);
  EXPECT_EQ(p.forecast_s, p.recompute_s);
  c.places.resize(1);
  EXPECT_EQ(c.plan().choice, RestoreChoice::kRecompute);
}

TEST(RestorePlanner, ModesForceTheChoice) {
  for (const double share : {0.01, 1.0, 100.0}) {
    Case c(64, Place::kDisk);
    c.speed(Place::kDisk).bytes_per_s = share * c.break_even();
    c.in.explore = true;
    c.rules.mode = RestoreMode::kReload;
    EXPECT_EQ(c.plan().choice, RestoreChoice::kReload);
    EXPECT_EQ(c.plan().last, 64);
    c.rules.mode = RestoreMode::kRecompute;
    EXPECT_EQ(c.plan().choice, RestoreChoice::kRecompute);
    c.rules.mode = RestoreMode::kBoth;
    EXPECT_EQ(c.plan().choice, RestoreChoice::kBoth);
    c.places.resize(1);
    EXPECT_EQ(c.plan().choice, RestoreChoice::kReload);
    c.places.clear();
    EXPECT_EQ(c.plan().choice, RestoreChoice::kRecompute);
  }
}

TEST(RestorePlanner, DeadlinesAreMultiplesOfTheForecastWithinTheCostOfRecomputing) {
  Case c(64, Place::kDisk);
  const double recompute = c.plan().recompute_s;
  for (const double share : {1.0, 2.0, 10.0, 1e4}) {
    c.speed(Place::kDisk).bytes_per_s = share * c.break_even();
    const RestorePlan p = c.plan();
    EXPECT_GE(p.deadline_s, c.rules.deadline_floor_s);
    EXPECT_GE(p.deadline_s, c.rules.deadline_least * p.forecast_s);
    EXPECT_LE(p.deadline_s, std::max({c.rules.deadline_floor_s, 1.5 * p.forecast_s, recompute}));
  }
  c.rules.mode = RestoreMode::kReload;  // also where reading is the wrong choice
  c.speed(Place::kDisk).bytes_per_s = 0.1 * c.break_even();
  EXPECT_GE(c.plan().deadline_s, 1.5 * c.plan().forecast_s);
}

TEST(RestorePlanner, LoadOfDecodesMakesRecomputingDearer) {
  Case c(64, Place::kDisk);
  c.speed(Place::kDisk).bytes_per_s = 0.2 * c.break_even();
  EXPECT_NE(c.plan().choice, RestoreChoice::kReload);
  const double idle = c.plan().recompute_s;
  c.in.prefill.decodes = {.rows = 200, .keys = 200 * 1000};
  c.in.prefill.step_s = 0.225;  // chunks of a few rows beside 0.22 s of decodes
  const RestorePlan p = c.plan();
  EXPECT_GT(p.recompute_s, 5 * idle);
  EXPECT_EQ(p.choice, RestoreChoice::kReload);
}

TEST(RestorePlanner, MonotoneInBandwidthLatencyLengthAndPosition) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    Case c(2 + rng.below(200), Place::kDisk);
    c.speed(Place::kDisk).bytes_per_s = c.break_even() * std::exp(6 * rng.uniform() - 3);
    const RestorePlan p = c.plan();
    const double granularity =
        20e-3 + kBlockBytes / c.speed(Place::kDisk).bytes_per_s;  // a block at each end
    EXPECT_LE(p.both_s, std::min(p.reload_s, p.recompute_s) + granularity);
    Case faster = c;
    faster.speed(Place::kDisk).bytes_per_s *= 1.5;
    EXPECT_LE(faster.plan().reload_s, p.reload_s);
    EXPECT_LE(faster.plan().both_s, p.both_s);
    EXPECT_EQ(faster.plan().recompute_s, p.recompute_s);
    EXPECT_TRUE(p.choice != RestoreChoice::kReload || faster.plan().choice == RestoreChoice::kReload);
    Case later = c;
    later.speed(Place::kDisk).latency_s += 0.1;
    EXPECT_GE(later.plan().reload_s, p.reload_s);
    EXPECT_GE(later.plan().both_s, p.both_s);
    Case longer = c;
    longer.places.push_back(Place::kDisk);
    EXPECT_GT(longer.plan().recompute_s, p.recompute_s);
    EXPECT_GE(longer.plan().reload_s, p.reload_s);
    Case further = c;
    further.in.first = 1000;
    EXPECT_GT(further.plan().recompute_s, p.recompute_s);
  }
}

/// The least time over every end and every split.
double brute_force(Case& c) {
  const auto n = static_cast<std::int32_t>(c.places.size());
  const auto load = [&](std::int32_t s, std::int32_t e) {
    double worst = 0;
    for (std::size_t p = 1; p < kNumPlaces; ++p) {
      double blocks = 0;
      for (std::int32_t i = s; i < e; ++i)
        blocks += static_cast<std::size_t>(c.places[static_cast<std::size_t>(i)]) == p;
      const PlaceSpeed& v = c.in.speeds[p];
      if (blocks > 0)
        worst = std::max(worst, v.latency_s + (v.queued_bytes + blocks * kBlockBytes) / v.bytes_per_s);
    }
    return worst;
  };
  const auto compute = [&](std::int32_t s, std::int32_t e) {
    return prefill_seconds(c.in.prefill, (c.in.first + s) * 16, (e - s) * 16);
  };
  double least = compute(0, n);
  for (std::int32_t e = 1; e <= n; ++e) {
    for (std::int32_t s = 0; s < e; ++s) {
      if (compute(0, s) + compute(e, n) >= least) break;
      least = std::min(least, std::max(compute(0, s), load(s, e)) + compute(e, n));
    }
  }
  return least;
}

TEST(RestorePlanner, RegretAgainstEverySplitIsSmall) {
  Rng rng(3);
  double sum = 0, worst = 0;
  int rounds = 0;
  for (; rounds < 60; ++rounds) {
    std::vector<Place> places;
    for (std::uint64_t run = 1 + rng.below(4); run-- > 0;) {
      places.insert(places.end(), 1 + rng.below(rounds < 50 ? 15 : 60), static_cast<Place>(1 + rng.below(3)));
    }
    Case c(places);
    c.in.first = static_cast<std::int32_t>(rng.below(100));
    const double even = c.break_even();
    for (const Place p : {Place::kDram, Place::kDisk, Place::kRemote}) {
      c.speed(p) = {.measured = true,
                    .latency_s = 1e-3 * rng.uniform(),
                    .bytes_per_s = even * std::exp(5 * rng.uniform() - 2.5),
                    .queued_bytes = static_cast<double>(rng.below(4)) * kBlockBytes};
    }
    c.rules.both_gain = 1;
    const RestorePlan p = c.plan();
    const double regret = p.forecast_s / brute_force(c) - 1;
    sum += regret;
    worst = std::max(worst, regret);
    EXPECT_LT(regret, 0.02) << rounds;
  }
  EXPECT_LT(sum / rounds, 0.002);
  RecordProperty("worst_regret_percent", std::to_string(100 * worst));
}

TEST(RestorePlanner, LongRunsCostLittle) {
  Case c(mixed({{4096, Place::kDram}, {2048, Place::kDisk}, {2048, Place::kRemote}}));
  c.speed(Place::kRemote).bytes_per_s = 0.5 * c.break_even();
  const RestorePlan p = c.plan();
  EXPECT_GT(p.last, p.first);
}

TEST(RestorePlanner, TheMeetingPointSharesTheGap) {
  const CostModel model = learnt(1e-3, 0);
  const PrefillLoad load{.cost = &model, .decodes = {}, .chunk_rows = 512, .step_s = 0};
  EXPECT_EQ(meet(load, 0, 10, 16, 0), 10);   // nothing comes: compute it all
  EXPECT_EQ(meet(load, 0, 10, 16, 1e9), 1);  // everything comes at once: still one, so that it goes on
  EXPECT_EQ(meet(load, 0, 1, 16, 1), 1);
  EXPECT_NEAR(meet(load, 0, 100, 16, 1 / 16e-3), 50, 2);  // as fast as computing
  std::int32_t before = 100;
  for (double rate = 1; rate < 1000; rate *= 1.3) {
    const std::int32_t m = meet(load, 0, 100, 16, rate);
    EXPECT_LE(m, before);
    before = m;
  }
}

}  // namespace
}  // namespace barg::sched::restore_planner_test
