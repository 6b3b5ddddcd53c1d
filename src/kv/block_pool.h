// BlockPool: metadata of the physical blocks of one group. Never touches their bytes.
//
//            take            seal             drop to 0 refs        evict (take_victim)
//   Blank ---------> Open ---------> Sealed -----------------> Cached -----------------> Open
//     ^               |                | ^                      |  ^
//     |               |   drop, step   | +----- adopt ----------+  |
//     |               |   in flight    v            |              |
//     +---------------+---------> Fenced -----------+--------------+   retire(step)
//
// Invariants:
//  1. Every block is in exactly one state; Blank, Cached and Fenced blocks are each in one list, Open and
//  Sealed
//     ones in none. Counts of all states add up to size().
//  2. refs > 0 or pins > 0 iff Open or Sealed. An Open block has one reference: its only writer.
//  3. A Cached block has a node (its content can be found); one without a node goes to Blank instead.
//  4. The Cached list is in order of release: the front is the least recently used, the next victim.
//  5. A block whose fence is younger than the last retired step is never handed out by take().
//
// All operations are O(1), but retire(), which is linear in the fenced blocks. Ids are stable for the
// process. Threads: engine thread only. Not here: who holds a block, keys, policy.
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

struct Block {
  BlockState state = BlockState::kBlank;
  std::int32_t refs = 0;
  std::int32_t pins = 0;
  std::int32_t fill = 0;       ///< tokens written or planned to be
  NodeId node = kNoNode;       ///< where it is published
  StepId fence{};              ///< no other owner before this step has retired
  std::uint64_t released = 0;  ///< tick of the last release into Cached (LRU order)
  BlockId prev = kNoBlock;     ///< list links
  BlockId next = kNoBlock;

  bool operator==(const Block&) const = default;
};

class BlockPool {
 public:
  /// REQUIRES 0 <= size < 2^31.
  explicit BlockPool(std::int64_t size);

  std::int64_t size() const { return static_cast<std::int64_t>(blocks_.size()); }
  std::int64_t count(BlockState s) const { return lists_[index(s)].count; }
  std::int64_t available() const { return count(BlockState::kBlank) + count(BlockState::kCached); }
  const Block& operator[](BlockId b) const { return blocks_[static_cast<std::size_t>(b)]; }
  /// The next victim, kNoBlock if nothing is cached.
  BlockId least_recent() const { return lists_[index(BlockState::kCached)].head; }

  /// A Blank block, else the least recently used Cached one, becomes Open with one reference. A victim keeps
  /// its `node` so that it can be put back; the caller unpublishes it. kNoBlock if neither exists.
  BlockId take();
  /// Undo of the youngest take(): back to the front of the list it came from (`was` Blank or Cached).
  void untake(BlockId b, BlockState was);

  /// One more holder of a Sealed, Cached or Fenced block with a node.
  void adopt(BlockId b);
  /// Undo of adopt(): one holder less and, if that leaves none, back in the list of `was`, before `next`.
  void unadopt(BlockId b, BlockState was, BlockId next);

  /// Full and immutable from now on.
  void seal(BlockId b, std::int32_t fill);
  void set_fill(BlockId b, std::int32_t fill);
  /// Where the content can be found; kNoNode makes it unfindable: a Cached block goes to Blank.
  void set_node(BlockId b, NodeId node);

  /// One holder less. Without holders the block goes to Fenced if its fence (raised to `fence`) has not
  /// retired, else to Cached if it has a node, else to Blank.
  void drop(BlockId b, StepId fence);

  /// Pins keep a block from being reused without being a table's reference (sources of copies, later tier
  /// I/O). unpin() is to pin() as drop() is to adopt().
  void pin(BlockId b);
  void unpin(BlockId b, StepId fence);
  /// Undo of pin(), like unadopt().
  void undo_pin(BlockId b, BlockState was, BlockId next);

  /// Step `step` and all before it have finished: expired fences fall, in the order in which they were set.
  void retire(StepId step);
  StepId retired() const { return retired_; }
  /// Fenced blocks whose content nobody can find: they hold nothing. Linear in the fenced blocks.
  std::int64_t fenced_empty() const;

  /// CHECKs invariants 1-4 from scratch.
  void check_integrity() const;

 private:
  struct List {
    BlockId head = kNoBlock, tail = kNoBlock;
    std::int64_t count = 0;
  };

  static std::size_t index(BlockState s) { return static_cast<std::size_t>(s); }
  static bool listed(BlockState s) {
    return s == BlockState::kBlank || s == BlockState::kCached || s == BlockState::kFenced;
  }
  Block& at(BlockId b) {
    CHECK(b >= 0 && b < size());
    return blocks_[static_cast<std::size_t>(b)];
  }
  void leave(BlockId b);                                // its list, and its state's count
  void enter(BlockId b, BlockState s, BlockId before);  // before = kNoBlock: at the end
  void settle(BlockId b);                               // no holder is left: Fenced, Cached or Blank

  std::vector<Block> blocks_;
  std::array<List, kNumBlockStates> lists_;
  StepId retired_{};
  std::uint64_t tick_ = 0;
};

}  // namespace barg::kv
