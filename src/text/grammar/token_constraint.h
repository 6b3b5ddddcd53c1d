// token_constraint: a Machine over the tokens of a Vocabulary (barg/constraint.h says what it promises).
#pragma once

#include <memory>
#include <vector>

#include "barg/constraint.h"
#include "barg/result.h"
#include "text/grammar/machine.h"
#include "text/grammar/usable_tokens.h"
#include "text/grammar/vocabulary.h"

namespace barg::text::grammar {

struct TokenConstraintOptions {
  /// The model's end tokens and the request's stop ids: allowed where the output is complete, and nowhere else. (A
  /// TokenNode's token may be one of them: where it completes the output.)
  std::vector<TokenId> end_ids{};
  std::vector<TokenId> banned{};   ///< of the request; never allowed
  std::vector<TokenId> allowed{};  ///< of the request; empty: all
  std::int64_t work = kWalkWork;   ///< of one walk: where an ambiguous grammar takes more, a mask has fewer tokens
};

/// kInvalidValue: what is banned, not allowed or stops takes something that the language needs (a byte, a token, every
/// end token); the message says which.
Result<std::shared_ptr<const Constraint>> make_token_constraint(std::shared_ptr<Machine> machine,
                                                                std::shared_ptr<const Vocabulary> vocabulary,
                                                                TokenConstraintOptions options);

}  // namespace barg::text::grammar
