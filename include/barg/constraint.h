// Constraint: which tokens may come next, so that a whole output belongs to a language (JSON of a schema, a regular
// expression, a grammar, calls of tools). SamplingParams carries one; the sampler asks it before every draw.
//
// The language is of bytes: a token is allowed when its bytes lead on to at least one whole output. Three promises:
//  1. Whatever is drawn from `fits` of the masks, the output can still be completed, and within the budget of tokens
//     that remain, as long as the first budget was at least min_tokens(). A mask is never empty.
//  2. A mask is a pure function of (constraint, outputs so far, budget): never of time, threads or what other
//     sequences did.
//  3. An end token is allowed exactly where the output is complete, and nothing else behind one.
//
// It is made for the request's own lists: ids that the request bans, does not allow or stops at are in the masks only
// where they may be drawn (a stop id ends the output like an end token).
//
// Threads: a Constraint is immutable to its users and shared by any number of threads; a ConstraintState belongs to one
// sequence and one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "barg/types.h"

namespace barg {

struct TokenSet {
  std::span<const std::uint64_t> words;  ///< bit id % 64 of word id / 64; [ceil(vocab / 64)], bits beyond it are 0
  std::int32_t count = 0;                ///< bits set
  /// REQUIRES an id of the vocabulary.
  bool has(TokenId id) const {
    return (words[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64) & 1) != 0;
  }
};

struct TokenMask {
  TokenSet fits;      ///< what may come next; never empty
  TokenSet language;  ///< what the language alone allows; contains `fits`. Of very ambiguous grammars perhaps not all
                      ///< tokens, but always enough to write every text
  /// The rest of the language could not be completed within the budget.
  bool narrowed() const { return fits.count != language.count; }
};

class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  /// What may be the next token when at most `budget` >= 1 more tokens (this one included, a final end token not
  /// counted) will be sampled. Valid until the next call on this object. Below the budget that is needed, `fits` has
  /// what is nearest to an end.
  virtual TokenMask mask(std::int32_t budget) = 0;
  /// The next token. REQUIRES that mask() allows it with some budget.
  virtual void push(TokenId id) = 0;
  /// Back to the state behind the first `count` pushed tokens.
  virtual void rewind(std::int32_t count) = 0;
};

class Constraint {
 public:
  virtual ~Constraint() = default;
  /// `after_reasoning`: templates set the answer off from the reasoning, so one or two newlines are allowed before the
  /// language's own text (unless that may begin with a newline, which it then is). They are not part of it.
  virtual std::unique_ptr<ConstraintState> start(bool after_reasoning) const = 0;
  /// Tokens that suffice for a whole output, its end token not counted: no smaller budget is refused without need
  /// on small grammars (the search is exact there), and this one always suffices.
  virtual std::int32_t min_tokens() const = 0;
};

}  // namespace barg
