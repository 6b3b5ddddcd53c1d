// Weights: every tensor of a decoder, packed for the device in one arena. Two phases: plan
// (sizes and types, no bytes read; gives the exact total) and load, which streams: a slab of about 2 MiB is
// packed from the mapped file by all threads and its file pages are dropped, so that the peak is the packed
// size and little more.
//
// q, k and v read the same input: where they are stored alike they are packed as one, rows concatenated
// (fewer launches, and every output element is still the same sum). Gate and up stay two matrices for
// gated_linear. A file may hold q, k and v, or gate and up, as one tensor. q and k rows in interleaved rope
// order are put into halves order, whole rows at a time, which is legal for every block type (these rows
// alone pass through a buffer of one slab). Norms and biases become f32. What
// kernels do not read as it is stored is converted on the way, through the same buffer (quants.h). Recipe
// bf16 rounds every matrix as it packs it, also an embedding that is the output matrix.
//
// Immutable after load; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "barg/result.h"
#include "model/decoder_spec.h"
#include "model/memory.h"
#include "model/model_files.h"
#include "ops.h"

namespace barg::model {

/// One packed matrix and where its outputs go inside the projection's.
struct ProjectionPart {
  ops::PackedWeight weight;
  const float* bias = nullptr;
  std::int32_t out_offset = 0;
  /// Column j of `weight` multiplies x[order[j]]; nullptr: x[j]. The same pointer for the same order.
  const std::int32_t* order = nullptr;
};

/// y [rows, n] = W x (+ bias), W [n, k] in one or more parts.
struct Projection {
  std::vector<ProjectionPart> parts;
  std::int32_t n = 0;
  std::int32_t k = 0;
};

/// Of a norm of rows, [hidden] each; null where the model has none.
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

/// Of an experts half; null and empty where the model has none of a kind.
struct ExpertWeights {
  ops::PackedWeight router;            ///< [E, hidden], as stored in every recipe
  const float* router_bias = nullptr;  ///< [E]
  const float* choice_bias = nullptr;  ///< [E]
  ops::PackedStack gate, up;           ///< [I, hidden] each
  ops::PackedStack down;               ///< [hidden, I]
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
  Projection shared_gate_up;  ///< two parts: gate, up
  Projection shared_down;
  const float* shared_gate = nullptr;  ///< [hidden]
  const float* router_norm = nullptr;  ///< [hidden], divided by sqrt(hidden)
  const float* scales = nullptr;       ///< [E]
};

/// Of what a layer makes of its per-layer inputs.
struct PerLayerWeights {
  Projection gate, out;
  NormWeights post_norm;
};

/// Of a layer's streams: small matrices, as stored in every recipe.
struct StreamWeights {
  ops::PackedWeight router, predict, correct;  ///< [S, hidden], [S * S, S], [S, S]
  const float* router_norm = nullptr;          ///< [hidden], divided by hidden
  const float* scale = nullptr;                ///< [hidden]
  Projection laurel_left, laurel_right;
  NormWeights laurel_norm;
};

/// Of a latent mixer; its output is LayerWeights::attn_out.
struct LatentWeights {
  Projection in;                  ///< rows: the query or its low-rank form, c, k_pe
  const float* q_norm = nullptr;  ///< [q_rank]
  Projection q_up;                ///< from the low-rank form
  const float* kv_norm = nullptr;  ///< [kv_rank]
  ops::PackedStack absorb;         ///< [kv_rank, nope_dim] of each head
  ops::PackedStack expand;         ///< [value_dim, kv_rank] of each head
};

/// Of a mixer with a state (recurrent.h says in which order the rows of `in` are).
struct RecurrentWeights {
  Projection in, out;
  const float* conv = nullptr;       ///< [kernel][channels]
  const float* conv_bias = nullptr;  ///< [channels], or null
  const float* decay = nullptr;      ///< [heads], below 0
  const float* dt_bias = nullptr;    ///< [heads]
  const float* skip = nullptr;       ///< [heads], Mamba-2 alone
  const float* norm = nullptr;       ///< [inner], or of one part if they share it
};

struct LayerWeights {
  NormWeights attn_norm;          ///< before the mixer
  Projection qkv;                 ///< rows: q, then k, then v
  const float* q_norm = nullptr;  ///< as DecoderSpec::qk_norm says, or null
  const float* k_norm = nullptr;
  const float* sinks = nullptr;  ///< [num_q_heads]
  Projection attn_out;
  RecurrentWeights recurrent;
  NormWeights attn_post_norm;  ///< of the mixer's result
  NormWeights ffn_norm;        ///< before the feed-forward half
  Projection gate_up;          ///< two parts: gate, up; or up alone
  Projection down;
  NormWeights ffn_post_norm;  ///< of the feed-forward half's result
  ExpertWeights experts;
  /// Of experts beside a dense half: of what they read, of their result, and of the dense half's.
  NormWeights experts_norm, experts_post_norm, dense_post_norm;
  LatentWeights latent;
  PerLayerWeights per_layer;
  StreamWeights streams;
  float scale = 1;  ///< of the stream, behind the layer
};

struct Weights {
  ops::PackedWeight embedding;  ///< [vocab_rows, hidden]
  Projection output;            ///< the embedding itself when tied; without parts in an embedding model
  ops::PackedWeight positions, types;  ///< of DecoderSpec::tables
  NormWeights table_norm;              ///< of their sum with the embedding
  NormWeights final_norm;
  ops::PackedWeight per_layer_table;  ///< [rows, layers * width]
  Projection per_layer_in;            ///< [layers * width, hidden]
  const float* per_layer_norm = nullptr;
  std::vector<Projection> to_streams, from_streams;  ///< [hidden, hidden], of all streams but the first
  const float* ones = nullptr;  ///< as many as a row or a head of v has, where somebody reads them
  std::vector<LayerWeights> layers;
  std::deque<std::vector<std::int32_t>> orders;  ///< what ProjectionPart::order points to
  std::unique_ptr<MemoryBlock> arena;
};

/// Bytes of the arena; the errors of load_weights() that need no reading.
Result<std::uint64_t> plan_weights(const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops,
                                   Recipe recipe);

/// `progress(done, total)` counts file bytes. `memory` is that of the table's back end.
Result<std::unique_ptr<Weights>> load_weights(
    const DecoderSpec& spec, const ModelFiles& files, const ops::OpTable& ops, ops::Stream& stream,
    Recipe recipe, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    Memory& memory = host_memory());

}  // namespace barg::model
