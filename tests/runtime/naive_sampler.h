// NaiveSampler: the definition of a choice, as plainly as it can be written: every logit becomes a candidate,
// every mass is computed, every noise is drawn. The sampler must give the same token for every row and
// request. Only the order of operations is here; the arithmetic of a logarithm or a noise is
// runtime/gumbel.h's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "barg/request.h"
#include "runtime/selection.h"

namespace barg::test {

class NaiveSampler {
 public:
  NaiveSampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
               std::vector<TokenId> end_ids)
      : request_(std::move(request)), choice_(choice), vocab_size_(vocab_size), end_ids_(std::move(end_ids)) {
    const auto& p = request_->sampling;
    allowed_ = p.allowed_token_ids;
    std::sort(allowed_.begin(), allowed_.end());
    allowed_.erase(std::unique(allowed_.begin(), allowed_.end()), allowed_.end());
    has_penalties_ =
        p.repetition_penalty != 1.0F || p.frequency_penalty != 0.0F || p.presence_penalty != 0.0F;
    std::set<TokenId> prompt;
    for (const TokenId id : request_->prompt) {
      if (id >= 0 && id < vocab_size_) prompt.insert(id);
    }
    prompt_ids_.assign(prompt.begin(), prompt.end());
    in_prompt_.assign(std::size_t(vocab_size_), 0);
    for (const TokenId id : prompt_ids_) in_prompt_[std::size_t(id)] = 1;
    counts_.assign(std::size_t(vocab_size_), 0);
  }

  /// kNoToken: nothing survives. REQUIRES a row without NaN and +inf.
  TokenId sample(std::vector<float> logits, std::int32_t output_index) {
    logits.resize(std::size_t(vocab_size_));
    const TokenId id = choose(logits, output_index);
    if (id != kNoToken && counts_[std::size_t(id)]++ == 0) output_ids_.push_back(id);
    return id;
  }
  /// Ids that survive masks, bias, penalties and truncation, ascending.
  std::vector<TokenId> survivors(std::vector<float> logits, std::int32_t output_index) {
    adjust(logits, output_index);
    truncate(logits);
    std::vector<TokenId> ids;
    for (const auto& c : candidates_) ids.push_back(c.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  using Candidate = runtime::Candidate;

  void truncate(const std::vector<float>& logits) {
    gather(logits);
    keep_min_p();
    keep_top_k();
    keep_top_p();
  }

  TokenId choose(std::vector<float>& logits, std::int32_t output_index) {
    adjust(logits, output_index);
    if (request_->sampling.temperature == 0.0F) return greedy(logits);
    truncate(logits);
    return draw(static_cast<std::int64_t>(request_->prompt.size()) + output_index);
  }

  void adjust(std::vector<float>& logits, std::int32_t output_index) const {
    const SamplingParams& p = request_->sampling;
    const auto mask = [&](const std::vector<TokenId>& ids) {
      for (const TokenId id : ids) {
        if (id >= 0 && id < vocab_size_) logits[std::size_t(id)] = runtime::kMasked;
      }
    };
    mask(p.banned_token_ids);
    if (output_index < p.min_tokens) {
      mask(end_ids_);
      mask(p.stop_token_ids);
    }
    for (const auto& [id, bias] : p.logit_bias) logits[std::size_t(id)] += bias;
    if (!has_penalties_) return;
    const auto repeat = [&](TokenId id) {
      float& x = logits[std::size_t(id)];
      x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    };
    if (p.repetition_penalty != 1.0F) {
      for (const TokenId id : prompt_ids_) repeat(id);
      for (const TokenId id : output_ids_) {
        if (in_prompt_[std::size_t(id)] == 0) repeat(id);
      }
    }
    for (const TokenId id : output_ids_) {
      float& x = logits[std::size_t(id)];
      x -= p.frequency_penalty * static_cast<float>(counts_[std::size_t(id)]);
      x -= p.presence_penalty;
    }
  }

  TokenId greedy(const std::vector<float>& logits) const {
    TokenId best = kNoToken;
    float value = runtime::kMasked;
    const auto offer = [&](TokenId id) {
      if (logits[std::size_t(id)] > value) {
        value = logits[std::size_t(id)];
        best = id;
      }
    };
    if (allowed_.empty()) {
      for (TokenId id = 0; id < vocab_size_; ++id) offer(id);
    } else {
      for (const TokenId id : allowed_) offer(id);
    }
    return best;
  }

  void gather(const std::vector<float>& logits) {
    const double temperature = request_->sampling.temperature;
    candidates_.clear();
    const auto offer = [&](TokenId id) {
      const float x = logits[std::size_t(id)];
      if (x != runtime::kMasked) candidates_.push_back({id, static_cast<double>(x) / temperature, 0});
    };
    if (allowed_.empty()) {
      for (TokenId id = 0; id < vocab_size_; ++id) offer(id);
    } else {
      for (const TokenId id : allowed_) offer(id);
    }
  }

  void keep_min_p() {
    const float min_p = request_->sampling.min_p;
    if (min_p <= 0 || candidates_.empty()) return;
    // p_i >= min_p * p_max, that is x_i - max >= log(min_p).
    double max = -std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates_) max = std::max(max, c.value);
    const double floor = max + runtime::exact_log(static_cast<double>(min_p));
    std::erase_if(candidates_, [&](const Candidate& c) { return c.value < floor && c.value != max; });
  }

  void keep_top_k() {
    const std::int32_t k = request_->sampling.top_k;
    if (k <= 0 || candidates_.size() <= std::size_t(k)) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + (k - 1), candidates_.end(),
                     runtime::better<Candidate>);
    candidates_.resize(std::size_t(k));
  }

  void keep_top_p() {
    const double top_p = request_->sampling.top_p;
    if (top_p >= 1.0 || candidates_.size() <= 1) return;
    double max = -std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates_) max = std::max(max, c.value);
    const auto units = [&](const Candidate& c) { return runtime::mass_units(c.value - max); };
    std::uint64_t total = 0;
    for (const Candidate& c : candidates_) total += units(c);
    // Smallest prefix of the descending order whose mass reaches p.
    const double goal = top_p * static_cast<double>(total);
    std::sort(candidates_.begin(), candidates_.end(), runtime::better<Candidate>);
    std::uint64_t kept = 0;
    auto end = candidates_.begin();
    while (end != candidates_.end() && static_cast<double>(kept) < goal) kept += units(*end++);
    if (end == candidates_.begin()) ++end;
    candidates_.erase(end, candidates_.end());
  }

  /// Every candidate's noise, no bound, no order.
  TokenId draw(std::int64_t position) const {
    const runtime::NoiseKey key{*request_->sampling.seed, static_cast<std::uint32_t>(choice_),
                                static_cast<std::uint32_t>(position)};
    TokenId best_id = kNoToken;
    double best = 0;
    for (const Candidate& c : candidates_) {
      const double score = c.value + runtime::word_noise(runtime::noise_word(key, c.id));
      if (best_id != kNoToken && (score < best || (score == best && c.id > best_id))) continue;
      best = score;
      best_id = c.id;
    }
    return best_id;
  }

  std::shared_ptr<const Request> request_;
  std::int32_t choice_;
  std::int32_t vocab_size_;
  std::vector<TokenId> end_ids_;
  bool has_penalties_ = false;
  std::vector<TokenId> allowed_, prompt_ids_, output_ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint8_t> in_prompt_;
  std::vector<Candidate> candidates_;
};

}  // namespace barg::test
