#include "runtime/reasoning_meter.h"

#include <vector>

namespace barg::runtime {
namespace {

/// How many ids at the front of `marker` the outputs end with, after `id` followed `matched` of them.
std::size_t advance(const std::vector<TokenId>& marker, std::size_t matched, TokenId id) {
  const auto ends_with = [&](std::size_t count) {  // the last `count` outputs are marker[0, count)
    if (marker[count - 1] != id) return false;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (marker[i] != marker[matched - (count - 1) + i]) return false;
    }
    return true;
  };
  for (std::size_t count = matched + 1; count > 0; --count) {
    if (ends_with(count)) return count;
  }
  return 0;
}

}  // namespace

void ReasoningMeter::push(TokenId id) {
  if (!inside_) {
    if (limit_->begin.empty()) return;
    begin_ = advance(limit_->begin, begin_, id);
    if (begin_ < limit_->begin.size()) return;
    begin_ = 0;
    inside_ = true;
    return;
  }
  const std::size_t matched = advance(limit_->close, close_, id);
  used_ += 1 + static_cast<std::int32_t>(close_) - static_cast<std::int32_t>(matched);
  close_ = matched;
  if (close_ < limit_->close.size()) return;
  close_ = 0;
  inside_ = false;
}

void ReasoningMeter::replay(std::span<const TokenId> outputs) {
  *this = ReasoningMeter(*limit_);
  for (const TokenId id : outputs) push(id);
}

}  // namespace barg::runtime
