// Sampler: chooses one token from one row of logits. One object per sequence.
//
// State is a pure function of (request, choice, outputs so far): sample() is told the output index and
// rewinds itself when a step is computed again, so preemption and dropped results cannot skew penalties. The
// draw is keyed by (seed, choice, absolute position, token id), never by batch row or time.
//
// Order of operations: what reasoning and constraint say comes next (runtime/guide.h); masks (constraint, allowed, banned,
// min_tokens) -> logit_bias -> repetition, frequency, presence -> temperature -> min_p -> top_k -> top_p over the
// renormalised survivors -> Gumbel draw. Ties go to the lower id everywhere. How a choice is made without looking at
// most of the row: runtime/selection.h.
//
// The length of an output bends its distribution as little as can be: a choice is made among all that a constraint's
// language allows, and only one that could not be completed in time is made again, among those that can.
//
// Threads: one at a time per object; different objects are independent. sample() does not allocate once
// reserve() was called, log-probabilities and constraints apart.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "barg/request.h"
#include "runtime/guide.h"
#include "runtime/selection.h"

namespace barg::runtime {

/// A row as the output projection leaves it (LinearParams::out and block_max, padding rows included). Both
/// spans are scratch and come back modified.
struct RawRow {
  std::span<float> logits;
  std::span<float> block_max;
  float logsumexp = 0;  ///< of the ids that may be sampled; read only when log-probabilities are wanted
};

class Sampler {
 public:
  /// REQUIRES request->sampling.seed set, validated parameters, ids < vocab_size. `end_ids` are the model's.
  /// No more than `most_outputs` (nor max_tokens) are ever sampled: what the model's length leaves.
  Sampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
          std::vector<TokenId> end_ids, std::int32_t most_outputs = std::numeric_limits<std::int32_t>::max());

  /// Chooses output token number `output_index` (0-based, at most one more than the last call's) and
  /// remembers it. nullopt: the row has NaN or +inf, or nothing survives the masks.
  std::optional<OutputToken> sample(const RawRow& raw, std::int32_t output_index, SampleScratch& scratch);
  /// Memory for so many outputs.
  void reserve(std::int32_t outputs);
  /// Its rows take microseconds, not the fraction of one that a plain greedy choice costs.
  bool slow(std::int32_t output_index) const { return !plain_greedy(output_index); }

  /// Tokens sampled so far.
  const std::vector<TokenId>& outputs() const { return outputs_; }

 private:
  void rewind(std::int32_t output_index);
  void remember(TokenId id);
  void forget_last();
  bool plain_greedy(std::int32_t output_index) const;
  void adjust(const Row& row, bool may_end, SampleScratch& scratch) const;
  OutputToken choose(const Row& row, std::int32_t output_index, const Guidance& guidance, SampleScratch& scratch) const;
  TokenId choose_any(const Row& row, const NoiseKey& key, SampleScratch& scratch) const;
  TokenId choose_among(const Row& row, const TokenSet& set, const NoiseKey& key, SampleScratch& scratch) const;
  TokenId choose_listed(std::span<const float> logits, std::span<const TokenId> ids, const NoiseKey& key,
                        SampleScratch& scratch) const;

  const std::shared_ptr<const Request> request_;
  const std::int32_t choice_;
  const std::int32_t vocab_size_;
  const std::vector<TokenId> end_ids_;
  const bool has_penalties_;
  std::vector<TokenId> allowed_;         // sorted, unique
  std::vector<TokenId> prompt_ids_;      // distinct; only with a repetition penalty
  std::vector<std::uint32_t> counts_;    // [vocab] output counts; only with penalties
  std::vector<std::uint8_t> in_prompt_;  // [vocab]; only with a repetition penalty
  std::vector<TokenId> output_ids_;      // distinct outputs in first-seen order; only with penalties
  std::vector<TokenId> outputs_;
  std::optional<Guide> guide_;
};

/// The part of a row that may be sampled, its last maximum without padding. `vocab_size` <= its logits.
Row sampled_part(const RawRow& raw, std::int32_t vocab_size);
/// No NaN, no +inf, and something above -inf.
bool finite(const Row& row);

/// Log-probability and rank of `id` in a raw row, with the `top` most likely alternatives (descending, ties
/// by lower id). -inf comes out as -inf; writers clip it.
TokenLogprobs row_logprobs(const Row& row, float logsumexp, TokenId id, std::int32_t top);

}  // namespace barg::runtime
