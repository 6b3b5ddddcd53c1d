// ReasoningMeter: where a sequence stands in its reasoning block, and the token that must come next once its
// budget is spent. A pure function of (limit, outputs so far), kept up token by token.
//
// Threads: as the Sampler that owns it. Allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "barg/request.h"

namespace barg::runtime {

class ReasoningMeter {
 public:
  /// `limit` outlives it.
  explicit ReasoningMeter(const ReasoningLimit& limit) : limit_(&limit), inside_(limit.open) {}

  /// The next token, or kNoToken where the model chooses.
  TokenId forced() const {
    const auto spent = used_ + static_cast<std::int64_t>(close_);  // a begun marker may turn out to be none
    return inside_ && spent >= limit_->budget ? closing() : kNoToken;
  }
  bool inside() const { return inside_; }
  /// The closing marker's id that follows those which the last outputs are. REQUIRES inside().
  TokenId closing() const { return limit_->close[close_]; }
  void push(TokenId id);
  /// The state behind exactly these outputs.
  void replay(std::span<const TokenId> outputs);

 private:
  const ReasoningLimit* limit_;
  bool inside_;
  std::int32_t used_ = 0;  ///< tokens inside, those of a begun closing marker not counted
  std::size_t begin_ = 0, close_ = 0;  ///< ids of the marker that the last outputs are
};

}  // namespace barg::runtime
