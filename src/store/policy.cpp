#include "store/policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace barg::store {
namespace {

constexpr std::size_t kDramLevel = static_cast<std::size_t>(TierKind::kDram);
constexpr std::size_t kDiskLevel = static_cast<std::size_t>(TierKind::kDisk);
constexpr double kTicksPerSecond = 10;
/// A parent used so recently is newer than its child, and the child goes right behind it. (Parts of one
/// prefix are saved one by one, in any order.)
constexpr std::uint32_t kRecentTicks = 20;
constexpr double kSecondsPerDay = 86400;
/// The write budget may save up an hour's worth; with more than half of it there, it has slack.
constexpr double kSavedUpSeconds = 3600;

double most_tokens(const LevelOptions& o) {
  return static_cast<double>(o.write_bytes_per_day) * kSavedUpSeconds / kSecondsPerDay;
}

}  // namespace

StackPolicy::StackPolicy(PolicyOptions options, double now) : options_(std::move(options)), start_(now) {
  std::uint64_t smallest = ~std::uint64_t{0};
  for (const std::uint64_t bytes : options_.part_bytes) smallest = std::min(smallest, bytes);
  CHECK(!options_.part_bytes.empty() && smallest > 0);
  double keys = 0;
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    Level& level = levels_[l];
    level.options = options_.levels[l];
    if (!level.options.present) continue;
    level.tokens = most_tokens(level.options);
    level.refilled = now;
    keys += static_cast<double>(level.options.capacity_bytes) / static_cast<double>(smallest);
  }
  std::size_t slots = 1024;
  while (static_cast<double>(slots) < 2 * keys && slots < (std::size_t{1} << 20)) slots *= 2;
  rehash(slots);
}

std::uint32_t StackPolicy::tick_of(double now) const {
  return static_cast<std::uint32_t>(std::clamp((now - start_) * kTicksPerSecond, 0.0, 4e9));
}

// ---- keys

std::size_t StackPolicy::slot_of(const Key& key) const {
  std::size_t at = KeyHash{}(key) & (slots_.size() - 1);
  while (slots_[at] != kNone && nodes_[slots_[at]].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

std::uint32_t StackPolicy::find(const Key& key) const { return slots_[slot_of(key)]; }

std::uint32_t StackPolicy::intern(const Key& key) {
  CHECK(key.part < options_.part_bytes.size());
  std::size_t at = slot_of(key);
  if (slots_[at] != kNone) return slots_[at];
  if (2 * (size_ + 1) > slots_.size()) {
    rehash(slots_.size() * 2);
    at = slot_of(key);
  }
  std::uint32_t node;
  if (free_.empty()) {
    node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
    nodes_[node] = Node{};
  }
  nodes_[node].key = key;
  slots_[at] = node;
  ++size_;
  return node;
}

void StackPolicy::rehash(std::size_t slots) {
  std::vector<std::uint32_t> old = std::move(slots_);
  slots_.assign(slots, kNone);
  for (const std::uint32_t node : old) {
    if (node != kNone) slots_[slot_of(nodes_[node].key)] = node;
  }
}

void StackPolicy::erase_slot(std::size_t hole) {
  const std::size_t mask = slots_.size() - 1;
  slots_[hole] = kNone;
  for (std::size_t at = (hole + 1) & mask; slots_[at] != kNone; at = (at + 1) & mask) {
    const std::size_t home = KeyHash{}(nodes_[slots_[at]].key) & mask;
    if (((at - home) & mask) >= ((at - hole) & mask)) {  // the hole lies on its way
      slots_[hole] = slots_[at];
      slots_[at] = kNone;
      hole = at;
    }
  }
}

void StackPolicy::set_parent(std::uint32_t node, const BlockInfo& info) {
  if (nodes_[node].parent != kNone || info.depth == 0) return;
  const Key key{info.parent, nodes_[node].key.part};
  if (key == nodes_[node].key) return;
  const std::uint32_t parent = intern(key);
  Node& n = nodes_[node];
  n.parent = parent;
  ++nodes_[parent].children;
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    if (n.state[l] == State::kIn) ++nodes_[parent].links[l].kids;
  }
}

/// Forgets what is in no level and no ghost list; the node stays while a child needs it. Then perhaps its parent.
void StackPolicy::release(std::uint32_t node) {
  while (node != kNone) {
    Node& n = nodes_[node];
    if (n.user != kNone) return;
    for (const State s : n.state) {
      if (s != State::kOut) return;
    }
    n.second_use = n.returned = false;
    n.pinned_until = 0;
    if (n.children != 0) return;
    const std::uint32_t parent = n.parent;
    erase_slot(slot_of(n.key));
    --size_;
    free_.push_back(node);
    if (parent != kNone) --nodes_[parent].children;
    node = parent;
  }
}

void StackPolicy::set_user(std::uint32_t node, std::uint32_t value) {
  nodes_[node].user = value;
  if (value == kNone) release(node);
}

// ---- lists

void StackPolicy::unlink(List& list, std::size_t l, std::uint32_t node) {
  Link& link = nodes_[node].links[l];
  (link.prev == kNone ? list.head : nodes_[link.prev].links[l].next) = link.next;
  (link.next == kNone ? list.tail : nodes_[link.next].links[l].prev) = link.prev;
  link.prev = link.next = kNone;
  --list.count;
  list.bytes -= bytes_of(nodes_[node]);
}

/// `older` = kNone: at the end of the victims.
void StackPolicy::link_before(List& list, std::size_t l, std::uint32_t node, std::uint32_t older) {
  Link& link = nodes_[node].links[l];
  link.next = older;
  link.prev = older == kNone ? list.tail : nodes_[older].links[l].prev;
  (link.prev == kNone ? list.head : nodes_[link.prev].links[l].next) = node;
  (older == kNone ? list.tail : nodes_[older].links[l].prev) = node;
  ++list.count;
  list.bytes += bytes_of(nodes_[node]);
}

/// As if it alone had been used at `tick`.
void StackPolicy::to_front(std::uint32_t node, std::size_t l, std::uint32_t tick) {
  List& list = levels_[l].lru;
  unlink(list, l, node);
  nodes_[node].links[l].used = tick;
  link_before(list, l, node, list.head);
}

/// Links a node that was used at `tick`, so that its ancestors are not older than it.
void StackPolicy::place(std::uint32_t node, std::size_t l, std::uint32_t tick) {
  List& list = levels_[l].lru;
  const auto old = [&](std::uint32_t n) { return tick > nodes_[n].links[l].used + kRecentTicks; };
  const auto is_in = [&](std::uint32_t n) { return n != kNone && nodes_[n].state[l] == State::kIn; };
  std::uint32_t up = nodes_[node].parent;
  if (is_in(up) && !old(up)) {
    nodes_[node].links[l].used = nodes_[up].links[l].used;
    link_before(list, l, node, nodes_[up].links[l].next);
    return;
  }
  nodes_[node].links[l].used = tick;
  link_before(list, l, node, list.head);
  for (; is_in(up) && old(up); up = nodes_[up].parent) {
    to_front(up, l, tick);
  }
}

void StackPolicy::touch(std::uint32_t node, std::size_t l, std::uint32_t tick) {
  unlink(levels_[l].lru, l, node);
  place(node, l, tick);
}

void StackPolicy::count_duplicates(const Node& n, bool add) {
  bool nearer = false;
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    if (n.state[l] != State::kIn) continue;
    if (nearer) levels_[l].duplicate_bytes += add ? bytes_of(n) : -bytes_of(n);
    nearer = true;
  }
}

void StackPolicy::set_state(std::uint32_t node, std::size_t l, State to, std::uint32_t tick) {
  Level& level = levels_[l];
  const State from = nodes_[node].state[l];
  if (from == to) return;
  const std::uint32_t parent = nodes_[node].parent;
  if (from == State::kIn) {
    unpin(node, l);
    unlink(level.lru, l, node);
    nodes_[node].unread &= static_cast<std::uint8_t>(~bit(l));
    if (parent != kNone) --nodes_[parent].links[l].kids;
  } else if (from == State::kGhost) {
    unlink(level.ghosts, l, node);
    nodes_[node].uncounted &= static_cast<std::uint8_t>(~bit(l));
  }
  count_duplicates(nodes_[node], false);
  nodes_[node].state[l] = to;
  count_duplicates(nodes_[node], true);
  if (to == State::kIn) {
    place(node, l, tick);
    if (parent != kNone) ++nodes_[parent].links[l].kids;
    if (nodes_[node].pinned_until > tick) pin_in(node, l);
  } else if (to == State::kGhost) {
    link_before(level.ghosts, l, node, level.ghosts.head);
  }
}

void StackPolicy::trim_ghosts(std::size_t l) {
  Level& level = levels_[l];
  const double limit = options_.ghost_factor * static_cast<double>(level.options.capacity_bytes);
  while (level.ghosts.tail != kNone && (managed(l) ? static_cast<double>(level.ghosts.bytes) > limit
                                                   : level.ghosts.count > level.options.max_keys)) {
    const std::uint32_t node = level.ghosts.tail;
    set_state(node, l, State::kOut, 0);
    release(node);
  }
}

// ---- writes

/// What is left of the write budget.
double StackPolicy::tokens(const Level& level, double now) const {
  const auto per_day = static_cast<double>(level.options.write_bytes_per_day);
  return std::min(most_tokens(level.options), level.tokens + per_day * (now - level.refilled) / kSecondsPerDay);
}

bool StackPolicy::affords(const Level& level, std::uint64_t bytes, bool slack, double now) const {
  if (level.options.write_bytes_per_day == 0) return !slack;
  const double reserve = slack ? most_tokens(level.options) / 2 : 0;
  return tokens(level, now) - static_cast<double>(bytes) >= reserve;
}

bool StackPolicy::pay(Level& level, std::uint64_t bytes, bool slack, double now) {
  if (!affords(level, bytes, slack, now)) return false;
  if (level.options.write_bytes_per_day == 0) return true;
  level.tokens = tokens(level, now) - static_cast<double>(bytes);
  level.refilled = now;
  return true;
}

/// False only if it is neither there nor coming.
bool StackPolicy::start_write(std::uint32_t node, std::size_t l, bool slack, double now, Actions& out) {
  Level& level = levels_[l];
  if (!level.options.present) return false;
  const State s = nodes_[node].state[l];
  if (s == State::kIn || s == State::kWriting) return true;
  if (!pay(level, bytes_of(nodes_[node]), slack, now)) {
    if (!slack) ++refused_budget_;
    return false;
  }
  set_state(node, l, State::kWriting, 0);
  out.push_back({Action::Op::kWrite, static_cast<TierKind>(l), node, nodes_[node].key});
  return true;
}

void StackPolicy::write_below(std::uint32_t node, double now, Actions& out) {
  for (std::size_t l = kDiskLevel; l < kNumTierKinds; ++l) start_write(node, l, false, now, out);
}

/// What DRAM is about to evict moves down if it is worth a write.
void StackPolicy::demote(std::uint32_t node, double now, Actions& out) {
  const Node& n = nodes_[node];
  if (n.second_use || n.returned || n.pins != 0 || n.pinned_until > tick_of(now)) {
    write_below(node, now, out);
    return;
  }
  const Level& disk = levels_[kDiskLevel];
  if (start_write(node, kDiskLevel, !disk.options.admit_all, now, out)) return;
  if (disk.options.present || levels_[kDiskLevel + 1].options.present) ++refused_admission_;
}

// ---- victims

/// The least recently used leaf among the first few that may go.
std::uint32_t StackPolicy::victim(std::size_t l, std::uint32_t tick) {
  const List& list = levels_[l].lru;
  std::uint32_t first = kNone;
  std::uint32_t at = list.tail;
  std::uint64_t looked = list.count;
  for (int scanned = 0; at != kNone && scanned < kScan && looked > 0; --looked) {
    const std::uint32_t newer = nodes_[at].links[l].prev;
    if ((nodes_[at].pins & bit(l)) != 0) {
      if (nodes_[at].pinned_until > tick) {
        to_front(at, l, tick);  // out of the way
        at = newer;
        continue;
      }
      unpin(at, l);
    }
    if (nodes_[at].links[l].kids == 0) return at;
    if (first == kNone) first = at;
    ++scanned;
    at = newer;
  }
  return first;
}

/// Out of the level, into its ghosts. `out` = nullptr: the level knows already.
void StackPolicy::drop(std::uint32_t node, std::size_t l, std::uint32_t tick, Actions* out) {
  const Key key = nodes_[node].key;
  if (out != nullptr && managed(l)) out->push_back({Action::Op::kDrop, static_cast<TierKind>(l), node, key});
  if (!managed(l)) {
    set_state(node, l, State::kOut, tick);
    release(node);
    return;
  }
  ++levels_[l].stats.evictions;
  set_state(node, l, State::kGhost, tick);
  nodes_[node].uncounted |= static_cast<std::uint8_t>(bit(l));
  trim_ghosts(l);
}

void StackPolicy::make_room(std::size_t l, double now, Actions& out) {
  Level& level = levels_[l];
  const std::uint32_t tick = tick_of(now);
  const auto over = [&] {
    return managed(l) ? level.lru.bytes > level.options.capacity_bytes
                      : level.lru.count > level.options.max_keys;
  };
  while (over()) {
    const std::uint32_t node = victim(l, tick);
    if (node == kNone) return;
    if (l == kDramLevel) demote(node, now, out);
    drop(node, l, tick, &out);
  }
}

bool StackPolicy::evict_now(std::uint64_t bytes, double now, Actions& out) {
  Level& level = levels_[kDramLevel];
  const std::uint32_t tick = tick_of(now);
  for (std::uint32_t at = level.lru.tail; at != kNone; at = nodes_[at].links[kDramLevel].prev) {
    const Node& n = nodes_[at];
    if (bytes_of(n) != bytes) continue;
    if ((n.pins & bit(kDramLevel)) != 0 && n.pinned_until > tick) continue;
    drop(at, kDramLevel, tick, &out);
    return true;
  }
  return false;
}

// ---- events

/// The lower levels that a block with a second use still misses.
unsigned StackPolicy::missing_below(const Node* n) const {
  unsigned bits = 0;
  for (std::size_t l = kDiskLevel; l < kNumTierKinds; ++l) {
    if (!levels_[l].options.present) continue;
    if (n != nullptr && (n->state[l] == State::kIn || n->state[l] == State::kWriting)) continue;
    bits |= bit(l);
  }
  return bits;
}

unsigned StackPolicy::would_save(const Key& key, SaveWhy why, int uses, double now) const {
  const std::uint32_t node = find(key);
  const Node* n = node == kNone ? nullptr : &nodes_[node];
  const bool dram = levels_[kDramLevel].options.present;
  const bool returned =
      n != nullptr && (n->returned || n->state[kDramLevel] == State::kGhost ||
                       n->state[kDiskLevel] == State::kGhost || n->state[kDiskLevel + 1] == State::kGhost);
  const unsigned missing = missing_below(n);
  unsigned bits = 0;
  if (why != SaveWhy::kSecondUse && dram &&
      (n == nullptr || n->state[kDramLevel] == State::kOut || n->state[kDramLevel] == State::kGhost)) {
    bits |= bit(kDramLevel);
  }
  if (why == SaveWhy::kSecondUse || uses > 0 || (n != nullptr && n->second_use) || (!dram && returned)) {
    for (std::size_t l = kDiskLevel; l < kNumTierKinds; ++l) {
      if ((missing & bit(l)) != 0 && affords(levels_[l], options_.part_bytes[key.part], false, now)) {
        bits |= bit(l);
      }
    }
    return bits;
  }
  const Level& disk = levels_[kDiskLevel];
  if (!dram && (missing & bit(kDiskLevel)) != 0 &&
      affords(disk, options_.part_bytes[key.part], !disk.options.admit_all, now)) {
    bits |= bit(kDiskLevel);
  }
  return bits;
}

void StackPolicy::saved(const Key& key, const BlockInfo& info, SaveWhy why, int uses, double now,
                        Actions& out) {
  const unsigned bits = would_save(key, why, uses, now);
  const std::uint32_t node = intern(key);
  set_parent(node, info);
  const std::uint32_t tick = tick_of(now);
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    const State s = nodes_[node].state[l];
    if (s == State::kGhost) nodes_[node].returned = true;
    if (s == State::kIn) touch(node, l, tick);
  }
  if (why == SaveWhy::kSecondUse || uses > 0) nodes_[node].second_use = true;
  if ((bits & bit(kDramLevel)) != 0) start_write(node, kDramLevel, false, now, out);
  const bool again =
      nodes_[node].second_use || nodes_[node].returned || levels_[kDiskLevel].options.admit_all;
  for (std::size_t l = kDiskLevel; l < kNumTierKinds; ++l) {
    if ((bits & bit(l)) != 0) start_write(node, l, !again, now, out);
  }
  if (nodes_[node].second_use && (missing_below(&nodes_[node]) != 0)) ++refused_budget_;
  const Node& n = nodes_[node];
  const bool nowhere = std::all_of(n.state.begin(), n.state.end(), [](State s) { return s == State::kOut; });
  if (!nowhere) return;
  // Without DRAM a ghost is what was refused: when it comes again it has proved itself. An early copy is
  // followed by the eviction of the very same block, which must not count as coming again.
  if (why == SaveWhy::kEarly) return release(node);
  if (!again) ++refused_admission_;
  for (std::size_t l = kDiskLevel; l < kNumTierKinds; ++l) {
    if (!levels_[l].options.present) continue;
    set_state(node, l, State::kGhost, tick);
    trim_ghosts(l);
    return;
  }
  release(node);
}

void StackPolicy::asked(std::span<const Key> keys, std::span<const std::uint8_t> found_at, unsigned levels,
                        double now, Actions& out) {
  const std::uint32_t tick = tick_of(now);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t l = 0; l < kNumTierKinds; ++l) {
      Level& level = levels_[l];
      if ((levels & bit(l)) != 0 && level.options.present && found_at[i] >= l) {
        ++level.stats.queries;
        if (found_at[i] == l) ++level.stats.hits;
        // It had it, and has it no more: else nobody would ever write it there again.
        if (found_at[i] > l && l != kDramLevel) lost(keys[i], static_cast<TierKind>(l));
      }
      const std::uint32_t node = find(keys[i]);
      if (node == kNone) continue;
      if (nodes_[node].state[l] == State::kIn) touch(node, l, tick);
      if ((nodes_[node].uncounted & bit(l)) != 0 && (levels & bit(l)) != 0) {
        nodes_[node].uncounted &= static_cast<std::uint8_t>(~bit(l));
        ++level.stats.rereads;
      }
    }
    if (found_at[i] < kNumTierKinds) found(keys[i], static_cast<TierKind>(found_at[i]), now, out);
  }
}

void StackPolicy::found(const Key& key, TierKind where, double now, Actions& out) {
  const std::size_t l = index(where);
  if (!levels_[l].options.present || l == kDramLevel) return;  // DRAM holds nothing that was not written here
  const std::uint32_t node = intern(key);
  const State s = nodes_[node].state[l];
  if (s == State::kIn || s == State::kWriting) return;
  set_state(node, l, State::kIn, tick_of(now));
  make_room(l, now, out);
}

void StackPolicy::read(const Key& key, const BlockInfo& info, TierKind from, bool late, double now,
                       Actions& out) {
  const std::size_t at = index(from);
  if (at != kDramLevel) found(key, from, now, out);
  const std::uint32_t node = intern(key);
  set_parent(node, info);
  const std::uint32_t tick = tick_of(now);
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    if (nodes_[node].state[l] == State::kIn) touch(node, l, tick);
  }
  Level& level = levels_[at];
  ++level.stats.reads;
  if ((nodes_[node].unread & bit(at)) != 0) {
    nodes_[node].unread &= static_cast<std::uint8_t>(~bit(at));
    ++level.stats.useful_writes;
  }
  if (!late) nodes_[node].second_use = true;
  const bool dram = levels_[kDramLevel].options.present;
  if (at != kDramLevel && dram) start_write(node, kDramLevel, false, now, out);
  if (!late && at == kDramLevel) write_below(node, now, out);
  if (!late && !dram && at > kDiskLevel) start_write(node, kDiskLevel, false, now, out);
  release(node);
}

void StackPolicy::written(const Key& key, TierKind where, double now, Actions& out) {
  const std::uint32_t node = find(key);
  const std::size_t l = index(where);
  if (node == kNone || nodes_[node].state[l] != State::kWriting) return;
  set_state(node, l, State::kIn, tick_of(now));
  nodes_[node].unread |= static_cast<std::uint8_t>(bit(l));
  ++levels_[l].stats.writes;
  make_room(l, now, out);
}

void StackPolicy::failed(const Key& key, TierKind where) {
  const std::uint32_t node = find(key);
  const std::size_t l = index(where);
  if (node == kNone || nodes_[node].state[l] != State::kWriting) return;
  set_state(node, l, State::kGhost, 0);  // it was found worth a write: remembered for the next time
  trim_ghosts(l);
}

void StackPolicy::lost(const Key& key, TierKind where) {
  const std::uint32_t node = find(key);
  if (node == kNone || nodes_[node].state[index(where)] != State::kIn) return;
  drop(node, index(where), 0, nullptr);
}

/// Unless a quarter of the level is pinned.
bool StackPolicy::pin_in(std::uint32_t node, std::size_t l) {
  Node& n = nodes_[node];
  Level& level = levels_[l];
  if (n.state[l] != State::kIn || !managed(l) || (n.pins & bit(l)) != 0 ||
      level.pinned_bytes + bytes_of(n) > level.options.capacity_bytes / 4) {
    return false;
  }
  if (n.pins == 0) pinned_.push_back(node);
  n.pins |= static_cast<std::uint8_t>(bit(l));
  level.pinned_bytes += bytes_of(n);
  return true;
}

void StackPolicy::unpin(std::uint32_t node, std::size_t l) {
  Node& n = nodes_[node];
  if ((n.pins & bit(l)) == 0) return;
  n.pins &= static_cast<std::uint8_t>(~bit(l));
  levels_[l].pinned_bytes -= bytes_of(n);
  if (n.pins == 0) pinned_.erase(std::find(pinned_.begin(), pinned_.end(), node));
}

std::size_t StackPolicy::pin(std::span<const Key> keys, double until, double now) {
  const std::uint32_t tick = tick_of(now);
  for (const std::uint32_t node : std::vector<std::uint32_t>(pinned_)) {  // what has run out makes room
    if (nodes_[node].pinned_until > tick) continue;
    for (std::size_t l = 0; l < kNumTierKinds; ++l) unpin(node, l);
  }
  std::size_t count = 0;
  for (const Key& key : keys) {
    const std::uint32_t node = find(key);
    if (node == kNone) continue;
    // Several may want the same prefix: who needs it for longest is heard.
    const std::uint32_t end = until == 0 ? 0 : std::max(nodes_[node].pinned_until, tick_of(until));
    for (std::size_t l = 0; l < kNumTierKinds; ++l) end <= tick ? unpin(node, l) : (void)pin_in(node, l);
    nodes_[node].pinned_until = end;
    if (nodes_[node].pins != 0) ++count;
  }
  return count;
}

void StackPolicy::tick(double now, Actions& out) {
  const std::uint32_t tick = tick_of(now);
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    Level& level = levels_[l];
    if (!level.options.present || level.options.ttl_s <= 0) continue;
    const auto ttl = static_cast<std::uint32_t>(std::min(level.options.ttl_s * kTicksPerSecond, 4e9));
    for (std::uint64_t looked = level.lru.count; looked > 0 && level.lru.tail != kNone; --looked) {
      const std::uint32_t node = level.lru.tail;
      if (tick < ttl || nodes_[node].links[l].used >= tick - ttl) break;
      if ((nodes_[node].pins & bit(l)) != 0 && nodes_[node].pinned_until > tick) {
        to_front(node, l, tick);
      } else {
        drop(node, l, tick, &out);
      }
    }
  }
}

// ---- questions

bool StackPolicy::in(const Key& key, TierKind level) const {
  const std::uint32_t node = find(key);
  return node != kNone && nodes_[node].state[index(level)] == State::kIn;
}

void StackPolicy::pinned_keys(TierKind level, double now, std::vector<Key>& out) const {
  for (const std::uint32_t node : pinned_) {
    const Node& n = nodes_[node];
    if ((n.pins & bit(index(level))) != 0 && n.pinned_until > tick_of(now)) out.push_back(n.key);
  }
}

LevelStats StackPolicy::stats(TierKind where) const {
  const Level& level = levels_[index(where)];
  LevelStats out = level.stats;
  out.entries = level.lru.count;
  out.bytes = level.lru.bytes;
  out.ghosts = level.ghosts.count;
  out.ghost_bytes = level.ghosts.bytes;
  out.pinned_bytes = level.pinned_bytes;
  out.duplicate_bytes = level.duplicate_bytes;
  return out;
}

bool StackPolicy::check() const {
  std::vector<bool> freed(nodes_.size());
  for (const std::uint32_t node : free_) freed[node] = true;
  std::vector<std::uint32_t> children(nodes_.size());
  std::array<std::vector<std::uint32_t>, kNumTierKinds> kids;
  std::array<std::uint64_t, kNumTierKinds> in{}, ghosts{}, pinned{}, duplicates{};
  for (auto& k : kids) k.resize(nodes_.size());
  std::size_t alive = 0;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (freed[node]) continue;
    const Node& n = nodes_[node];
    ++alive;
    if (find(n.key) != node) return false;
    if (n.parent != kNone) ++children[n.parent];
    bool nearer = false;
    for (std::size_t l = 0; l < kNumTierKinds; ++l) {
      const bool is_in = n.state[l] == State::kIn;
      in[l] += is_in ? 1 : 0;
      ghosts[l] += n.state[l] == State::kGhost ? 1 : 0;
      if (is_in && n.parent != kNone) ++kids[l][n.parent];
      if ((n.pins & bit(l)) != 0) pinned[l] += is_in ? bytes_of(n) : ~std::uint64_t{0};
      if (is_in && nearer) duplicates[l] += bytes_of(n);
      nearer = nearer || is_in;
    }
  }
  if (alive != size_) return false;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (freed[node]) continue;
    if (children[node] != nodes_[node].children) return false;
    for (std::size_t l = 0; l < kNumTierKinds; ++l) {
      if (kids[l][node] != nodes_[node].links[l].kids) return false;
    }
  }
  for (std::size_t l = 0; l < kNumTierKinds; ++l) {
    const Level& level = levels_[l];
    std::uint64_t count = 0, bytes = 0;
    std::uint32_t newer = kNone;
    for (std::uint32_t at = level.lru.head; at != kNone; newer = at, at = nodes_[at].links[l].next, ++count) {
      if (nodes_[at].links[l].prev != newer || nodes_[at].state[l] != State::kIn) return false;
      if (newer != kNone && nodes_[newer].links[l].used < nodes_[at].links[l].used) return false;
      bytes += bytes_of(nodes_[at]);
    }
    if (count != in[l] || count != level.lru.count || bytes != level.lru.bytes || newer != level.lru.tail) {
      return false;
    }
    if (ghosts[l] != level.ghosts.count || pinned[l] != level.pinned_bytes) return false;
    if (duplicates[l] != level.duplicate_bytes) return false;
    if (managed(l) && level.lru.bytes > level.options.capacity_bytes) return false;
    if (level.pinned_bytes > level.options.capacity_bytes / 4) return false;
  }
  return true;
}

}  // namespace barg::store
