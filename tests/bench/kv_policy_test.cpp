// The policy simulator: the figures of the reference traces, and small traces whose outcome is plain.
#include "bench/kv_policy.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/env.h"
#include "support/data.h"
#include "trace_of.h"

namespace barg::bench::kv_policy_test {
namespace {

using testing::trace_of;
using Requests = std::vector<std::vector<std::uint64_t>>;

KvPolicyOptions sized(std::int64_t device, std::int64_t dram = 0, std::int64_t disk = 0,
                      std::int64_t remote = 0, KvWrite write = KvWrite::kBack) {
  return {.blocks = {device, dram, disk, remote}, .lru = false, .write = write};
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Conversations among requests that come once; ids below 1000 are a conversation's.
Requests mixed(std::uint64_t seed, int count) {
  Rng rng(seed);
  Requests out;
  std::vector<std::vector<std::uint64_t>> open(8);
  std::uint64_t next = 1000;
  for (int i = 0; i < count; ++i) {
    if (rng.below(2) == 0) {
      out.push_back({});
      for (std::uint64_t n = 2 + rng.below(8); n > 0; --n) out.back().push_back(next++);
      continue;
    }
    auto& talk = open[rng.below(open.size())];
    if (talk.size() > 12) talk.clear();
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) talk.push_back(next++);
    out.push_back(talk);
  }
  return out;
}

TEST(KvPolicy, EverythingFitsOnTheDevice) {
  const KvTrace trace = trace_of({{1, 2}, {1, 2, 3}, {1, 2, 3}, {9}});
  const KvPolicyResult r = run_kv_policy(trace, sized(20, 20));
  EXPECT_EQ(r.asked, 9U);
  EXPECT_EQ(r.tiers[0].hits, 5U);
  EXPECT_EQ(r.hits(), 5U);
  EXPECT_EQ(r.tiers[0].evictions, 0U);
  EXPECT_EQ(r.tiers[0].writes, 4U);
  EXPECT_EQ(r.tiers[0].useful_writes, 3U);
}

TEST(KvPolicy, WhatTheDeviceEvictsComesBackFromDram) {
  const KvTrace trace = trace_of({{1, 2, 3}, {10, 11, 12}, {20, 21, 22}, {30, 31, 32}, {1, 2, 3}});
  const KvPolicyResult alone = run_kv_policy(trace, sized(6));
  EXPECT_EQ(alone.hits(), 0U);
  EXPECT_EQ(alone.tiers[0].rereads, 3U);
  const KvPolicyResult r = run_kv_policy(trace, sized(6, 20));
  EXPECT_EQ(r.tiers[1].hits, 3U);
  EXPECT_EQ(r.tiers[1].useful_writes, 3U);
  EXPECT_DOUBLE_EQ(r.hit_rate(), 3.0 / 15);
}

// A block counts only if all before it are there.
TEST(KvPolicy, AGapEndsTheRun) {
  const KvTrace trace = trace_of({{1, 2, 3}, {1, 5, 3}, {1, 2, 3}});
  EXPECT_EQ(run_kv_policy(trace, sized(20)).hits(), 1U + 3U);
}

TEST(KvPolicy, ADiskTakesWhatWasReadOrCameBack) {
  Requests requests;
  for (std::uint64_t i = 0; i < 40; ++i) requests.push_back({100 + 2 * i, 101 + 2 * i});
  // All once: nothing is worth a write, neither behind DRAM nor alone, where a block is first copied early
  // and then evicted.
  for (const std::int64_t dram : {0, 8}) {
    const KvPolicyResult once = run_kv_policy(trace_of(requests), sized(6, dram, 200));
    EXPECT_EQ(once.tiers[2].writes, 0U) << dram;
    EXPECT_GT(once.refused, 0U) << dram;
    EXPECT_GT(run_kv_policy(trace_of(requests), sized(6, 8, 200, 0, KvWrite::kAll)).tiers[2].writes, 50U);
    EXPECT_EQ(run_kv_policy(trace_of(requests), sized(6, 8, 200, 0, KvWrite::kThrough)).tiers[2].writes, 80U);
  }
  // The same once more: what comes back is written.
  Requests twice = requests;
  twice.insert(twice.end(), requests.begin(), requests.end());
  EXPECT_GT(run_kv_policy(trace_of(twice), sized(6, 0, 200)).tiers[2].writes, 50U);
}

TEST(KvPolicy, BooksBalance) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const KvTrace trace = trace_of(mixed(seed, 600));
    const std::uint64_t best = optimum_hits(trace, UINT64_MAX);
    for (const KvWrite write : {KvWrite::kBack, KvWrite::kAll, KvWrite::kThrough, KvWrite::kSecondUse}) {
      for (const bool lru : {false, true}) {
        KvPolicyOptions o = sized(32, 64, 256, 512, write);
        o.lru = lru;
        const KvPolicyResult r = run_kv_policy(trace, o);
        EXPECT_EQ(r.asked, trace.nodes.size());
        EXPECT_LE(r.hits(), best);
        std::uint64_t asked = 0;
        std::array<std::uint64_t, kKvPlaces> hits{};
        for (const auto& bin : r.bins) {
          asked += bin.asked;
          for (std::size_t p = 0; p < kKvPlaces; ++p) hits[p] += bin.hits[p];
        }
        EXPECT_EQ(asked, r.asked);
        for (std::size_t p = 0; p < kKvPlaces; ++p) {
          const KvTierCount& t = r.tiers[p];
          EXPECT_EQ(hits[p], t.hits);
          EXPECT_LE(t.useful_writes, t.writes);
          EXPECT_LE(t.rereads, t.evictions);
          EXPECT_LE(t.evictions, t.writes);
          EXPECT_LE(t.writes, t.evictions + static_cast<std::uint64_t>(o.blocks[p]));
          EXPECT_LE(t.duplicates, 1.0);
        }
        EXPECT_GE(r.hits(), run_kv_policy(trace,
                                          [&] {
                                            KvPolicyOptions device = sized(32);
                                            device.lru = lru;
                                            return device;
                                          }())
                                .hits());
      }
    }
  }
}

TEST(KvPolicy, StopsWhenAsked) {
  const std::atomic<bool> stop = true;
  const KvPolicyResult r =
      run_kv_policy(trace_of(mixed(1, 400)), sized(32, 64), {.progress = {}, .stop = &stop});
  EXPECT_TRUE(r.stopped);
  EXPECT_LT(r.requests, 400U);
}

// Bars of the tiers' policy on the conversation trace (blocks of 512 tokens).
TEST(KvPolicy, TheConversationTraceMeetsItsBars) {
  const std::string path = test::shared_data("traces/mooncake_conversation.jsonl");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  const auto rows = read_trace(path);
  ASSERT_TRUE(rows) << rows.error().message;
  const KvTrace trace = make_kv_trace(*rows);
  KvPolicyOptions lru = sized(1760);
  lru.lru = true;
  EXPECT_NEAR(run_kv_policy(trace, lru).hit_rate(), 0.052, 0.005);
  lru.blocks[0] = 16'000;
  EXPECT_NEAR(run_kv_policy(trace, lru).hit_rate(), 0.263, 0.005);
  const double small =
      run_kv_policy(trace, sized(1760)).hit_rate() / share(optimum_hits(trace, 1760), trace.nodes.size());
  const double large = run_kv_policy(trace, sized(1760, 16'000 - 1760)).hit_rate() /
                       share(optimum_hits(trace, 16'000), trace.nodes.size());
  EXPECT_GE(small, 0.30);
  EXPECT_GE(large, 0.70);
  const KvPolicyResult back = run_kv_policy(trace, sized(1760, 16'000, 64'000));
  const KvPolicyResult through = run_kv_policy(trace, sized(1760, 16'000, 64'000, 0, KvWrite::kThrough));
  const double useful = share(back.tiers[2].useful_writes, back.tiers[2].writes) /
                        share(through.tiers[2].useful_writes, through.tiers[2].writes);
  const double hits = share(back.hits(), through.hits());
  EXPECT_GE(useful, 1.8);
  EXPECT_GE(hits, 0.85);
  std::printf("of the optimum %.3f, %.3f; useful disk writes %.2fx of write-through at %.3f of its hits\n",
              small, large, useful, hits);
}

}  // namespace
}  // namespace barg::bench::kv_policy_test
