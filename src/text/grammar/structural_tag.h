// Structural tags: an answer of free text and of parts that are bound, as vLLM, SGLang and xgrammar let clients describe
// it. Both notations: {"structures": [{"begin", "schema", "end"}], "triggers": [..]} and {"format": FORMAT}, FORMAT one
// of const_string, json_schema, regex, grammar, any_text, sequence, or, tag, triggered_tags, tags_with_separator.
//
// Texts that the tokenizer has as one added token are that token. Free text holds none of the triggers that end it.
#pragma once

#include <vector>

#include "barg/tokenizer.h"
#include "base/json.h"
#include "text/grammar/node.h"
#include "text/grammar/schema.h"

namespace barg::text::grammar {

struct TagGrammar {
  Grammar grammar;
  std::vector<Unenforced> unenforced;  ///< what is left out with lenient, and what has no effect in its draft
};

/// `spec`: the object that holds `format`, or `structures` and `triggers`. kInvalidValue and kUnsupported name the
/// member by its path in `spec` (Error::param).
Result<TagGrammar> structural_tag_grammar(const Json& spec, const Tokenizer& tokenizer, const SchemaOptions& options);

}  // namespace barg::text::grammar
