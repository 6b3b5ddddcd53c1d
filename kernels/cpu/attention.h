// How an attention call is cut into work: the part without arithmetic, shared by the vector back ends.
//
// An item is some rows of one segment with some of its kv heads. A segment of few rows (decode) keeps its kv
// heads together, so that one walk over its blocks reads their memory in the order in which it lies; a
// segment of many rows is cut into chunks of rows and single kv heads. An item so long that a thread would
// wait for it is wide: any thread takes any of its splits, leaves the result in a slot, and the slots are
// folded in order afterwards. How a call is cut changes no bit: what a query computes depends on its own keys
// only.
//
// Thread rule: plan_attention on the thread that owns the stream; what it returns is read by all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/layout.h"

namespace barg::ops::cpu {

inline constexpr int kGroupKeys = 64;        ///< keys walked at a time: whole blocks of every size
inline constexpr int kMaxHeadQueries = 48;   ///< queries of an item on one kv head
inline constexpr int kMaxItemQueries = 96;   ///< queries of an item
inline constexpr int kMaxItemFloats = 8192;  ///< their accumulators
inline constexpr int kSlotHeader = 16;       ///< floats in front of a slot's accumulators: max, sum

struct AttentionItem {
  std::int32_t segment, row;  ///< first row, counted in the segment
  std::int32_t first_slot;    ///< wide items: queries of the wide items before this one
  std::uint16_t rows;         ///< 16 bits: a model file may have 65536 heads
  std::uint16_t kv_head, kv_heads;
  std::uint16_t head, heads;  ///< query heads of each kv head: the first, and how many

  int queries_per_head() const { return rows * heads; }
  int queries() const { return rows * heads * kv_heads; }
};

struct AttentionPlan {
  const AttentionItem* items;  ///< [0, wide) are wide; the others descend in cost
  std::int32_t wide, count;
  std::int32_t begin, end;  ///< keys of the wide items, begin at a split's edge
  std::int32_t splits;      ///< of a wide item in one round
  float* slots;
  std::int32_t rows;   ///< of the whole call
  bool worth_sharing;  ///< false: less work than waking the pool
};

/// First key that the row at `position` sees.
static constexpr std::int32_t first_key(const AttentionParams& p, std::int32_t position) {
  return p.window > 0 && position - p.window + 1 > 0 ? position - p.window + 1 : 0;
}

/// Last key that row `row` of a segment sees.
static constexpr std::int32_t last_key(const AttentionParams& p, const Segment& s, std::int32_t row) {
  return s.pos_begin + (p.causal ? row : s.row_count - 1);
}

/// Floats of a head in registers of 16.
static constexpr std::int32_t padded_dim(std::int32_t dim) { return (dim + 15) / 16 * 16; }

/// What acc is multiplied with in the end: 1 / sum, or with a sink s, of which m is the larger of it and max,
/// a = exp(max - m): a / fma(sum, a, exp(s - m)).
static inline float output_factor(const AttentionParams& p, std::int32_t head, float max, float sum) {
  if (p.sinks == nullptr) return 1.0f / sum;
  const float sink = p.sinks[head];
  const float m = sink > max ? sink : max;
  const float a = exp(max - m);
  return a / fma(sum, a, exp(sink - m));
}

AttentionPlan plan_attention(const AttentionParams& p, int threads);

}  // namespace barg::ops::cpu
