// Drives a Runner without scheduler: sequence i owns a fixed run of blocks in every group, its tokens are
// random ids of a fixed seed, its samples greedy. One thread; the runner must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "barg/result.h"
#include "runtime/runner.h"

namespace barg::bench {

class ModelDriver {
 public:
  /// `context`: the most tokens a sequence will have.
  ModelDriver(runtime::Runner& runner, std::int32_t context);

  /// kOutOfMemory when the pool does not hold `sequences` contexts.
  Result<void> check_room(std::int32_t sequences) const;
  std::int32_t max_rows() const { return runner_.info().max_rows; }

  /// Computes KV for positions [0, depth) of sequences [0, batch), unless it is there.
  Result<void> fill(std::int32_t depth, std::int32_t batch);
  /// `tokens` of sequence 0 from position `depth` on, the last one sampled.
  Result<void> prefill(std::int32_t depth, std::int32_t tokens);
  /// `tokens` steps of `batch` sequences from position `depth` on.
  Result<void> decode(std::int32_t depth, std::int32_t tokens, std::int32_t batch);

 private:
  struct Rows {
    std::int32_t sequence, start, count;
    bool sample;
    std::int32_t output_index;
    bool pending;
  };

  /// Registers sequences [0, batch) afresh with prompts of `prompt` tokens.
  void begin(std::int32_t prompt, std::int32_t batch);
  void end();
  void launch(const std::vector<Rows>& rows);
  Result<void> collect();
  void add_item(sched::StepPlan& plan, const Rows& r) const;
  std::int32_t blocks_of(std::size_t group) const { return blocks_[group]; }

  runtime::Runner& runner_;
  std::int32_t context_;
  std::vector<TokenId> tokens_;  ///< [context], every sequence's
  std::vector<std::int32_t>
      blocks_;  ///< a sequence's in each group; a window group uses its own round and round
  std::vector<std::int32_t> filled_;  ///< per sequence: the depth its KV was made for
  std::vector<SeqId> live_;
  std::vector<sched::BlockCopy> copies_;  ///< for the next step
  std::uint64_t next_sequence_ = 1, next_step_ = 1;
};

}  // namespace barg::bench
