// token_constraint: a Machine over the tokens of a Vocabulary (barg/constraint.h says what it promises).
#pragma once

#include <memory>
#include <vector>

#include "barg/constraint.h"
#include "barg/result.h"
#include "text/grammar/machine.h"
#include "text/grammar/vocabulary.h"

namespace barg::text::grammar {

struct TokenConstraintOptions {
  std::vector<TokenId> end_ids;     ///< allowed where the output is complete
  std::vector<TokenId> banned;      ///< of the request; never allowed
  std::vector<TokenId> allowed;     ///< of the request; empty: all
};

/// kInvalidValue: nothing is left to sample, or the banned ids take a byte that the language needs (it says which).
Result<std::shared_ptr<const Constraint>> make_token_constraint(std::shared_ptr<Machine> machine,
                                                                std::shared_ptr<const Vocabulary> vocabulary,
                                                                TokenConstraintOptions options);

}  // namespace barg::text::grammar
