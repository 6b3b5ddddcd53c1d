// Blocks that a tier fills: reserved beside the table, taken over when the table reaches them.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/env.h"
#include "kv/driven.h"

namespace barg::kv::load_test {
namespace {

struct Loader : Admitted {
  using Admitted::Admitted;
  std::vector<LoadSlot> slots;

  void load(std::int32_t first, std::int32_t last) {
    slots.clear();
    ASSERT_TRUE(kv->reserve_load(seq, log(), first, last, slots));
  }
  void loaded(std::int32_t index) {
    for (std::int32_t g = 0; g < kv->num_groups(); ++g) kv->part_loaded(seq, index, g);
  }
  std::int32_t adopt(StepId fence = step(0)) {
    return computed = kv->adopt_loaded(seq, log(), computed, fence);
  }
};

TEST(Load, PartsBecomeTheTableInOrder) {
  KvManager kv(options({full(20)}));
  Loader a(kv, count_from(0, 30));
  a.load(0, 5);
  ASSERT_EQ(a.slots.size(), 5U);
  EXPECT_EQ(kv.held(a.seq, 0), 5);
  EXPECT_EQ(kv.usage().groups[0].waste_reserved, 20);
  EXPECT_EQ(a.adopt(), 0);
  a.loaded(1);
  EXPECT_EQ(a.adopt(), 0);
  a.loaded(0);
  kv.check_integrity();
  EXPECT_EQ(a.adopt(), 8);
  EXPECT_EQ(kv.load_first(a.seq), 2);
  kv.check_integrity();
  a.loaded(4);
  EXPECT_EQ(kv.loaded_from(a.seq), 4);
  EXPECT_EQ(kv.load_pending(a.seq), 2);
  a.loaded(3);
  a.loaded(2);
  EXPECT_EQ(kv.loaded_from(a.seq), 2);
  EXPECT_EQ(a.adopt(), 20);
  EXPECT_FALSE(kv.loading(a.seq));
  std::vector<BlockId> table;
  kv.append_table(a.seq, 0, 19, 20, table);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(table[i], a.slots[i].block);
  kv.check_integrity();
  a.compute(30);
  a.end();
  Loader again(kv, count_from(0, 30));
  EXPECT_EQ(again.computed, 28);
  again.end();
}

TEST(Load, BothEndsMeet) {
  KvManager kv(options({full(20)}));
  Loader a(kv, count_from(0, 40));
  a.compute(4);
  a.load(3, 9);
  EXPECT_EQ(kv.room(a.seq, 100), 8);  // up to the load
  a.loaded(8);
  a.loaded(7);
  a.compute(12);
  EXPECT_EQ(a.adopt(), 12);
  EXPECT_EQ(kv.room(a.seq, 100), 0);
  kv.drop_load(a.seq, 3, 6);  // computed instead
  EXPECT_EQ(kv.load_first(a.seq), 6);
  a.compute(24);
  EXPECT_EQ(a.adopt(), 24);  // block 6 has not come
  a.loaded(6);
  EXPECT_EQ(a.adopt(), 36);
  kv.check_integrity();
  a.end();
  EXPECT_EQ(kv.usage().used, 0);
}

TEST(Load, WindowsGetThePartsTheyReadAtTheCut) {
  KvManager kv(options({full(40), window(8, 40)}));
  Loader a(kv, count_from(0, 60));
  a.compute(8);
  a.load(2, 12);
  // The query at 48 reads 41..: blocks 10 and 11.
  std::vector<std::int32_t> windowed;
  for (const LoadSlot& slot : a.slots) {
    if (slot.group == 1) windowed.push_back(slot.index);
  }
  EXPECT_EQ(windowed, (std::vector<std::int32_t>{10, 11}));
  for (std::int32_t i = 2; i < 11; ++i) a.loaded(i);
  EXPECT_EQ(a.adopt(), 8);  // no shorter cut has its window
  a.loaded(11);
  kv.check_integrity();
  const std::int64_t before = kv.fenced(1);
  EXPECT_EQ(a.adopt(step(7)), 48);
  EXPECT_EQ(kv.fenced(1), before + 2);  // what the jump left may be read by a step in flight
  EXPECT_EQ(kv.held(a.seq, 1), 2);
  kv.check_integrity();
  kv.retire(step(7));
  kv.advance(a.seq, 48);
  kv.check_integrity();
  a.compute(60);
  a.end();
  Loader warm(kv, count_from(0, 60));
  EXPECT_EQ(warm.computed, 59);
  warm.end();
}

TEST(Load, AFailedPartIsFreeAtOnce) {
  KvManager kv(options({full(10)}));
  Loader a(kv, count_from(0, 30));
  a.load(0, 6);
  a.loaded(0);
  const std::int64_t before = kv.available(0);
  kv.part_failed(a.seq, 2, 0);
  kv.part_failed(a.seq, 2, 0);
  EXPECT_EQ(kv.available(0), before + 1);
  EXPECT_TRUE(kv.load_lost(a.seq, 2));
  kv.part_loaded(a.seq, 2, 0);  // too late
  EXPECT_TRUE(kv.load_lost(a.seq, 2));
  a.loaded(1);
  EXPECT_EQ(a.adopt(), 8);
  kv.check_integrity();
  kv.drop_load(a.seq, 2, 6);
  EXPECT_FALSE(kv.loading(a.seq));
  a.compute(30);
  a.end();
}

TEST(Load, ABlockThatSomebodyPublishedMeanwhileIsShared) {
  KvManager kv(options({full(30)}));
  Loader a(kv, count_from(0, 30));
  a.load(0, 4);
  Loader b(kv, count_from(0, 30));
  b.compute(14);
  for (std::int32_t i = 0; i < 4; ++i) a.loaded(i);
  EXPECT_EQ(a.adopt(), 16);
  kv.check_integrity();
  EXPECT_EQ(kv.usage().groups[0].sealed, 4);
  b.end();
  a.end();
  kv.check_integrity();
}

TEST(Load, GoesWithItsSequenceAndWithTheDevice) {
  KvManager kv(options({full(12), window(8, 12)}));
  Loader a(kv, count_from(0, 40)), b(kv, count_from(100, 40));
  a.load(0, 5);
  b.compute(5);
  b.load(2, 6);
  a.loaded(0);
  a.end();
  kv.check_integrity();
  kv.forget_cache();
  EXPECT_FALSE(kv.loading(b.seq));
  kv.check_integrity();
  b.end();
  EXPECT_EQ(kv.available(0), 12);
  EXPECT_EQ(kv.available(1), 12);
}

TEST(Load, IsAllOrNothing) {
  KvManager kv(options({full(8), window(8, 3)}));
  Loader old(kv, count_from(50, 18));
  for (std::int32_t n : {4, 8, 12, 16, 18}) old.compute(n);
  old.end();
  Loader a(kv, count_from(0, 60));
  const Digest before = kv.state_digest();
  for (int k = 0; k < 8; ++k) {
    int calls = 0;
    kv.set_allocation_hook([&] { return calls++ != k; });
    EXPECT_FALSE(kv.reserve_load(a.seq, a.log(), 0, 6, a.slots));
    EXPECT_TRUE(a.slots.empty());
    EXPECT_EQ(kv.state_digest(), before);
    kv.check_integrity();
  }
  kv.set_allocation_hook({});
  EXPECT_FALSE(kv.reserve_load(a.seq, a.log(), 0, 9, a.slots));  // nine of eight
  EXPECT_EQ(kv.state_digest(), before);
  {
    KvManager::Transaction txn(kv);
    EXPECT_TRUE(kv.reserve_load(a.seq, a.log(), 0, 6, a.slots));
  }
  EXPECT_EQ(kv.state_digest(), before);
  EXPECT_FALSE(kv.loading(a.seq));
  a.slots.clear();
  a.load(0, 6);
  EXPECT_EQ(a.slots.size(), 8U);
  a.end();
  kv.check_integrity();
}

std::int64_t keys_made = 0;
Digest counted_key(const Digest& parent, const TokenView& log, std::int32_t index,
                   std::int32_t block_tokens) {
  ++keys_made;
  return block_key(parent, log, index, block_tokens);
}

/// Reported, not asserted: the work is linear once, and a call that finds nothing new looks at one block.
TEST(Load, ALongSequenceIsReservedOnceAndTakenOverBlockByBlock) {
  constexpr std::int32_t kBlocks = 131'072 / 16;
  struct Case {
    bool ends_meet, windows;
    int useful;  // calls that find something
  };
  for (const auto [ends_meet, windows, expected] :
       {Case{false, false, kBlocks}, Case{false, true, 1}, Case{true, false, 1}, Case{true, true, 1}}) {
    ManagerOptions o;
    o.groups = {full(kBlocks + 8)};
    if (windows) o.groups.push_back(window(1024, kBlocks + 8));
    o.key = &counted_key;
    KvManager kv(o);
    Loader a(kv, count_from(0, 131'072 + 1));
    kv.expect(a.seq, 131'080);
    SteadyClock clock;
    const double start = clock.now();
    a.load(0, kBlocks);
    const double reserved = clock.now();
    keys_made = 0;
    int useful = 0;
    for (std::int32_t i = 0; i < kBlocks; ++i) {
      a.loaded(ends_meet ? kBlocks - 1 - i : i);
      const std::int32_t before = a.computed;
      useful += a.adopt() > before ? 1 : 0;
    }
    const double adopted = clock.now();
    EXPECT_EQ(a.computed, 131'072);
    EXPECT_LE(keys_made, kBlocks);
    EXPECT_EQ(useful, expected);
    EXPECT_EQ(kv.held(a.seq, 0), kBlocks);
    std::printf("%s%s: reserve %.2f ms, %d parts and adopt_loaded %.2f ms\n",
                ends_meet ? "from the right" : "from the left", windows ? ", windows" : "",
                1e3 * (reserved - start), kBlocks, 1e3 * (adopted - reserved));
    kv.check_integrity();
    a.end();
  }
}

}  // namespace
}  // namespace barg::kv::load_test
