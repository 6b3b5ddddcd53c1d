// Constraint: which tokens may come next, so that a whole output belongs to a language (JSON of a schema, a regular
// expression, a grammar, calls of tools). Request carries one; the sampler asks it before every draw.
//
// The language is of bytes: a token is allowed when its bytes lead on to at least one whole output. Three promises:
//  1. Whatever is drawn from the masks, the output can still be completed, and within the budget of tokens that
//     remain, as long as the first budget was at least min_tokens(). A mask is never empty.
//  2. A mask is a pure function of (constraint, outputs so far, budget): never of time, threads or what other
//     sequences did.
//  3. An end token is allowed exactly where the output is complete.
//
// Threads: a Constraint is immutable to its users and shared by any number of threads; a ConstraintState belongs to one
// sequence and one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "barg/types.h"

namespace barg {

struct TokenMask {
  std::span<const std::uint64_t> words;  ///< bit id % 64 of word id / 64; [ceil(vocab / 64)], bits beyond it are 0
  std::int32_t count = 0;                ///< bits set, at least 1
  /// Tokens are missing because they could not be completed within the budget: the output is being led to its end.
  bool narrowed = false;
};

class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  /// What may be the next token when at most `budget` >= 1 more tokens (this one included, a final end token not
  /// counted) will be sampled. Valid until the next call on this object.
  virtual TokenMask mask(std::int32_t budget) = 0;
  /// The next token. REQUIRES that mask() allows it with some budget.
  virtual void push(TokenId id) = 0;
  /// Back to the state behind the first `count` pushed tokens.
  virtual void rewind(std::int32_t count) = 0;
};

class Constraint {
 public:
  virtual ~Constraint() = default;
  virtual std::unique_ptr<ConstraintState> start() const = 0;
  /// Tokens that suffice for a whole output, its end token not counted: no smaller budget is refused without need
  /// on small grammars (the search is exact there), and this one always suffices.
  virtual std::int32_t min_tokens() const = 0;
};

}  // namespace barg
