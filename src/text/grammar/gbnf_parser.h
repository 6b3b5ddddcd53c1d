// GBNF text to rules over expressions. Internal to gbnf.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "text/grammar/expression.h"

namespace barg::text::grammar {

struct GbnfRule {
  std::string name;
  ExpressionId node = 0;  ///< a kRef, which is a part wherever the rule is mentioned; its target is the body
};

struct GbnfRules {
  Expressions expressions;
  std::vector<GbnfRule> rules;
  std::size_t root = 0;  ///< in rules
};

/// Every rule that is mentioned is defined, and there is a `root`. Rules nest by kRef as deep as the author
/// wished; other expressions no deeper than some hundreds.
Result<GbnfRules> parse_gbnf_rules(std::string_view source);

}  // namespace barg::text::grammar
