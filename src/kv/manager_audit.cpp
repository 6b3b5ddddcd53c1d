// The read-only side of KvManager: usage figures, the integrity check, the state digest.
#include <algorithm>

#include "base/check.h"
#include "kv/manager.h"

namespace barg::kv {

Usage KvManager::usage() const {
  Usage u;
  usage(u);
  return u;
}

void KvManager::usage(Usage& u) const {
  u.groups.clear();
  u.waste_tail = u.waste_reserved = u.waste_fenced = 0;
  double bytes = 0, used = 0, allocated = 0, tail = 0, reserved = 0, fenced = 0;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = groups_[idx(g)].pool;
    const std::int64_t b = span(g);
    GroupUsage x{.total = pool.size(),
                 .open = pool.count(BlockState::kOpen),
                 .sealed = pool.count(BlockState::kSealed),
                 .cached = pool.count(BlockState::kCached),
                 .fenced = pool.count(BlockState::kFenced),
                 .blank = pool.count(BlockState::kBlank)};
    for (const KvSeq s : holders_) {
      const Tables& t = at(s);
      const Table& table = t.groups[idx(g)];
      if (!t.load.groups.empty()) x.waste_reserved += t.load.groups[idx(g)].pending * b;
      const std::int64_t open_begin = std::max(t.sealed / interval(g), table.first) * b;
      const std::int64_t open_end = static_cast<std::int64_t>(table.blocks.size()) * b;
      if (open_end <= open_begin) continue;
      x.waste_tail += open_end - std::max<std::int64_t>(t.reserved, open_begin);
      x.waste_reserved +=
          std::max<std::int64_t>(0, t.reserved - std::max<std::int64_t>(t.processed, open_begin));
    }
    x.waste_fenced = pool.fenced_empty() * b;
    x.allocated_tokens = (x.open + x.sealed + pool.fenced_empty()) * b;
    const auto weight = static_cast<double>(groups_[idx(g)].spec.block_bytes);
    bytes += weight * static_cast<double>(x.total);
    used += weight * static_cast<double>(x.open + x.sealed);
    allocated += weight * static_cast<double>(x.allocated_tokens);
    tail += weight * static_cast<double>(x.waste_tail);
    reserved += weight * static_cast<double>(x.waste_reserved);
    fenced += weight * static_cast<double>(x.waste_fenced);
    u.groups.push_back(x);
  }
  u.used = used / bytes;
  if (allocated > 0) {
    u.waste_tail = tail / allocated;
    u.waste_reserved = reserved / allocated;
    u.waste_fenced = fenced / allocated;
  }
}

void KvManager::check_integrity() const {
  CHECK(!active_ && undo_.empty());
  for (const Group& g : groups_) g.pool.check_integrity();
  tree_.check_integrity();
  check_tables();
  check_tree();
  CHECK(options_.track_evictions || (departed_.empty() && second_uses_.empty()));
}

void KvManager::check_tables() const {
  for (const Tables& t : tables_) {
    const bool holds = t.in_use && !t.groups[0].blocks.empty();
    CHECK(!holds || t.holder >= 0);
    CHECK(t.holder < 0 || &at(holders_[idx(t.holder)]) == &t);
  }
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = groups_[idx(g)].pool;
    const std::int32_t b = span(g);
    std::vector<std::int32_t> refs(static_cast<std::size_t>(pool.size())), pins(refs);
    for (const Tables& t : tables_) {
      if (!t.in_use) continue;
      CHECK(t.sources.empty() == (t.copy_step == StepId{}));
      if (!t.sources.empty()) ++pins[idx(t.sources[idx(g)])];
      const Table& table = t.groups[idx(g)];
      const auto size = static_cast<std::int32_t>(table.blocks.size());
      CHECK(size == (t.reserved + b - 1) / b);  // never more blocks than its own length asks for
      CHECK(t.sealed * options_.block_tokens <= t.reserved && t.processed <= t.reserved);
      CHECK(table.first <= first_needed(g, t.processed) || table.first == 0);
      CHECK(size == 0 || table.held() <= most_held(g, t.reserved, t.reserved - t.processed));
      for (std::int32_t i = 0; i < size; ++i) {
        const BlockId block = table.blocks[idx(i)];
        CHECK((block == kNoBlock) == (i < table.first));
        if (block == kNoBlock) continue;
        ++refs[idx(block)];
        CHECK(pool[block].state == (end_of(g, i) < t.sealed ? BlockState::kSealed : BlockState::kOpen));
      }
      check_load(t, g, refs);
    }
    for (BlockId block = 0; block < pool.size(); ++block) {
      CHECK(pool[block].refs == refs[idx(block)] && pool[block].pins == pins[idx(block)]);
    }
  }
}

void KvManager::check_load(const Tables& t, std::int32_t g, std::vector<std::int32_t>& refs) const {
  const Load& l = t.load;
  if (l.first >= l.last) {
    CHECK(l.first == 0 && l.last == 0 && l.groups.empty());
    return;
  }
  CHECK(t.holder >= 0 && l.first >= table_blocks(t) && l.base <= l.first);
  CHECK(l.first <= l.ready_to && l.ready_to <= l.last && l.first <= l.ready_from && l.ready_from <= l.last);
  for (std::int32_t i = l.first; i < l.ready_to; ++i) CHECK(there(l, i));
  for (std::int32_t i = l.ready_from; i < l.last; ++i) CHECK(there(l, i));
  CHECK(l.ready_to == l.last || !there(l, l.ready_to));
  CHECK(l.ready_from == l.first || !there(l, l.ready_from - 1));
  std::int64_t held = 0, pending = 0;
  const Load::Parts& parts = l.groups[idx(g)];
  for (std::int32_t i = l.base; i < l.base + static_cast<std::int32_t>(parts.at.size()); ++i) {
    const Part& p = part(l, g, i);
    CHECK((p.block != kNoBlock) == (p.state == PartState::kPending || p.state == PartState::kReady));
    if (p.block == kNoBlock) continue;
    CHECK(i >= l.first && i < l.last && groups_[idx(g)].pool[p.block].state == BlockState::kOpen);
    ++refs[idx(p.block)];
    ++held;
    pending += p.state == PartState::kPending ? 1 : 0;
  }
  CHECK(held == parts.held && pending == parts.pending);
}

void KvManager::check_tree() const {
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = groups_[idx(g)].pool;
    std::int64_t published = 0;
    for (NodeId n : tree_.nodes()) {
      const BlockId block = tree_.block(n, g);
      if (block == kNoBlock) continue;
      ++published;
      CHECK(pool[block].node == n);
      const NodeId parent = tree_.parent(n);
      if (!full(g) || parent == PrefixTree::kRoot) {
        CHECK(pool[block].parent == kNoBlock);
        continue;
      }
      const BlockId above = tree_.block(parent, g);
      CHECK(above != kNoBlock && pool[block].parent == above);
      if (pool[above].state != BlockState::kCached) continue;
      CHECK(pool[block].state == BlockState::kCached);
      // The LRU theorem: a parent is never less recently used than its child.
      CHECK(options_.eviction != Eviction::kLru || pool[block].entered < pool[above].entered);
    }
    for (BlockId block = 0; block < pool.size(); ++block) published -= pool[block].node != kNoNode ? 1 : 0;
    CHECK(published == 0);
  }
}

Digest KvManager::state_digest() const {
  Sha256 h;
  const auto number = [&h](std::int64_t v) { h.update(&v, sizeof v); };
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = groups_[idx(g)].pool;
    number(static_cast<std::int64_t>(pool.retired()));
    number(pool.head(Queue::kSmall));
    number(pool.head(Queue::kMain));
    number(pool.head(Queue::kInner));
    for (BlockId i = 0; i < pool.size(); ++i) {
      const Block& x = pool[i];
      for (std::int64_t v :
           {std::int64_t(x.state), std::int64_t(x.queue), std::int64_t{x.reads}, std::int64_t{x.seen},
            std::int64_t{x.offered}, std::int64_t(x.second), std::int64_t{x.refs}, std::int64_t{x.pins},
            std::int64_t{x.fill}, std::int64_t{x.uses}, std::int64_t{x.children}, std::int64_t{x.parent},
            std::int64_t{x.node}, std::int64_t(x.written), std::int64_t(x.fence), std::int64_t(x.entered),
            std::int64_t{x.prev}, std::int64_t{x.next}}) {
        number(v);
      }
    }
  }
  const Digest tree = tree_.state_digest();
  h.update(tree.data(), tree.size());
  for (const Tables& t : tables_) {
    for (BlockId b : t.sources) number(b);
    for (std::int32_t v : {std::int32_t{t.in_use}, t.sealed, t.reserved, t.processed, t.seen}) number(v);
    for (const Table& table : t.groups) {
      number(table.first);
      for (BlockId block : table.blocks) number(block);
      number(-2);
    }
    for (std::int32_t v : {t.load.first, t.load.last, t.load.ready_to, t.load.ready_from}) number(v);
    for (const Load::Parts& parts : t.load.groups) {
      for (const Part& p : parts.at) number(p.block), number(static_cast<std::int64_t>(p.state));
    }
  }
  for (const Copying& c : copying_)
    number(static_cast<std::int64_t>(c.seq)), number(static_cast<std::int64_t>(c.step));
  number(static_cast<std::int64_t>(departed_.size()));
  number(static_cast<std::int64_t>(second_uses_.size()));
  return h.finish();
}

}  // namespace barg::kv
