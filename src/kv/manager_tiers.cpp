// What KvManager tells about its cache to those who keep copies elsewhere: what leaves, what is read again,
// what will leave soon. Nothing here changes who holds what.
#include <algorithm>

#include "base/check.h"
#include "kv/manager.h"

namespace barg::kv {

Departed KvManager::departed(std::int32_t g, BlockId b) const {
  const Block& x = groups_[idx(g)].pool[b];
  return {{tree_.digest(x.node), tree_.parent_digest(x.node), tree_.depth(x.node), tree_.fingerprint(x.node)},
          g,
          b,
          x.uses};
}

/// REQUIRES a published block that is about to be unpublished.
void KvManager::note_departure(std::int32_t g, BlockId b) {
  Group& group = groups_[idx(g)];
  const Block& x = group.pool[b];
  if (x.queue == Queue::kSmall) group.ghosts.insert(tree_.digest(x.node));
  if (options_.track_evictions && x.written <= group.pool.retired()) departed_.push_back(departed(g, b));
}

void KvManager::note_use(std::int32_t g, BlockId b) {
  if (!options_.track_evictions) return;
  BlockPool& pool = groups_[idx(g)].pool;
  if (pool[b].node == kNoNode || pool[b].second != SecondUse::kRead) return;
  pool.set_second(b, SecondUse::kNoted);
  second_uses_.push_back({g, b, tree_.digest(pool[b].node)});
}

void KvManager::take_departed(std::vector<Departed>& out) {
  CHECK(!active_);
  out.insert(out.end(), departed_.begin(), departed_.end());
  departed_.clear();
}

void KvManager::take_second_uses(std::vector<Departed>& out) {
  CHECK(!active_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < second_uses_.size(); ++i) {
    const Noted n = second_uses_[i];
    BlockPool& pool = groups_[idx(n.group)].pool;
    const Block& x = pool[n.block];
    const bool same = x.node != kNoNode && tree_.digest(x.node) == n.digest;
    if (!same || x.second != SecondUse::kNoted) continue;  // has left, and said so
    if (x.written > pool.retired()) {
      second_uses_[kept++] = n;
      continue;
    }
    pool.set_second(n.block, SecondUse::kTold);
    out.push_back(departed(n.group, n.block));
  }
  second_uses_.resize(kept);
}

void KvManager::take_coldest(std::int32_t group, std::int32_t count, std::vector<Departed>& out,
                             std::int64_t depth) {
  CHECK(!active_);
  BlockPool& pool = groups_[idx(group)].pool;
  if (depth < 0) depth = (pool.size() + 9) / 10;
  for (; count > 0; --count) {
    const BlockId b = pool.cold(depth);
    if (b == kNoBlock) return;
    out.push_back(departed(group, b));
  }
}

}  // namespace barg::kv
