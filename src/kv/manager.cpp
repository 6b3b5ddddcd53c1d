#include "kv/manager.h"

#include <algorithm>

#include "base/check.h"

namespace barg::kv {

KvManager::KvManager(ManagerOptions options)
    : options_(std::move(options)), tree_(static_cast<std::int32_t>(options_.groups.size())) {
  CHECK(options_.block_tokens > 0 && !options_.groups.empty());
  for (const GroupSpec& spec : options_.groups) {
    CHECK(spec.num_blocks > 0 && spec.block_bytes > 0);
    CHECK((spec.kind == GroupKind::kSlidingWindow) == (spec.window > 0));
    CHECK(spec.interval >= 1 && (spec.interval == 1 || spec.kind == GroupKind::kRecurrent));
    has_state_ = has_state_ || spec.kind == GroupKind::kRecurrent;
    const bool ghosts = options_.eviction == Eviction::kS3Fifo;
    groups_.push_back(
        {spec, BlockPool(spec.num_blocks, options_.eviction), Ghosts(ghosts ? spec.num_blocks : 0)});
    tree_.reserve(spec.num_blocks);  // nodes live by blocks
  }
}

KvManager::Tables& KvManager::at(KvSeq s) {
  const auto i = static_cast<std::size_t>(s);
  CHECK(i < tables_.size() && tables_[i].in_use);
  return tables_[i];
}
const KvManager::Tables& KvManager::at(KvSeq s) const { return const_cast<KvManager*>(this)->at(s); }

// ---- geometry

std::int64_t KvManager::blocks_needed(std::int32_t g, std::int32_t tokens, std::int32_t rows) const {
  return most_held(g, tokens, recurrent(g) ? 1 : rows);
}

std::int64_t KvManager::most_held(std::int32_t g, std::int32_t tokens, std::int32_t rows) const {
  const std::int64_t b = span(g);
  const std::int64_t all = (tokens + b - 1) / b;
  if (full(g)) return all;
  // A span of n tokens that begins anywhere touches at most this many blocks.
  const std::int64_t n = std::int64_t{lookback(g)} - 1 + std::max(rows, 1);
  return std::min(all, (n + b - 2) / b + 1);
}

std::int32_t KvManager::first_needed(std::int32_t g, std::int32_t position) const {
  if (full(g)) return 0;
  return std::max(0, position - lookback(g) + 1) / span(g);
}

/// The published block of the group that ends where its block `i` of the sequence does, kNoBlock if none.
/// REQUIRES the keys up to there and a node.
BlockId KvManager::published(std::int32_t g, const Tables& t, std::int32_t i) const {
  return tree_.block(tree_.find(t.keys[idx(end_of(g, i))]), g);
}

std::int64_t KvManager::held(KvSeq s, std::int32_t g) const {
  const Tables& t = at(s);
  return t.groups[idx(g)].held() + (t.load.groups.empty() ? 0 : t.load.groups[idx(g)].held);
}

// ---- life of a sequence

KvSeq KvManager::open(const Digest& root) {
  KvSeq s;
  if (free_tables_.empty()) {
    s = static_cast<KvSeq>(tables_.size());
    tables_.emplace_back();
  } else {
    s = free_tables_.back();
    free_tables_.pop_back();
  }
  Tables& t = tables_[static_cast<std::size_t>(s)];
  t = {};
  t.in_use = true;
  t.root = root;
  t.groups.resize(groups_.size());
  return s;
}

void KvManager::expect(KvSeq s, std::int32_t tokens) {
  Tables& t = at(s);
  const auto blocks = static_cast<std::size_t>((tokens + options_.block_tokens - 1) / options_.block_tokens);
  t.keys.reserve(blocks);
  t.prints.reserve(blocks);
  for (Table& table : t.groups) table.blocks.reserve(blocks);
}

void KvManager::hold(KvSeq s) {
  Tables& t = at(s);
  if (t.holder >= 0) return;
  t.holder = static_cast<std::int32_t>(holders_.size());
  holders_.push_back(s);
}

void KvManager::unhold(KvSeq s) {
  Tables& t = at(s);
  if (t.holder < 0) return;
  const KvSeq last = holders_.back();
  holders_[idx(t.holder)] = last;
  at(last).holder = t.holder;
  t.holder = -1;
  holders_.pop_back();
}

void KvManager::close(KvSeq s) {
  Tables& t = at(s);
  for (const Table& table : t.groups) CHECK(table.blocks.empty());
  CHECK(!loading(s));
  unhold(s);
  t = {};
  free_tables_.push_back(s);
}

const Digest& KvManager::key(KvSeq s, const TokenView& log, std::int32_t index) {
  Tables& t = at(s);
  while (static_cast<std::int32_t>(t.keys.size()) <= index) {
    const Digest& parent = t.keys.empty() ? t.root : t.keys.back();
    const auto next = static_cast<std::int32_t>(t.keys.size());
    t.keys.push_back(options_.key(parent, log, next, options_.block_tokens));
    t.prints.push_back(block_fingerprint(log, next, options_.block_tokens));
  }
  return t.keys[static_cast<std::size_t>(index)];
}

BlockFacts KvManager::facts(KvSeq s, const TokenView& log, std::int32_t index) {
  const Digest digest = key(s, log, index);
  const Tables& t = at(s);
  return {digest, index == 0 ? t.root : t.keys[idx(index - 1)], index, t.prints[idx(index)]};
}

// ---- match

/// Does the trie have a node for the first `blocks` blocks, with a block in every full group? Monotone: what
/// holds for a prefix holds for all shorter ones, because nodes outlive their children and victims are
/// leaves.
bool KvManager::reachable(KvSeq s, const TokenView& log, std::int32_t blocks) {
  const NodeId n = tree_.find(key(s, log, blocks - 1));
  if (n == kNoNode) return false;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    if (full(g) && tree_.block(n, g) == kNoBlock) return false;
  }
  return true;
}

/// The longest shorter prefix that could do for a group that cannot serve one of `blocks` blocks: up to the last
/// block that a window would read and does not have, or to the snapshot before. kNoBlock: all can.
std::int32_t KvManager::window_gap(const Tables& t, std::int32_t blocks, std::int32_t query) const {
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    if (full(g)) continue;
    if (recurrent(g)) {
      const std::int32_t left = blocks % interval(g);
      if (left != 0) return blocks - left;
      if (published(g, t, blocks / interval(g) - 1) == kNoBlock) return blocks - interval(g);
      continue;
    }
    for (std::int32_t i = blocks; i-- > first_needed(g, query);) {
      if (published(g, t, i) == kNoBlock) return i;
    }
  }
  return kNoBlock;
}

KvManager::Hit KvManager::find_hit(KvSeq s, const TokenView& log, std::int32_t read_until) {
  if (!options_.enable_prefix_caching) return {};
  const std::int32_t b = options_.block_tokens;
  // A state behind the last token is of no use to whoever needs that token's logits.
  const std::int32_t limit = std::min(read_until, log.size() - (has_state_ ? 1 : 0)) / b;
  // Gallop, then bisect: few look-ups, and no keys far beyond what is there.
  std::int32_t low = 0, high = 1;
  while (high <= limit && reachable(s, log, high)) low = high, high *= 2;
  for (high = std::min(high, limit + 1); high - low > 1;) {
    const std::int32_t mid = low + (high - low) / 2;
    (reachable(s, log, mid) ? low : high) = mid;
  }
  // Windows: a gap spoils every prefix that ends behind it and still reads it.
  for (std::int32_t blocks = low; blocks > 0;) {
    const std::int32_t query = std::min(blocks * b, log.size() - 1);
    const std::int32_t gap = window_gap(at(s), blocks, query);
    if (gap == kNoBlock) return {blocks, query};
    blocks = gap;
  }
  return {};
}

std::int32_t KvManager::match(KvSeq s, const TokenView& log, std::int32_t read_until) {
  return find_hit(s, log, read_until).tokens;
}

// ---- admission: one transaction

KvManager::Transaction::Transaction(KvManager& kv) : kv_(&kv) {
  CHECK(!kv.active_ && kv.undo_.empty());
  kv.active_ = true;
  for (Group& g : kv.groups_) g.pool.begin();
}
KvManager::Transaction::~Transaction() {
  if (kv_ == nullptr) return;
  kv_->rollback(0);
  for (Group& g : kv_->groups_) g.pool.end();
  kv_->active_ = false;
}
void KvManager::Transaction::commit() {
  kv_->commit();
  kv_->active_ = false;
  kv_ = nullptr;
}

/// Would the rest of `log` fit beside `rule.keep` once the hit's blocks are out of the evictable ones?
bool KvManager::fits(const TokenView& log, const Hit& hit, const Admission& rule, const Tables& t) const {
  const std::int32_t sealed = hit.blocks - (hit.copies_tail(options_.block_tokens) ? 1 : 0);
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const BlockPool& pool = groups_[idx(g)].pool;
    const std::int32_t adopted = sealed / interval(g);
    const std::int32_t first = std::min(first_needed(g, hit.tokens), adopted);
    const std::int64_t need = blocks_needed(g, log.size(), rule.rows) - (adopted - first);
    const std::int64_t keep = rule.keep.empty() ? 0 : rule.keep[idx(g)];
    // What a pool cannot hold in one piece (long chunks beside a window) is computed in smaller pieces.
    const std::int64_t fresh = std::max<std::int64_t>(1, std::min(need, pool.size() - (adopted - first)));
    if (fresh + keep > pool.available()) return false;
    std::int64_t evictable_hits = 0;
    for (std::int32_t i = first; i < hit.blocks / interval(g); ++i) {
      if (pool[published(g, t, i)].state == BlockState::kCached) ++evictable_hits;
    }
    if (fresh + keep > pool.available() - evictable_hits) return false;
  }
  return true;
}

std::optional<std::int32_t> KvManager::admit(KvSeq s, const TokenView& log, const Admission& rule,
                                             std::vector<TailCopy>& copies) {
  CHECK(active_ && log.size() > 0 && at(s).reserved == 0);
  Hit hit = find_hit(s, log, rule.read_until);
  const Tables& t = at(s);
  if (hit.copies_tail(options_.block_tokens) && !fits(log, hit, rule, t)) {
    // Source and copy do not fit both: compute the last block again, if the shorter prefix is still servable.
    hit = find_hit(s, log, (hit.blocks - 1) * options_.block_tokens);
  }
  if (!fits(log, hit, rule, t)) return std::nullopt;
  const std::size_t mark = undo_.size();
  const std::size_t copies_before = copies.size();
  if (!adopt_hit(s, hit, rule, copies)) {
    rollback(mark);
    copies.resize(copies_before);
    return std::nullopt;
  }
  return hit.tokens;
}

bool KvManager::adopt_hit(KvSeq s, const Hit& hit, const Admission& rule, std::vector<TailCopy>& copies) {
  Tables& t = at(s);
  undo_.push_back({.kind = Undo::Kind::kAdmit, .seq = s});
  hold(s);
  const std::int32_t b = options_.block_tokens;
  const bool copy = hit.copies_tail(b);
  t.counts = rule.counts;
  t.sealed = hit.blocks - (copy ? 1 : 0);
  t.reserved = t.processed = hit.tokens;
  if (copy) {
    t.copy_step = rule.step;
    copying_.push_back({rule.step, s});
  }
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    Group& group = groups_[idx(g)];
    Table& table = t.groups[idx(g)];
    table.first = std::min(first_needed(g, hit.tokens), t.sealed / interval(g));
    table.blocks.assign(static_cast<std::size_t>(table.first), kNoBlock);
    for (std::int32_t i = table.first; i < hit.blocks / interval(g); ++i) {
      const BlockId block = published(g, t, i);
      const bool source = end_of(g, i) >= t.sealed;
      undo_.push_back({.kind = source ? Undo::Kind::kPin : Undo::Kind::kAdopt,
                       .group = g,
                       .block = block,
                       .mark = group.pool.mark(),
                       .seq = s});
      if (source) {
        group.pool.pin(block);
        t.sources.push_back(block);
        if (!take_block(s, g)) return false;
        copies.push_back({g, block, table.blocks.back(), b - 1});
      } else {
        group.pool.adopt(block, reads_anew(t, end_of(g, i)));
        table.blocks.push_back(block);
      }
    }
  }
  return true;
}

std::int32_t KvManager::room(KvSeq s, std::int32_t want) const {
  const Tables& t = at(s);
  std::int64_t rows = want;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    const std::int64_t blocks = static_cast<std::int64_t>(t.groups[idx(g)].blocks.size()) + available(g);
    rows = std::min(rows, blocks * span(g) - t.reserved);
  }
  if (loading(s)) rows = std::min(rows, std::int64_t{t.load.first} * options_.block_tokens - t.reserved);
  return static_cast<std::int32_t>(std::max<std::int64_t>(rows, 0));
}

bool KvManager::stuck(KvSeq s, std::int32_t g) const {
  const Tables& t = at(s);
  const auto slots = static_cast<std::int64_t>(t.groups[idx(g)].blocks.size()) * span(g);
  return slots == t.reserved && available(g) == 0;
}

bool KvManager::reserve(KvSeq s, std::int32_t tokens) {
  if (!active_) {
    Transaction txn(*this);
    if (!reserve(s, tokens)) return false;
    txn.commit();
    return true;
  }
  Tables& t = at(s);
  CHECK(tokens >= t.reserved);
  hold(s);
  const std::size_t mark = undo_.size();
  undo_.push_back({.kind = Undo::Kind::kReserve, .seq = s, .reserved = t.reserved});
  const std::int32_t blocks = (tokens + options_.block_tokens - 1) / options_.block_tokens;
  CHECK(!loading(s) || blocks <= t.load.first);
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    while (static_cast<std::int64_t>(t.groups[idx(g)].blocks.size()) * span(g) < tokens) {
      if (!take_block(s, g)) {
        rollback(mark);
        return false;
      }
    }
  }
  t.reserved = tokens;
  return true;
}

bool KvManager::take_block(KvSeq s, std::int32_t g) {
  const BlockId b = take_for(s, g, Undo::Kind::kTake);
  if (b == kNoBlock) return false;
  at(s).groups[idx(g)].blocks.push_back(b);
  return true;
}

/// A block for the end of the table (kTake) or of the load's parts (kLoadTake); the caller appends it.
BlockId KvManager::take_for(KvSeq s, std::int32_t g, Undo::Kind kind) {
  if (hook_ && !hook_()) return kNoBlock;
  BlockPool& pool = groups_[idx(g)].pool;
  const std::size_t mark = pool.mark();
  const BlockId b = pool.take();
  if (b == kNoBlock) return kNoBlock;
  undo_.push_back({.kind = kind, .group = g, .block = b, .mark = mark, .seq = s});
  return b;
}

void KvManager::rollback(std::size_t mark) {
  while (undo_.size() > mark) {
    const Undo u = undo_.back();
    undo_.pop_back();
    Tables& t = at(u.seq);
    BlockPool& pool = groups_[idx(u.group)].pool;
    switch (u.kind) {
      case Undo::Kind::kPin:
        pool.undo(u.mark);
        t.sources.pop_back();
        break;
      case Undo::Kind::kAdopt:
      case Undo::Kind::kTake:
        pool.undo(u.mark);
        t.groups[idx(u.group)].blocks.pop_back();
        break;
      case Undo::Kind::kLoadTake:
        pool.undo(u.mark);
        break;
      case Undo::Kind::kLoad:
        t.load = {};
        break;
      case Undo::Kind::kReserve:
        t.reserved = u.reserved;
        break;
      case Undo::Kind::kAdmit:
        if (t.copy_step != StepId{}) copying_.pop_back();
        t.copy_step = StepId{};
        t.sealed = t.reserved = t.processed = 0;
        for (Table& table : t.groups) table = {};
        unhold(u.seq);
        break;
    }
  }
}

/// Makes evictions final: until here victims were still in the trie.
void KvManager::commit() {
  for (Group& g : groups_) g.pool.end();
  for (const Undo& u : undo_) {
    if (u.kind == Undo::Kind::kAdopt) note_use(u.group, u.block);
    if (u.kind != Undo::Kind::kTake && u.kind != Undo::Kind::kLoadTake) continue;
    BlockPool& pool = groups_[idx(u.group)].pool;
    const NodeId n = pool[u.block].node;
    pool.set_fill(u.block, 0);
    if (n == kNoNode) continue;
    note_departure(u.group, u.block);
    unpublish(u.group, u.block);
    if (full(u.group)) drop_subtree(n, true);  // nothing below can be reached without it
    tree_.prune(n);
  }
  undo_.clear();
}

void KvManager::unpublish(std::int32_t g, BlockId b) {
  BlockPool& pool = groups_[idx(g)].pool;
  tree_.set_block(pool[b].node, g, kNoBlock);
  pool.unpublish(b);
}

void KvManager::drop_subtree(NodeId n, bool departs) {
  auto& order = subtree_;
  order.assign(1, n);
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (NodeId c = tree_.first_child(order[i]); c != kNoNode; c = tree_.next_sibling(c)) order.push_back(c);
  }
  for (std::size_t i = order.size(); i-- > 0;) {
    for (std::int32_t g = 0; g < num_groups(); ++g) {
      const BlockId b = tree_.block(order[i], g);
      if (b == kNoBlock) continue;
      if (departs) note_departure(g, b);
      unpublish(g, b);
    }
    if (i > 0) tree_.prune(order[i]);
  }
}

// ---- what steps do to blocks

void KvManager::publish(KvSeq s, const TokenView& log, std::int32_t tokens, StepId fence) {
  CHECK(tokens <= log.size() && tokens <= at(s).reserved && !active_);
  seal_up_to(s, log, tokens / options_.block_tokens, fence, 0);
}

/// `fence`: no step behind it writes them. `uses`: requests that read them already.
void KvManager::seal_up_to(KvSeq s, const TokenView& log, std::int32_t blocks, StepId fence,
                           std::int32_t uses) {
  Tables& t = at(s);
  for (; t.sealed < blocks; ++t.sealed) {
    if (options_.enable_prefix_caching) {
      key(s, log, t.sealed);
      if (publish_block(t, t.sealed, fence, uses)) continue;
    }
    for (std::int32_t g = 0; g < num_groups(); ++g) {
      const Table& table = t.groups[idx(g)];
      const std::int32_t i = t.sealed / interval(g);
      if (keeps(g, t.sealed) && i >= table.first)
        groups_[idx(g)].pool.seal(table.blocks[idx(i)], span(g), fence);
    }
  }
  t.seen = std::max(t.seen, t.sealed);
}

/// False if the path to the block is no longer in the trie (a window narrower than a block passed it).
bool KvManager::publish_block(Tables& t, std::int32_t index, StepId fence, std::int32_t uses) {
  const NodeId parent = index == 0 ? PrefixTree::kRoot : tree_.find(t.keys[idx(index - 1)]);
  if (parent == kNoNode) return false;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    // Only below our own block: a parent may not be evicted before its child.
    if (index > 0 && full(g) && tree_.block(parent, g) != t.groups[idx(g)].blocks[idx(index - 1)])
      return false;
  }
  const Digest& digest = t.keys[idx(index)];
  NodeId n = tree_.find(digest);
  if (n == kNoNode) {
    n = tree_.insert(parent, digest, index == 0 ? t.root : t.keys[idx(index - 1)], t.prints[idx(index)]);
  }
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    Table& table = t.groups[idx(g)];
    if (!keeps(g, index) || index / interval(g) < table.first) continue;
    BlockPool& pool = groups_[idx(g)].pool;
    BlockId& own = table.blocks[idx(index / interval(g))];
    if (const BlockId twin = tree_.block(n, g); twin != kNoBlock) {
      pool.adopt(twin, reads_anew(t, index));  // equal key, equal bytes: one is enough
      note_use(g, twin);
      pool.drop(own, fence);
      own = twin;
    } else {
      pool.seal(own, span(g), fence);
      const BlockId above = full(g) && index > 0 ? tree_.block(parent, g) : kNoBlock;
      const bool again = groups_[idx(g)].ghosts.erase(digest);
      pool.publish(own, n, above, again ? Queue::kMain : Queue::kSmall, uses);
      tree_.set_block(n, g, own);
    }
  }
  tree_.prune(n);
  return true;
}

void KvManager::advance(KvSeq s, std::int32_t processed) {
  Tables& t = at(s);
  CHECK(processed >= t.processed && processed <= t.reserved);
  t.processed = processed;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    Table& table = t.groups[idx(g)];
    BlockPool& pool = groups_[idx(g)].pool;
    const auto size = static_cast<std::int32_t>(table.blocks.size());
    const std::int32_t b = span(g);
    for (std::int32_t i = std::max(t.sealed / interval(g), table.first); i < size; ++i) {
      pool.set_fill(table.blocks[idx(i)], std::clamp(processed - i * b, 0, b));
    }
    // Steps in flight start at or behind `processed`; their tables do not list what is freed here.
    for (const std::int32_t needed = std::min(first_needed(g, processed), size); table.first < needed;
         ++table.first) {
      BlockId& block = table.blocks[idx(table.first)];
      pool.drop(block, StepId{});
      block = kNoBlock;
    }
  }
}

void KvManager::release(KvSeq s, StepId fence) {
  CHECK(!active_);
  Tables& t = at(s);
  drop_sources(t, fence);
  drop_range(t.load, t.load.first, t.load.last);
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    Table& table = t.groups[idx(g)];
    for (auto i = static_cast<std::int32_t>(table.blocks.size()); i-- > table.first;) {
      groups_[idx(g)].pool.drop(table.blocks[idx(i)], fence);
    }
    table = {};
  }
  t.seen = std::max(t.seen, t.sealed);
  t.sealed = t.reserved = t.processed = 0;
  unhold(s);
}

void KvManager::retire(StepId step) {
  for (; !copying_.empty() && copying_.front().step <= step; copying_.pop_front()) {
    const Copying& c = copying_.front();
    Tables& t = tables_[static_cast<std::size_t>(c.seq)];
    if (t.in_use && t.copy_step == c.step) drop_sources(t, StepId{});
  }
  for (Group& g : groups_) g.pool.retire(step);
}

/// Before the table's own blocks: the source is the deepest of the path.
void KvManager::drop_sources(Tables& t, StepId fence) {
  for (std::int32_t g = 0; g < num_groups() && !t.sources.empty(); ++g) {
    groups_[idx(g)].pool.unpin(t.sources[idx(g)], fence);
  }
  t.sources.clear();
  t.copy_step = StepId{};
}

void KvManager::forget_cache() {
  CHECK(!active_);
  for (const KvSeq s : holders_) drop_range(at(s).load, at(s).load.first, at(s).load.last);
  drop_subtree(PrefixTree::kRoot, false);
  departed_.clear();
  second_uses_.clear();
}

void KvManager::append_table(KvSeq s, std::int32_t g, std::int32_t start, std::int32_t tokens,
                             std::vector<BlockId>& out) const {
  const Table& table = at(s).groups[idx(g)];
  const std::int32_t blocks = (tokens + span(g) - 1) / span(g);
  const std::int32_t first = std::max(table.first, first_needed(g, start));
  CHECK(blocks <= static_cast<std::int32_t>(table.blocks.size()));
  out.insert(out.end(), static_cast<std::size_t>(first), kNoBlock);
  out.insert(out.end(), table.blocks.begin() + first, table.blocks.begin() + blocks);
}

}  // namespace barg::kv
