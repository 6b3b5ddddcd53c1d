// The exact memory plan of a model on this machine: what is allocated, to the byte, before anything is
// loaded. `barg inspect` prints it and make_runner() follows it.
//
// Rules:
//  1. kv.memory_bytes > 0 is the pool's size as given. 0 means: at most 40 % of the memory available to the
//     process (cgroup limits included, without what kv.tiers keep in host memory) after weights and
//     scratch, and no more than max_num_seqs full contexts.
//  2. A pool that cannot hold one sequence of the model's length shortens the context to what fits (a
//     multiple of the block size); a note says so. Fewer than two blocks is kOutOfMemory. A plan above what
//     is available gets a note: pages are taken as the pool fills.
//  3. Window groups get blocks for max_num_seqs windows, recurrent groups kStatesPerSequence states for each of
//     them, together at most half of the pool while full-attention groups exist; the rest goes to the
//     full-attention groups (without any: to the recurrent ones).
//  4. A recurrent group keeps a snapshot of its state every C tokens: the power of two at which a snapshot
//     takes about as many bytes as the KV of its tokens, within [kLeastInterval, kMostInterval], and at least a
//     block. In a model without attention that is the block size.
// Pure arithmetic but for available_memory(). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "barg/config.h"
#include "barg/result.h"
#include "barg/types.h"
#include "model/forward.h"
#include "runtime/open_cuda.h"

namespace barg::model {
class ModelFiles;
}

namespace barg::runtime {

/// The facts of a model that decide sizes; filled from ModelFiles by the overload below, by hand in tests.
struct ModelShape {
  std::vector<model::LayerGroup> groups;
  std::int32_t max_position = 0;      ///< the model's own context length
  std::uint64_t file_bytes = 0;       ///< tensors as stored
  std::uint64_t weight_bytes = 0;     ///< resident after packing
  std::uint64_t workspace_bytes = 0;  ///< kernels' and decoder's scratch at max_num_batched_tokens rows
  std::int32_t hidden = 0;
  std::int32_t logits_dim = 0;  ///< vocabulary with its padding rows
};

struct KvPoolSpec {
  DType dtype = DType::kF16;
  std::int32_t block_tokens = 16;
  std::vector<std::int64_t> head_bytes;  ///< per group: K plus V plane of one head in one block
  std::int64_t percent = 40;             ///< of what is available, at most, if nobody says how large the pool is
};

struct MemoryPlan {
  Recipe recipe = Recipe::kF32;
  DType kv_dtype = DType::kF16;
  std::int32_t block_tokens = 16;
  std::int32_t max_rows = 0;       ///< of a step
  std::int32_t model_max_len = 0;  ///< what the model's files say
  std::int32_t max_model_len = 0;  ///< what will be served
  std::uint64_t weight_file_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes_per_token = 0;   ///< all groups, with a recurrent one's snapshots
  std::vector<std::int64_t> block_bytes;  ///< per group, one block's part
  std::vector<std::int64_t> num_blocks;   ///< per group
  std::vector<std::int32_t> group_tokens;  ///< per group: tokens that a block spans, block_tokens or C
  std::uint64_t kv_bytes = 0;             ///< the whole pool
  std::uint64_t activation_bytes = 0;     ///< hidden states of max_rows rows
  std::uint64_t workspace_bytes = 0;      ///< scratch of decoder and kernels
  std::uint64_t logits_bytes = 0;         ///< one sub-batch of logits
  std::uint64_t total_bytes = 0;          ///< sum of the parts
  std::uint64_t available_bytes = 0;      ///< what the machine had when asked, without the tiers' share
  std::vector<std::string> notes;         ///< sentences for a person: shortened context, large overrides
};

inline constexpr std::int64_t kLeastInterval = 64, kMostInterval = 512;
inline constexpr std::int64_t kStatesPerSequence = 8;  ///< the one it is in, the rest snapshots

/// Rows whose logits exist at one time.
inline constexpr std::int32_t kLogitsRows = 64;

/// Sizes everything. `available_bytes` is what the process may still allocate.
/// Fails with kInvalidValue (param = config key) or kOutOfMemory with the numbers in the message.
Result<MemoryPlan> plan_memory(const Config& config, Recipe recipe, const ModelShape& shape,
                               const KvPoolSpec& kv, std::uint64_t available_bytes);

/// The same from open model files, on the device that load_runner() would choose: what `barg inspect` calls (factory.cpp).
Result<MemoryPlan> plan_memory(const Config& config, const model::ModelFiles& files, const OpenDevice& open = open_cuda);

/// Memory this process may still take: the least of MemAvailable and every enclosing cgroup's limit minus
/// use.
std::uint64_t available_memory();
/// The same on another root than "/", for tests.
std::uint64_t available_memory(const std::string& root);

}  // namespace barg::runtime
