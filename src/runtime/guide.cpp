#include "runtime/guide.h"

#include <algorithm>

#include "base/check.h"

namespace barg::runtime {
namespace {

TokenSet with(TokenSet set, TokenId id, std::vector<std::uint64_t>& words) {
  if (set.has(id)) return set;
  words.assign(set.words.begin(), set.words.end());
  words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
  return {.words = words, .count = set.count + 1};
}

}  // namespace

Guide::Guide(const SamplingParams& sampling, std::int32_t most)
    : constraint_(sampling.constraint.get()),
      limit_(sampling.reasoning ? &*sampling.reasoning : nullptr),
      most_(std::min(most, sampling.max_tokens)) {
  begin();
  may_open_ = may_open();
}

bool Guide::may_open() {
  if (phase_ != Phase::kText || limit_ == nullptr || limit_->begin.empty() || limit_->budget == 0) return false;
  const auto markers = static_cast<std::int64_t>(limit_->begin.size() + limit_->close.size());
  if (most_ < markers + text_tokens()) return false;
  return !state_->mask(static_cast<std::int32_t>(most_)).language.has(limit_->begin[0]);
}

/// The state before any output.
void Guide::begin() {
  pushed_ = 0;
  if (limit_ != nullptr) meter_.emplace(*limit_);
  if (constraint_ == nullptr) return;
  if (limit_ != nullptr && limit_->open) {
    phase_ = Phase::kReasoning;
  } else {
    begin_text(/*after_reasoning=*/false);
  }
}

void Guide::begin_text(bool after_reasoning) {
  phase_ = Phase::kText;
  text_from_ = pushed_;
  state_ = constraint_->start(after_reasoning);
}

Guidance Guide::reasoning() const {
  Guidance out{.unended = true};
  if (!meter_->inside()) {  // its opening marker has begun, with the first output
    out.forced = limit_->begin[static_cast<std::size_t>(pushed_)];
    return out;
  }
  out.forced = meter_->forced();
  const std::int64_t after = most_ - pushed_ - 1;
  if (out.forced != kNoToken || after >= static_cast<std::int64_t>(limit_->close.size()) + text_tokens()) return out;
  out.forced = meter_->closing();
  out.for_length = true;
  return out;
}

TokenMask Guide::with_opening(const TokenMask& mask) {
  return {.fits = with(mask.fits, limit_->begin[0], fits_), .language = with(mask.language, limit_->begin[0], language_)};
}

Guidance Guide::next() {
  if (phase_ == Phase::kUnconstrained) return {.forced = meter_->forced()};
  if (phase_ == Phase::kReasoning) return reasoning();
  Guidance out;
  out.mask = state_->mask(static_cast<std::int32_t>(std::max<std::int64_t>(most_ - pushed_, 1)));
  if (at_opening()) out.mask = with_opening(*out.mask);
  return out;
}

void Guide::push(TokenId id) {
  const bool opens = at_opening() && id == limit_->begin[0];
  if (opens) phase_ = Phase::kReasoning;
  ++pushed_;
  if (phase_ == Phase::kText) return state_->push(id);
  const bool was_inside = meter_->inside();
  meter_->push(id);
  if (phase_ == Phase::kReasoning && was_inside && !meter_->inside()) begin_text(/*after_reasoning=*/true);
}

void Guide::rewind(std::span<const TokenId> outputs) {
  const auto count = static_cast<std::int64_t>(outputs.size());
  CHECK(count <= pushed_);
  if (phase_ == Phase::kText && count >= text_from_) {
    state_->rewind(static_cast<std::int32_t>(count - text_from_));
    pushed_ = count;
    return;
  }
  begin();
  for (const TokenId id : outputs) push(id);
}

}  // namespace barg::runtime
