// GBNF (llama.cpp) and the EBNF of xgrammar and SGLang (the same notation): rules `name ::= ...`, literals, classes,
// groups, | * + ? {m,n}, `.`, comments. Root rule: `root`.
#pragma once

#include <cstdint>
#include <string_view>

#include "barg/result.h"
#include "text/grammar/node.h"

namespace barg::text::grammar {

/// kInvalidValue with line and column; kUnsupported for left recursion (by rule name) and what is too large. `work`: as
/// DfaLimits::work.
Result<Grammar> parse_gbnf(std::string_view source, std::int64_t* work = nullptr);

}  // namespace barg::text::grammar
