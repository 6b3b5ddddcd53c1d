// Vocabulary: the tokens of one tokenizer as a trie of their bytes, ready for masks. Built once per model (tens of
// milliseconds), immutable, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "barg/tokenizer.h"

namespace barg::text::grammar {

class Vocabulary;

/// Tokens that bytes cannot spell: special ones, those in `markers` (of the model's dialect), those without bytes.
/// `vocab_size` >= tokenizer.size(): ids beyond it are never allowed.
std::shared_ptr<const Vocabulary> make_vocabulary(const Tokenizer& tokenizer, std::span<const TokenId> markers,
                                                  std::int32_t vocab_size);

}  // namespace barg::text::grammar
