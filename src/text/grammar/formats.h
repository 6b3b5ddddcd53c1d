// The string formats of JSON Schema that are enforced, as automata over the decoded text.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"

namespace barg::text::grammar {

/// Names of all formats that format_dfa knows.
std::vector<std::string_view> known_formats();
/// nullptr: unknown. Cached for the process.
DfaPtr format_dfa(std::string_view name);

}  // namespace barg::text::grammar
