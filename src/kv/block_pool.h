// BlockPool: metadata of the physical blocks of one group. Never touches their bytes.
//
//            take            seal             drop to 0 refs          take (victim)
//   Blank ---------> Open ---------> Sealed -----------------> Cached -----------------> Open
//     ^               |                | ^                      |  ^
//     |               |   drop, step   | +----- adopt ----------+  |
//     |               |   in flight    v            |              |
//     +---------------+---------> Fenced -----------+--------------+   retire(step)
//
// Which Cached block is the next victim:
//
//   new --> small --(read again)--> main --+   S3-FIFO: a tenth of what is cached is small; what is not read
//             |                      ^ ^   |   there leaves early. main is a clock: a block with reads left
//             v                      | +---+   goes round again, with one less. What was small and comes back
//           victim     inner <-------+-> victim   soon (the manager's ghosts) starts in main.
//                                            LRU: everything is in main, reads are not counted.
//   A block that others build on (`children`) is no victim: its content would be useless without it, and the
//   others' too. When its turn in main comes it waits in inner, and is next in main when the last child has
//   left.
//
// Invariants:
//  1. Every block is in exactly one state; Blank, Cached and Fenced blocks are each in one list (Cached ones
//     in that of their queue), Open and Sealed ones in none. Counts of all states add up to size().
//  2. refs > 0 or pins > 0 iff Open or Sealed. An Open block has one reference: its only writer.
//  3. A Cached block has a node (its content can be found); one without a node goes to Blank instead.
//  4. small is in the order in which its blocks entered it, with LRU main too: `entered` rises from head to
//     tail.
//  5. A block whose fence is younger than the last retired step is never handed out by take().
//  6. children = blocks whose `parent` it is. A block in inner has some. A victim has none, unless all others
//     that could go had some too.
//  7. `seen` blocks (see cold()) are at the head of their queue.
//
// Between begin() and end() every change by take(), adopt() and pin() can be undone exactly, list order
// included.
//
// All operations are O(1), take() amortised over entering, retire() linear in the fenced blocks. Ids are
// stable for the process. Threads: engine thread only. Not here: who holds a block, keys, policy.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "base/check.h"

namespace barg::kv {

using NodeId = std::int32_t;  ///< index into the prefix tree
inline constexpr NodeId kNoNode = -1;

enum class BlockState : std::uint8_t { kBlank, kOpen, kSealed, kCached, kFenced };
inline constexpr std::size_t kNumBlockStates = 5;

enum class Eviction : std::uint8_t { kS3Fifo, kLru };
enum class Queue : std::uint8_t { kSmall, kMain, kInner };
inline constexpr std::size_t kNumQueues = 3;

/// A block's way to be read by a request beside the one that wrote it: read, noted by the manager, told on.
enum class SecondUse : std::uint8_t { kNone, kRead, kNoted, kTold };

struct Block {
  BlockState state = BlockState::kBlank;
  Queue queue = Queue::kMain;  ///< where it waits when Cached
  std::uint8_t reads = 0;      ///< S3-FIFO: by adopt(), at most 3; going round takes one
  bool seen = false;           ///< cold() went past it since it entered its queue
  bool offered = false;        ///< cold() returned it since it was published
  SecondUse second = SecondUse::kNone;
  std::int32_t refs = 0;
  std::int32_t pins = 0;
  std::int32_t fill = 0;      ///< tokens written or planned to be
  std::int32_t uses = 0;      ///< requests that read it since it was written here
  std::int32_t children = 0;  ///< published blocks of this group that need this one
  BlockId parent = kNoBlock;  ///< the block it needs
  NodeId node = kNoNode;      ///< where it is published
  StepId written{};           ///< its content is complete when this step has retired
  StepId fence{};             ///< no other owner before this step has retired
  std::uint64_t entered = 0;  ///< tick at which it entered its queue
  BlockId prev = kNoBlock;    ///< list links
  BlockId next = kNoBlock;

  bool operator==(const Block&) const = default;
};

class BlockPool {
 public:
  /// REQUIRES 0 <= size < 2^31.
  explicit BlockPool(std::int64_t size, Eviction eviction = Eviction::kS3Fifo);

  std::int64_t size() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t count(BlockState s) const { return counts_[index(s)]; }
  std::int64_t available() const { return count(BlockState::kBlank) + count(BlockState::kCached); }
  const Block& operator[](BlockId b) const { return blocks_[static_cast<std::size_t>(b)]; }
  /// The Cached block that entered `q` first, kNoBlock if none.
  BlockId head(Queue q) const { return queues_[static_cast<std::size_t>(q)].head; }

  /// A Blank block, else a Cached one (the victim), becomes Open with one reference. A victim keeps its
  /// `node` so that it can be put back; the caller unpublishes it. kNoBlock if neither exists.
  BlockId take();

  /// One more holder of a Sealed, Cached or Fenced block with a node. `counts`: a request reads it that did
  /// not before.
  void adopt(BlockId b, bool counts = true);

  /// Full and immutable from now on; complete when step `written` has retired.
  void seal(BlockId b, std::int32_t fill, StepId written);
  void set_fill(BlockId b, std::int32_t fill);
  /// A Sealed block's content can be found at `node` from now on. `parent`: the block without which it is
  /// useless; kNoBlock if none. `uses`: requests that count as its readers already.
  void publish(BlockId b, NodeId node, BlockId parent, Queue queue, std::int32_t uses);
  void set_second(BlockId b, SecondUse second) { at(b).second = second; }
  /// It cannot be found any more: a Cached block goes to Blank.
  void unpublish(BlockId b);

  /// One holder less. Without holders the block goes to Fenced if its fence (raised to `fence`) has not
  /// retired, else to Cached if it has a node, else to Blank.
  void drop(BlockId b, StepId fence);

  /// Pins keep a block from being reused without being a table's reference (sources of copies). unpin() is to
  /// pin() as drop() is to adopt().
  void pin(BlockId b);
  void unpin(BlockId b, StepId fence);

  /// From here on take(), adopt() and pin() are recorded.
  void begin() { recording_ = true; }
  /// What was recorded is final.
  void end() {
    recording_ = false;
    record_.clear();
  }
  /// A point to go back to, youngest first. Only between begin() and end().
  std::size_t mark() const { return record_.size(); }
  void undo(std::size_t mark);

  /// Step `step` and all before it have finished: expired fences fall, in the order in which they were set.
  void retire(StepId step);
  StepId retired() const { return retired_; }
  /// Fenced blocks whose content nobody can find: they hold nothing. Linear in the fenced blocks.
  std::int64_t fenced_empty() const;

  /// The next of the `depth` coldest Cached blocks, in order of eviction, that was not returned since it was
  /// published; kNoBlock if there is none. Blocks that are hot when they are passed are left out.
  BlockId cold(std::int64_t depth);

  /// CHECKs invariants 1-4, 6 and 7 from scratch.
  void check_integrity() const;

 private:
  struct List {
    BlockId head = kNoBlock, tail = kNoBlock;
    std::int64_t count = 0;
    BlockId fresh = kNoBlock;  // queues: the first block that is not `seen`
    std::int64_t seen = 0;
  };
  struct Before {
    BlockId id;
    Block block;
  };

  static std::size_t index(BlockState s) { return static_cast<std::size_t>(s); }
  List* list(const Block& x);
  List& queue(Queue q) { return queues_[static_cast<std::size_t>(q)]; }
  Block& at(BlockId b) {
    CHECK(b >= 0 && b < size());
    return blocks_[static_cast<std::size_t>(b)];
  }
  void leave(BlockId b);                                // its list, and its state's count
  void enter(BlockId b, BlockState s, BlockId before);  // before = kNoBlock: at the end
  void enqueue(BlockId b, Queue q);                     // Cached, at the end of q
  void settle(BlockId b);                               // no holder is left: Fenced, Cached or Blank
  void record(BlockId b) {
    if (recording_) record_.push_back({b, (*this)[b]});
  }
  bool small_is_due() const;
  BlockId victim();
  void lose_parent(Block& x);
  void check_lists() const;
  void check_queue(const List& list) const;

  Eviction eviction_;
  std::vector<Block> blocks_;
  std::array<std::int64_t, kNumBlockStates> counts_{};
  List blank_, fenced_;
  std::array<List, kNumQueues> queues_;  // Cached
  StepId retired_{};
  std::uint64_t tick_ = 0;
  bool recording_ = false;
  std::vector<Before> record_;
};

}  // namespace barg::kv
