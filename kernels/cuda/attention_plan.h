// The work list of an attention launch: which block takes which queries and which splits of their keys. Host only, pure,
// any thread. How the work is cut changes no bit of the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/attention.cuh"

namespace barg::cuda {

struct AttentionPlanParams {
  const ops::Segment* segments;  ///< their block tables are not read
  std::int32_t num_segments;
  std::int32_t queries;  ///< of a block: AttentionShape::kQueries
  std::int32_t group, num_kv_heads, head_dim, window;
  std::int32_t workers;          ///< blocks that run at a time; launch as many, or fewer
  std::int64_t max_slot_floats;  ///< memory of AttentionArgs::slots, at most 2^33
};

struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::int32_t counters = 0;
  std::int64_t slot_floats = 0;
};

/// Replaces what `plan` holds; its memory is used again. With few queries and many keys a query's splits are shared out,
/// so that there are about four items a worker; where the slots do not suffice one block takes them all.
inline void plan_attention(const AttentionPlanParams& p, AttentionPlan& plan) {
  plan.items.clear();
  plan.counters = 0;
  plan.slot_floats = 0;
  struct Splits {
    std::int32_t first, count;
  };
  const auto splits_of = [&](const ops::Segment& s, std::int32_t query, std::int32_t queries) {
    const std::int32_t first = s.pos_begin + query / p.group - p.window + 1;
    const std::int32_t last = s.pos_begin + (query + queries - 1) / p.group;
    const std::int32_t begin = p.window > 0 && first > 0 ? first / kSplitKeys : 0;
    return Splits{begin, last / kSplitKeys - begin + 1};
  };
  // f(segment's number, first query, queries), late rows first: they cost most.
  const auto for_each_tile = [&](const auto& f) {
    for (std::int32_t i = 0; i < p.num_segments; ++i) {
      const std::int32_t all = p.segments[i].row_count * p.group;
      for (std::int32_t query = (all - 1) / p.queries * p.queries; all > 0 && query >= 0; query -= p.queries) {
        f(i, query, std::min(p.queries, all - query));
      }
    }
  };
  std::int64_t total = 0;
  for_each_tile([&](std::int32_t i, std::int32_t query, std::int32_t queries) {
    total += std::int64_t{splits_of(p.segments[i], query, queries).count} * p.num_kv_heads;
  });
  const auto share = static_cast<std::int32_t>(std::max<std::int64_t>(1, total / (std::int64_t{4} * p.workers)));
  for_each_tile([&](std::int32_t i, std::int32_t query, std::int32_t queries) {
    const Splits splits = splits_of(p.segments[i], query, queries);
    const std::int64_t floats = std::int64_t{splits.count} * attention_slot_floats(queries, p.head_dim);
    for (std::int32_t head = 0; head < p.num_kv_heads; ++head) {
      std::int32_t parts = (splits.count + share - 1) / share;
      if (plan.slot_floats + floats > p.max_slot_floats) parts = 1;
      for (std::int32_t part = 0; part < parts; ++part) {
        const auto edge = [&](std::int32_t n) {
          return splits.first + static_cast<std::int32_t>(std::int64_t{splits.count} * n / parts);
        };
        plan.items.push_back({.segment = i,
                              .query = query,
                              .kv_head = head,
                              .split = edge(part),
                              .split_end = edge(part + 1),
                              .parts = parts,
                              .slot = static_cast<std::int32_t>(plan.slot_floats / 8),
                              .counter = plan.counters});
      }
      if (parts == 1) continue;
      plan.slot_floats += floats;
      ++plan.counters;
    }
  });
}

/// f.operator()<Shape>() with the AttentionShape of a KV type and head size that fits so much shared memory of a block; false:
/// there is no kernel for it.
template <class F>
bool with_attention_shape(KvType kv, std::int32_t head_dim, bool wide, std::size_t block_shared_bytes, const F& f) {
  const auto fitting = [&]<class S>() {
    if (S::kSharedBytes <= block_shared_bytes) {
      f.template operator()<S>();
      return true;
    }
    if constexpr (S::kSharedBytes > kLeastBlockShared) {
      static_assert(InOnePlace<S>::kSharedBytes <= kLeastBlockShared);
      if (InOnePlace<S>::kSharedBytes > block_shared_bytes) return false;
      f.template operator()<InOnePlace<S>>();
      return true;
    }
    return false;
  };
  const auto sized = [&]<KvType kKv, int kDim>() {
    return wide ? fitting.template operator()<WideAttention<kKv, kDim>>()
                : fitting.template operator()<NarrowAttention<kKv, kDim>>();
  };
  const auto typed = [&]<KvType kKv>() {
    switch (head_dim) {
      case 64: return sized.template operator()<kKv, 64>();
      case 96: return sized.template operator()<kKv, 96>();
      case 128: return sized.template operator()<kKv, 128>();
      case 256: return sized.template operator()<kKv, 256>();
      default: return false;
    }
  };
  switch (kv) {
    case KvType::kF16: return typed.template operator()<KvType::kF16>();
    case KvType::kBF16: return typed.template operator()<KvType::kBF16>();
    case KvType::kFp8: return typed.template operator()<KvType::kFp8>();
  }
  return false;
}

}  // namespace barg::cuda
