// States, lists and fences of one group's blocks.
#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace barg::kv {
namespace {

StepId step(std::uint64_t n) { return static_cast<StepId>(n); }

/// Takes, seals and publishes a block under a made-up node.
BlockId published(BlockPool& pool, NodeId node) {
  const BlockId b = pool.take();
  pool.seal(b, 4);
  pool.set_node(b, node);
  return b;
}

TEST(BlockPool, HandsOutEveryBlockOnceThenNone) {
  BlockPool pool(5);
  std::set<BlockId> seen;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(seen.insert(pool.take()).second);
  EXPECT_EQ(pool.take(), kNoBlock);
  EXPECT_EQ(pool.available(), 0);
  for (BlockId b : seen) pool.drop(b, step(0));
  EXPECT_EQ(pool.count(BlockState::kBlank), 5);
  pool.check_integrity();
}

TEST(BlockPool, ReleasedContentIsKeptAndEvictedLeastRecentFirst) {
  BlockPool pool(3);
  const BlockId a = published(pool, 1), b = published(pool, 2), c = published(pool, 3);
  pool.drop(b, step(0));
  pool.drop(a, step(0));
  pool.drop(c, step(0));
  pool.adopt(b);
  pool.drop(b, step(0));  // used again: now the most recent
  EXPECT_EQ(pool.available(), 3);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.take(), b);
  pool.set_node(a, kNoNode);
  pool.set_node(b, kNoNode);
  pool.set_node(c, kNoNode);
  pool.check_integrity();
}

TEST(BlockPool, AFencedBlockIsNotHandedOutBeforeItsStepRetired) {
  BlockPool pool(2);
  const BlockId a = pool.take(), b = published(pool, 7);
  pool.drop(a, step(3));
  pool.drop(b, step(4));
  EXPECT_EQ(pool.available(), 0);
  EXPECT_EQ(pool.take(), kNoBlock);
  EXPECT_EQ(pool.fenced_empty(), 1);
  pool.retire(step(3));
  EXPECT_EQ(pool[a].state, BlockState::kBlank);
  EXPECT_EQ(pool[b].state, BlockState::kFenced);
  pool.check_integrity();
  pool.retire(step(4));
  EXPECT_EQ(pool[b].state, BlockState::kCached);
  pool.drop(pool.take(), step(2));  // a fence of the past is none
  EXPECT_EQ(pool.count(BlockState::kFenced), 0);
  pool.check_integrity();
}

TEST(BlockPool, AFencedBlockCanBeReadAndKeepsItsFence) {
  BlockPool pool(1);
  const BlockId a = published(pool, 7);
  pool.drop(a, step(5));
  pool.adopt(a);
  EXPECT_EQ(pool[a].state, BlockState::kSealed);
  pool.drop(a, step(0));
  EXPECT_EQ(pool[a].state, BlockState::kFenced);
  pool.retire(step(5));
  EXPECT_EQ(pool[a].state, BlockState::kCached);
  pool.check_integrity();
}

TEST(BlockPool, PinsHoldLikeReferences) {
  BlockPool pool(1);
  const BlockId a = published(pool, 7);
  pool.pin(a);
  pool.drop(a, step(0));
  EXPECT_EQ(pool[a].state, BlockState::kSealed);
  EXPECT_EQ(pool.take(), kNoBlock);
  pool.check_integrity();
  pool.unpin(a, step(0));
  EXPECT_EQ(pool[a].state, BlockState::kCached);
}

TEST(BlockPool, UndoRestoresListsExactly) {
  BlockPool pool(6);
  std::vector<BlockId> cached;
  for (NodeId n = 1; n <= 4; ++n) cached.push_back(published(pool, n));
  for (BlockId b : cached) pool.drop(b, step(0));
  const BlockPool before = pool;
  const BlockId next = pool[cached[1]].next;
  pool.adopt(cached[1]);
  const BlockId blank = pool.take(), blank2 = pool.take(), victim = pool.take();
  pool.untake(victim, BlockState::kCached);
  pool.untake(blank2, BlockState::kBlank);
  pool.untake(blank, BlockState::kBlank);
  pool.unadopt(cached[1], BlockState::kCached, next);
  for (BlockId b = 0; b < pool.size(); ++b) EXPECT_EQ(pool[b], before[b]);
  EXPECT_EQ(pool.least_recent(), before.least_recent());
  pool.check_integrity();
}

TEST(BlockPoolDeathTest, MisuseStops) {
  BlockPool pool(2);
  const BlockId a = pool.take();
  pool.drop(a, step(0));
  EXPECT_DEATH(pool.drop(a, step(0)), "CHECK failed");  // freed twice
  EXPECT_DEATH(pool.adopt(a), "CHECK failed");          // nothing to share
  const BlockId b = pool.take();
  pool.seal(b, 4);
  EXPECT_DEATH(pool.seal(b, 4), "CHECK failed");
  EXPECT_DEATH(pool.set_fill(b, 1), "CHECK failed");  // immutable
  EXPECT_DEATH(pool.drop(99, step(0)), "CHECK failed");
}

}  // namespace
}  // namespace barg::kv
