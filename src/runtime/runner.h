// Runner: executes StepPlans, one after the other, on a device. The only door from the engine to hardware.
//
// Threads: one caller (the engine thread). launch() never waits for the device; results come in launch order.
// The runner owns the KV memory, the weights and the sampling state of every registered sequence; sampling
// state is a pure function of (request, choice, output tokens so far) and survives preemption.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "barg/request.h"
#include "model/forward.h"
#include "runtime/kv_access.h"
#include "sched/plan.h"

namespace barg::runtime {

/// Constant facts about the runner, from which the engine sizes scheduler and block manager.
struct RunnerInfo {
  std::vector<model::LayerGroup> groups;
  std::vector<std::int64_t> num_blocks;     ///< per group
  std::vector<std::int64_t> block_bytes;    ///< per group, one block's part
  std::int32_t block_tokens = 16;
  std::vector<std::int32_t> group_tokens;   ///< per group, tokens that a block spans; empty: block_tokens
  std::int32_t max_model_len = 0;           ///< what the model and the pool allow
  std::int32_t max_rows = 0;                ///< rows per step
  bool whole_prompts = false;               ///< a prompt is computed in one step, and its KV is of use to nobody else
  std::int32_t vocab_size = 0;
  std::vector<TokenId> end_ids;
  std::string numerics_id;
  std::string model_digest;                 ///< hex SHA-256 over all weight bytes
  EmbeddingInfo embedding;                  ///< size 0: plans want logits, else pooled vectors
  std::string key_root;                     ///< 32 bytes: digest of everything a KV block depends on but tokens
};

class Runner {
 public:
  virtual ~Runner() = default;
  virtual const RunnerInfo& info() const = 0;

  /// Before the first plan that names `seq`. `request.sampling.seed` is set. The request outlives the sequence.
  virtual void add_sequence(SeqId seq, std::shared_ptr<const Request> request, std::int32_t choice) = 0;
  /// After the last plan that names `seq` has returned its result.
  virtual void remove_sequence(SeqId seq) = 0;

  virtual void launch(sched::StepPlan plan) = 0;
  /// The oldest launched step, if it has finished; with `wait`, blocks until it has. nullopt if none is
  /// outstanding (or not finished, without wait).
  virtual std::optional<sched::StepResult> collect(bool wait) = 0;
  /// The memory of a result that has been read, for a later one. Nobody must call it.
  virtual void recycle(sched::StepResult&& result) { static_cast<void>(result); }

  /// The bytes of single blocks, for the tiers; beside running steps. nullptr: this runner has none to give.
  virtual KvAccess* kv_access() { return nullptr; }
};

}  // namespace barg::runtime
