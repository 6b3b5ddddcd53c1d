#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace barg::runtime {
namespace {

std::vector<TokenId> sorted_unique(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// Changes single logits of a row and keeps the maxima of its blocks true.
class RowEditor {
 public:
  RowEditor(const Row& row, SampleScratch& scratch) : row_(row), scratch_(scratch) {}
  ~RowEditor() {
    for (std::size_t i = 0; i < stale_; ++i) {
      const auto b = static_cast<std::size_t>(scratch_.blocks[i]);
      row_.block_max[b] = block_maximum(row_.logits, b);
      scratch_.stale[b] = 0;
    }
  }
  RowEditor(const RowEditor&) = delete;
  RowEditor& operator=(const RowEditor&) = delete;

  float get(TokenId id) const { return row_.logits[static_cast<std::size_t>(id)]; }
  void set(TokenId id, float value) {
    float& x = row_.logits[static_cast<std::size_t>(id)];
    const std::size_t b = static_cast<std::size_t>(id) / ops::kBlockMax;
    float& max = row_.block_max[b];
    if (value >= max) {
      max = value;  // also of a stale block: its old maximum was not below the true one
    } else if (x == max && scratch_.stale[b] == 0) {
      scratch_.stale[b] = 1;
      scratch_.blocks[stale_++] = static_cast<std::int32_t>(b);
    }
    x = value;
  }

 private:
  const Row& row_;
  SampleScratch& scratch_;
  std::size_t stale_ = 0;
};

}  // namespace

Sampler::Sampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
                 std::vector<TokenId> end_ids, std::int32_t most_outputs)
    : request_(std::move(request)),
      choice_(choice),
      vocab_size_(vocab_size),
      end_ids_(std::move(end_ids)),
      has_penalties_(request_->sampling.repetition_penalty != 1.0F ||
                     request_->sampling.frequency_penalty != 0.0F ||
                     request_->sampling.presence_penalty != 0.0F),
      allowed_(sorted_unique(request_->sampling.allowed_token_ids)) {
  CHECK(request_->sampling.seed.has_value());
  if (Guide::needed(request_->sampling)) guide_.emplace(request_->sampling, most_outputs);
  if (!has_penalties_) return;
  counts_.assign(static_cast<std::size_t>(vocab_size_), 0);
  if (request_->sampling.repetition_penalty != 1.0F) {
    prompt_ids_ = sorted_unique(request_->prompt);
    in_prompt_.assign(static_cast<std::size_t>(vocab_size_), 0);
    // Padding rows may stand in a token-array prompt; they are never candidates.
    std::erase_if(prompt_ids_, [&](TokenId id) { return id < 0 || id >= vocab_size_; });
    for (const TokenId id : prompt_ids_) in_prompt_[static_cast<std::size_t>(id)] = 1;
  }
}

void Sampler::reserve(std::int32_t outputs) {
  outputs_.reserve(static_cast<std::size_t>(outputs));
  if (has_penalties_) output_ids_.reserve(static_cast<std::size_t>(std::min(outputs, vocab_size_)));
}

void Sampler::remember(TokenId id) {
  outputs_.push_back(id);
  if (guide_) guide_->push(id);
  if (has_penalties_ && counts_[static_cast<std::size_t>(id)]++ == 0) output_ids_.push_back(id);
}

void Sampler::forget_last() {
  const TokenId id = outputs_.back();
  outputs_.pop_back();
  // First-seen order: the id whose last occurrence goes is the last of the list that has none left.
  if (has_penalties_ && --counts_[static_cast<std::size_t>(id)] == 0) std::erase(output_ids_, id);
}

void Sampler::rewind(std::int32_t output_index) {
  CHECK(output_index >= 0 && static_cast<std::size_t>(output_index) <= outputs_.size());
  if (outputs_.size() == static_cast<std::size_t>(output_index)) return;
  while (outputs_.size() > static_cast<std::size_t>(output_index)) forget_last();
  if (guide_) guide_->rewind(outputs_);
}

bool Sampler::plain_greedy(std::int32_t output_index) const {
  const SamplingParams& p = request_->sampling;
  return p.temperature == 0.0F && !has_penalties_ && p.logit_bias.empty() && allowed_.empty() &&
         p.banned_token_ids.empty() && output_index >= p.min_tokens && p.constraint == nullptr;
}

void Sampler::adjust(const Row& row, bool may_end, SampleScratch& scratch) const {
  const SamplingParams& p = request_->sampling;
  RowEditor edit(row, scratch);
  const auto mask = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      if (id >= 0 && id < vocab_size_) edit.set(id, kMasked);
    }
  };
  mask(p.banned_token_ids);
  if (!may_end) {
    mask(end_ids_);
    mask(p.stop_token_ids);
  }
  for (const auto& [id, bias] : p.logit_bias) edit.set(id, edit.get(id) + bias);
  if (!has_penalties_) return;
  const auto repeat = [&](TokenId id) {
    const float x = edit.get(id);
    edit.set(id, x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty);
  };
  if (p.repetition_penalty != 1.0F) {
    for (const TokenId id : prompt_ids_) repeat(id);
    for (const TokenId id : output_ids_) {
      if (in_prompt_[static_cast<std::size_t>(id)] == 0) repeat(id);
    }
  }
  for (const TokenId id : output_ids_) {
    float x = edit.get(id);
    x -= p.frequency_penalty * static_cast<float>(counts_[static_cast<std::size_t>(id)]);
    x -= p.presence_penalty;
    edit.set(id, x);
  }
}

/// Only the listed ids take part: they are looked at one by one.
TokenId Sampler::choose_listed(std::span<const float> logits, std::span<const TokenId> ids, const NoiseKey& key,
                               SampleScratch& scratch) const {
  const SamplingParams& p = request_->sampling;
  if (p.temperature == 0.0F) {
    TokenId best = kNoToken;
    float value = kMasked;
    for (const TokenId id : ids) {
      if (!(logits[static_cast<std::size_t>(id)] > value)) continue;
      value = logits[static_cast<std::size_t>(id)];
      best = id;
    }
    return best;
  }
  auto& candidates = scratch.candidates;
  candidates.clear();
  for (const TokenId id : ids) {
    const float x = logits[static_cast<std::size_t>(id)];
    if (x != kMasked)
      candidates.push_back({id, static_cast<double>(x) / static_cast<double>(p.temperature), 0});
  }
  if (candidates.empty()) return kNoToken;
  keep_min_p(candidates, p.min_p);
  keep_top_k(candidates, p.top_k);
  keep_top_p(candidates, p.top_p);
  return draw(candidates, key);
}

TokenId Sampler::choose_any(const Row& row, const NoiseKey& key, SampleScratch& scratch) const {
  const SamplingParams& p = request_->sampling;
  const TokenId top = first_max(row);
  if (top == kNoToken || p.temperature == 0.0F) return top;

  const double temperature = p.temperature;
  const float max = row.logits[static_cast<std::size_t>(top)];
  auto& candidates = scratch.candidates;
  const bool ranked = p.top_k > 0 && p.top_k < vocab_size_;
  // An infinity that a penalty made and temperatures that overflow f32 take the plain way.
  const bool plain = !std::isfinite(max) || p.temperature < 1e-20F;
  if (!plain && !ranked && p.min_p <= 0) {
    if (p.top_p >= 1.0F) return draw_row(row, top, temperature, key, scratch);
    if (gather_top_p(row, max, temperature, p.top_p, scratch)) return draw(candidates, key);
  }
  const float floor = plain ? kMasked : selection_floor(row, max, temperature, p.min_p, p.top_k, scratch);
  gather(row, floor, temperature, candidates);
  keep_min_p(candidates, p.min_p);
  keep_top_k(candidates, p.top_k);
  keep_top_p(candidates, p.top_p);
  return draw(candidates, key);
}

/// Few ids are looked at one by one; of many, the others leave the row.
TokenId Sampler::choose_among(const Row& row, const TokenSet& set, const NoiseKey& key, SampleScratch& scratch) const {
  if (allowed_.empty() && list_ids(set, scratch)) return choose_listed(row.logits, scratch.ids, key, scratch);
  keep_only(row, set.words);
  return allowed_.empty() ? choose_any(row, key, scratch) : choose_listed(row.logits, allowed_, key, scratch);
}

OutputToken Sampler::choose(const Row& row, std::int32_t output_index, const Guidance& guidance,
                            SampleScratch& scratch) const {
  const SamplingParams& p = request_->sampling;
  adjust(row, output_index >= p.min_tokens && !guidance.unended, scratch);
  const NoiseKey key{
      *p.seed, static_cast<std::uint32_t>(choice_),
      static_cast<std::uint32_t>(request_->prompt.size() + static_cast<std::size_t>(output_index))};
  OutputToken out;
  if (guidance.mask) {
    const TokenMask& mask = *guidance.mask;
    out.id = choose_among(row, mask.language, key, scratch);
    if (out.id == kNoToken || mask.fits.has(out.id)) return out;
    out.for_length = true;
    out.id = choose_among(row, mask.fits, key, scratch);
  } else {
    out.id = allowed_.empty() ? choose_any(row, key, scratch) : choose_listed(row.logits, allowed_, key, scratch);
  }
  return out;
}

std::optional<OutputToken> Sampler::sample(const RawRow& raw, std::int32_t output_index,
                                           SampleScratch& scratch) {
  rewind(output_index);
  const Row row = sampled_part(raw, vocab_size_);
  if (!finite(row)) return std::nullopt;
  const SamplingParams& p = request_->sampling;
  // Logprobs are of the raw row, which choose() overwrites; they need the chosen id, which comes after it.
  std::vector<float> logits, block_max;
  if (p.logprobs && !plain_greedy(output_index)) {
    logits.assign(row.logits.begin(), row.logits.end());
    block_max.assign(row.block_max.begin(), row.block_max.end());
  }
  const Guidance guidance = guide_ ? guide_->next() : Guidance{};
  OutputToken out;
  if (guidance.forced != kNoToken) {
    out.id = guidance.forced;
    out.for_length = guidance.for_length;
  } else if (plain_greedy(output_index)) {
    out.id = first_max(row);
  } else {
    out = choose(row, output_index, guidance, scratch);
  }
  if (out.id == kNoToken) return std::nullopt;
  if (p.logprobs) {
    out.logprobs =
        row_logprobs(logits.empty() ? row : Row{logits, block_max}, raw.logsumexp, out.id, *p.logprobs);
  }
  remember(out.id);
  return out;
}

Row sampled_part(const RawRow& raw, std::int32_t vocab_size) {
  const auto vocab = static_cast<std::size_t>(vocab_size);
  const std::size_t blocks = (vocab + ops::kBlockMax - 1) / ops::kBlockMax;
  CHECK(raw.logits.size() >= vocab && raw.block_max.size() >= blocks);
  const Row row{raw.logits.first(vocab), raw.block_max.first(blocks)};
  if (raw.logits.size() == vocab || vocab % ops::kBlockMax == 0) return row;
  const auto tail = row.logits.subspan((blocks - 1) * ops::kBlockMax);
  const bool nan = std::any_of(tail.begin(), tail.end(), [](float x) { return std::isnan(x); });
  row.block_max.back() =
      nan ? std::numeric_limits<float>::quiet_NaN() : block_maximum(row.logits, blocks - 1);
  return row;
}

bool finite(const Row& row) {
  float max = kMasked;
  bool nan = false;
  for (const float m : row.block_max) {
    nan |= std::isnan(m);
    max = m > max ? m : max;
  }
  return !nan && max > kMasked && max < std::numeric_limits<float>::infinity();
}

TokenLogprobs row_logprobs(const Row& row, float logsumexp, TokenId id, std::int32_t top) {
  struct Entry {
    TokenId id;
    float value;
  };
  const float own = row.logits[static_cast<std::size_t>(id)];
  TokenLogprobs out;
  out.id = id;
  out.logprob = own - logsumexp;
  std::int32_t rank = 1;
  std::vector<Entry> best;  // a heap whose front is the worst of the best
  const auto k = static_cast<std::size_t>(std::max(top, 0));
  for (std::size_t i = 0; i < row.logits.size(); ++i) {
    const float most = row.block_max[i / ops::kBlockMax];
    if (i % ops::kBlockMax == 0 && most < own &&
        (k == 0 || (best.size() == k && most < best.front().value))) {
      i += ops::kBlockMax - 1;  // nothing in this block outranks anything
      continue;
    }
    const Entry e{static_cast<TokenId>(i), row.logits[i]};
    if (better(e, Entry{id, own})) ++rank;
    if (k == 0) continue;
    if (best.size() < k) {
      best.push_back(e);
      std::push_heap(best.begin(), best.end(), better<Entry>);
    } else if (better(e, best.front())) {
      std::pop_heap(best.begin(), best.end(), better<Entry>);
      best.back() = e;
      std::push_heap(best.begin(), best.end(), better<Entry>);
    }
  }
  std::sort_heap(best.begin(), best.end(), better<Entry>);
  out.rank = rank;
  for (const Entry& e : best) out.top.push_back({e.id, e.value - logsumexp});
  return out;
}

}  // namespace barg::runtime
