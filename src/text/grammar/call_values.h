// Arguments of a call in the notations that are not JSON: the nodes of a schema, rewritten. Private to answer_grammar.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "text/dialect_bound.h"
#include "text/grammar/node.h"

namespace barg::text::grammar {

/// The members of the one object that `id` is, in order. kUnsupported where it is several, or none.
Result<std::vector<ObjectNode::Property>> members_of(const Grammar& g, NodeId id);

/// <parameter=KEY>VALUE</parameter> for each member, by the types that the parser will read (output_schema.h).
Result<NodeId> tag_arguments(Grammar& g, const BoundTags& tags, NodeId arguments, const Json& schema);
/// KEY=VALUE, ... without parentheses. Values are JSON, which is Python but for three words that the parser knows.
Result<NodeId> keyword_arguments(Grammar& g, NodeId arguments);
/// {KEY:VALUE,...} with Gemma's quotes.
Result<NodeId> gemma_arguments(Grammar& g, const Literal& quote, NodeId arguments);

}  // namespace barg::text::grammar
