// Pieces that several front ends build grammars from. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/tokenizer.h"
#include "text/dialect_bound.h"
#include "text/grammar/node.h"

namespace barg::text::grammar {

NodeId add_bytes(Grammar& g, Dfa dfa);
NodeId add_literal(Grammar& g, std::string_view bytes);
/// The parts one after the other; a single part is itself.
NodeId add_sequence(Grammar& g, std::vector<NodeId> parts);
NodeId add_choice(Grammar& g, std::vector<NodeId> options);
/// `node` or nothing.
NodeId add_optional(Grammar& g, NodeId node);
/// What a bound literal of a dialect reads: bytes and tokens.
NodeId add_symbols(Grammar& g, const Literal& literal);
/// `text` as the tokenizer reads it: added tokens in it as tokens, the rest as bytes.
NodeId add_marked(Grammar& g, std::string_view text, const Tokenizer& tokenizer);
/// Layout that templates put between parts: nothing, a blank, one or two line feeds.
NodeId add_gap(Grammar& g);
/// A copy of `other` in `g`; its root there. Spacing is `g`'s.
NodeId splice(Grammar& g, const Grammar& other);
/// What `id` says once Refs and choices of one are followed.
NodeId resolve(const Grammar& g, NodeId id);

/// Valid UTF-8 in which none of `words` occurs. kUnsupported where that is too large.
Result<Dfa> dfa_without(std::span<const std::string> words, const DfaLimits& limits = {});
/// One code point.
Dfa dfa_any_char();

}  // namespace barg::text::grammar
