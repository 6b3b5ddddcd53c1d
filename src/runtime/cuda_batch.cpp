#include "runtime/cuda_batch.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/attention_plan.h"

namespace barg::runtime {
namespace {

/// Blocks of attention that run at a time on a multiprocessor.
constexpr std::int32_t kAttentionBlocks = 2;

}  // namespace

bool CudaBatch::decodes(const model::ForwardBatch& built, const sched::StepPlan& plan) {
  return std::all_of(plan.items.begin(), plan.items.end(), [](const auto& item) { return item.count == 1; }) &&
         std::cmp_equal(built.wanted.size(), built.rows);
}

/// A copy of `from` with empty segments behind it up to `count`, which begin behind the last of `rows`.
std::span<const ops::Segment> CudaBatch::segments(std::span<const ops::Segment> from, std::size_t count,
                                                  std::int32_t rows, StagedMemory& memory) {
  const std::span<ops::Segment> to = memory.take<ops::Segment>(count);
  if (to.empty()) return {};
  std::copy(from.begin(), from.end(), to.begin());
  std::fill(to.begin() + static_cast<std::ptrdiff_t>(from.size()), to.end(),
            ops::Segment{.row_begin = rows, .row_count = 0, .pos_begin = 0, .block_table = nullptr});
  return to;
}

void CudaBatch::plan(std::size_t group, std::span<const ops::Segment> of, bool bucket, StagedMemory& memory) {
  const model::LayerGroup& g = shape_.groups[group];
  const std::int32_t queries = shape_.num_q_heads / g.num_kv_heads;
  const std::int32_t narrow = cuda::attention_queries(shape_.kv_dtype, g.head_dim, false);
  const bool wide =
      std::any_of(of.begin(), of.end(), [&](const ops::Segment& s) { return s.row_count * queries > narrow; });
  const std::int32_t workers = shape_.workers * kAttentionBlocks;
  cuda::plan_attention({.segments = of.data(),
                        .num_segments = static_cast<std::int32_t>(of.size()),
                        .queries = wide ? cuda::attention_queries(shape_.kv_dtype, g.head_dim, true) : narrow,
                        .group = queries,
                        .num_kv_heads = g.num_kv_heads,
                        .head_dim = g.head_dim,
                        .window = g.window,
                        .workers = workers,
                        .max_slot_floats = shape_.slot_floats},
                       plan_);
  // What plan_attention() can make of a bucket: about four items a worker, or one for each row and head.
  const std::size_t most = static_cast<std::size_t>(8) * static_cast<std::size_t>(workers) +
                           of.size() * static_cast<std::size_t>(g.num_kv_heads);
  const std::size_t room = bucket ? most : std::max<std::size_t>(plan_.items.size(), 1);
  CHECK(plan_.items.size() <= room);
  const std::span<std::int32_t> count = memory.take<std::int32_t>(1);
  const std::span<cuda::AttentionItem> items = memory.take<cuda::AttentionItem>(room);
  if (count.empty() || items.empty()) return;
  count[0] = static_cast<std::int32_t>(plan_.items.size());
  std::copy(plan_.items.begin(), plan_.items.end(), items.begin());
  attention_.push_back({.segments = of.data(),
                        .items = memory.on_device(items.data()),
                        .num_items = memory.on_device(count.data()),
                        .wide = wide,
                        .grid = bucket ? workers : std::min(workers, static_cast<std::int32_t>(room))});
}

const model::ForwardBatch& CudaBatch::stage(const model::ForwardBatch& built, const sched::StepPlan& plan_of,
                                            std::int32_t rows, StagedMemory& memory) {
  const bool bucket = rows > 0;
  if (!bucket) rows = built.rows;
  const auto count = static_cast<std::size_t>(rows);
  const auto copy = [&](const std::int32_t* from, std::size_t n, std::size_t all) {
    const std::span<std::int32_t> to = memory.take<std::int32_t>(all);
    if (to.empty()) return to;
    std::copy_n(from, n, to.begin());
    std::fill(to.begin() + static_cast<std::ptrdiff_t>(n), to.end(), 0);
    return to;
  };
  const auto there = static_cast<std::size_t>(built.rows);
  batch_.rows = rows;
  batch_.tokens = copy(built.tokens, there, count).data();
  batch_.positions = copy(built.positions, there, count).data();
  batch_.axes = 1;
  const std::span<std::int32_t> wanted = memory.take<std::int32_t>(bucket ? count : built.wanted.size());
  if (memory.full()) return batch_;
  std::copy(built.wanted.begin(), built.wanted.end(), wanted.begin());
  for (std::size_t i = built.wanted.size(); i < wanted.size(); ++i) wanted[i] = static_cast<std::int32_t>(i);
  batch_.wanted = wanted;
  samples_ = memory.take<cuda::SampleRow>(wanted.size());
  attention_.clear();
  batch_.groups.resize(built.groups.size());
  for (std::size_t g = 0; g < built.groups.size(); ++g) {
    const model::GroupKv& from = built.groups[g];
    model::GroupKv& to = batch_.groups[g];
    to.layers = from.layers;
    to.segments = segments(from.segments, bucket ? count : from.segments.size(), rows, memory);
    // In a bucket the wanted rows are all rows, in their order.
    to.wanted_segments = bucket || from.wanted_segments.empty()
                             ? to.segments.first(bucket ? count : 0)
                             : segments(from.wanted_segments, from.wanted_segments.size(), rows, memory);
    if (memory.full()) return batch_;
    plan(g, to.segments, bucket, memory);
    if (!bucket && !to.wanted_segments.empty()) plan(g, to.wanted_segments, false, memory);
  }
  // Behind all that lies at fixed places: the tables.
  const BlockId* const tables = memory.put(std::span<const BlockId>(plan_of.block_ids));
  const auto point = [&](std::span<const ops::Segment> of) {
    for (const ops::Segment& s : of) {
      if (s.block_table == nullptr) continue;
      const_cast<ops::Segment&>(s).block_table = tables + (s.block_table - plan_of.block_ids.data());
    }
  };
  if (memory.full()) return batch_;
  for (const model::GroupKv& g : batch_.groups) {
    point(g.segments);
    if (g.wanted_segments.data() != g.segments.data()) point(g.wanted_segments);
  }
  return batch_;
}

}  // namespace barg::runtime
