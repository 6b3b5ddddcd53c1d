// Small-scope model check: every order of submit, plan, collect and cancel up to a length, on three requests
// that share a prefix and a pool that cannot hold them all. Each order is then run to its end against the
// oracle; then the same with tiers, their events and deadlines. With BARG_TEST_LONG in the environment
// (scripts/test --full) the orders are two events longer.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/sim.h"

namespace barg::test::exhaustive_test {
namespace {

enum Op : char { kSubmit, kPlan, kCollect, kCancel, kTierEvent, kTierDeadline };  // the last two: of tiers

/// Request k of three: the last has two choices, the first is of the lowest class.
std::shared_ptr<Request> request(int k, std::vector<TokenId> prompt, std::int32_t max_tokens) {
  auto r = std::make_shared<Request>();
  r->prompt = std::move(prompt);
  r->sampling.max_tokens = max_tokens;
  r->sampling.ignore_eos = true;
  r->sampling.seed = 5;
  r->n = k == 2 ? 2 : 1;
  r->priority = k == 0 ? Priority::kBatch : Priority::kStandard;
  return r;
}

std::shared_ptr<Request> plain_request(int k) {
  // Equal, equal and longer, shorter with two choices: hits, copies of tails and preemption within a few
  // steps.
  const std::vector<std::vector<TokenId>> prompts{{1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2}};
  auto r = request(k, prompts[static_cast<std::size_t>(k)], k == 2 ? 2 : 6 - k);
  r->sampling.ignore_eos = k != 1;
  return r;
}

std::shared_ptr<Request> tier_request(int k) {
  const std::vector<std::vector<TokenId>> prompts{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 1, 2}, {1, 2, 3}};
  return request(k, prompts[static_cast<std::size_t>(k)], k == 1 ? 2 : 4);
}

struct World {
  explicit World(const SimConfig& c) : sim(c, 1), tiers(c.tiers.enabled) {
    if (tiers) sim.preload(tier_request(1)->prompt, {sched::Place::kDram, sched::Place::kDisk});
  }
  bool apply(Op op) {
    switch (op) {
      case kSubmit:
        if (submitted == 3) return false;
        sim.submit(tiers ? tier_request(submitted) : plain_request(submitted));
        ++submitted;
        return true;
      case kPlan: {
        // An empty plan that tells the tiers nothing changes nothing: no need to go on from it.
        const bool planned = sim.plan();
        return planned || !sim.last_commands().empty();
      }
      case kCollect:
        if (sim.outstanding().empty()) return false;
        sim.collect();
        return true;
      case kCancel:
        if (cancelled == submitted) return false;
        sim.cancel(static_cast<RequestId>(++cancelled));
        return true;
      case kTierEvent:
        return sim.tier_event();
      case kTierDeadline:
        return sim.pass_deadline();
    }
    return false;
  }
  Sim sim;
  const bool tiers;
  int submitted = 0, cancelled = 0;
};

struct Search {
  SimConfig config;
  std::size_t length;
  std::int64_t runs = 0;
  std::uint64_t preemptions = 0, hits = 0, restored = 0, cancelled = 0, deadlines = 0, failed = 0;
  std::string path{};

  void go() {
    World w(config);
    for (char op : path) {
      if (!w.apply(static_cast<Op>(op))) return;
    }
    if (path.size() < length) {
      const int last = w.tiers ? kTierDeadline : kCancel;
      for (int op = 0; op <= last; ++op) {
        path.push_back(static_cast<char>(op));
        go();
        path.pop_back();
        if (::testing::Test::HasFailure()) return;
      }
      return;
    }
    ++runs;
    while (w.submitted < 3) w.apply(kSubmit);
    w.sim.hear();
    w.sim.drain(1000);
    w.sim.finish_checks();
    preemptions += w.sim.scheduler().counters().preemptions;
    hits += w.sim.scheduler().counters().prefix_hits;
    const sched::TierCounters& t = w.sim.scheduler().tier_counters();
    restored += t.tokens_restored;
    cancelled += t.parts_cancelled;
    deadlines += t.deadlines + t.lookup_timeouts;
    failed += t.parts_failed;
    if (!::testing::Test::HasFailure()) return;
    std::string text;
    for (char op : path) text += "SPCXED"[static_cast<std::size_t>(op)];
    ADD_FAILURE() << "order " << text;
  }
};

/// Events by which the orders are longer.
std::size_t longer() { return std::getenv("BARG_TEST_LONG") != nullptr ? 2 : 0; }

/// So few blocks and tokens that short orders of events meet every corner.
SimConfig crowded(int depth, bool window, int blocks, int seqs) {
  SimConfig c;
  c.block_tokens = 2;
  c.groups = {{0, blocks}};
  if (window) c.groups.push_back({3, blocks});
  c.pipeline_depth = depth;
  c.budget = 4;
  c.max_num_seqs = seqs;
  c.max_model_len = 10;
  c.vocab = 6;
  c.watermark = 0;
  c.prefixes = 1;
  c.prompt_max = 4;
  return c;
}

TEST(Exhaustive, EveryShortOrderOfEventsEndsRight) {
  for (int depth : {0, 1, 2}) {
    for (bool window : {false, true}) {
      const SimConfig c = crowded(depth, window, 5, 3);
      const std::size_t length = depth == 0 ? 12 : depth == 1 ? 10 : 9;
      Search search{.config = c, .length = length + longer()};
      search.go();
      EXPECT_GT(search.runs, 1000);
      EXPECT_GT(search.preemptions, 0U);
      EXPECT_GT(search.hits, 0U);
      if (HasFailure()) return;
      RecordProperty("runs_depth" + std::to_string(depth) + (window ? "_window" : ""),
                     std::to_string(search.runs));
    }
  }
}

// ---- with two tiers and six blocks: every order of submits, plans, results, ends, events and deadlines

TEST(Exhaustive, EveryShortOrderOfEventsWithTiersEndsRight) {
  std::uint64_t preemptions = 0;
  for (int depth : {0, 2}) {
    for (const auto mode : {sched::RestoreMode::kReload, sched::RestoreMode::kBoth}) {
      for (const bool window : {false, true}) {
        SimConfig c = crowded(depth, window, 6, 2);
        c.deaf_rate = 1;
        c.tiers.enabled = true;
        c.tiers.planner.mode = mode;
        c.tiers.planner.deadline_floor_s = 1;
        c.tier.bytes_per_s = {0, 1e4, 1e4, 1e4};
        c.tier.missing_rate = window ? 0.3 : 0;
        Search search{.config = c, .length = (depth == 0 ? 7U : 8U) + longer()};
        search.go();
        EXPECT_GT(search.runs, 1000);
        EXPECT_GT(search.restored, 0U);
        EXPECT_GT(search.cancelled, 0U);
        EXPECT_GT(search.deadlines, 0U);
        EXPECT_EQ(search.failed > 0, window);
        preemptions += search.preemptions;
        if (HasFailure()) return;
        RecordProperty("runs_depth" + std::to_string(depth) + (window ? "_window_" : "_") +
                           std::to_string(static_cast<int>(mode)),
                       std::to_string(search.runs));
      }
    }
  }
  EXPECT_GT(preemptions, 0U);
}

}  // namespace
}  // namespace barg::test::exhaustive_test
