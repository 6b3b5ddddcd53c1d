// Named behaviours of restores from the tiers: who waits for whom, every way out of every state, faults,
// order.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "support/sim.h"

namespace barg::test::restore_test {
namespace {

using sched::Place;
using sched::RestoreMode;

SimConfig tiered(RestoreMode mode = RestoreMode::kReload) {
  SimConfig c;
  c.groups = {{0, 400}};
  c.max_model_len = 4000;
  c.budget = 64;
  c.prompt_max = 10;
  c.vocab = 1000;
  c.itl_target_ms = 1e6;
  c.stretch_max = 1e9;
  c.tiers.enabled = true;
  c.tiers.planner.mode = mode;
  c.tier.bytes_per_s = {0, 1e6, 1e6, 1e6};  // a part takes 1 ms
  c.tier.remote = false;
  return c;
}

std::int32_t loads_in(const std::vector<sched::TierCommand>& commands) {
  return static_cast<std::int32_t>(std::count_if(
      commands.begin(), commands.end(),
      [](const sched::TierCommand& c) { return std::holds_alternative<sched::LoadCommand>(c); }));
}

// ---- what comes back

TEST(Restore, APromptComesBackFromEveryTierAndIsCountedByPlace) {
  for (const RestoreMode mode : {RestoreMode::kReload, RestoreMode::kBoth}) {
    SimConfig c = tiered(mode);
    c.tier.remote = true;
    Sim sim(c, 1);
    const auto prompt = sim.random_tokens(16 * 9 + 3);
    sim.preload(prompt, {Place::kDram, Place::kDisk, Place::kRemote});
    const RequestId id = sim.submit(make_request(prompt, 3));
    sim.drain();
    sim.finish_checks();
    const RequestStats& stats = sim.delivered(id).stats;
    if (mode == RestoreMode::kReload) {
      EXPECT_EQ(stats.cached_by_place, (std::array<std::int32_t, 4>{0, 48, 48, 48}));
      EXPECT_EQ(sim.device().computed(), 3 + 2);
    } else {
      EXPECT_GT(stats.cached_tokens, 0);
      EXPECT_EQ(sim.device().computed() + stats.cached_tokens, 16 * 9 + 3 + 2);
    }
  }
}

TEST(Restore, ExactlyFullPromptsLeaveATokenToCompute) {
  Sim sim(tiered(), 2);
  const auto prompt = sim.random_tokens(16 * 4);
  sim.preload(prompt, {Place::kDisk});
  const RequestId id = sim.submit(make_request(prompt, 2));
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(id).stats.cached_tokens, 16 * 3);
}

TEST(Restore, WindowsGetWhatTheirQueriesReadAndNoMore) {
  for (const RestoreMode mode : {RestoreMode::kReload, RestoreMode::kBoth}) {
    SimConfig c = tiered(mode);
    c.groups.push_back({40, 40});
    Sim sim(c, 3);
    const auto prompt = sim.random_tokens(16 * 20 + 3);
    sim.preload(prompt, {Place::kDisk});
    sim.submit(make_request(prompt, 30));
    sim.drain();
    sim.finish_checks();
    EXPECT_GT(sim.scheduler().tier_counters().tokens_restored, 0U);
    EXPECT_LE(sim.scheduler().tier_counters().parts_asked, 20U + 4U);
  }
}

TEST(Restore, ARunEndsWhereItsWindowsAreWhole) {
  SimConfig c = tiered();
  c.groups.push_back({40, 40});
  Sim sim(c, 19);
  const auto prompt = sim.random_tokens(16 * 20 + 3);
  const auto digests = sim.preload(prompt, {Place::kDisk});
  sim.tiers().forget(digests[18],
                     1);  // behind 17 blocks or fewer nobody reads it, behind 19 and 20 queries do
  const RequestId id = sim.submit(make_request(prompt, 2));
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().tier_counters().parts_failed, 0U);
  EXPECT_EQ(sim.delivered(id).stats.cached_tokens, 16 * 18);
}

TEST(Restore, EqualPrefixesAreReadOnce) {
  for (const RestoreMode mode : {RestoreMode::kReload, RestoreMode::kBoth}) {
    Sim sim(tiered(mode), 4);
    const auto prompt = sim.random_tokens(16 * 12 + 5);
    sim.preload(prompt, {Place::kDisk});
    auto many = make_request(prompt, 4);
    many->n = 3;
    sim.submit(many);
    sim.submit(make_request(prompt, 4));
    sim.drain();
    sim.finish_checks();
    const sched::TierCounters& t = sim.scheduler().tier_counters();
    EXPECT_EQ(t.loads, 1U);
    EXPECT_GT(mode == RestoreMode::kReload ? t.load_waits : sim.scheduler().counters().deferrals, 0U);
    EXPECT_EQ(sim.device().computed() + static_cast<std::int64_t>(t.tokens_restored),
              16 * 12 + 5 + 3 * 5 + 4 * 3);
  }
}

TEST(Restore, ScoredPromptsAskNobody) {
  Sim sim(tiered(), 5);
  auto scored = make_request(sim.random_tokens(100), 2);
  sim.preload(scored->prompt, {Place::kDram});
  scored->sampling.prompt_logprobs = 0;
  const RequestId id = sim.submit(scored);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().tier_counters().lookups, 0U);
  EXPECT_EQ(sim.delivered(id).stats.cached_tokens, 0);
}

TEST(Restore, ModeRecomputeSavesAndNeverAsks) {
  SimConfig c = tiered(RestoreMode::kRecompute);
  c.groups = {{0, 20}};
  Sim sim(c, 6);
  for (int i = 0; i < 5; ++i) {
    sim.submit(make_request(sim.random_tokens(200), 2));
    sim.drain();
  }
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().tier_counters().lookups, 0U);
  EXPECT_GT(sim.scheduler().tier_counters().saves[0], 0U);
}

// ---- waiting

TEST(Restore, OthersAreServedWhileOneWaitsForAnAnswerOrALoad) {
  SimConfig c = tiered();
  c.max_num_seqs = 1;
  c.tier.latency_s = {0, 0, 5, 0};
  c.tiers.planner.deadline_floor_s = 100;
  Sim sim(c, 7);
  const auto prompt = sim.random_tokens(16 * 6 + 1);
  sim.preload(prompt, {Place::kDisk});
  const RequestId slow = sim.submit(make_request(prompt, 2));
  EXPECT_FALSE(sim.plan());  // asks
  ASSERT_TRUE(sim.tier_event());
  EXPECT_FALSE(sim.plan());  // reads
  EXPECT_EQ(loads_in(sim.last_commands()), 1);
  EXPECT_EQ(sim.scheduler().running().size(), 1U);
  const RequestId quick = sim.submit(make_request({1, 2, 3}, 3));
  while (sim.delivered(quick).finish == FinishReason::kNone) sim.step();
  EXPECT_EQ(sim.delivered(slow).finish, FinishReason::kNone);
  EXPECT_LT(sim.now(), 4);
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.delivered(slow).stats.cached_by_place[2], 96);
}

TEST(Restore, ALoaderIsTheFirstVictimOfTheOldest) {
  SimConfig c = tiered();
  c.groups = {{0, 12}};
  c.watermark = 0;
  c.tiers.load_share = 1;
  c.tier.latency_s = {0, 0, 100, 0};
  c.tiers.planner.deadline_floor_s = 1000;
  Sim sim(c, 8);
  const RequestId oldest = sim.submit(make_request(sim.random_tokens(110), 40));  // 7 blocks, then 10
  auto batch = make_request({1, 2, 3}, 25);
  batch->priority = Priority::kBatch;
  const RequestId young = sim.submit(batch);
  while (sim.scheduler().facts().running_tokens != 2) sim.step();
  const auto prompt = sim.random_tokens(16 * 3 + 1);
  sim.preload(prompt, {Place::kDisk});
  auto loader = make_request(prompt, 2);
  loader->priority = Priority::kInteractive;  // a better class does not help it
  const RequestId victim = sim.submit(loader);
  while (sim.scheduler().facts().loading == 0) sim.step();
  while (sim.delivered(oldest).finish == FinishReason::kNone) sim.step();
  EXPECT_LT(sim.now(), 50);
  EXPECT_GT(sim.scheduler().tier_counters().loads_cancelled, 0U);
  sim.drain();
  sim.finish_checks();
  EXPECT_GT(sim.delivered(victim).stats.preemptions, 0);
  EXPECT_EQ(sim.delivered(oldest).stats.preemptions, 0);
  EXPECT_EQ(sim.delivered(young).stats.preemptions, 0);
}

TEST(Restore, LoadsHoldTheirShareAndGoOnInLegs) {
  SimConfig c = tiered();
  c.groups = {{0, 20}};
  Sim sim(c, 9);
  const auto prompt = sim.random_tokens(16 * 16 + 1);
  sim.preload(prompt, {Place::kDram});
  const RequestId id = sim.submit(make_request(prompt, 2));
  std::vector<std::size_t> legs;
  while (sim.scheduler().unfinished() > 0) {
    sim.plan();
    for (const auto& command : sim.last_commands()) {
      if (const auto* load = std::get_if<sched::LoadCommand>(&command)) legs.push_back(load->parts.size());
    }
    sim.outstanding().empty() ? sim.wait_for_tiers() : sim.collect();
  }
  sim.finish_checks();
  ASSERT_GE(legs.size(), 3U);
  EXPECT_EQ(legs[0], 10U);  // half of 20
  EXPECT_EQ(legs[1], 5U);   // half of what is left
  EXPECT_GE(sim.delivered(id).stats.cached_tokens, 16 * 15);
}

TEST(Restore, AHitThatShrankIsAskedForAgainAFewTimes) {
  SimConfig c = tiered();
  c.groups = {{0, 40}};
  c.eviction = kv::Eviction::kLru;
  Sim sim(c, 10);
  const auto prompt = sim.random_tokens(16 * 20 + 1);
  auto half = prompt;
  half.resize(16 * 10);
  sim.preload(prompt, {Place::kDram});
  sim.submit(make_request(half, 1));  // ten blocks on the device
  sim.drain();
  const RequestId id = sim.submit(make_request(prompt, 2));
  sim.plan();  // asks for what is behind them
  ASSERT_FALSE(sim.last_commands().empty());
  auto other = make_request(sim.random_tokens(16 * 38), 1);
  other->priority = Priority::kInteractive;
  sim.submit(other);  // pushes them out
  while (sim.scheduler().facts().asking > 0 || sim.scheduler().unfinished() > 1) {
    sim.plan();
    if (!sim.outstanding().empty()) sim.collect();
    sim.wait_for_tiers();
  }
  sim.drain();
  sim.finish_checks();
  EXPECT_GT(sim.delivered(id).stats.cached_tokens, 16 * 10);
}

// ---- faults: nobody fails, and every answer is the same

TEST(Restore, WhatIsInFrontOfAFailedPartIsUsedAndWhatIsBehindToo) {
  Sim sim(tiered(), 11);
  const auto prompt = sim.random_tokens(16 * 10 + 1);
  const auto digests = sim.preload(prompt, {Place::kDisk});
  const RequestId id = sim.submit(make_request(prompt, 2));
  sim.plan();
  sim.tiers().config.missing_rate = 0;
  ASSERT_TRUE(sim.tier_event());
  sim.tiers().forget(digests[4]);  // between the answer and the read
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().tier_counters().parts_failed, 1U);
  EXPECT_EQ(sim.delivered(id).stats.cached_tokens, 16 * 9);
  EXPECT_EQ(sim.device().computed(), 16 + 1 + 1);
}

TEST(Restore, AServiceThatNeverAnswersCostsItsDeadlineOnly) {
  SimConfig c = tiered();
  c.tier.silent_rate = 1;
  Sim sim(c, 12);
  const auto prompt = sim.random_tokens(16 * 10 + 1);
  sim.preload(prompt, {Place::kDisk});
  sim.submit(make_request(prompt, 2));
  sim.drain();
  sim.finish_checks();
  EXPECT_EQ(sim.scheduler().tier_counters().lookup_timeouts, 1U);
  EXPECT_LT(sim.now(), 1);
  // And with answers, but no parts.
  Sim deaf(tiered(), 13);
  deaf.preload(prompt, {Place::kDisk});
  const RequestId id = deaf.submit(make_request(prompt, 2));
  deaf.plan();
  ASSERT_TRUE(deaf.tier_event());
  deaf.tiers().config.silent_rate = 1;
  deaf.drain();
  deaf.finish_checks();
  EXPECT_EQ(deaf.scheduler().tier_counters().deadlines, 1U);
  EXPECT_EQ(deaf.tiers().counts.load_cancels, 1U);
  EXPECT_EQ(deaf.delivered(id).stats.cached_tokens, 0);
  EXPECT_LT(deaf.now(), 1);
}

TEST(Restore, ATierThatHangsFromTheStartIsNotTriedAgainAndAgain) {
  SimConfig c = tiered(RestoreMode::kAuto);
  c.groups = {{0, 30}};
  c.tier.hang_rate = 1;
  Sim sim(c, 14);
  for (int i = 0; i < 12; ++i) {
    const auto prompt = sim.random_tokens(16 * 20 + 1);
    sim.preload(prompt, {Place::kDisk});
    sim.submit(make_request(prompt, 1));
    sim.drain();
  }
  sim.finish_checks();
  const auto& plans = sim.scheduler().tier_counters().plans;
  EXPECT_LE(plans[static_cast<std::size_t>(sched::RestoreChoice::kReload)], 2U);
  EXPECT_GE(plans[static_cast<std::size_t>(sched::RestoreChoice::kRecompute)], 6U);
}

// ---- every way out of every state

enum class State { kAsked, kAnswered, kReloading, kMeeting };

void bring_to(Sim& sim, State state) {
  sim.plan();
  if (state == State::kAsked) return;
  ASSERT_TRUE(sim.tier_event());
  if (state == State::kAnswered) return;
  sim.plan();
  ASSERT_EQ(sim.scheduler().facts().loading, 1);
}

TEST(Restore, EveryWayOutOfEveryStateCancelsOnceAndLeavesNothing) {
  const std::vector<std::pair<const char*, std::function<void(Sim&, RequestId)>>> exits{
      {"cancel", [](Sim& s, RequestId id) { s.cancel(id); }},
      {"fail", [](Sim& s, RequestId id) { s.fail(id); }},
      {"finish_at", [](Sim& s, RequestId id) { s.finish_at(id, 0, 1); }},
      {"pause", [](Sim& s, RequestId id) { s.pause(id, true), s.plan(), s.pause(id, false); }},
      {"pause twice", [](Sim& s, RequestId id) { s.pause(id, true), s.pause(id, true), s.pause(id, false); }},
  };
  for (int depth : {0, 1, 2}) {
    for (const State state : {State::kAsked, State::kAnswered, State::kReloading, State::kMeeting}) {
      for (const auto& [name, leave] : exits) {
        SCOPED_TRACE(std::string(name) + ", state " + std::to_string(static_cast<int>(state)));
        SimConfig c = tiered(state == State::kMeeting ? RestoreMode::kBoth : RestoreMode::kReload);
        c.pipeline_depth = depth;
        Sim sim(c, 15);
        const auto prompt = sim.random_tokens(16 * 12 + 1);
        sim.preload(prompt, {Place::kDisk});
        const RequestId id = sim.submit(make_request(prompt, 3));
        bring_to(sim, state);
        leave(sim, id);
        sim.drain();
        while (!sim.outstanding().empty()) sim.collect();
        sim.plan();
        sim.finish_checks();
        const bool loading = state == State::kReloading || state == State::kMeeting;
        EXPECT_EQ(sim.tiers().counts.load_cancels, loading ? 1U : 0U);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Restore, ALostDeviceCancelsLoads) {
  Sim sim(tiered(RestoreMode::kBoth), 16);
  const auto prompt = sim.random_tokens(16 * 12 + 1);
  sim.preload(prompt, {Place::kDisk});
  const RequestId id = sim.submit(make_request(prompt, 3));
  bring_to(sim, State::kMeeting);
  sim.lose_device();
  EXPECT_EQ(sim.delivered(id).finish, FinishReason::kError);
  sim.plan();
  EXPECT_EQ(sim.tiers().counts.load_cancels, 1U);
  EXPECT_TRUE(sim.tiers().idle());
  sim.finish_checks();
}

// ---- saves

TEST(Restore, ASecondReaderMakesBlocksLastAndSoonDoesEviction) {
  SimConfig c = tiered();
  c.groups = {{0, 30}};
  Sim sim(c, 17);
  const auto prompt = sim.random_tokens(16 * 8 + 3);
  for (int i = 0; i < 2; ++i) {
    sim.submit(make_request(prompt, 2));
    sim.drain();
  }
  sim.plan();
  EXPECT_EQ(sim.scheduler().tier_counters().saves[2], 8U);
  for (int i = 0; i < 3; ++i) {
    sim.submit(make_request(sim.random_tokens(16 * 20), 2));
    sim.drain();
  }
  sim.finish_checks();
  EXPECT_GT(sim.scheduler().tier_counters().saves[0], 20U);
  EXPECT_GT(sim.scheduler().tier_counters().saves[1], 0U);
}

TEST(Restore, NothingIsCopiedEarlyWhileBlocksAreBlank) {
  for (const std::int32_t blocks : {100, 41}) {  // three prompts of 13 leave more than a tenth of 100, not of 41
    SimConfig c = tiered();
    c.groups = {{0, blocks}};
    Sim sim(c, 17);
    for (int i = 0; i < 3; ++i) {
      sim.submit(make_request(sim.random_tokens(16 * 13), 2));
      sim.drain();
    }
    sim.plan();
    EXPECT_EQ(sim.scheduler().tier_counters().saves[0], 0U);
    EXPECT_EQ(sim.scheduler().tier_counters().saves[1] > 0, blocks == 41) << blocks;
    sim.finish_checks();
  }
}

TEST(Restore, SequencesAskAsTheyComeWhileTheirTurnMayBeNext) {
  SimConfig c = tiered();
  c.groups = {{0, 400}};
  Sim sim(c, 19);
  for (int i = 1; i <= 20; ++i) {
    sim.submit(make_request(sim.random_tokens(16 * 3), 2));
    EXPECT_EQ(sim.scheduler().facts().asking, std::min(i, c.tiers.lookups_most));
  }
  sim.drain();
  sim.finish_checks();
}

TEST(Restore, TiersOffAskAndSaveNothing) {
  SimConfig c = tiered();
  c.tiers.enabled = false;
  c.groups = {{0, 30}};
  Sim sim(c, 18);
  for (int i = 0; i < 4; ++i) {
    sim.submit(make_request(sim.random_tokens(16 * 20), 2));
    sim.drain();
  }
  sim.finish_checks();
  std::vector<sched::TierCommand> commands;
  sim.scheduler().take_tier_commands(commands);
  EXPECT_TRUE(commands.empty());
  EXPECT_FALSE(sim.scheduler().next_deadline());
}

}  // namespace
}  // namespace barg::test::restore_test
