// ForwardBatch: what one step computes, as tensors. runtime/batch.cpp builds it from a StepPlan; the model
// only reads it. No ownership: everything points into memory that outlives the call.
#pragma once

#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "ops.h"

namespace barg::model {

/// What a group of layers keeps per token. Only the first two are implemented; the others are refused by name
/// when a model is loaded, and exist so that shapes do not change when they come.
enum class StateKind : std::uint8_t { kFullAttention, kSlidingWindow, kLatent, kRecurrent };

/// Layers whose KV is allocated, shared and freed together.
struct LayerGroup {
  StateKind kind = StateKind::kFullAttention;
  std::int32_t window = 0;  ///< tokens visible to a query including itself; 0 = all
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::vector<std::int32_t> layers;  ///< ascending decoder layer indices
};

/// KV of one group: one entry per layer of the group, same order as LayerGroup::layers.
struct GroupKv {
  std::vector<ops::KvLayerView> layers;
  std::vector<ops::Segment> segments;  ///< same rows in every group, block tables differ
  /// The rows of ForwardBatch::wanted as segments, row_begin counted among them.
  std::vector<ops::Segment> wanted_segments;
};

struct ForwardBatch {
  std::int32_t rows = 0;
  const std::int32_t* tokens = nullptr;     ///< [rows]
  const std::int32_t* positions = nullptr;  ///< [axes][rows]; axes = 1 for text
  std::int32_t axes = 1;
  std::vector<GroupKv> groups;  ///< index = group
  std::vector<std::int32_t> wanted;  ///< rows of which hidden states come out: ascending, maybe none
};

}  // namespace barg::model
