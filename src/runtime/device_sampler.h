// DeviceSampler: what a sequence asks of the sampler that runs on the device (cuda/sampler.cuh), token by token: the row's
// parameters, its masks and biases, and what has to be counted anew. The choice itself, and its order of operations, is
// the CPU sampler's (runtime/sampler.h), to the bit.
//
// A token may be asked for while those before it are still being chosen on the device. Then the outputs known here are
// fewer than the index, and only what does not depend on them may be asked: see needs_outputs().
//
// Threads: one at a time per object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "barg/request.h"
#include "cuda/sampler.cuh"
#include "runtime/guide.h"

namespace barg::runtime {

class DeviceSampler {
 public:
  /// As Sampler's constructor.
  DeviceSampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
                std::vector<TokenId> end_ids, std::int32_t most_outputs);

  const Request& request() const { return *request_; }
  /// What comes next follows from the outputs themselves (a constraint, bounded reasoning).
  bool needs_outputs() const { return guide_.has_value(); }
  bool has_penalties() const { return has_penalties_; }
  /// Known outputs; those behind `output_index` are forgotten when it is asked for again.
  const std::vector<TokenId>& outputs() const { return outputs_; }

  /// Of output number `output_index`. Arrays are of this object, valid until the next call; empty: none is needed.
  struct Wish {
    cuda::SampleRow row;  ///< without pointers
    std::vector<std::uint32_t> mask, fits;
    std::vector<cuda::SampleBias> biases;
    bool forced_for_length = false;
  };
  /// REQUIRES outputs().size() == output_index if needs_outputs().
  const Wish& wish(std::int32_t output_index);

  /// Ids that penalties count in the prompt, distinct.
  const std::vector<TokenId>& prompt_ids() const { return prompt_ids_; }
  /// The device's counts hold the prompt and outputs [0, n), -1: nothing yet.
  std::int32_t counted = -1;

  /// Output number `output_index` has been chosen.
  void remember(std::int32_t output_index, TokenId id);

 private:
  void rewind(std::int32_t output_index);
  void make_masks(std::int32_t output_index, const Guidance& guidance);
  std::vector<std::uint32_t> mask_of(const TokenSet* set, bool may_end) const;

  const std::shared_ptr<const Request> request_;
  const std::int32_t choice_, vocab_size_;
  const std::vector<TokenId> end_ids_;
  const bool has_penalties_;
  std::vector<TokenId> prompt_ids_, outputs_;
  std::optional<Guide> guide_;
  Wish wish_;
};

}  // namespace barg::runtime
