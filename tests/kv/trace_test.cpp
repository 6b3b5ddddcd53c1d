// Hit rates of the device's pool alone, on traces of block ids: every id is a block of one token here.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/env.h"
#include "kv/manager.h"
#include "support/data.h"

namespace barg::kv::trace_test {
namespace {

using Trace = std::vector<std::vector<TokenId>>;

/// The ids of every request of a trace in Mooncake's format.
Trace mooncake(const std::string& path) {
  Trace trace;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::vector<TokenId> ids;
    const char* p = std::strchr(line.c_str() + line.find("hash_ids"), '[') + 1;
    for (char* end; *p != ']' && *p != 0; p = end + std::strspn(end, ", "))
      ids.push_back(static_cast<TokenId>(std::strtol(p, &end, 10)));
    if (!ids.empty()) trace.push_back(std::move(ids));
  }
  return trace;
}

/// Conversations that go on, among many that do not.
Trace made_up() {
  Rng rng(17);
  Trace trace, open;
  TokenId next = 1;
  for (int i = 0; i < 4000; ++i) {
    std::vector<TokenId> ids{0};
    if (!open.empty() && rng.below(3) == 0) ids = open[rng.below(open.size())];
    for (std::uint64_t n = 4 + rng.below(16); n > 0; --n) ids.push_back(next++);
    if (rng.below(4) == 0) open.push_back(ids);
    if (open.size() > 12) open.erase(open.begin());
    trace.push_back(std::move(ids));
  }
  return trace;
}

/// Blocks served from the cache / blocks asked for, one request after the other.
double hit_rate(const Trace& trace, std::int64_t blocks, Eviction eviction) {
  ManagerOptions o;
  o.block_tokens = 1;
  o.groups = {{GroupKind::kFull, 0, blocks, 1}};
  o.eviction = eviction;
  KvManager kv(o);
  const Digest root = root_key("r", "");
  std::int64_t hits = 0, all = 0;
  for (const std::vector<TokenId>& ids : trace) {
    const TokenView log{ids, {}, {}};
    const KvSeq s = kv.open(root);
    std::vector<TailCopy> copies;
    {
      KvManager::Transaction txn(kv);
      const auto hit =
          kv.admit(s, log, {.read_until = log.size(), .rows = 1, .keep = {}, .step = StepId{1}}, copies);
      txn.commit();
      hits += *hit + static_cast<std::int64_t>(copies.size());  // a copied block was there
    }
    all += log.size();
    EXPECT_TRUE(kv.reserve(s, log.size()));
    kv.publish(s, log, log.size(), StepId{});
    kv.advance(s, log.size());
    kv.release(s, StepId{});
    kv.close(s);
    kv.retire(StepId{1});
  }
  kv.check_integrity();
  return static_cast<double>(hits) / static_cast<double>(all);
}

TEST(Trace, ConversationHitsAsTheReferenceSays) {
  const std::string path = test::shared_data("traces/mooncake_conversation.jsonl");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  const Trace trace = mooncake(path);
  ASSERT_GT(trace.size(), 10'000U);
  const double lru_small = hit_rate(trace, 1760, Eviction::kLru);
  const double lru_large = hit_rate(trace, 16'000, Eviction::kLru);
  const double s3_small = hit_rate(trace, 1760, Eviction::kS3Fifo);
  const double s3_large = hit_rate(trace, 16'000, Eviction::kS3Fifo);
  std::printf("LRU %.4f %.4f, S3-FIFO %.4f %.4f\n", lru_small, lru_large, s3_small, s3_large);
  EXPECT_NEAR(lru_small, 0.052, 0.001);
  EXPECT_NEAR(lru_large, 0.263, 0.001);
  EXPECT_NEAR(s3_small, 0.076, 0.002);
  EXPECT_NEAR(s3_large, 0.232, 0.005);
  EXPECT_GE(s3_small, 0.30 * 0.241);  // of the offline optimum
}

TEST(Trace, SyntheticHitsAsTheReferenceSays) {
  const std::string path = test::shared_data("traces/mooncake_synthetic.jsonl");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  const Trace trace = mooncake(path);
  EXPECT_NEAR(hit_rate(trace, 1760, Eviction::kLru), 0.132, 0.001);
  EXPECT_NEAR(hit_rate(trace, 8000, Eviction::kLru), 0.373, 0.001);
  EXPECT_GE(hit_rate(trace, 1760, Eviction::kS3Fifo), 0.134);
  EXPECT_NEAR(hit_rate(trace, 8000, Eviction::kS3Fifo), 0.379, 0.005);
}

TEST(Trace, WhatIsReadOnceDoesNotPushOutWhatGoesOn) {
  const Trace trace = made_up();
  for (const std::int64_t blocks : {100, 150, 200}) {
    EXPECT_GT(hit_rate(trace, blocks, Eviction::kS3Fifo), hit_rate(trace, blocks, Eviction::kLru) + 0.01);
  }
}

}  // namespace
}  // namespace barg::kv::trace_test
