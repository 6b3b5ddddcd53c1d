// StackPolicy: which part should lie in which tier. Pure bookkeeping: no bytes, threads or clocks (time comes
// in as an argument), so the simulator of `barg bench kv` runs the very same decisions as TierStack.
//
// Of every key it knows, at each level (DRAM, disk, remote): is it in, being written, or remembered as a
// ghost (evicted not long ago). A level is one LRU list; the victim is a leaf where that is possible, because
// a prefix is useless without its start.
//
//   saved (evicted, early) -> DRAM                       asked  -> order of LRU, re-reads of ghosts
//   saved (second use)     -> disk, remote               read   -> DRAM; read from DRAM: second use -> disk,
//   remote evicted from DRAM      -> disk, remote if it was read, its key came back as a ghost, or it is
//   pinned; else to disk
//                             if the write budget has slack
//
// Decisions come out as actions, in the order in which they are to be done: {write key to level, drop key
// from level}. Whoever executes them answers every write with written() or failed(). A victim's write comes
// before its drop.
//
// Memory: about 110 bytes a key, ghosts included; flat vectors, links by index. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "store/block.h"
#include "store/stack.h"

namespace barg::store {

struct LevelOptions {
  bool present = false;
  std::uint64_t capacity_bytes = 0;       ///< evicts beyond it; 0 = manages itself: keys are only remembered
  std::uint64_t max_keys = 1ULL << 20;    ///< remembered where capacity_bytes is 0
  double ttl_s = 0;                       ///< not used for so long: dropped; 0 = never
  std::uint64_t write_bytes_per_day = 0;  ///< 0 = no limit (and no slack)
  bool admit_all = false;                 ///< every block, also without a second use
};

struct PolicyOptions {
  std::vector<std::uint64_t> part_bytes;  ///< what a part takes, by Key::part; the simulator says 1
  std::array<LevelOptions, kNumTierKinds> levels{};
  double ghost_factor = 4;  ///< bytes remembered after eviction, in capacities
};

struct Action {
  enum class Op : std::uint8_t { kWrite, kDrop };
  Op op = Op::kWrite;
  TierKind level = TierKind::kDram;
  std::uint32_t node = 0;  ///< of the key, valid until the actions have been executed
  Key key;
  bool operator==(const Action& o) const { return op == o.op && level == o.level && key == o.key; }
};
using Actions = std::vector<Action>;

struct LevelStats {
  std::uint64_t queries = 0, hits = 0;  ///< keys asked here (not found nearer), and found
  std::uint64_t writes = 0,
                useful_writes = 0;  ///< written; of these read at least once before they were lost
  std::uint64_t reads = 0;
  std::uint64_t evictions = 0, rereads = 0;  ///< dropped or lost; of these asked for while in the ghost list
  std::uint64_t entries = 0, bytes = 0;
  std::uint64_t ghosts = 0, ghost_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t duplicate_bytes = 0;  ///< also in a nearer level
};

class StackPolicy {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr int kScan = 8;  ///< how far eviction looks for a leaf

  StackPolicy(PolicyOptions options, double now);

  // ---- events; what should be done is appended to `out`

  /// The levels that saved() would write to now, as bits by TierKind. Changes nothing.
  unsigned would_save(const Key& key, SaveWhy why, int uses, double now) const;
  /// The bytes of `key` are at hand. REQUIRES that they stay so until the writes of `out` have been executed.
  void saved(const Key& key, const BlockInfo& info, SaveWhy why, int uses, double now, Actions& out);
  /// Consecutive keys of one sequence were looked up; `found` = the nearest level that has each, or
  /// kNumTierKinds. A key that is found where the policy did not know it (an earlier process wrote it) is
  /// known from now on; one that a level below DRAM was asked for and has no more is lost. `levels`: bits of
  /// those that were asked and could tell.
  void asked(std::span<const Key> keys, std::span<const std::uint8_t> found, unsigned levels, double now,
             Actions& out);
  /// Its bytes were read. `late`: nobody waits for them any more, they land in DRAM at most.
  void read(const Key& key, const BlockInfo& info, TierKind from, bool late, double now, Actions& out);
  /// A write action has succeeded; may evict others.
  void written(const Key& key, TierKind level, double now, Actions& out);
  /// ... or was not done.
  void failed(const Key& key, TierKind level);
  /// The level turned out not to have it.
  void lost(const Key& key, TierKind level);
  /// It is there although nobody wrote it here.
  void found(const Key& key, TierKind level, double now, Actions& out);
  /// Until `until` (0 = unpin) neither evicted nor expired in the levels that hold it; an earlier pin that
  /// lasts longer stays. At most a quarter of a level's capacity is pinned; returns how many keys were pinned
  /// somewhere.
  std::size_t pin(std::span<const Key> keys, double until, double now);
  /// Drops what has expired.
  void tick(double now, Actions& out);
  /// The least recently used part of DRAM that takes `bytes` goes at once and nowhere else: room was needed
  /// faster than the lower levels could take it. False: there is none.
  bool evict_now(std::uint64_t bytes, double now, Actions& out);

  // ---- questions

  bool in(const Key& key, TierKind level) const;
  void pinned_keys(TierKind level, double now, std::vector<Key>& out) const;
  LevelStats stats(TierKind level) const;
  std::uint64_t refused_admission() const { return refused_admission_; }
  std::uint64_t refused_budget() const { return refused_budget_; }

  /// Whoever executes the actions may keep a number beside a key; the key stays known while it has one.
  std::uint32_t find(const Key& key) const;  ///< kNone if not known
  void prefetch(const Key& key) const { __builtin_prefetch(&slots_[KeyHash{}(key) & (slots_.size() - 1)]); }
  std::uint32_t user(std::uint32_t node) const { return nodes_[node].user; }
  void set_user(std::uint32_t node, std::uint32_t value);

  /// Recomputes every count and list from scratch; for tests.
  bool check() const;
  std::size_t known() const { return size_; }

 private:
  enum class State : std::uint8_t { kOut, kWriting, kIn, kGhost };
  struct Link {
    std::uint32_t prev = kNone, next = kNone;  // towards the recently used, towards the victims
    std::uint32_t kids = 0;                    // children that are in this level
    std::uint32_t used = 0;                    // tick of the last use
  };
  struct Node {
    Key key;
    std::uint32_t parent = kNone;
    std::uint32_t children = 0;  // nodes whose parent this is: keeps it alive
    std::uint32_t user = kNone;
    std::uint32_t pinned_until = 0;
    std::array<Link, kNumTierKinds> links{};
    std::array<State, kNumTierKinds> state{};
    std::uint8_t unread = 0;     // bits by level: written, and not read since
    std::uint8_t uncounted = 0;  // bits by level: evicted, and not asked for since
    std::uint8_t pins = 0;       // bits by level
    bool second_use = false;     // read at least once: goes to disk and remote now
    bool returned = false;       // saved again while it was a ghost: goes there when DRAM evicts it
  };
  struct List {
    std::uint32_t head = kNone, tail = kNone;
    std::uint64_t count = 0, bytes = 0;
  };
  struct Level {
    LevelOptions options;
    List lru, ghosts;
    std::uint64_t duplicate_bytes = 0, pinned_bytes = 0;
    double tokens = 0, refilled = 0;  // of the write budget
    LevelStats stats;
  };

  static constexpr std::size_t index(TierKind k) { return static_cast<std::size_t>(k); }
  static constexpr unsigned bit(std::size_t level) { return 1U << level; }
  std::uint32_t tick_of(double now) const;
  std::uint64_t bytes_of(const Node& n) const { return options_.part_bytes[n.key.part]; }
  bool managed(std::size_t l) const { return levels_[l].options.capacity_bytes != 0; }

  std::size_t slot_of(const Key& key) const;
  std::uint32_t intern(const Key& key);
  void set_parent(std::uint32_t node, const BlockInfo& info);
  void release(std::uint32_t node);
  void erase_slot(std::size_t hole);
  void rehash(std::size_t slots);

  void unlink(List& list, std::size_t l, std::uint32_t node);
  void link_before(List& list, std::size_t l, std::uint32_t node, std::uint32_t older);
  void to_front(std::uint32_t node, std::size_t l, std::uint32_t tick);
  void place(std::uint32_t node, std::size_t l, std::uint32_t tick);
  void touch(std::uint32_t node, std::size_t l, std::uint32_t tick);
  void set_state(std::uint32_t node, std::size_t l, State to, std::uint32_t tick);
  void count_duplicates(const Node& n, bool add);
  void trim_ghosts(std::size_t l);
  bool pin_in(std::uint32_t node, std::size_t l);
  void unpin(std::uint32_t node, std::size_t l);

  unsigned missing_below(const Node* n) const;
  double tokens(const Level& level, double now) const;
  bool affords(const Level& level, std::uint64_t bytes, bool slack, double now) const;
  bool pay(Level& level, std::uint64_t bytes, bool slack, double now);
  bool start_write(std::uint32_t node, std::size_t l, bool slack, double now, Actions& out);
  void write_below(std::uint32_t node, double now, Actions& out);
  std::uint32_t victim(std::size_t l, std::uint32_t tick);
  void demote(std::uint32_t node, double now, Actions& out);
  void drop(std::uint32_t node, std::size_t l, std::uint32_t tick, Actions* out);
  void make_room(std::size_t l, double now, Actions& out);

  PolicyOptions options_;
  double start_;
  std::array<Level, kNumTierKinds> levels_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> slots_;  // open addressing: node or kNone
  std::size_t size_ = 0;
  std::vector<std::uint32_t> pinned_;  // nodes that were pinned in some level
  std::uint64_t refused_admission_ = 0, refused_budget_ = 0;
};

}  // namespace barg::store
