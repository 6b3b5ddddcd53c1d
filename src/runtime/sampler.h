// Sampler: chooses one token from one row of logits. One object per sequence.
//
// State is a pure function of (request, choice, outputs so far): sample() is told the output index and rewinds
// itself when a step is computed again, so preemption and dropped results cannot skew penalties. The draw is
// keyed by (seed, choice, absolute position, token id), never by batch row or time.
//
// Order of operations: masks (allowed, banned, min_tokens) -> logit_bias -> repetition, frequency, presence ->
// temperature -> min_p -> top_k -> top_p over the renormalised survivors -> Gumbel draw. Ties go to the lower
// id everywhere. The vocabulary is never sorted: selection is linear, only what survives it is ordered.
//
// Threads: one at a time per object; different objects are independent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "barg/request.h"

namespace barg::runtime {

/// What RowStats of the kernels says about a row.
struct RowStats {
  float max = 0;
  TokenId argmax = kNoToken;
  float logsumexp = 0;
  bool finite = false;
};

class Sampler {
 public:
  /// REQUIRES request->sampling.seed set, validated parameters, ids < vocab_size. `end_ids` are the model's.
  Sampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
          std::vector<TokenId> end_ids);

  /// Chooses output token number `output_index` (0-based, at most one more than the last call's) and remembers
  /// it. `logits` holds the row, at least vocab_size values; it is scratch and comes back modified.
  /// nullopt: the row has NaN or +inf, or nothing survives the masks.
  std::optional<OutputToken> sample(std::span<float> logits, const RowStats& stats, std::int32_t output_index);

  /// Tokens sampled so far.
  const std::vector<TokenId>& outputs() const { return outputs_; }

 private:
  friend class SamplerTestPeer;
  struct Candidate {
    TokenId id;
    double value;  // logit / temperature
    double mass;   // exp(value - max); set by keep_top_p
  };

  void rewind(std::int32_t output_index);
  void remember(TokenId id);
  void forget_last();
  bool plain_greedy(std::int32_t output_index) const;
  void adjust(std::span<float> logits, std::int32_t output_index) const;
  TokenId greedy(std::span<const float> logits) const;
  void gather(std::span<const float> logits);
  void keep_min_p();
  void keep_top_k();
  void keep_top_p();
  TokenId draw(std::int64_t position) const;
  TokenId choose(std::span<float> logits, std::int32_t output_index);

  const std::shared_ptr<const Request> request_;
  const std::int32_t choice_;
  const std::int32_t vocab_size_;
  const std::vector<TokenId> end_ids_;
  const bool has_penalties_;
  std::vector<TokenId> allowed_;           // sorted, unique
  std::vector<TokenId> prompt_ids_;        // distinct; only with a repetition penalty
  std::vector<std::uint32_t> counts_;      // [vocab] output counts; only with penalties
  std::vector<std::uint8_t> in_prompt_;    // [vocab]; only with a repetition penalty
  std::vector<TokenId> output_ids_;        // distinct outputs in first-seen order; only with penalties
  std::vector<TokenId> outputs_;
  std::vector<Candidate> candidates_;      // scratch
};

/// Log-probability and rank of `id` in a raw row, with the `top` most likely alternatives (descending, ties by
/// lower id). -inf comes out as -inf; writers clip it.
TokenLogprobs row_logprobs(std::span<const float> logits, float logsumexp, TokenId id, std::int32_t top);

/// Gumbel noise of the contract, in (-3.2, 22.9): Philox4x32-10, key = seed, counter = (id / 4, position,
/// choice, 0), word id % 4.
double gumbel_noise(std::uint64_t seed, std::int32_t choice, std::int64_t position, TokenId id);

}  // namespace barg::runtime
