// ForwardBatch: what one step computes, as tensors. runtime/batch.cpp builds it from a StepPlan; the model
// only reads it. No ownership: everything points into memory that outlives the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "barg/types.h"
#include "ops.h"

namespace barg::model {

/// What a group of layers keeps per token. kLatent: one vector for all heads, without a V plane. kRecurrent is not
/// implemented; it exists so that shapes do not change when it comes.
enum class StateKind : std::uint8_t { kFullAttention, kSlidingWindow, kLatent, kRecurrent };

/// Layers whose KV is allocated, shared and freed together.
struct LayerGroup {
  StateKind kind = StateKind::kFullAttention;
  std::int32_t window = 0;  ///< tokens visible to a query including itself; 0 = all
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::vector<std::int32_t> layers;  ///< ascending decoder layer indices
  std::int64_t state_bytes = 0;      ///< kRecurrent: of one layer's state, a multiple of 64
};

/// Bytes of the state of one of the group's heads in one block.
inline std::size_t head_bytes(const LayerGroup& g, const ops::OpTable& ops, DType type, std::int32_t block_tokens) {
  return g.kind == StateKind::kLatent ? ops.latent_bytes(type, block_tokens, g.head_dim)
                                      : ops.kv_head_bytes(type, block_tokens, g.head_dim);
}

/// KV of one group: one entry per layer of the group, same order as LayerGroup::layers.
struct GroupKv {
  std::vector<ops::KvLayerView> layers;
  std::vector<ops::StateView> states;  ///< of a kRecurrent group, which has no layers then
  std::span<const ops::Segment> segments;  ///< same rows in every group, block tables differ
  /// The rows of ForwardBatch::wanted as segments, row_begin counted among them.
  std::span<const ops::Segment> wanted_segments;
};

struct ForwardBatch {
  std::int32_t rows = 0;
  const std::int32_t* tokens = nullptr;     ///< [rows]
  const std::int32_t* positions = nullptr;  ///< [axes][rows]; axes = 1 for text
  std::int32_t axes = 1;
  std::vector<GroupKv> groups;  ///< index = group
  std::span<const std::int32_t> wanted;  ///< rows of which hidden states come out: ascending, maybe none
};

}  // namespace barg::model
