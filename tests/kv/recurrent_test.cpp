// Recurrent groups: where snapshots lie, where hits are cut, what a sequence holds, what a load brings.
#include <gtest/gtest.h>

#include "kv/driven.h"
#include "kv/manager.h"

namespace barg::kv::recurrent_test {
namespace {

/// Blocks of 4 tokens; states span `interval` of them.
GroupSpec states(std::int64_t blocks, std::int32_t interval = 2) {
  return {GroupKind::kRecurrent, 0, blocks, 1, interval};
}

std::vector<BlockId> table(const KvManager& kv, const Driven& d, std::int32_t g, std::int32_t start,
                           std::int32_t tokens) {
  std::vector<BlockId> out;
  kv.append_table(d.seq, g, start, tokens, out);
  return out;
}

TEST(Recurrent, HitsAreCutToTheLastSnapshot) {
  KvManager kv(options({full(20), states(10)}));
  Driven a(kv, count_from(0, 31));
  a.admit().compute(31).end();
  for (const auto& [length, hit] :
       {std::pair{31, 24}, {25, 24}, {24, 16}, {23, 16}, {17, 16}, {16, 8}, {9, 8}, {8, 0}, {3, 0}}) {
    Driven b(kv, count_from(0, length));
    b.admit();
    EXPECT_EQ(b.hit, hit) << length;
    EXPECT_TRUE(b.copies.empty()) << "a state behind the last token cannot give its logits";
    kv.check_integrity();
    b.end();
  }
}

TEST(Recurrent, ASequenceHoldsTheStateItIsInAndTheOneItComesFrom) {
  KvManager kv(options({full(20), states(10)}));
  Driven a(kv, count_from(0, 40));
  a.admit();
  EXPECT_EQ(kv.blocks_needed(1, 40, 500), 2);
  for (std::int32_t n = 1; n <= 40; ++n) {
    ASSERT_TRUE(kv.reserve(a.seq, n));
    const auto t = table(kv, a, 1, n - 1, n);
    ASSERT_EQ(static_cast<std::int32_t>(t.size()), (n + 7) / 8);
    EXPECT_NE(t.back(), kNoBlock);
    if (n > 1 && n % 8 == 1) {
      EXPECT_NE(t[t.size() - 2], kNoBlock) << "the step over a boundary reads what lies before it";
    }
    a.compute(n);
    EXPECT_EQ(kv.held(a.seq, 1), 1) << n;  // what it has left is a snapshot, and evictable
    kv.check_integrity();
  }
  EXPECT_EQ(kv.pool(1).count(BlockState::kCached), 4);
  a.end();
}

TEST(Recurrent, ALongChunkLeavesAllItsSnapshots) {
  KvManager kv(options({full(20), states(10)}));
  Driven a(kv, count_from(0, 40));
  a.admit();
  EXPECT_EQ(kv.room(a.seq, 40), 40);
  ASSERT_TRUE(kv.reserve(a.seq, 40));
  EXPECT_EQ(kv.held(a.seq, 1), 5);
  kv.publish(a.seq, a.log(), 40, step(1));
  kv.check_integrity();
  kv.retire(step(1));
  kv.advance(a.seq, 40);
  EXPECT_EQ(kv.held(a.seq, 1), 1);
  kv.check_integrity();
  a.end();
  Driven b(kv, count_from(0, 41));
  EXPECT_EQ(b.admit().hit, 40);
  b.end();
}

TEST(Recurrent, AnEvictedSnapshotLeavesTheEarlierOnes) {
  KvManager kv(options({full(40), states(3)}));
  Driven a(kv, count_from(0, 33));
  a.admit().compute(8).compute(16).compute(24).compute(32).end();  // one after the other: three are left
  Driven probe(kv, count_from(0, 33));
  EXPECT_EQ(probe.admit().hit, 32);
  probe.end();
  Driven other(kv, count_from(100, 8));
  other.admit().compute(8).end();
  // The pool of states held 16, 24 and 32; one had to go, and whatever it was, a hit ends where one is there.
  Driven again(kv, count_from(0, 33));
  const std::int32_t hit = again.admit().hit.value();
  EXPECT_GT(hit, 0);
  EXPECT_EQ(hit % 8, 0);
  kv.check_integrity();
  again.end();
}

TEST(Recurrent, EqualStatesBecomeOneAndTheOwnIsFenced) {
  KvManager kv(options({full(20), states(10)}));
  Driven a(kv, count_from(0, 9)), b(kv, count_from(0, 9));
  a.admit();
  b.admit();
  ASSERT_TRUE(kv.reserve(a.seq, 9) && kv.reserve(b.seq, 9));
  const auto mine = table(kv, b, 1, 0, 9)[0];
  kv.publish(a.seq, a.log(), 9, step(1));
  kv.publish(b.seq, b.log(), 9, step(1));
  EXPECT_EQ(table(kv, b, 1, 9, 9)[0], table(kv, a, 1, 9, 9)[0]);
  EXPECT_EQ(kv.pool(1)[mine].state, BlockState::kFenced) << "its own step still writes it";
  kv.retire(step(1));
  EXPECT_EQ(kv.pool(1)[mine].state, BlockState::kBlank);
  kv.check_integrity();
  a.end();
  b.end();
}

TEST(Recurrent, StatesAloneAreCachedToo) {
  KvManager kv(options({states(6, 1)}));
  Driven a(kv, count_from(0, 17));
  a.admit().compute(17).end();
  Driven b(kv, count_from(0, 17));
  EXPECT_EQ(b.admit().hit, 16);
  kv.check_integrity();
  b.end();
}

TEST(Recurrent, ALoadBringsOneStateThatReplacesWhatIsHeld) {
  KvManager kv(options({full(20), states(10)}));
  Driven a(kv, count_from(0, 40));
  a.admit().compute(12);  // in the middle of a span of states
  std::vector<LoadSlot> slots;
  ASSERT_TRUE(kv.reserve_load(a.seq, a.log(), 3, 8, slots));
  std::int32_t of_states = 0;
  for (const LoadSlot& s : slots) {
    if (s.group != 1) continue;
    EXPECT_EQ(s.index, 7);
    ++of_states;
  }
  EXPECT_EQ(of_states, 1);
  for (const LoadSlot& s : slots) {
    EXPECT_EQ(kv.adopt_loaded(a.seq, a.log(), 12, step(0)), 12) << "nothing before all of it is there";
    kv.part_loaded(a.seq, s.index, s.group);
  }
  EXPECT_EQ(kv.adopt_loaded(a.seq, a.log(), 12, step(0)), 32);
  kv.check_integrity();
  EXPECT_EQ(kv.held(a.seq, 1), 1);
  a.compute(40);
  kv.check_integrity();
  a.end();
  Driven b(kv, count_from(0, 40));
  EXPECT_EQ(b.admit().hit, 32);
  b.end();
}

}  // namespace
}  // namespace barg::kv::recurrent_test
