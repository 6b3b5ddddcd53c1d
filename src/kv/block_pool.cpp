#include "kv/block_pool.h"

#include <algorithm>

namespace barg::kv {
namespace {

constexpr std::uint8_t kMostReads = 3;
constexpr std::int64_t kSmallShare = 10;  // small is a tenth of what is cached
constexpr std::size_t kRecord = 1024;     // enough for most plans without allocating

}  // namespace

BlockPool::BlockPool(std::int64_t size, Eviction eviction) : eviction_(eviction) {
  CHECK(size >= 0 && size < (std::int64_t{1} << 31));
  blocks_.resize(static_cast<std::size_t>(size));
  record_.reserve(kRecord);
  for (BlockId b = 0; b < size; ++b) enter(b, BlockState::kBlank, kNoBlock);
}

BlockPool::List* BlockPool::list(const Block& x) {
  switch (x.state) {
    case BlockState::kBlank:
      return &blank_;
    case BlockState::kCached:
      return &queues_[static_cast<std::size_t>(x.queue)];
    case BlockState::kFenced:
      return &fenced_;
    case BlockState::kOpen:
    case BlockState::kSealed:
      break;
  }
  return nullptr;
}

void BlockPool::leave(BlockId b) {
  Block& x = at(b);
  --counts_[index(x.state)];
  List* l = list(x);
  if (l == nullptr) return;
  --l->count;
  if (x.seen) --l->seen;
  if (l->fresh == b) l->fresh = x.next;
  (x.prev == kNoBlock ? l->head : at(x.prev).next) = x.next;
  (x.next == kNoBlock ? l->tail : at(x.next).prev) = x.prev;
  x.prev = x.next = kNoBlock;
}

void BlockPool::enter(BlockId b, BlockState s, BlockId before) {
  Block& x = at(b);
  x.state = s;
  ++counts_[index(s)];
  List* l = list(x);
  if (l == nullptr) return;
  ++l->count;
  if (x.seen) {
    ++l->seen;
  } else if (l->fresh == before) {
    l->fresh = b;
  }
  x.next = before;
  x.prev = before == kNoBlock ? l->tail : at(before).prev;
  (x.prev == kNoBlock ? l->head : at(x.prev).next) = b;
  (x.next == kNoBlock ? l->tail : at(x.next).prev) = b;
}

void BlockPool::enqueue(BlockId b, Queue q) {
  Block& x = at(b);
  x.queue = q;
  x.seen = false;
  x.entered = ++tick_;
  enter(b, BlockState::kCached, kNoBlock);
}

// ---- who goes

bool BlockPool::small_is_due() const {
  const List& small = queues_[static_cast<std::size_t>(Queue::kSmall)];
  if (small.head == kNoBlock) return false;
  return head(Queue::kMain) == kNoBlock || small.count * kSmallShare > count(BlockState::kCached);
}

/// Moves blocks on until one may go. A block moves from small once, round main once per read, and from main
/// to inner once for every time that it came from small, from a user or from inner: the moves are paid for
/// by the releases.
BlockId BlockPool::victim() {
  while (true) {
    const Queue q = small_is_due() ? Queue::kSmall : Queue::kMain;
    const BlockId b = head(q);
    if (b == kNoBlock) return head(Queue::kInner);  // kNoBlock: nothing is cached
    Block& x = at(b);
    if (x.reads == 0 && x.children == 0) return b;
    record(b);
    leave(b);
    if (q == Queue::kSmall) {
      x.reads = 0;
      enqueue(b, Queue::kMain);
    } else if (x.reads > 0) {
      --x.reads;
      enqueue(b, Queue::kMain);
    } else {
      enqueue(b, Queue::kInner);
    }
  }
}

BlockId BlockPool::take() {
  BlockId b = blank_.head;
  if (b == kNoBlock) b = victim();
  if (b == kNoBlock) return kNoBlock;
  Block& x = at(b);
  CHECK(x.refs == 0 && x.pins == 0 && x.fence <= retired_);
  record(b);
  leave(b);
  x.seen = false;
  enter(b, BlockState::kOpen, kNoBlock);
  x.refs = 1;
  lose_parent(x);
  return b;
}

void BlockPool::lose_parent(Block& x) {
  const BlockId p = x.parent;
  if (p == kNoBlock) return;
  x.parent = kNoBlock;
  record(p);
  Block& parent = at(p);
  if (--parent.children > 0 || parent.state != BlockState::kCached || parent.queue != Queue::kInner) return;
  leave(p);
  parent.queue = Queue::kMain;  // at its head, which may have been seen
  const List& main = queue(Queue::kMain);
  parent.seen = main.head != kNoBlock && main.fresh != main.head;
  enter(p, BlockState::kCached, main.head);
}

BlockId BlockPool::cold(std::int64_t depth) {
  std::int64_t seen = queue(Queue::kSmall).seen + queue(Queue::kMain).seen;
  for (const Queue q : {Queue::kSmall, Queue::kMain}) {
    List& l = queue(q);
    while (l.fresh != kNoBlock && seen < depth) {
      const BlockId b = l.fresh;
      Block& x = at(b);
      x.seen = true;
      ++l.seen;
      l.fresh = x.next;
      ++seen;
      if (x.offered || x.reads > 0) continue;
      x.offered = true;
      return b;
    }
  }
  return kNoBlock;
}

// ---- holders

void BlockPool::adopt(BlockId b, bool counts) {
  Block& x = at(b);
  CHECK(x.node != kNoNode && x.state != BlockState::kBlank && x.state != BlockState::kOpen);
  record(b);
  if (x.state != BlockState::kSealed) {
    leave(b);
    if (x.queue == Queue::kInner) x.queue = Queue::kMain;
    enter(b, BlockState::kSealed, kNoBlock);
  }
  ++x.refs;
  if (!counts) return;
  ++x.uses;
  if (x.second == SecondUse::kNone) x.second = SecondUse::kRead;
  if (eviction_ == Eviction::kS3Fifo) x.reads = std::min<std::uint8_t>(x.reads + 1, kMostReads);
}

void BlockPool::seal(BlockId b, std::int32_t fill, StepId written) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kOpen && x.refs == 1);
  leave(b);
  enter(b, BlockState::kSealed, kNoBlock);
  x.fill = fill;
  x.written = written;
}

void BlockPool::set_fill(BlockId b, std::int32_t fill) {
  CHECK(at(b).state == BlockState::kOpen);
  at(b).fill = fill;
}

void BlockPool::publish(BlockId b, NodeId node, BlockId parent, Queue queue, std::int32_t uses) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kSealed && x.node == kNoNode && node != kNoNode);
  x.node = node;
  x.queue = eviction_ == Eviction::kLru ? Queue::kMain : queue;
  x.reads = 0;
  x.offered = false;
  x.second = SecondUse::kNone;
  x.uses = uses;
  x.parent = parent;
  if (parent != kNoBlock) ++at(parent).children;
}

void BlockPool::unpublish(BlockId b) {
  Block& x = at(b);
  CHECK(x.node != kNoNode && !recording_);
  x.node = kNoNode;
  lose_parent(x);
  if (x.state != BlockState::kCached) return;
  leave(b);
  x.fill = 0;
  x.seen = false;
  enter(b, BlockState::kBlank, kNoBlock);
}

void BlockPool::drop(BlockId b, StepId fence) {
  Block& x = at(b);
  CHECK((x.state == BlockState::kOpen || x.state == BlockState::kSealed) && x.refs > 0);
  if (fence > x.fence) x.fence = fence;
  if (--x.refs > 0 || x.pins > 0) return;
  settle(b);
}

void BlockPool::pin(BlockId b) {
  adopt(b, false);
  --at(b).refs;
  ++at(b).pins;
}

void BlockPool::unpin(BlockId b, StepId fence) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kSealed && x.pins > 0);
  if (fence > x.fence) x.fence = fence;
  if (--x.pins == 0 && x.refs == 0) settle(b);
}

void BlockPool::undo(std::size_t mark) {
  CHECK(recording_ && mark <= record_.size());
  while (record_.size() > mark) {
    const Before& r = record_.back();
    Block& x = at(r.id);
    leave(r.id);
    x = r.block;
    enter(r.id, x.state, r.block.next);
    record_.pop_back();
  }
}

std::int64_t BlockPool::fenced_empty() const {
  std::int64_t n = 0;
  for (BlockId b = fenced_.head; b != kNoBlock; b = (*this)[b].next) {
    n += (*this)[b].node == kNoNode ? 1 : 0;
  }
  return n;
}

void BlockPool::settle(BlockId b) {
  Block& x = at(b);
  leave(b);
  x.seen = false;
  if (x.fence > retired_) return enter(b, BlockState::kFenced, kNoBlock);
  if (x.node == kNoNode) {
    x.fill = 0;
    return enter(b, BlockState::kBlank, kNoBlock);
  }
  enqueue(b, x.queue);
}

void BlockPool::retire(StepId step) {
  if (step > retired_) retired_ = step;
  for (BlockId b = fenced_.head; b != kNoBlock;) {
    const BlockId next = at(b).next;
    if (at(b).fence <= retired_) settle(b);
    b = next;
  }
}

// ---- audit

void BlockPool::check_integrity() const {
  CHECK(!recording_ && record_.empty());
  std::array<std::int64_t, kNumBlockStates> counted{};
  std::vector<std::int32_t> children(blocks_.size());
  for (const Block& x : blocks_) {
    ++counted[index(x.state)];
    const bool owned = x.state == BlockState::kOpen || x.state == BlockState::kSealed;
    CHECK(x.refs >= 0 && x.pins >= 0 && (x.refs > 0 || x.pins > 0) == owned);
    CHECK(x.state != BlockState::kOpen || (x.refs == 1 && x.pins == 0 && x.node == kNoNode));
    CHECK(x.state != BlockState::kBlank || (x.node == kNoNode && x.fill == 0));
    CHECK(x.state != BlockState::kCached || x.node != kNoNode);
    CHECK((x.state == BlockState::kFenced) <= (x.fence > retired_));
    CHECK((x.state != BlockState::kBlank && x.state != BlockState::kCached) || x.fence <= retired_);
    CHECK(x.state != BlockState::kCached || x.written <= retired_);
    CHECK(x.queue != Queue::kInner || x.state == BlockState::kCached);
    CHECK(x.reads <= kMostReads && (eviction_ == Eviction::kS3Fifo || x.reads == 0));
    CHECK(x.parent == kNoBlock || (x.node != kNoNode && (*this)[x.parent].node != kNoNode));
    if (x.parent != kNoBlock) ++children[static_cast<std::size_t>(x.parent)];
  }
  for (BlockId b = 0; b < size(); ++b) CHECK((*this)[b].children == children[static_cast<std::size_t>(b)]);
  CHECK(counted == counts_);
  check_lists();
}

void BlockPool::check_lists() const {
  std::int64_t listed = 0;
  for (const List* l : {&blank_, &fenced_, &queues_[0], &queues_[1], &queues_[2]}) {
    BlockId prev = kNoBlock;
    std::int64_t walked = 0;
    const Block* first = l->head == kNoBlock ? nullptr : &(*this)[l->head];
    for (BlockId b = l->head; b != kNoBlock; b = (*this)[b].next) {
      const Block& x = (*this)[b];
      CHECK(x.state == first->state && x.prev == prev && ++walked <= l->count);
      prev = b;
    }
    CHECK(walked == l->count && l->tail == prev);
    listed += walked;
  }
  CHECK(listed == count(BlockState::kBlank) + count(BlockState::kCached) + count(BlockState::kFenced));
  for (const List& l : queues_) check_queue(l);
}

void BlockPool::check_queue(const List& l) const {
  const auto q = static_cast<Queue>(&l - queues_.data());
  const bool lru = eviction_ == Eviction::kLru;
  CHECK(!lru || q == Queue::kMain || l.count == 0);
  BlockId fresh = kNoBlock;
  std::int64_t seen = 0;
  std::uint64_t entered = 0;
  for (BlockId b = l.head; b != kNoBlock; b = (*this)[b].next) {
    const Block& x = (*this)[b];
    CHECK(x.queue == q && x.state == BlockState::kCached);
    CHECK(x.entered > entered || (q == Queue::kMain && !lru));
    CHECK(q != Queue::kInner || x.children > 0);
    entered = x.entered;
    if (!x.seen && fresh == kNoBlock) fresh = b;
    CHECK(!x.seen || fresh == kNoBlock);
    seen += x.seen ? 1 : 0;
  }
  CHECK(fresh == l.fresh && seen == l.seen);
}

}  // namespace barg::kv
