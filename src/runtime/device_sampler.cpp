#include "runtime/device_sampler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "runtime/gumbel.h"

namespace barg::runtime {
namespace {

void set_bit(std::vector<std::uint32_t>& words, TokenId id, bool value) {
  const std::uint32_t bit = std::uint32_t{1} << (static_cast<std::uint32_t>(id) % 32);
  std::uint32_t& word = words[static_cast<std::size_t>(id) / 32];
  word = value ? word | bit : word & ~bit;
}

}  // namespace

DeviceSampler::DeviceSampler(std::shared_ptr<const Request> request, std::int32_t choice, std::int32_t vocab_size,
                             std::vector<TokenId> end_ids, std::int32_t most_outputs)
    : request_(std::move(request)),
      choice_(choice),
      vocab_size_(vocab_size),
      end_ids_(std::move(end_ids)),
      has_penalties_(request_->sampling.repetition_penalty != 1.0F || request_->sampling.frequency_penalty != 0.0F ||
                     request_->sampling.presence_penalty != 0.0F) {
  const SamplingParams& p = request_->sampling;
  CHECK(p.seed.has_value());
  if (Guide::needed(p)) guide_.emplace(p, most_outputs);
  if (p.repetition_penalty != 1.0F) {
    prompt_ids_ = request_->prompt;
    std::erase_if(prompt_ids_, [&](TokenId id) { return id < 0 || id >= vocab_size_; });
    std::sort(prompt_ids_.begin(), prompt_ids_.end());
    prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
  }
  wish_.biases.reserve(p.logit_bias.size());
  for (const auto& [id, value] : p.logit_bias) wish_.biases.push_back({id, value});
  std::stable_sort(wish_.biases.begin(), wish_.biases.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
}

void DeviceSampler::rewind(std::int32_t output_index) {
  CHECK(output_index >= 0);
  const auto wanted = static_cast<std::size_t>(output_index);
  if (outputs_.size() <= wanted) return;
  outputs_.resize(wanted);
  if (guide_) guide_->rewind(outputs_);
}

std::vector<std::uint32_t> DeviceSampler::mask_of(const TokenSet* set, bool may_end) const {
  const SamplingParams& p = request_->sampling;
  const auto count = (static_cast<std::size_t>(vocab_size_) + 31) / 32;
  std::vector<std::uint32_t> words(count, 0xffffffffu);
  if (set != nullptr) {
    for (std::size_t w = 0; w < count; ++w) words[w] = static_cast<std::uint32_t>(set->words[w / 2] >> (w % 2 * 32));
  }
  const auto known = [&](TokenId id) { return id >= 0 && id < vocab_size_; };
  if (!p.allowed_token_ids.empty()) {
    std::vector<std::uint32_t> allowed(count, 0);
    for (const TokenId id : p.allowed_token_ids) {
      if (known(id)) set_bit(allowed, id, true);
    }
    for (std::size_t w = 0; w < count; ++w) words[w] &= allowed[w];
  }
  const auto ban = [&](const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      if (known(id)) set_bit(words, id, false);
    }
  };
  ban(p.banned_token_ids);
  if (!may_end) {
    ban(end_ids_);
    ban(p.stop_token_ids);
  }
  return words;
}

void DeviceSampler::make_masks(std::int32_t output_index, const Guidance& guidance) {
  const SamplingParams& p = request_->sampling;
  const bool may_end = output_index >= p.min_tokens && !guidance.unended;
  wish_.mask.clear();
  wish_.fits.clear();
  if (guidance.mask) {
    wish_.mask = mask_of(&guidance.mask->language, may_end);
    if (guidance.mask->narrowed()) wish_.fits = mask_of(&guidance.mask->fits, may_end);
  } else if (!p.allowed_token_ids.empty() || !p.banned_token_ids.empty() || !may_end) {
    wish_.mask = mask_of(nullptr, may_end);
  }
}

const DeviceSampler::Wish& DeviceSampler::wish(std::int32_t output_index) {
  rewind(output_index);
  CHECK(!guide_ || outputs_.size() == static_cast<std::size_t>(output_index));
  const SamplingParams& p = request_->sampling;
  const Guidance guidance = guide_ ? guide_->next() : Guidance{};
  make_masks(output_index, guidance);
  wish_.forced_for_length = guidance.forced != kNoToken && guidance.for_length;
  wish_.row = {.counts = nullptr,
               .mask = nullptr,
               .fits = nullptr,
               .biases = nullptr,
               .num_biases = static_cast<std::int32_t>(wish_.biases.size()),
               .top_k = std::max(p.top_k, 0),
               .seed = *p.seed,
               .log_min_p = p.min_p > 0 ? exact_log(static_cast<double>(p.min_p)) : -std::numeric_limits<double>::infinity(),
               .chosen = nullptr,
               .choice = static_cast<std::uint32_t>(choice_),
               .position = static_cast<std::uint32_t>(request_->prompt.size() + static_cast<std::size_t>(output_index)),
               .temperature = p.temperature,
               .top_p = p.top_p,
               .repetition = p.repetition_penalty,
               .frequency = p.frequency_penalty,
               .presence = p.presence_penalty,
               .forced = guidance.forced,
               .top_logprobs = p.logprobs.value_or(-1)};
  return wish_;
}

void DeviceSampler::remember(std::int32_t output_index, TokenId id) {
  rewind(output_index);
  CHECK(outputs_.size() == static_cast<std::size_t>(output_index));
  outputs_.push_back(id);
  if (guide_) guide_->push(id);
}

}  // namespace barg::runtime
