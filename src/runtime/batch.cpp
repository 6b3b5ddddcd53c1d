#include "runtime/batch.h"

#include <algorithm>

#include "base/check.h"

namespace barg::runtime {
namespace {

/// Every block that the item's rows write, and every state that they begin with, is a block of the arena.
void check_table(const sched::PlanItem& item, const sched::TableSlice& slice, const sched::StepPlan& plan,
                 const KvMemory& kv, std::size_t group) {
  const std::int32_t tokens = kv.block_tokens(group);
  // A state is read before it is written: from the block of the token before.
  const std::int32_t first = (kv.states(group).empty() ? item.start : std::max(0, item.start - 1)) / tokens;
  const std::int32_t last = (item.start + item.count - 1) / tokens;
  CHECK(slice.length > last);
  CHECK(static_cast<std::size_t>(slice.offset) + static_cast<std::size_t>(slice.length) <=
        plan.block_ids.size());
  for (std::int32_t b = first; b <= last; ++b) {
    const BlockId id = plan.block_ids[static_cast<std::size_t>(slice.offset + b)];
    CHECK(id >= 0 && id < kv.num_blocks(group));
  }
}

}  // namespace

void BatchBuilder::add_item(const sched::StepPlan& plan, std::size_t index, TokenId last_token,
                            const KvMemory& kv) {
  const auto& item = plan.items[index];
  CHECK(item.count > 0 && item.start >= 0);
  const auto row_begin = static_cast<std::int32_t>(tokens_.size());
  for (std::int32_t i = 0; i < item.count; ++i) {
    const TokenId token = plan.tokens[static_cast<std::size_t>(item.token_offset + i)];
    tokens_.push_back(token == sched::kPendingToken ? last_token : token);
    positions_.push_back(item.start + i);
  }
  for (std::size_t g = 0; g < kv.num_groups(); ++g) {
    const auto& slice = plan.tables[static_cast<std::size_t>(item.table_offset) + g];
    check_table(item, slice, plan, kv, g);
    segments_[g].all.push_back(ops::Segment{.row_begin = row_begin,
                                                     .row_count = item.count,
                                                     .pos_begin = item.start,
                                                     .block_table = plan.block_ids.data() + slice.offset});
  }
  if (item.want == sched::Want::kNothing) return;
  const auto first_wanted = static_cast<std::int32_t>(wanted_.size());
  for (Segments& group : segments_) {
    ops::Segment wanted = group.all.back();
    wanted.row_begin = first_wanted;
    wanted.row_count = item.count - item.logits_begin;
    wanted.pos_begin = item.start + item.logits_begin;
    group.wanted.push_back(wanted);
  }
  for (std::int32_t i = item.logits_begin; i < item.count; ++i) {
    wanted_.push_back(row_begin + i);
    logits_rows_.push_back(LogitsRow{.item = static_cast<std::int32_t>(index),
                                     .position = item.start + i,
                                     .sample = item.sample && i == item.count - 1});
  }
}

const model::ForwardBatch& BatchBuilder::build(const sched::StepPlan& plan,
                                               std::span<const TokenId> last_tokens, const KvMemory& kv) {
  CHECK(last_tokens.size() == plan.items.size());
  CHECK(static_cast<std::size_t>(plan.num_groups) == kv.num_groups());
  tokens_.clear();
  positions_.clear();
  logits_rows_.clear();
  if (batch_.groups.size() != kv.num_groups()) {
    batch_.groups.assign(kv.num_groups(), {});
    segments_.resize(kv.num_groups());
    for (std::size_t g = 0; g < kv.num_groups(); ++g) {
      batch_.groups[g].layers = kv.layers(g);
      batch_.groups[g].states = kv.states(g);
    }
  }
  wanted_.clear();
  for (Segments& group : segments_) {
    group.all.clear();
    group.wanted.clear();
  }
  for (std::size_t i = 0; i < plan.items.size(); ++i) add_item(plan, i, last_tokens[i], kv);
  batch_.rows = static_cast<std::int32_t>(tokens_.size());
  batch_.tokens = tokens_.data();
  batch_.positions = positions_.data();
  batch_.axes = 1;
  batch_.wanted = wanted_;
  for (std::size_t g = 0; g < segments_.size(); ++g) {
    batch_.groups[g].segments = segments_[g].all;
    batch_.groups[g].wanted_segments = segments_[g].wanted;
  }
  return batch_;
}

void copy_blocks(const sched::StepPlan& plan, const KvMemory& kv, const ops::OpTable& ops,
                 ops::Stream& stream) {
  for (const auto& copy : plan.copies) {
    const auto group = static_cast<std::size_t>(copy.group);
    CHECK(group < kv.num_groups());
    CHECK(copy.src >= 0 && copy.src < kv.num_blocks(group) && copy.dst >= 0 &&
          copy.dst < kv.num_blocks(group));
    // Whole blocks: what lies behind copy.tokens is overwritten before anything reads it. One at a time,
    // because a block may be the target of one copy and the source of the next.
    ops.copy_blocks(stream, ops::BlockCopyParams{.base = kv.base(group),
                                                 .block_stride = kv.block_stride(group),
                                                 .src = &copy.src,
                                                 .dst = &copy.dst,
                                                 .count = 1});
  }
}

}  // namespace barg::runtime
