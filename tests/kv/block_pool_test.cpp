// States, lists and fences of one group's blocks.
#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/env.h"

namespace barg::kv::block_pool_test {
namespace {

StepId step(std::uint64_t n) { return static_cast<StepId>(n); }

/// Takes, seals and publishes a block under a made-up node.
BlockId published(BlockPool& pool, NodeId node, BlockId parent = kNoBlock, Queue queue = Queue::kSmall) {
  const BlockId b = pool.take();
  pool.seal(b, 4, step(0));
  pool.publish(b, node, parent, queue, 0);
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
  BlockPool pool(3, Eviction::kLru);
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
  pool.unpublish(a);
  pool.unpublish(b);
  pool.unpublish(c);
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
  for (const Eviction eviction : {Eviction::kS3Fifo, Eviction::kLru}) {
    BlockPool pool(8, eviction);
    std::vector<BlockId> cached;
    for (NodeId n = 1; n <= 6; ++n) cached.push_back(published(pool, n, n == 2 ? cached[0] : kNoBlock));
    for (BlockId b : cached) pool.drop(b, step(0));
    for (int reads = 0; reads < 2; ++reads) pool.adopt(cached[2]), pool.drop(cached[2], step(0));
    EXPECT_NE(pool.cold(2), kNoBlock);
    const BlockPool before = pool;
    pool.begin();
    pool.adopt(cached[1]);
    pool.pin(cached[3]);
    for (int i = 0; i < 6; ++i) EXPECT_NE(pool.take(), kNoBlock);
    const std::size_t mark = pool.mark();
    EXPECT_EQ(pool.take(), kNoBlock);
    EXPECT_EQ(pool.mark(), mark);
    pool.undo(0);
    pool.end();
    for (BlockId b = 0; b < pool.size(); ++b) EXPECT_EQ(pool[b], before[b]);
    for (const Queue q : {Queue::kSmall, Queue::kMain, Queue::kInner})
      EXPECT_EQ(pool.head(q), before.head(q));
    pool.check_integrity();
  }
}

TEST(BlockPool, WhatIsNotReadAgainLeavesFirst) {
  BlockPool pool(4);
  // Both go from small to main when small has to give, in the order of their last release.
  const BlockId often = published(pool, 1), once = published(pool, 2), never = published(pool, 3);
  const BlockId back = published(pool, 4, kNoBlock, Queue::kMain);  // its ghost was there
  for (BlockId b : {often, once, never, back}) pool.drop(b, step(0));
  for (BlockId b : {often, once, often}) pool.adopt(b), pool.drop(b, step(0));
  std::vector<BlockId> order;
  while (order.size() < 4) {
    order.push_back(pool.take());
    pool.unpublish(order.back());
  }
  EXPECT_EQ(order, (std::vector<BlockId>{never, back, once, often}));
  pool.check_integrity();
}

TEST(BlockPool, MainGoesRoundOncePerRead) {
  BlockPool pool(3);
  const BlockId a = published(pool, 1, kNoBlock, Queue::kMain),
                b = published(pool, 2, kNoBlock, Queue::kMain),
                c = published(pool, 3, kNoBlock, Queue::kMain);
  for (BlockId x : {a, b, c}) pool.drop(x, step(0));
  for (BlockId x : {a, a, b}) pool.adopt(x), pool.drop(x, step(0));
  EXPECT_EQ(pool.take(), c);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool[a].reads, 0);
  EXPECT_EQ(pool.take(), a);
}

TEST(BlockPool, ABlockThatOthersBuildOnStays) {
  for (const Queue queue : {Queue::kSmall, Queue::kMain}) {
    BlockPool pool(3);
    const BlockId a = published(pool, 1, kNoBlock, queue), b = published(pool, 2, a, queue),
                  c = published(pool, 3, b, queue);
    for (BlockId x : {a, b, c}) pool.drop(x, step(0));  // in the wrong order
    pool.check_integrity();
    EXPECT_EQ(pool.take(), c);
    EXPECT_EQ(pool.take(), b);
    EXPECT_EQ(pool.take(), a);
    for (BlockId x : {c, b, a}) pool.unpublish(x);
    pool.check_integrity();
  }
}

TEST(BlockPool, ALongChainInTheWrongOrderIsLinear) {
  constexpr int kBlocks = 20'000;
  BlockPool pool(kBlocks);
  std::vector<BlockId> chain;
  for (NodeId n = 1; n <= kBlocks; ++n)
    chain.push_back(published(pool, n, chain.empty() ? kNoBlock : chain.back(), Queue::kMain));
  for (BlockId x : chain) pool.drop(x, step(0));
  pool.begin();
  for (int i = kBlocks; i-- > 0;) ASSERT_EQ(pool.take(), chain[static_cast<std::size_t>(i)]);
  EXPECT_LE(pool.mark(), std::size_t{3} * kBlocks);  // a move, a take and a lost child each
  pool.undo(0);
  pool.end();
  pool.check_integrity();
}

TEST(BlockPool, ColdGoesInOrderOfEvictionAndNamesEachOnce) {
  BlockPool pool(6);
  std::vector<BlockId> b;
  for (NodeId n = 1; n <= 6; ++n)
    b.push_back(published(pool, n, kNoBlock, n <= 3 ? Queue::kSmall : Queue::kMain));
  for (BlockId x : b) pool.drop(x, step(0));
  EXPECT_EQ(pool.cold(0), kNoBlock);
  EXPECT_EQ(pool.cold(1), b[0]);
  EXPECT_EQ(pool.cold(1), kNoBlock);
  EXPECT_EQ(pool.cold(6), b[1]);
  pool.adopt(b[0]);
  pool.drop(b[0], step(0));  // goes to the end of small, known already
  pool.check_integrity();
  EXPECT_EQ(pool.cold(6), b[2]);
  EXPECT_EQ(pool.cold(6), b[3]);
  EXPECT_EQ(pool.take(), b[1]);
  pool.unpublish(b[1]);
  EXPECT_EQ(pool.cold(4), b[4]);  // one of the seen has left
  pool.check_integrity();
}

/// S3-FIFO on lists, as block_pool.h draws it.
struct NaivePool {
  struct Item {
    Queue home = Queue::kSmall;
    int reads = 0;
    BlockId parent = kNoBlock;
  };
  std::map<BlockId, Item> items;  // published
  std::map<Queue, std::vector<BlockId>> queues;

  bool inner(BlockId b) const {
    return std::any_of(items.begin(), items.end(), [b](const auto& i) { return i.second.parent == b; });
  }
  BlockId pop(Queue q) {
    const BlockId b = queues[q].front();
    queues[q].erase(queues[q].begin());
    return b;
  }
  void adopt(BlockId b) {
    for (auto& [q, list] : queues) {
      if (std::erase(list, b) > 0 && q == Queue::kInner) items[b].home = Queue::kMain;
    }
    items[b].reads = std::min(3, items[b].reads + 1);
  }
  BlockId take() {
    auto& small = queues[Queue::kSmall];
    auto& main = queues[Queue::kMain];
    while (true) {
      const std::size_t cached = small.size() + main.size() + queues[Queue::kInner].size();
      if (cached == 0) return kNoBlock;
      const bool from_small = !small.empty() && (main.empty() || 10 * small.size() > cached);
      BlockId b;
      if (!from_small && main.empty()) {
        b = pop(Queue::kInner);
      } else {
        b = pop(from_small ? Queue::kSmall : Queue::kMain);
        Item& x = items[b];
        if (x.reads > 0 || inner(b)) {
          x.home = !from_small && x.reads == 0 ? Queue::kInner : Queue::kMain;
          x.reads = from_small ? 0 : std::max(0, x.reads - 1);
          queues[x.home].push_back(b);
          continue;
        }
      }
      const BlockId parent = items[b].parent;
      items.erase(b);
      if (parent != kNoBlock && !inner(parent) && std::erase(queues[Queue::kInner], parent) > 0) {
        items[parent].home = Queue::kMain;
        main.insert(main.begin(), parent);
      }
      return b;
    }
  }
};

TEST(BlockPool, EvictsAsTheNaiveModel) {
  Rng rng(23);
  BlockPool pool(40);
  NaivePool naive;
  std::vector<BlockId> held;
  NodeId node = 0;
  int victims = 0;
  for (int round = 0; round < 40'000; ++round) {
    if (rng.below(3) == 0 && held.size() < 15) {
      const bool blank = pool.count(BlockState::kBlank) > 0;
      // Half of the takes are undone first: that must not change what goes.
      if (rng.below(2) == 0) {
        pool.begin();
        for (int i = 0; i < 3; ++i) pool.take();
        pool.undo(0);
        pool.end();
      }
      const BlockId b = pool.take();
      ASSERT_NE(b, kNoBlock);
      if (!blank) {
        ++victims;
        ASSERT_EQ(b, naive.take()) << round;
        pool.unpublish(b);
      }
      const BlockId parent = !held.empty() && rng.below(3) != 0 ? held.back() : kNoBlock;
      const Queue q = rng.below(5) == 0 ? Queue::kMain : Queue::kSmall;
      pool.seal(b, 4, step(0));
      pool.publish(b, ++node, parent, q, 0);
      naive.items[b] = {q, 0, parent};
      held.push_back(b);
    } else if (rng.below(4) == 0) {
      const auto b = static_cast<BlockId>(rng.below(40));
      if (pool[b].state != BlockState::kCached || held.size() >= 15) continue;
      pool.adopt(b);
      naive.adopt(b);
      held.push_back(b);
    } else if (!held.empty()) {
      const std::size_t i = rng.below(held.size());  // in any order: parents before children too
      const BlockId b = held[i];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      if (std::any_of(held.begin(), held.end(), [&](BlockId c) { return pool[c].parent == b; })) {
        held.push_back(b);
        continue;
      }
      pool.drop(b, step(0));
      naive.queues[naive.items[b].home].push_back(b);
    }
    if (round % 16 == 0) pool.check_integrity();
  }
  EXPECT_GT(victims, 3000);
}

TEST(BlockPoolDeathTest, MisuseStops) {
  BlockPool pool(2);
  const BlockId a = pool.take();
  pool.drop(a, step(0));
  EXPECT_DEATH(pool.drop(a, step(0)), "CHECK failed");  // freed twice
  EXPECT_DEATH(pool.adopt(a), "CHECK failed");          // nothing to share
  const BlockId b = pool.take();
  pool.seal(b, 4, step(0));
  EXPECT_DEATH(pool.seal(b, 4, step(0)), "CHECK failed");
  EXPECT_DEATH(pool.set_fill(b, 1), "CHECK failed");  // immutable
  EXPECT_DEATH(pool.drop(99, step(0)), "CHECK failed");
}

}  // namespace
}  // namespace barg::kv::block_pool_test
