// What the manager tells tiers: departures, second uses, the coldest.
#include <gtest/gtest.h>

#include <numeric>

#include "kv/manager.h"

namespace barg::kv {
namespace {

StepId step(std::uint64_t n) { return static_cast<StepId>(n); }

ManagerOptions options(std::int64_t blocks, Eviction eviction = Eviction::kS3Fifo) {
  ManagerOptions o;
  o.block_tokens = 4;
  o.groups = {{GroupKind::kFull, 0, blocks, 1}};
  o.eviction = eviction;
  o.track_evictions = true;
  return o;
}

std::vector<TokenId> count_from(TokenId first, int n) {
  std::vector<TokenId> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}

struct Driven {
  KvManager* kv;
  std::vector<TokenId> tokens;
  KvSeq seq;
  std::int32_t computed = 0;
  Driven(KvManager& m, std::vector<TokenId> t, bool counts = true)
      : kv(&m), tokens(std::move(t)), seq(m.open(root_key("r", ""))) {
    admit(counts);
  }
  void admit(bool counts = true) {
    KvManager::Transaction txn(*kv);
    std::vector<TailCopy> copies;
    const auto hit = kv->admit(
        seq, log(), {.read_until = log().size(), .rows = 8, .keep = {}, .step = step(100), .counts = counts},
        copies);
    ASSERT_TRUE(hit.has_value());
    computed = *hit;
    txn.commit();
  }
  TokenView log() const { return {tokens, {}, {}}; }
  void compute(std::int32_t to, StepId at = step(0)) {
    ASSERT_TRUE(kv->reserve(seq, to));
    kv->publish(seq, log(), to, at);
    kv->advance(seq, to);
    computed = to;
  }
  void all(StepId at = step(0)) { compute(log().size(), at); }
  void end(StepId fence = step(0)) {
    kv->release(seq, fence);
    kv->close(seq);
  }
};

std::vector<Departed> departed(KvManager& kv) {
  std::vector<Departed> out;
  kv.take_departed(out);
  return out;
}
std::vector<Departed> second_uses(KvManager& kv) {
  std::vector<Departed> out;
  kv.take_second_uses(out);
  return out;
}

TEST(Tiers, AnEvictionIsToldWithItsFacts) {
  KvManager kv(options(4));
  Driven a(kv, count_from(0, 13));
  const BlockFacts first = kv.facts(a.seq, a.log(), 0), third = kv.facts(a.seq, a.log(), 2);
  EXPECT_EQ(first.parent, root_key("r", ""));
  EXPECT_EQ(first.depth, 0);
  EXPECT_NE(first.fingerprint, third.fingerprint);
  a.all();
  a.end();
  Driven b(kv, count_from(50, 7));
  b.all();  // one is blank, one is evicted: the leaf
  const auto gone = departed(kv);
  ASSERT_EQ(gone.size(), 1U);
  EXPECT_EQ(gone[0].digest, third.digest);
  EXPECT_EQ(gone[0].parent, third.parent);
  EXPECT_EQ(gone[0].depth, 2);
  EXPECT_EQ(gone[0].fingerprint, third.fingerprint);
  EXPECT_EQ(gone[0].uses, 0);
  EXPECT_TRUE(departed(kv).empty());
  b.end();
}

TEST(Tiers, WhatIsUndoneOrLostIsNotTold) {
  KvManager kv(options(4));
  Driven a(kv, count_from(0, 13));
  a.all();
  a.end();
  Driven b(kv, count_from(50, 7));
  {
    KvManager::Transaction txn(kv);
    EXPECT_TRUE(kv.reserve(b.seq, 7));
  }
  EXPECT_TRUE(departed(kv).empty());
  b.all();
  kv.forget_cache();
  EXPECT_TRUE(departed(kv).empty());
  b.end();
}

TEST(Tiers, ASecondUseIsToldOnceWhenItsStepHasRetired) {
  KvManager kv(options(20));
  Driven a(kv, count_from(0, 10));
  a.all(step(3));
  Driven b(kv, count_from(0, 10));
  EXPECT_EQ(b.computed, 8);
  EXPECT_TRUE(second_uses(kv).empty());  // step 3 writes them
  kv.retire(step(3));
  const auto told = second_uses(kv);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].uses, 1);
  Driven c(kv, count_from(0, 10));
  EXPECT_TRUE(second_uses(kv).empty());
  for (Driven* d : {&a, &b, &c}) d->end();
}

TEST(Tiers, ReadingWhatItWroteIsNoSecondUse) {
  KvManager kv(options(20));
  Driven a(kv, count_from(0, 10));
  a.all();
  kv.release(a.seq, step(0));
  a.admit();  // resumed
  EXPECT_EQ(a.computed, 8);
  Driven choice(kv, count_from(0, 10), false);  // of the same request
  EXPECT_TRUE(second_uses(kv).empty());
  EXPECT_EQ(kv.pool(0)[0].uses, 0);
  choice.end();
  a.end();
}

TEST(Tiers, ALoadedBlockHasOneUseAndTellsTheNext) {
  KvManager kv(options(20));
  Driven a(kv, count_from(0, 10));
  std::vector<LoadSlot> slots;
  ASSERT_TRUE(kv.reserve_load(a.seq, a.log(), 0, 2, slots));
  for (std::int32_t i = 0; i < 2; ++i) kv.part_loaded(a.seq, i, 0);
  EXPECT_EQ(kv.adopt_loaded(a.seq, a.log(), 0, step(0)), 8);
  EXPECT_EQ(kv.pool(0)[slots[0].block].uses, 1);
  EXPECT_TRUE(second_uses(kv).empty());
  Driven b(kv, count_from(0, 10));
  const auto told = second_uses(kv);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].uses, 2);
  a.end();
  b.end();
}

TEST(Tiers, TheColdestAreOfferedInOrderOfEvictionAndOnce) {
  for (const Eviction eviction : {Eviction::kS3Fifo, Eviction::kLru}) {
    KvManager kv(options(8, eviction));
    for (TokenId first : {0, 100, 200}) {
      Driven a(kv, count_from(first, 9));
      a.all();
      a.end();
    }
    std::vector<Departed> cold;
    kv.take_coldest(0, 4, cold);
    EXPECT_EQ(cold.size(), 1U);  // a tenth of eight
    kv.take_coldest(0, 2, cold, 4);
    EXPECT_EQ(cold.size(), 3U);
    kv.take_coldest(0, 9, cold, 4);
    EXPECT_EQ(cold.size(), 4U);
    // The same leave now, in this order.
    Driven b(kv, count_from(300, 21));
    b.all();
    const auto gone = departed(kv);
    ASSERT_EQ(gone.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(gone[i].digest, cold[i].digest);
    b.end();
  }
}

TEST(Tiers, NothingIsNotedWithoutThem) {
  ManagerOptions o = options(4);
  o.track_evictions = false;
  KvManager kv(o);
  for (TokenId first : {0, 0, 100, 200}) {
    Driven a(kv, count_from(first, 13));
    a.all();
    a.end();
    kv.retire(step(100));
  }
  EXPECT_TRUE(departed(kv).empty());
  EXPECT_TRUE(second_uses(kv).empty());
  kv.check_integrity();
}

}  // namespace
}  // namespace barg::kv
