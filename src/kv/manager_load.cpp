// The loads of KvManager: blocks that a tier fills while their sequence waits or computes from the other end.
//
//   block:   0 1 2 3 | 4 5 | 6 7 8 9 10 11 | 12 ..
//            table    gap    load            rest of the prompt, computed afterwards
//
// The gap is computed (or empty). When the table has reached the load, the run of blocks that are there by
// then moves into the table; the rest stays.
#include <algorithm>

#include "base/check.h"
#include "kv/manager.h"

namespace barg::kv {

std::int32_t KvManager::table_blocks(const Tables& t) const {
  return (t.reserved + options_.block_tokens - 1) / options_.block_tokens;
}

bool KvManager::reserve_load(KvSeq s, const TokenView& log, std::int32_t first, std::int32_t last,
                             std::vector<LoadSlot>& out) {
  if (!active_) {
    Transaction txn(*this);
    if (!reserve_load(s, log, first, last, out)) return false;
    txn.commit();
    return true;
  }
  Tables& t = at(s);
  CHECK(t.holder >= 0 && !loading(s) && first < last && first >= table_blocks(t));
  CHECK(std::int64_t{last} * options_.block_tokens < log.size());
  for (std::int32_t g = 0; g < num_groups(); ++g) CHECK(last % interval(g) == 0);
  const std::size_t mark = undo_.size(), had = out.size();
  undo_.push_back({.kind = Undo::Kind::kLoad, .seq = s});
  Load& l = t.load;
  l.base = l.first = l.ready_to = first;
  l.last = l.ready_from = last;
  l.groups.resize(groups_.size());
  for (Load::Parts& parts : l.groups) parts.at.resize(idx(last - first));
  for (std::int32_t i = first; i < last; ++i) {
    for (std::int32_t g = 0; g < num_groups(); ++g) {
      if (!keeps(g, i) || i / interval(g) < first_needed(g, last * options_.block_tokens)) continue;
      const BlockId block = take_for(s, g, Undo::Kind::kLoadTake);
      if (block == kNoBlock) {
        rollback(mark);
        out.resize(had);
        return false;
      }
      part(l, g, i) = {block, PartState::kPending};
      out.push_back({i, g, block});
      ++l.groups[idx(g)].held;
      ++l.groups[idx(g)].pending;
    }
  }
  extend_runs(l);
  return true;
}

bool KvManager::there(const Load& l, std::int32_t index) const {
  return std::all_of(l.groups.begin(), l.groups.end(), [&](const Load::Parts& parts) {
    const PartState state = parts.at[idx(index - l.base)].state;
    return state == PartState::kReady || state == PartState::kUnneeded;
  });
}

bool KvManager::load_lost(KvSeq s, std::int32_t index) const {
  const Load& l = at(s).load;
  CHECK(index >= l.first && index < l.last);
  return std::any_of(l.groups.begin(), l.groups.end(), [&](const Load::Parts& parts) {
    return parts.at[idx(index - l.base)].state == PartState::kLost;
  });
}

std::int64_t KvManager::load_pending(KvSeq s) const {
  std::int64_t pending = 0;
  for (const Load::Parts& parts : at(s).load.groups) pending += parts.pending;
  return pending;
}

/// Both runs only grow here, so all calls for a load together are linear in it.
void KvManager::extend_runs(Load& l) const {
  while (l.ready_to < l.last && there(l, l.ready_to)) ++l.ready_to;
  while (l.ready_from > l.first && there(l, l.ready_from - 1)) --l.ready_from;
}

void KvManager::part_loaded(KvSeq s, std::int32_t index, std::int32_t group) {
  CHECK(!active_);
  Load& l = at(s).load;
  if (index < l.first || index >= l.last || part(l, group, index).state != PartState::kPending) return;
  part(l, group, index).state = PartState::kReady;
  --l.groups[idx(group)].pending;
  extend_runs(l);
}

void KvManager::part_failed(KvSeq s, std::int32_t index, std::int32_t group) {
  CHECK(!active_);
  Load& l = at(s).load;
  if (index < l.first || index >= l.last || part(l, group, index).state != PartState::kPending) return;
  lose_part(l, group, index);
}

void KvManager::lose_part(Load& l, std::int32_t g, std::int32_t index) {
  Part& p = part(l, g, index);
  l.groups[idx(g)].pending -= p.state == PartState::kPending ? 1 : 0;
  if (p.block != kNoBlock) {
    --l.groups[idx(g)].held;
    groups_[idx(g)].pool.drop(p.block, StepId{});  // no step has named it
  }
  p = {kNoBlock, PartState::kLost};
}

void KvManager::drop_load(KvSeq s, std::int32_t first, std::int32_t last) {
  CHECK(!active_);
  drop_range(at(s).load, first, last);
}

void KvManager::drop_range(Load& l, std::int32_t first, std::int32_t last) {
  first = std::max(first, l.first);
  last = std::min(last, l.last);
  if (first >= last) return;
  for (std::int32_t i = last; i-- > first;) {
    for (std::int32_t g = 0; g < num_groups(); ++g) lose_part(l, g, i);
  }
  if (first == l.first) {
    l.first = last;
    l.ready_to = std::max(l.ready_to, last);
    l.ready_from = std::max(l.ready_from, last);
  } else if (last == l.last) {
    l.last = first;
    l.ready_to = std::min(l.ready_to, first);
    l.ready_from = std::min(l.ready_from, first);
  } else {
    l.ready_to = std::min(l.ready_to, first);
    l.ready_from = std::max(l.ready_from, last);
  }
  if (l.first >= l.last) {
    l = {};
  } else {
    extend_runs(l);
  }
}

// ---- from the load into the table

/// The end of the longest run from the left that can serve queries behind it; l.first if there is none. What
/// windows read of the table is there. Of the load they have only the parts from the window of its end on: if
/// the longest run's window reaches before those, so does that of every shorter one.
std::int32_t KvManager::adoptable(const Load& l) const {
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    std::int32_t i = std::max(l.first, first_needed(g, l.ready_to * options_.block_tokens));
    if (recurrent(g)) i = l.ready_to - 1;  // a snapshot was loaded of the load's end alone
    if (i >= l.first && i < l.ready_to && part(l, g, i).state == PartState::kUnneeded) return l.first;
  }
  return l.ready_to;
}

std::int32_t KvManager::adopt_loaded(KvSeq s, const TokenView& log, std::int32_t computed, StepId fence) {
  Tables& t = at(s);
  Load& l = t.load;
  const std::int32_t b = options_.block_tokens;
  CHECK(!active_ && computed == t.reserved);
  if (!loading(s) || computed != l.first * b || t.sealed != l.first) return computed;
  const std::int32_t from = l.first, to = adoptable(l);
  if (to == from) return computed;
  for (std::int32_t g = 0; g < num_groups(); ++g) {
    recurrent(g) ? adopt_state(t, g, to, fence) : adopt_window(t, g, to, fence);
  }
  t.reserved = t.processed = to * b;
  l.first = to;
  if (l.first >= l.last) {
    l = {};
  } else {
    extend_runs(l);
  }
  seal_up_to(s, log, to, StepId{}, 1);  // no step writes these blocks; who loaded them is their first reader
  return to * b;
}

/// Blocks [load.first, to) of group g go from the load into the table.
void KvManager::adopt_window(Tables& t, std::int32_t g, std::int32_t to, StepId fence) {
  Load& l = t.load;
  Table& table = t.groups[idx(g)];
  leave_window(t, g, first_needed(g, to * options_.block_tokens), fence);
  for (std::int32_t i = l.first; i < to; ++i) {
    Part& p = part(l, g, i);
    l.groups[idx(g)].held -= p.block != kNoBlock ? 1 : 0;
    if (i < table.first && p.block != kNoBlock) {
      groups_[idx(g)].pool.drop(p.block, StepId{});
      p.block = kNoBlock;
    }
    table.blocks.push_back(p.block);
    p = {};
  }
}

/// The same of a recurrent group: the one snapshot takes the place of all states before it.
void KvManager::adopt_state(Tables& t, std::int32_t g, std::int32_t to, StepId fence) {
  Load& l = t.load;
  Table& table = t.groups[idx(g)];
  leave_window(t, g, static_cast<std::int32_t>(table.blocks.size()), fence);
  const std::int32_t blocks = to / interval(g);
  table.blocks.resize(idx(blocks), kNoBlock);
  table.first = blocks - 1;
  Part& p = part(l, g, to - 1);
  --l.groups[idx(g)].held;
  table.blocks.back() = p.block;
  p = {};
}

/// The table of `s` is about to jump: its blocks below `first` go, fenced, as steps in flight may read them.
void KvManager::leave_window(Tables& t, std::int32_t g, std::int32_t first, StepId fence) {
  Table& table = t.groups[idx(g)];
  const auto held = static_cast<std::int32_t>(table.blocks.size());
  for (; table.first < std::min(first, held); ++table.first) {
    BlockId& block = table.blocks[idx(table.first)];
    groups_[idx(g)].pool.drop(block, fence);
    block = kNoBlock;
  }
  table.first = std::max(table.first, first);
}

}  // namespace barg::kv
