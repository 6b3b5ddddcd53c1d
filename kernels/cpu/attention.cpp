#include "cpu/attention.h"

namespace barg::ops::cpu {
namespace {

constexpr std::int32_t kSlotRows = 64;       // slots of the workspace, in rows of all query heads
constexpr std::int32_t kFlatQueries = 8;     // a kv head with more queries is worth an item of its own
constexpr std::int64_t kReadCost = 8;        // bringing a key in costs as much as this many queries on it
constexpr std::int64_t kShareCost = 200000;  // some microseconds
constexpr std::int32_t kWide = -1;

std::int32_t min_of(std::int32_t a, std::int32_t b) { return b < a ? b : a; }
std::int32_t max_of(std::int32_t a, std::int32_t b) { return b < a ? a : b; }

std::size_t classes_bytes(std::int32_t rows) { return align64(std::size_t{4} * rows); }
std::size_t items_bytes(std::int32_t rows, std::int32_t num_q_heads) {
  return align64(sizeof(AttentionItem) * rows * num_q_heads);
}

/// The shape of a segment's items.
struct Shape {
  std::int32_t rows, heads, kv_heads;
  std::int64_t cost;    ///< of the most expensive item
  std::int32_t splits;  ///< of that item
};

class Planner {
 public:
  Planner(const AttentionParams& p, int threads)
      : p_(p),
        threads_(threads),
        group_(p.num_q_heads / p.kv.num_kv_heads),
        width_(padded_dim(p.kv.head_dim)) {
    for (std::int32_t i = 0; i < p.num_segments; ++i) {
      rows_ += p.segments[i].row_count;
      longest_ = max_of(longest_, p.segments[i].pos_begin + p.segments[i].row_count);
    }
    auto* memory = static_cast<std::byte*>(p.workspace);
    classes_ = reinterpret_cast<std::int32_t*>(memory);
    items_ = reinterpret_cast<AttentionItem*>(memory + classes_bytes(rows_));
    slots_ = reinterpret_cast<float*>(memory + classes_bytes(rows_) + items_bytes(rows_, p.num_q_heads));
    // With few and short segments, kv heads are all there is to share.
    const std::int32_t plenty = 4 * threads;
    together_ = threads == 1 || p.num_segments >= plenty || longest_ >= plenty * kSplitKeys;
  }

  AttentionPlan plan() {
    std::int64_t total = 0;
    for (std::int32_t i = 0; i < p_.num_segments; ++i) total += segment_cost(p_.segments[i]);
    AttentionPlan plan{};
    plan.items = items_;
    plan.slots = slots_;
    plan.rows = rows_;
    plan.begin = longest_;
    plan.worth_sharing = total >= kShareCost;
    std::int32_t wide_queries = 0;
    for (std::int32_t i = 0; i < p_.num_segments; ++i) {
      const Shape shape = shape_of(p_.segments[i]);
      const std::int32_t queries = p_.segments[i].row_count * p_.num_q_heads;
      const bool fits = 3 * (wide_queries + queries) <= kSlotRows * p_.num_q_heads;
      if (threads_ > 1 && shape.splits > 1 && fits && shape.cost * 8 * threads_ > total) {
        classes_[i] = kWide;
        emit(i, shape, wide_queries);
        wide_queries += queries;
        const std::int32_t first = first_key(p_, p_.segments[i].pos_begin);
        plan.begin = min_of(plan.begin, first / kSplitKeys * kSplitKeys);
        plan.end = max_of(plan.end, p_.segments[i].pos_begin + p_.segments[i].row_count);
      } else {
        classes_[i] = 63 - __builtin_clzll(static_cast<unsigned long long>(shape.cost | 1));
      }
    }
    plan.wide = count_;
    if (wide_queries > 0) plan.splits = kSlotRows * p_.num_q_heads / wide_queries - 1;
    emit_descending();
    plan.count = count_;
    return plan;
  }

 private:
  /// Cost of `rows` rows up to position `last` with `heads` query heads on each of `kv_heads`.
  std::int64_t cost(std::int32_t last, std::int32_t rows, std::int32_t heads, std::int32_t kv_heads) const {
    const std::int64_t keys = last + 1 - first_key(p_, last + 1 - rows);
    return keys * kv_heads * (kReadCost + rows * heads) * width_;
  }

  std::int64_t segment_cost(const Segment& s) const {
    const std::int32_t middle = s.pos_begin + s.row_count / 2;
    const Shape shape = shape_of(s);
    const std::int64_t chunks = (s.row_count + shape.rows - 1) / shape.rows;
    return chunks * cost(middle, min_of(shape.rows, middle + 1), group_, p_.kv.num_kv_heads);
  }

  Shape shape_of(const Segment& s) const {
    Shape shape{};
    const std::int32_t most = min_of(kMaxHeadQueries, kMaxItemFloats / width_);
    shape.heads = min_of(group_, most);
    shape.rows = min_of(s.row_count, most / shape.heads);
    const std::int32_t queries = shape.rows * shape.heads;
    shape.kv_heads = 1;
    if (together_ && s.row_count * shape.heads <= kFlatQueries) {
      const std::int32_t fit = min_of(kMaxItemQueries / queries, kMaxItemFloats / (queries * width_));
      shape.kv_heads = min_of(p_.kv.num_kv_heads, fit);
    }
    const std::int32_t last = s.pos_begin + s.row_count - 1;
    shape.cost = cost(last, shape.rows, shape.heads, shape.kv_heads);
    shape.splits = last / kSplitKeys - first_key(p_, last + 1 - shape.rows) / kSplitKeys + 1;
    return shape;
  }

  /// All items of a segment, the late rows first: they cost most.
  void emit(std::int32_t segment, const Shape& shape, std::int32_t first_slot) {
    const std::int32_t rows = p_.segments[segment].row_count;
    for (std::int32_t row = (rows - 1) / shape.rows * shape.rows; row >= 0; row -= shape.rows) {
      for (std::int32_t kv = 0; kv < p_.kv.num_kv_heads; kv += shape.kv_heads) {
        for (std::int32_t head = 0; head < group_; head += shape.heads) {
          AttentionItem& item = items_[count_++];
          item.segment = segment;
          item.row = row;
          item.first_slot = first_slot;
          item.rows = static_cast<std::uint16_t>(min_of(shape.rows, rows - row));
          item.kv_head = static_cast<std::uint16_t>(kv);
          item.kv_heads = static_cast<std::uint16_t>(min_of(shape.kv_heads, p_.kv.num_kv_heads - kv));
          item.head = static_cast<std::uint16_t>(head);
          item.heads = static_cast<std::uint16_t>(min_of(shape.heads, group_ - head));
          first_slot += item.queries();
        }
      }
    }
  }

  /// Segments by falling power of two of their cost: a long item that starts last would be waited for.
  void emit_descending() {
    std::int32_t next = 63;
    while (next >= 0) {
      std::int32_t below = kWide;
      for (std::int32_t i = 0; i < p_.num_segments; ++i) {
        if (classes_[i] == next) emit(i, shape_of(p_.segments[i]), 0);
        if (classes_[i] < next) below = max_of(below, classes_[i]);
      }
      next = below;
    }
  }

  const AttentionParams& p_;
  int threads_;
  std::int32_t group_, width_;
  std::int32_t rows_ = 0;
  std::int32_t longest_ = 0;
  bool together_ = false;
  std::int32_t* classes_;  ///< [segments] floor(log2(cost)), or kWide
  AttentionItem* items_;
  float* slots_;
  std::int32_t count_ = 0;
};

}  // namespace

AttentionPlan plan_attention(const AttentionParams& p, int threads) { return Planner(p, threads).plan(); }

std::size_t attention_workspace_bytes(std::int32_t rows, std::int32_t num_q_heads, std::int32_t head_dim) {
  const std::size_t slot = static_cast<std::size_t>(padded_dim(head_dim)) + kSlotHeader;
  return classes_bytes(rows) + items_bytes(rows, num_q_heads) +
         align64(sizeof(float) * kSlotRows * num_q_heads * slot);
}

}  // namespace barg::ops::cpu
