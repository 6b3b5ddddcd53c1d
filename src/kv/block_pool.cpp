#include "kv/block_pool.h"

namespace barg::kv {

BlockPool::BlockPool(std::int64_t size) {
  CHECK(size >= 0 && size < (std::int64_t{1} << 31));
  blocks_.resize(static_cast<std::size_t>(size));
  lists_[index(BlockState::kBlank)].count = 0;
  for (BlockId b = 0; b < size; ++b) enter(b, BlockState::kBlank, kNoBlock);
}

void BlockPool::leave(BlockId b) {
  Block& x = at(b);
  List& list = lists_[index(x.state)];
  --list.count;
  if (!listed(x.state)) return;
  (x.prev == kNoBlock ? list.head : at(x.prev).next) = x.next;
  (x.next == kNoBlock ? list.tail : at(x.next).prev) = x.prev;
  x.prev = x.next = kNoBlock;
}

void BlockPool::enter(BlockId b, BlockState s, BlockId before) {
  Block& x = at(b);
  List& list = lists_[index(s)];
  x.state = s;
  ++list.count;
  if (!listed(s)) return;
  x.next = before;
  x.prev = before == kNoBlock ? list.tail : at(before).prev;
  (x.prev == kNoBlock ? list.head : at(x.prev).next) = b;
  (x.next == kNoBlock ? list.tail : at(x.next).prev) = b;
}

BlockId BlockPool::take() {
  BlockId b = lists_[index(BlockState::kBlank)].head;
  if (b == kNoBlock) b = least_recent();
  if (b == kNoBlock) return kNoBlock;
  Block& x = at(b);
  CHECK(x.refs == 0 && x.pins == 0 && x.fence <= retired_);
  leave(b);
  enter(b, BlockState::kOpen, kNoBlock);
  x.refs = 1;
  return b;
}

void BlockPool::untake(BlockId b, BlockState was) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kOpen && x.refs == 1);
  CHECK(was == BlockState::kBlank || (was == BlockState::kCached && x.node != kNoNode));
  leave(b);
  x.refs = 0;
  enter(b, was, lists_[index(was)].head);
}

void BlockPool::adopt(BlockId b) {
  Block& x = at(b);
  CHECK(x.node != kNoNode && x.state != BlockState::kBlank && x.state != BlockState::kOpen);
  if (x.state != BlockState::kSealed) {
    leave(b);
    enter(b, BlockState::kSealed, kNoBlock);
  }
  ++x.refs;
}

void BlockPool::unadopt(BlockId b, BlockState was, BlockId next) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kSealed && x.refs > 0);
  if (--x.refs > 0 || x.pins > 0) return;
  CHECK(was == BlockState::kCached || was == BlockState::kFenced);
  leave(b);
  enter(b, was, next);
}

void BlockPool::seal(BlockId b, std::int32_t fill) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kOpen && x.refs == 1);
  leave(b);
  enter(b, BlockState::kSealed, kNoBlock);
  x.fill = fill;
}

void BlockPool::set_fill(BlockId b, std::int32_t fill) {
  CHECK(at(b).state == BlockState::kOpen);
  at(b).fill = fill;
}

void BlockPool::set_node(BlockId b, NodeId node) {
  Block& x = at(b);
  CHECK(node == kNoNode || x.state == BlockState::kSealed);
  x.node = node;
  if (node != kNoNode || x.state != BlockState::kCached) return;
  leave(b);
  x.fill = 0;
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
  adopt(b);
  --at(b).refs;
  ++at(b).pins;
}

void BlockPool::unpin(BlockId b, StepId fence) {
  Block& x = at(b);
  CHECK(x.state == BlockState::kSealed && x.pins > 0);
  if (fence > x.fence) x.fence = fence;
  if (--x.pins == 0 && x.refs == 0) settle(b);
}

void BlockPool::undo_pin(BlockId b, BlockState was, BlockId next) {
  --at(b).pins;
  ++at(b).refs;
  unadopt(b, was, next);
}

std::int64_t BlockPool::fenced_empty() const {
  std::int64_t n = 0;
  for (BlockId b = lists_[index(BlockState::kFenced)].head; b != kNoBlock; b = (*this)[b].next) {
    n += (*this)[b].node == kNoNode ? 1 : 0;
  }
  return n;
}

void BlockPool::settle(BlockId b) {
  Block& x = at(b);
  leave(b);
  if (x.fence > retired_) return enter(b, BlockState::kFenced, kNoBlock);
  if (x.node == kNoNode) {
    x.fill = 0;
    return enter(b, BlockState::kBlank, kNoBlock);
  }
  x.released = ++tick_;
  enter(b, BlockState::kCached, kNoBlock);
}

void BlockPool::retire(StepId step) {
  if (step > retired_) retired_ = step;
  for (BlockId b = lists_[index(BlockState::kFenced)].head; b != kNoBlock;) {
    const BlockId next = at(b).next;
    if (at(b).fence <= retired_) settle(b);
    b = next;
  }
}

void BlockPool::check_integrity() const {
  std::array<std::int64_t, kNumBlockStates> counted{};
  for (const Block& x : blocks_) {
    ++counted[index(x.state)];
    const bool owned = x.state == BlockState::kOpen || x.state == BlockState::kSealed;
    CHECK(x.refs >= 0 && x.pins >= 0 && (x.refs > 0 || x.pins > 0) == owned);
    CHECK(x.state != BlockState::kOpen || (x.refs == 1 && x.pins == 0));
    CHECK(x.state != BlockState::kBlank || (x.node == kNoNode && x.fill == 0));
    CHECK(x.state != BlockState::kCached || x.node != kNoNode);
    CHECK((x.state == BlockState::kFenced) <= (x.fence > retired_));
    CHECK((x.state != BlockState::kBlank && x.state != BlockState::kCached) || x.fence <= retired_);
  }
  std::int64_t total = 0;
  for (std::size_t s = 0; s < kNumBlockStates; ++s) {
    const auto state = static_cast<BlockState>(s);
    CHECK(counted[s] == count(state));
    total += counted[s];
    if (!listed(state)) continue;
    std::int64_t walked = 0;
    BlockId prev = kNoBlock;
    std::uint64_t released = 0;
    for (BlockId b = lists_[s].head; b != kNoBlock; b = (*this)[b].next) {
      CHECK((*this)[b].state == state && (*this)[b].prev == prev && ++walked <= counted[s]);
      if (state == BlockState::kCached) CHECK((*this)[b].released > released);
      released = (*this)[b].released;
      prev = b;
    }
    CHECK(walked == counted[s] && lists_[s].tail == prev);
  }
  CHECK(total == size());
}

}  // namespace barg::kv
