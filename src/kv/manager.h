// KvManager: which blocks every sequence holds, in every group of layers. Pure bookkeeping.
//
//   blocks of one sequence in one group (B = 4, | ends a block):
//
//     a b c d | e f g h | i j k l | m n . .          known tokens
//     --------- dead -----^ left the window (window groups only): freed, kNoBlock in the table
//               ^ sealed: full, immutable, published in the trie, may be shared with others
//                                   ^ open: private, this sequence is its only writer
//
// A recurrent group keeps one fixed-size state a sequence, not something for every token. Its blocks are
// `interval` logical blocks long (C tokens): the token at p reads the state from the block of p - 1 and leaves
// it in the block of p, so a block that was passed holds the state behind its last token, a snapshot at an
// absolute multiple of C, which nobody writes any more. It is published under the key of the logical block
// that ends there, and a hit is cut to the last multiple of C whose snapshot is there. In between it is a
// window of two tokens.
//
// Life of a sequence: open -> admit (match + pin) -> { reserve, publish, advance }* -> release -> close.
//
// Invariants (check_integrity recomputes them from scratch):
//  1. refs of a block = tables and loads that contain it; pins = copies whose step has not retired. States as
//     in block_pool.h.
//  2. A block is written by one sequence only, and never after it was sealed.
//  3. All changes between Transaction's construction and commit() are undone exactly by its destructor: block
//     states, tables, order of eviction and trie are equal to what they were.
//  4. One release path (release), tail first; with windows, advance() frees from the head.
//  5. Blocks of a sequence with steps in flight are fenced: not reused until retire() of the last such step.
//  6. Nodes of the trie that hold a full-attention block form a tree rooted at the root, and the pool's
//     victim among them is always a leaf.
//  7. Blocks of a load are Open, with one reference: beside the table, behind its end.
//
// Threads: engine thread only. Not here: bytes, devices, tiers, policy (who gets blocks is the scheduler's
// choice).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "barg/types.h"
#include "kv/block_pool.h"
#include "kv/ghosts.h"
#include "kv/keys.h"
#include "kv/prefix_tree.h"

namespace barg::kv {

enum class GroupKind : std::uint8_t { kFull, kSlidingWindow, kRecurrent };

struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  std::int32_t window = 0;  ///< tokens visible to a query including itself; only with kSlidingWindow, >= 1
  std::int64_t num_blocks = 0;
  std::int64_t block_bytes = 1;  ///< weight in ratios over groups
  std::int32_t interval = 1;     ///< logical blocks that one of this group's spans; above 1 only with kRecurrent
};

struct ManagerOptions {
  std::int32_t block_tokens = 16;
  std::vector<GroupSpec> groups;  ///< at least one
  bool enable_prefix_caching = true;
  BlockKeyFn key = &block_key;
  Eviction eviction = Eviction::kS3Fifo;
  bool track_evictions = false;  ///< tiers are there: note what leaves and what is read again
};

/// A logical block as tiers know it.
struct BlockFacts {
  Digest digest{};
  Digest parent{};                ///< of the block before; of the first: the namespace's root
  std::int32_t depth = 0;         ///< its index in the sequence
  std::uint64_t fingerprint = 0;  ///< of its tokens
};

/// A part that a tier is to fill.
struct LoadSlot {
  std::int32_t index = 0;  ///< of the block in its sequence
  std::int32_t group = 0;
  BlockId block = kNoBlock;
};

/// A published block as tiers want to save it. Its content is complete and retired.
struct Departed : BlockFacts {
  std::int32_t group = 0;
  BlockId block = kNoBlock;
  std::int32_t uses = 0;  ///< requests that read it since it was written here, beside its writer
};

/// Handle of a sequence's tables.
enum class KvSeq : std::int32_t {};

/// A copy that the next plan must carry (see sched::BlockCopy).
struct TailCopy {
  std::int32_t group = 0;
  BlockId src = kNoBlock;
  BlockId dst = kNoBlock;
  std::int32_t tokens = 0;
};

/// Blocks by state, and what allocated bytes hold. `allocated` = open + sealed + fenced blocks.
struct GroupUsage {
  std::int64_t total = 0, open = 0, sealed = 0, cached = 0, fenced = 0, blank = 0;  ///< blocks
  std::int64_t allocated_tokens = 0;  ///< slots of open, sealed and fenced blocks
  std::int64_t waste_tail = 0;        ///< slots behind the last planned token of a sequence
  std::int64_t waste_reserved = 0;    ///< slots planned, result not back yet
  std::int64_t waste_fenced = 0;      ///< slots of blocks that hold nothing and wait for a step
};

struct Usage {
  std::vector<GroupUsage> groups;
  double used = 0;                                              ///< referenced bytes / all bytes
  double waste_tail = 0, waste_reserved = 0, waste_fenced = 0;  ///< shares of allocated bytes
};

class KvManager {
 public:
  /// REQUIRES a valid description (at least one group, positive sizes): checked.
  explicit KvManager(ManagerOptions options);

  // -- geometry
  std::int32_t block_tokens() const { return options_.block_tokens; }
  std::int32_t num_groups() const { return static_cast<std::int32_t>(groups_.size()); }
  /// Blocks a sequence of `tokens` tokens needs in group g while it computes `rows` of them at a time. (Of
  /// recurrent groups: what it cannot do without. Long chunks leave snapshots while there is room.)
  std::int64_t blocks_needed(std::int32_t g, std::int32_t tokens, std::int32_t rows) const;
  /// Tokens of one of the group's blocks.
  std::int32_t span(std::int32_t g) const { return options_.block_tokens * groups_[idx(g)].spec.interval; }
  /// First of the group's blocks that a query at `position` reads in group g.
  std::int32_t first_needed(std::int32_t g, std::int32_t position) const;
  std::int64_t total(std::int32_t g) const { return groups_[idx(g)].pool.size(); }
  /// Blank + cached: what could be taken right now.
  std::int64_t available(std::int32_t g) const { return groups_[idx(g)].pool.available(); }
  /// Of these: taken before any content is evicted.
  std::int64_t blank(std::int32_t g) const { return groups_[idx(g)].pool.count(BlockState::kBlank); }
  std::int64_t fenced(std::int32_t g) const { return groups_[idx(g)].pool.count(BlockState::kFenced); }
  /// Blocks of its table and of its load.
  std::int64_t held(KvSeq s, std::int32_t g) const;

  // -- life of a sequence
  KvSeq open(const Digest& root);
  /// The sequence may become `tokens` long: memory for its tables, so that growing does not allocate.
  void expect(KvSeq s, std::int32_t tokens);
  /// REQUIRES released tables.
  void close(KvSeq s);

  /// Undoes everything since its construction unless committed. One at a time.
  class Transaction {
   public:
    explicit Transaction(KvManager& kv);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

   private:
    KvManager* kv_;
  };

  struct Admission {
    std::int32_t read_until = 0;         ///< match at most this many tokens of the log; 0 = read no cache
    std::int32_t rows = 1;               ///< how many tokens a step may compute at once
    std::span<const std::int64_t> keep;  ///< per group: blocks that must stay available afterwards; empty = 0
    StepId step{};       ///< the plan being built: copies' sources stay pinned until it retires
    bool counts = true;  ///< what it reads has been read by one more request (not so a second choice of one)
  };
  /// Match and pin in one transaction: gives `s` the longest prefix of `log` that every group can serve and
  /// that leaves at least one token to compute. nullopt, and nothing changed, if the rest of `log` does not
  /// fit beside `keep`. Otherwise the number of tokens served. `copies` receives the copies of a prefix that
  /// covers the whole log (its last block is copied so that the last token can be recomputed in private
  /// memory). REQUIRES empty tables and an active Transaction.
  std::optional<std::int32_t> admit(KvSeq s, const TokenView& log, const Admission& rule,
                                    std::vector<TailCopy>& copies);
  /// Read-only: tokens admit() would serve now.
  std::int32_t match(KvSeq s, const TokenView& log, std::int32_t read_until);

  /// How many of `want` further tokens could be reserved now (0 = none): what blocks allow, and at most up to
  /// the first block of the load.
  std::int32_t room(KvSeq s, std::int32_t want) const;
  /// Not one further token could be reserved in group g.
  bool stuck(KvSeq s, std::int32_t g) const;
  /// Makes blocks for tokens up to `tokens` in every group: all or nothing. REQUIRES none of them in the
  /// load.
  bool reserve(KvSeq s, std::int32_t tokens);

  /// Tokens [0, tokens) of `log` are known and launched steps have written or will write them: seals full
  /// blocks and publishes them. A block that somebody published already is replaced by that one; ours is
  /// fenced with `fence`. REQUIRES tokens <= log.size(), tokens <= reserved.
  void publish(KvSeq s, const TokenView& log, std::int32_t tokens, StepId fence);
  /// Steps up to token `processed` have retired: window groups free what no later query can read.
  void advance(KvSeq s, std::int32_t processed);
  /// Gives back all blocks, tail first, those of its load too (nobody may write them any more). `fence`: the
  /// last launched step that names the sequence, 0 if none is in flight. The only way out. Legal on empty
  /// tables.
  void release(KvSeq s, StepId fence);
  /// Step `step` and all before it have finished.
  void retire(StepId step);
  /// The device lost its memory: no cached content is valid any more, and all loads are dropped. Legal at any
  /// time outside a Transaction.
  void forget_cache();

  // -- loads: blocks that a tier fills (manager_load.cpp)

  /// Reserves blocks [first, last) of `s`, to be filled from a tier, in every group in which a query at
  /// position last*B or later reads them, and appends them to `out` by index, then group. All or nothing
  /// (false: nothing changed), undone by a Transaction like the rest. They belong to the sequence beside its
  /// table: Open, one reference. REQUIRES an admitted sequence without a load, first >= the blocks its table
  /// holds, last*B < log.size(), `last` a multiple of every interval.
  bool reserve_load(KvSeq s, const TokenView& log, std::int32_t first, std::int32_t last,
                    std::vector<LoadSlot>& out);
  /// The part's bytes are in its block. Nothing happens if the load has no such part (any more).
  void part_loaded(KvSeq s, std::int32_t index, std::int32_t group);
  /// They will not come: the part's block is free at once, so nobody may write it any more. Idempotent; a
  /// part that is there stays.
  void part_failed(KvSeq s, std::int32_t index, std::int32_t group);
  /// Blocks [first, last) of the load are not needed any more: free at once. What is not in the load is
  /// ignored. If the range covers an end, the load becomes shorter; all of it: it ends.
  void drop_load(KvSeq s, std::int32_t first, std::int32_t last);
  /// If the table ends where the load begins and the next blocks are there in every group that needs them:
  /// appends the contiguous run to the table, seals and publishes it (a block that somebody published
  /// meanwhile is replaced by that one, as in publish()). Returns the tokens served by then, `computed` if
  /// nothing changed; the sequence counts as processed up to there (see advance()). Window blocks that the
  /// jump leaves behind are fenced with `fence`, as in release(). REQUIRES computed == tokens reserved.
  std::int32_t adopt_loaded(KvSeq s, const TokenView& log, std::int32_t computed, StepId fence);
  bool loading(KvSeq s) const { return at(s).load.first < at(s).load.last; }
  /// The load is blocks [load_first, load_last) of the sequence; REQUIRES loading() of all below.
  std::int32_t load_first(KvSeq s) const { return at(s).load.first; }
  std::int32_t load_last(KvSeq s) const { return at(s).load.last; }
  /// The lowest block from which on the whole load is there; load_last() if its last block is not.
  std::int32_t loaded_from(KvSeq s) const { return at(s).load.ready_from; }
  /// Some part of block `index` has failed or was dropped: the block must be computed.
  bool load_lost(KvSeq s, std::int32_t index) const;
  /// Parts neither loaded nor failed.
  std::int64_t load_pending(KvSeq s) const;

  // -- what tiers want to know (manager_tiers.cpp); only with track_evictions. All append.

  /// Blocks whose content has left the device's pool since the last call, in order: by committed evictions
  /// only, and not because the device was lost. The content stays in the block until the plan being built is
  /// launched.
  void take_departed(std::vector<Departed>& out);
  /// Cached or used blocks that a request other than the one that wrote or loaded them has read, each once.
  void take_second_uses(std::vector<Departed>& out);
  /// At most `count` of the coldest cached blocks, in order of eviction, each once: early copies. Looks no
  /// deeper than `depth` blocks; -1: a tenth of the pool.
  void take_coldest(std::int32_t group, std::int32_t count, std::vector<Departed>& out,
                    std::int64_t depth = -1);

  /// Appends the table of `s` in group g as queries from position `start` on may read it, for tokens
  /// [0, tokens): block ids, kNoBlock where the window has passed.
  void append_table(KvSeq s, std::int32_t g, std::int32_t start, std::int32_t tokens,
                    std::vector<BlockId>& out) const;

  /// Key of the sequence's full block `index`, extending the memo as needed.
  const Digest& key(KvSeq s, const TokenView& log, std::int32_t index);
  /// The same, with all that tiers want to know. REQUIRES a full block of `log`.
  BlockFacts facts(KvSeq s, const TokenView& log, std::int32_t index);

  // -- facts
  Usage usage() const;
  /// The same into memory that is there.
  void usage(Usage& out) const;
  /// Sequences that hold blocks: usage() looks at these alone, however many wait.
  std::int64_t holders() const { return static_cast<std::int64_t>(holders_.size()); }
  const PrefixTree& tree() const { return tree_; }
  const BlockPool& pool(std::int32_t g) const { return groups_[idx(g)].pool; }
  /// Recomputes every invariant; CHECKs. Costly.
  void check_integrity() const;
  /// Digest over the whole state (tests: nothing changed).
  Digest state_digest() const;
  /// Tests: called before each allocation, false = fail it.
  void set_allocation_hook(std::function<bool()> hook) { hook_ = std::move(hook); }

 private:
  struct Group {
    GroupSpec spec;
    BlockPool pool;
    Ghosts ghosts;
  };
  /// Block indices of one group: [0, first) left the window, the rest is held.
  struct Table {
    std::vector<BlockId> blocks;
    std::int32_t first = 0;
    std::int64_t held() const { return static_cast<std::int64_t>(blocks.size()) - first; }
  };
  enum class PartState : std::uint8_t { kUnneeded, kPending, kReady, kLost };
  struct Part {
    BlockId block = kNoBlock;  // kPending and kReady only
    PartState state = PartState::kUnneeded;
  };
  /// Blocks [first, last) that a tier fills: nothing if first == last.
  struct Load {
    std::int32_t base = 0;  // index of groups[g].at[0]
    std::int32_t first = 0, last = 0;
    std::int32_t ready_to = 0;    // blocks [first, ready_to) are there: longest such run
    std::int32_t ready_from = 0;  // blocks [ready_from, last) are there: longest such run
    struct Parts {
      std::vector<Part> at;  // [index - base]
      std::int64_t held = 0, pending = 0;
    };
    std::vector<Parts> groups;
  };
  struct Tables {
    bool in_use = false;
    Digest root{};
    std::vector<Digest> keys;           // memo of block keys
    std::vector<std::uint64_t> prints;  // and of fingerprints
    std::vector<Table> groups;
    std::int32_t sealed = 0;       // blocks [0, sealed) are full, the others open; equal in all groups
    std::int32_t reserved = 0;     // tokens that have blocks
    std::int32_t processed = 0;    // tokens whose step has retired
    std::vector<BlockId> sources;  // pinned: step copy_step copies them, one per group
    StepId copy_step{};
    std::int32_t holder = -1;  // place in holders_
    std::int32_t seen = 0;     // blocks [0, seen) it has held before: reading them again counts for nobody
    bool counts = true;        // Admission::counts
    Load load;
  };
  /// What a Transaction has done, undone from the back.
  struct Undo {
    enum class Kind : std::uint8_t { kAdopt, kPin, kTake, kReserve, kAdmit, kLoad, kLoadTake } kind;
    std::int32_t group = 0;
    BlockId block = kNoBlock;
    std::size_t mark = 0;  // kAdopt, kPin, kTake, kLoadTake: of the group's pool before
    KvSeq seq{};
    std::int32_t reserved = 0;  // kReserve: before
  };
  struct Hit {
    std::int32_t blocks = 0;  // leading blocks that every group can serve
    std::int32_t tokens = 0;  // tokens served: blocks*B, or one less if the last block is copied
    bool copies_tail(std::int32_t b) const { return tokens < blocks * b; }
  };
  /// Has been read by a second request; tiers are told once its step has retired.
  struct Noted {
    std::int32_t group = 0;
    BlockId block = kNoBlock;
    Digest digest{};
  };
  struct Copying {
    StepId step{};
    KvSeq seq{};
  };

  static std::size_t idx(std::int32_t g) { return static_cast<std::size_t>(g); }
  Tables& at(KvSeq s);
  const Tables& at(KvSeq s) const;
  bool full(std::int32_t g) const { return groups_[idx(g)].spec.kind == GroupKind::kFull; }
  bool recurrent(std::int32_t g) const { return groups_[idx(g)].spec.kind == GroupKind::kRecurrent; }
  std::int32_t interval(std::int32_t g) const { return groups_[idx(g)].spec.interval; }
  /// Is there a part of group g in logical block `index`: does one of the group's blocks end with it?
  bool keeps(std::int32_t g, std::int32_t index) const { return (index + 1) % interval(g) == 0; }
  /// The logical block with which the group's block `i` ends.
  std::int32_t end_of(std::int32_t g, std::int32_t i) const { return (i + 1) * interval(g) - 1; }
  /// Of groups that forget: tokens that a query looks back over, itself included. A state is read by its
  /// successor.
  std::int32_t lookback(std::int32_t g) const { return recurrent(g) ? 2 : groups_[idx(g)].spec.window; }
  std::int64_t most_held(std::int32_t g, std::int32_t tokens, std::int32_t rows) const;
  BlockId published(std::int32_t g, const Tables& t, std::int32_t i) const;

  Hit find_hit(KvSeq s, const TokenView& log, std::int32_t read_until);
  bool reachable(KvSeq s, const TokenView& log, std::int32_t blocks);
  std::int32_t window_gap(const Tables& t, std::int32_t blocks, std::int32_t query) const;
  bool fits(const TokenView& log, const Hit& hit, const Admission& rule, const Tables& t) const;
  bool adopt_hit(KvSeq s, const Hit& hit, const Admission& rule, std::vector<TailCopy>& copies);
  bool take_block(KvSeq s, std::int32_t g);
  BlockId take_for(KvSeq s, std::int32_t g, Undo::Kind kind);
  void hold(KvSeq s);
  void unhold(KvSeq s);
  void drop_sources(Tables& t, StepId fence);
  void rollback(std::size_t mark);
  void commit();
  void unpublish(std::int32_t g, BlockId b);
  void drop_subtree(NodeId n, bool departs);
  bool publish_block(Tables& t, std::int32_t index, StepId fence, std::int32_t uses);
  void seal_up_to(KvSeq s, const TokenView& log, std::int32_t blocks, StepId fence, std::int32_t uses);
  bool reads_anew(const Tables& t, std::int32_t index) const { return t.counts && index >= t.seen; }
  void leave_window(Tables& t, std::int32_t g, std::int32_t first, StepId fence);
  void adopt_window(Tables& t, std::int32_t g, std::int32_t to, StepId fence);
  void adopt_state(Tables& t, std::int32_t g, std::int32_t to, StepId fence);
  Departed departed(std::int32_t g, BlockId b) const;
  void note_departure(std::int32_t g, BlockId b);
  void note_use(std::int32_t g, BlockId b);

  std::int32_t table_blocks(const Tables& t) const;
  Part& part(Load& l, std::int32_t g, std::int32_t i) { return l.groups[idx(g)].at[idx(i - l.base)]; }
  const Part& part(const Load& l, std::int32_t g, std::int32_t i) const {
    return l.groups[idx(g)].at[idx(i - l.base)];
  }
  bool there(const Load& l, std::int32_t index) const;
  void extend_runs(Load& l) const;
  void lose_part(Load& l, std::int32_t g, std::int32_t index);
  void drop_range(Load& l, std::int32_t first, std::int32_t last);
  std::int32_t adoptable(const Load& l) const;

  void check_tables() const;
  void check_load(const Tables& t, std::int32_t g, std::vector<std::int32_t>& refs) const;
  void check_tree() const;

  ManagerOptions options_;
  bool has_state_ = false;  // some group is recurrent
  std::vector<Group> groups_;
  PrefixTree tree_;
  std::vector<Tables> tables_;  // index = KvSeq
  std::vector<KvSeq> free_tables_;
  std::vector<KvSeq> holders_;   // between admission and release, in no order
  std::deque<Copying> copying_;  // ascending steps; entries of released sequences are skipped
  bool active_ = false;          // a Transaction exists
  std::vector<Undo> undo_;
  std::vector<NodeId> subtree_;  // scratch of drop_subtree()
  std::vector<Departed> departed_;
  std::vector<Noted> second_uses_;
  std::function<bool()> hook_;
};

}  // namespace barg::kv
