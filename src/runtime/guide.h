// Guide: what may be the next token of a sequence whose reasoning is bounded or whose text is constrained. A pure
// function of (request, most outputs, outputs so far), kept up token by token.
//
// With a constraint an output is
//
//   [reasoning block] [newlines] text of the constraint's language, end token
//
//   block     there if the prompt ends inside it, or if the first token is that of its opening marker; that token is
//             allowed besides the constraint's own (unless it is one of them, or the block would not fit). Inside,
//             everything but an end token may come, until the block's budget is spent or until its closing marker and
//             the shortest text just fit into what is left of the outputs.
//   newlines  Constraint::start() says which.
//
// Without one there are only bounded reasoning blocks, anywhere.
//
// Threads: as the Sampler that owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "barg/constraint.h"
#include "barg/request.h"
#include "runtime/reasoning_meter.h"

namespace barg::runtime {

struct Guidance {
  TokenId forced = kNoToken;      ///< the next token, whatever the logits say
  bool for_length = false;        ///< it is forced because nothing else leaves room for the text
  bool unended = false;           ///< the text is still to come: no end or stop token
  std::optional<TokenMask> mask{};  ///< only these; valid until the next call
};

class Guide {
 public:
  static bool needed(const SamplingParams& p) { return p.reasoning || p.constraint != nullptr; }
  /// REQUIRES needed(). `sampling` outlives it. No more than `most` outputs will be sampled.
  Guide(const SamplingParams& sampling, std::int32_t most);

  Guidance next();
  /// The next token: as next() allows.
  void push(TokenId id);
  /// Back behind `outputs`, the first of those that were pushed.
  void rewind(std::span<const TokenId> outputs);

 private:
  enum class Phase : std::uint8_t { kUnconstrained, kReasoning, kText };

  bool may_open();
  void begin();
  void begin_text(bool after_reasoning);
  Guidance reasoning() const;
  TokenMask with_opening(const TokenMask& mask);
  bool at_opening() const { return may_open_ && phase_ == Phase::kText && pushed_ == 0; }
  std::int64_t text_tokens() const { return constraint_->min_tokens(); }

  const Constraint* const constraint_;   // nullptr: none
  const ReasoningLimit* const limit_;    // nullptr: no block
  const std::int64_t most_;
  std::optional<ReasoningMeter> meter_;  // with limit_
  Phase phase_ = Phase::kUnconstrained;
  std::int64_t pushed_ = 0;
  std::int64_t text_from_ = 0;              // outputs before the text; in kText
  std::unique_ptr<ConstraintState> state_;  // in kText
  bool may_open_ = false;                   // the first token may open a block
  std::vector<std::uint64_t> fits_, language_;  // with_opening()
};

}  // namespace barg::runtime
