// Small-scope model check: every order of submit, plan, collect and cancel up to a length, on three requests
// that share a prefix and a pool that cannot hold them all. Each order is then run to its end against the
// oracle; then the same with tiers, their events and deadlines. With BARG_TEST_LONG in the environment
// (scripts/test --full) the orders are two events longer.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/sim.h"

namespace barg::test {
namespace {

enum Op : char { kSubmit, kPlan, kCollect, kCancel, kNumOps };

struct World {
  explicit World(const SimConfig& c) : sim(c, 1) {}
  Sim sim;
  int submitted = 0, cancelled = 0;
};

std::shared_ptr<Request> request(int k) {
  auto r = std::make_shared<Request>();
  // Equal, equal and longer, shorter with two choices: hits, copies of tails and preemption within a few
  // steps.
  const std::vector<std::vector<TokenId>> prompts{{1, 2, 3, 4}, {1, 2, 3, 4, 5}, {1, 2}};
  r->prompt = prompts[static_cast<std::size_t>(k)];
  r->sampling.max_tokens = k == 2 ? 2 : 6 - k;
  r->sampling.ignore_eos = k != 1;
  r->sampling.seed = 5;
  r->n = k == 2 ? 2 : 1;
  r->priority = k == 0 ? Priority::kBatch : Priority::kStandard;
  return r;
}

bool apply(World& w, Op op) {
  switch (op) {
    case kSubmit:
      if (w.submitted == 3) return false;
      w.sim.submit(request(w.submitted++));
      return true;
    case kPlan:
      return w.sim.plan();  // an empty plan changes nothing: no need to go on from it
    case kCollect:
      if (w.sim.outstanding().empty()) return false;
      w.sim.collect();
      return true;
    case kCancel:
      if (w.cancelled == w.submitted) return false;
      w.sim.cancel(static_cast<RequestId>(++w.cancelled));
      return true;
    default:
      return false;
  }
}

struct Search {
  SimConfig config;
  std::size_t length;
  std::int64_t runs = 0, preemptions = 0, hits = 0;
  std::string path;

  void go() {
    World w(config);
    for (char op : path) {
      if (!apply(w, static_cast<Op>(op))) return;
    }
    if (path.size() < length) {
      for (int op = 0; op < kNumOps; ++op) {
        path.push_back(static_cast<char>(op));
        go();
        path.pop_back();
        if (::testing::Test::HasFailure()) return;
      }
      return;
    }
    ++runs;
    while (w.submitted < 3) apply(w, kSubmit);
    w.sim.drain(1000);
    w.sim.finish_checks();
    preemptions += static_cast<std::int64_t>(w.sim.scheduler().counters().preemptions);
    hits += static_cast<std::int64_t>(w.sim.scheduler().counters().prefix_hits);
    if (!::testing::Test::HasFailure()) return;
    std::string text;
    for (char op : path) text += "SPCX"[static_cast<std::size_t>(op)];
    ADD_FAILURE() << "order " << text;
  }
};

TEST(Exhaustive, EveryShortOrderOfEventsEndsRight) {
  for (int depth : {0, 1, 2}) {
    for (bool window : {false, true}) {
      SimConfig c;
      c.block_tokens = 2;
      c.groups = {{0, 5}};
      if (window) c.groups.push_back({3, 5});
      c.pipeline_depth = depth;
      c.budget = 4;
      c.max_num_seqs = 3;
      c.max_model_len = 10;
      c.vocab = 6;
      c.watermark = 0;
      c.prefixes = 1;
      c.prompt_max = 4;
      const std::size_t length = depth == 0 ? 12 : depth == 1 ? 10 : 9;
      Search search{c, length + (std::getenv("BARG_TEST_LONG") != nullptr ? 2 : 0), 0, 0, 0, {}};
      search.go();
      EXPECT_GT(search.runs, 1000);
      EXPECT_GT(search.preemptions, 0);
      EXPECT_GT(search.hits, 0);
      if (HasFailure()) return;
      RecordProperty("runs_depth" + std::to_string(depth) + (window ? "_window" : ""),
                     std::to_string(search.runs));
    }
  }
}

// ---- with two tiers and six blocks: every order of submits, plans, results, ends, events and deadlines

enum TierOp : char {
  kTierSubmit,
  kTierPlan,
  kTierCollect,
  kTierCancel,
  kTierEvent,
  kTierDeadline,
  kNumTierOps
};

std::shared_ptr<Request> tier_request(int k) {
  auto r = std::make_shared<Request>();
  const std::vector<std::vector<TokenId>> prompts{{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 1, 2}, {1, 2, 3}};
  r->prompt = prompts[static_cast<std::size_t>(k)];
  r->sampling.max_tokens = k == 1 ? 2 : 4;
  r->sampling.ignore_eos = true;
  r->sampling.seed = 5;
  r->n = k == 2 ? 2 : 1;
  r->priority = k == 0 ? Priority::kBatch : Priority::kStandard;
  return r;
}

struct TierWorld {
  explicit TierWorld(const SimConfig& c) : sim(c, 1) {
    sim.preload(tier_request(1)->prompt, {sched::Place::kDram, sched::Place::kDisk});
  }
  bool apply(TierOp op) {
    switch (op) {
      case kTierSubmit:
        if (submitted == 3) return false;
        sim.submit(tier_request(submitted++));
        return true;
      case kTierPlan: {
        const bool planned = sim.plan();
        return planned || !sim.last_commands().empty();
      }
      case kTierCollect:
        if (sim.outstanding().empty()) return false;
        sim.collect();
        return true;
      case kTierCancel:
        if (cancelled == submitted) return false;
        sim.cancel(static_cast<RequestId>(++cancelled));
        return true;
      case kTierEvent:
        return sim.tier_event();
      case kTierDeadline:
        return sim.pass_deadline();
      default:
        return false;
    }
  }
  Sim sim;
  int submitted = 0, cancelled = 0;
};

struct TierSearch {
  SimConfig config;
  std::size_t length;
  std::int64_t runs = 0;
  std::uint64_t restored = 0, cancelled = 0, deadlines = 0, failed = 0, preemptions = 0;
  std::string path;

  void go() {
    TierWorld w(config);
    for (char op : path) {
      if (!w.apply(static_cast<TierOp>(op))) return;
    }
    if (path.size() < length) {
      for (int op = 0; op < kNumTierOps; ++op) {
        path.push_back(static_cast<char>(op));
        go();
        path.pop_back();
        if (::testing::Test::HasFailure()) return;
      }
      return;
    }
    ++runs;
    while (w.submitted < 3) w.apply(kTierSubmit);
    w.sim.hear();
    w.sim.drain(1000);
    w.sim.finish_checks();
    const sched::TierCounters& t = w.sim.scheduler().tier_counters();
    restored += t.tokens_restored;
    cancelled += t.parts_cancelled;
    deadlines += t.deadlines + t.lookup_timeouts;
    failed += t.parts_failed;
    preemptions += w.sim.scheduler().counters().preemptions;
    if (!::testing::Test::HasFailure()) return;
    std::string text;
    for (char op : path) text += "SPCXED"[static_cast<std::size_t>(op)];
    ADD_FAILURE() << "order " << text;
  }
};

TEST(Exhaustive, EveryShortOrderOfEventsWithTiersEndsRight) {
  const std::size_t more = std::getenv("BARG_TEST_LONG") != nullptr ? 2 : 0;
  std::uint64_t preemptions = 0;
  for (int depth : {0, 2}) {
    for (const auto mode : {sched::RestoreMode::kReload, sched::RestoreMode::kBoth}) {
      for (const bool window : {false, true}) {
        SimConfig c;
        c.block_tokens = 2;
        c.groups = {{0, 6}};
        if (window) c.groups.push_back({3, 6});
        c.pipeline_depth = depth;
        c.budget = 4;
        c.max_num_seqs = 2;
        c.max_model_len = 10;
        c.vocab = 6;
        c.watermark = 0;
        c.prefixes = 1;
        c.prompt_max = 4;
        c.deaf_rate = 1;
        c.tiers.enabled = true;
        c.tiers.planner.mode = mode;
        c.tiers.planner.deadline_floor_s = 1;
        c.tier.bytes_per_s = {0, 1e4, 1e4, 1e4};
        c.tier.missing_rate = window ? 0.3 : 0;
        TierSearch search{c, (depth == 0 ? 8 : 9) + more, 0, 0, 0, 0, 0, 0, {}};
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
}  // namespace barg::test
