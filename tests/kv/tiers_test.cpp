// What the manager tells tiers: departures, second uses, the coldest.
#include <gtest/gtest.h>

#include "kv/driven.h"

namespace barg::kv::tiers_test {
namespace {

ManagerOptions tracked(std::int64_t blocks, Eviction eviction = Eviction::kS3Fifo) {
  ManagerOptions o = options({full(blocks)});
  o.eviction = eviction;
  o.track_evictions = true;
  return o;
}

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
  KvManager kv(tracked(4));
  Admitted a(kv, count_from(0, 13));
  const BlockFacts first = kv.facts(a.seq, a.log(), 0), third = kv.facts(a.seq, a.log(), 2);
  EXPECT_EQ(first.parent, root_key("r", ""));
  EXPECT_EQ(first.depth, 0);
  EXPECT_NE(first.fingerprint, third.fingerprint);
  a.all();
  a.end();
  Admitted b(kv, count_from(50, 7));
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
  KvManager kv(tracked(4));
  Admitted a(kv, count_from(0, 13));
  a.all();
  a.end();
  Admitted b(kv, count_from(50, 7));
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
  KvManager kv(tracked(20));
  Admitted a(kv, count_from(0, 10));
  a.all(step(3));
  Admitted b(kv, count_from(0, 10));
  EXPECT_EQ(b.computed, 8);
  EXPECT_TRUE(second_uses(kv).empty());  // step 3 writes them
  kv.retire(step(3));
  const auto told = second_uses(kv);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].uses, 1);
  Admitted c(kv, count_from(0, 10));
  EXPECT_TRUE(second_uses(kv).empty());
  for (Admitted* d : {&a, &b, &c}) d->end();
}

TEST(Tiers, ReadingWhatItWroteIsNoSecondUse) {
  KvManager kv(tracked(20));
  Admitted a(kv, count_from(0, 10));
  a.all();
  kv.release(a.seq, step(0));
  a.admit();  // resumed
  EXPECT_EQ(a.computed, 8);
  Admitted choice(kv, count_from(0, 10), false);  // of the same request
  EXPECT_TRUE(second_uses(kv).empty());
  EXPECT_EQ(kv.pool(0)[0].uses, 0);
  choice.end();
  a.end();
}

TEST(Tiers, ALoadedBlockHasOneUseAndTellsTheNext) {
  KvManager kv(tracked(20));
  Admitted a(kv, count_from(0, 10));
  std::vector<LoadSlot> slots;
  ASSERT_TRUE(kv.reserve_load(a.seq, a.log(), 0, 2, slots));
  for (std::int32_t i = 0; i < 2; ++i) kv.part_loaded(a.seq, i, 0);
  EXPECT_EQ(kv.adopt_loaded(a.seq, a.log(), 0, step(0)), 8);
  EXPECT_EQ(kv.pool(0)[slots[0].block].uses, 1);
  EXPECT_TRUE(second_uses(kv).empty());
  Admitted b(kv, count_from(0, 10));
  const auto told = second_uses(kv);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].uses, 2);
  a.end();
  b.end();
}

TEST(Tiers, TheColdestAreOfferedInOrderOfEvictionAndOnce) {
  for (const Eviction eviction : {Eviction::kS3Fifo, Eviction::kLru}) {
    KvManager kv(tracked(8, eviction));
    for (TokenId first : {0, 100, 200}) {
      Admitted a(kv, count_from(first, 9));
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
    Admitted b(kv, count_from(300, 21));
    b.all();
    const auto gone = departed(kv);
    ASSERT_EQ(gone.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(gone[i].digest, cold[i].digest);
    b.end();
  }
}

TEST(Tiers, NothingIsNotedWithoutThem) {
  ManagerOptions o = tracked(4);
  o.track_evictions = false;
  KvManager kv(o);
  for (TokenId first : {0, 0, 100, 200}) {
    Admitted a(kv, count_from(first, 13));
    a.all();
    a.end();
    kv.retire(step(100));
  }
  EXPECT_TRUE(departed(kv).empty());
  EXPECT_TRUE(second_uses(kv).empty());
  kv.check_integrity();
}

}  // namespace
}  // namespace barg::kv::tiers_test
