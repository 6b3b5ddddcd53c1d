// Tables, prefix reuse and transactions, without a scheduler.
#include "kv/manager.h"

#include <gtest/gtest.h>

#include "base/env.h"
#include "kv/driven.h"

namespace barg::kv::manager_test {
namespace {

TEST(Manager, ASecondRunReadsFullBlocksAndCopiesTheLastOfAnEqualPrompt) {
  KvManager kv(options({full(20)}));
  Driven a(kv, count_from(0, 10));
  a.admit().compute(10).end();
  Driven longer(kv, count_from(0, 12)), equal(kv, count_from(0, 8)), shorter(kv, count_from(0, 7));
  longer.admit();
  EXPECT_EQ(longer.hit, 8);  // the partial tail was never shared
  EXPECT_TRUE(longer.copies.empty());
  equal.admit();
  EXPECT_EQ(equal.hit, 7);  // always one token left to compute
  ASSERT_EQ(equal.copies.size(), 1U);
  EXPECT_EQ(equal.copies[0].tokens, 3);
  EXPECT_NE(equal.copies[0].src, equal.copies[0].dst);
  shorter.admit();
  EXPECT_EQ(shorter.hit, 4);
  kv.check_integrity();
  equal.compute(8);  // equal content: the copy gives way to the original
  EXPECT_EQ(kv.pool(0)[equal.copies[0].dst].state, BlockState::kBlank);
  kv.retire(step(1));
  kv.check_integrity();
  longer.end();
  equal.end();
  shorter.end();
  EXPECT_EQ(kv.usage().used, 0);
}

TEST(Manager, SaltsDoNotMeet) {
  KvManager kv(options({full(20)}));
  Driven a(kv, count_from(0, 9)), b(kv, count_from(0, 9), "other");
  a.admit().compute(9);
  EXPECT_EQ(b.admit().hit, 0);
  a.end();
  b.end();
}

TEST(Manager, EqualBlocksComputedTwiceBecomeOne) {
  KvManager kv(options({full(20)}));
  Driven a(kv, count_from(0, 9)), b(kv, count_from(0, 9));
  a.admit();
  b.admit();  // before anything was published
  a.compute(9);
  b.compute(9);
  const Usage u = kv.usage();
  EXPECT_EQ(u.groups[0].sealed, 2);
  EXPECT_EQ(u.groups[0].open, 2);
  kv.check_integrity();
  a.end();
  b.end();
}

TEST(Manager, AbortedBlocksComeBackWhenTheirStepRetired) {
  KvManager kv(options({full(4)}));
  Driven a(kv, count_from(0, 14));
  a.admit().compute(14);
  a.end(step(9));
  EXPECT_EQ(kv.available(0), 0);
  EXPECT_EQ(kv.fenced(0), 4);
  EXPECT_EQ(kv.usage().groups[0].waste_fenced, 4);  // three hold a prefix, the tail holds nothing
  Driven b(kv, count_from(50, 3));
  EXPECT_FALSE(b.admit().hit.has_value());
  Driven c(kv, count_from(0, 13));
  EXPECT_FALSE(c.admit().hit.has_value());  // readable, but no block for the rest
  kv.retire(step(9));
  EXPECT_EQ(kv.available(0), 4);
  EXPECT_EQ(c.admit().hit, 12);
  kv.check_integrity();
  b.end();
  c.end();
}

TEST(Manager, PinnedHitsAreNoLongerEvictable) {
  KvManager kv(options({full(6)}));
  Driven old(kv, count_from(0, 13)), other(kv, count_from(50, 7));
  old.admit().compute(13).end();  // leaves three cached blocks
  other.admit().compute(7);       // holds two: one is blank
  Driven five(kv, count_from(0, 20)), four(kv, count_from(0, 16));
  EXPECT_EQ(kv.available(0), 4);
  EXPECT_FALSE(five.admit().hit.has_value());  // two more blocks, but only one besides its own prefix
  EXPECT_EQ(four.admit().hit, 12);
  EXPECT_TRUE(kv.reserve(four.seq, 16));
  five.end();
  four.end();
  other.end();
}

TEST(Manager, AWindowGroupFreesItsHeadOnTheProcessedBoundary) {
  KvManager kv(options({full(50), window(8, 50)}));
  Driven a(kv, count_from(0, 100));
  a.admit();
  for (std::int32_t n = 1; n <= 100; ++n) {
    ASSERT_TRUE(kv.reserve(a.seq, n));
    kv.publish(a.seq, a.log(), n, step(0));
    std::vector<BlockId> table;
    kv.append_table(a.seq, 1, n - 1, n, table);
    for (std::int32_t p = std::max(0, n - 8); p < n; ++p)
      EXPECT_NE(table[static_cast<std::size_t>(p / 4)], kNoBlock);
    kv.advance(a.seq, n);
    EXPECT_LE(kv.held(a.seq, 1), 8 / 4 + 2);
    EXPECT_EQ(kv.held(a.seq, 0), (n + 3) / 4);
    // What the query at n reads is held; the block before it is not.
    kv.append_table(a.seq, 1, n, n, table);
    kv.check_integrity();
  }
  // The query at 100 reads 93..: block 23 (92..95) stays, block 22 has gone.
  EXPECT_EQ(kv.held(a.seq, 1), 2);
  a.end();
}

TEST(Manager, HybridHitsNeedEveryGroup) {
  KvManager kv(options({full(40), window(8, 6)}));
  Driven a(kv, count_from(0, 33));
  a.admit();
  for (std::int32_t n = 4; n <= 32; n += 4) a.compute(n);
  a.compute(33).end();
  Driven warm(kv, count_from(0, 40));
  EXPECT_EQ(warm.admit().hit, 32);
  warm.end();
  Driven other(kv, count_from(100, 20));  // takes five of six window blocks
  other.admit().compute(20);
  Driven cold(kv, count_from(0, 40));
  EXPECT_LT(kv.match(cold.seq, cold.log(), 40), 32);
  kv.check_integrity();
  other.end();
  cold.end();
}

TEST(Manager, MatchChangesNothing) {
  Rng rng(3);
  KvManager kv(options({full(30), window(8, 20)}));
  for (int round = 0; round < 300; ++round) {
    auto tokens = count_from(0, 4 + static_cast<int>(rng.below(30)));
    tokens[rng.below(tokens.size())] = 7;
    Driven r(kv, tokens);
    const Digest before = kv.state_digest();
    kv.match(r.seq, r.log(), r.log().size());
    EXPECT_EQ(kv.state_digest(), before);
    if (r.admit().hit) {
      for (std::int32_t n = *r.hit; n < r.log().size();) r.compute(n = std::min(n + 5, r.log().size()));
    }
    r.end();
    kv.check_integrity();
  }
}

TEST(Manager, EveryFailedAllocationLeavesThePreState) {
  Rng rng(4);
  int failures = 0, successes = 0;
  KvManager kv(options({full(24), window(8, 16)}));
  std::vector<Driven> live;
  for (int round = 0; round < 600; ++round) {
    auto tokens = count_from(0, 4 + static_cast<int>(rng.below(36)));
    if (rng.below(2) == 0) tokens.resize(tokens.size() - tokens.size() % 4);
    if (rng.below(2) == 0) tokens[rng.below(tokens.size())] = 7;
    Driven r(kv, tokens);
    // The k-th allocation of match + pin + reserve fails, for every k, until the whole succeeds.
    const Digest before = kv.state_digest();
    bool done = false, refused = false;
    for (int k = 0; !done && !refused; ++k) {
      int calls = 0;
      bool injected = false;
      kv.set_allocation_hook([&] { return injected = calls++ == k, !injected; });
      {
        KvManager::Transaction txn(kv);
        std::vector<TailCopy> copies;
        const auto hit =
            kv.admit(r.seq, r.log(),
                     {.read_until = r.log().size(), .rows = 40, .keep = {}, .step = step(round + 1)}, copies);
        if (hit && kv.reserve(r.seq, r.log().size())) {
          txn.commit();
          done = true;
        } else {
          refused = !injected;
        }
      }
      kv.set_allocation_hook({});
      if (!done) {
        ASSERT_EQ(kv.state_digest(), before) << "k " << k;
        ++failures;
      }
      kv.check_integrity();
    }
    if (done) {
      ++successes;
      kv.publish(r.seq, r.log(), r.log().size(), step(round + 1));
      kv.advance(r.seq, r.log().size());
      kv.retire(step(round + 1));
      live.push_back(std::move(r));
    } else {
      r.end();
    }
    while (!live.empty() && (refused || rng.below(3) == 0)) {
      const auto victim = static_cast<std::ptrdiff_t>(rng.below(live.size()));
      live[static_cast<std::size_t>(victim)].end(step(rng.below(2) == 0 ? 0 : round + 2));
      live.erase(live.begin() + victim);
      kv.check_integrity();
    }
  }
  EXPECT_GT(failures, 500);
  EXPECT_GT(successes, 200);
  for (Driven& r : live) r.end();
}

TEST(Manager, AVictimIsALeaf) {
  for (const Eviction eviction : {Eviction::kS3Fifo, Eviction::kLru}) {
    Rng rng(5);
    ManagerOptions o = options({full(16)});
    o.eviction = eviction;
    o.track_evictions = true;
    KvManager kv(o);
    int evictions = 0;
    for (int round = 0; round < 2000; ++round) {
      auto tokens = count_from(0, 5 + static_cast<int>(rng.below(24)));
      for (std::size_t i = rng.below(tokens.size()); i < tokens.size(); ++i)
        tokens[i] += static_cast<TokenId>(rng.below(2));
      Driven r(kv, tokens);
      if (r.admit(step(static_cast<std::uint64_t>(round) + 1)).hit) r.compute(r.log().size());
      r.end(step(static_cast<std::uint64_t>(round) + 1));
      kv.retire(step(static_cast<std::uint64_t>(round) + (rng.below(2) == 0 ? 1 : 0)));
      kv.check_integrity();
      std::vector<Departed> gone;
      kv.take_departed(gone);
      for (std::size_t i = 0; i < gone.size(); ++i) {
        ++evictions;
        for (std::size_t k = 0; k < i; ++k)
          EXPECT_NE(gone[k].digest, gone[i].parent) << "parent before child";
        for (const NodeId n : kv.tree().nodes()) EXPECT_NE(kv.tree().parent_digest(n), gone[i].digest);
      }
    }
    EXPECT_GT(evictions, 1000);
  }
}

TEST(Manager, WasteIsCountedByCause) {
  KvManager kv(options({full(20)}));
  Driven a(kv, count_from(0, 10));
  a.admit();
  ASSERT_TRUE(kv.reserve(a.seq, 7));
  GroupUsage u = kv.usage().groups[0];
  EXPECT_EQ(u.allocated_tokens, 8);
  EXPECT_EQ(u.waste_tail, 1);
  EXPECT_EQ(u.waste_reserved, 7);
  kv.publish(a.seq, a.log(), 7, step(0));
  kv.advance(a.seq, 7);
  u = kv.usage().groups[0];
  EXPECT_EQ(u.waste_reserved, 0);
  EXPECT_EQ(u.waste_tail, 1);
  EXPECT_EQ(kv.pool(0).count(BlockState::kOpen), 1);
  a.end();
  u = kv.usage().groups[0];
  EXPECT_EQ(u.allocated_tokens, 0);  // cached, evictable: not waste
  EXPECT_EQ(u.cached, 1);
}

TEST(Manager, UsageLooksAtHoldersAlone) {
  KvManager kv(options({full(20)}));
  std::vector<KvSeq> waiting;
  for (int i = 0; i < 1000; ++i) waiting.push_back(kv.open(kv::root_key("root", "")));
  EXPECT_EQ(kv.holders(), 0);
  Driven a(kv, count_from(0, 10)), b(kv, count_from(50, 10));
  a.admit().compute(10);
  b.admit().compute(10);
  EXPECT_EQ(kv.holders(), 2);
  kv.check_integrity();
  a.end();
  EXPECT_EQ(kv.holders(), 1);
  b.end();
  for (const KvSeq s : waiting) kv.close(s);
  EXPECT_EQ(kv.holders(), 0);
  EXPECT_EQ(kv.usage().used, 0);
  kv.check_integrity();
}

TEST(Manager, ForgettingTheCacheKeepsSequencesAlive) {
  KvManager kv(options({full(20), window(8, 20)}));
  Driven a(kv, count_from(0, 20)), b(kv, count_from(0, 9));
  a.admit();
  for (std::int32_t n : {4, 8, 12}) a.compute(n);
  b.admit().compute(9).end();
  kv.forget_cache();
  EXPECT_EQ(kv.tree().size(), 0);
  kv.check_integrity();
  a.compute(20).end();
  kv.check_integrity();
  EXPECT_EQ(kv.usage().used, 0);
}

}  // namespace
}  // namespace barg::kv::manager_test
