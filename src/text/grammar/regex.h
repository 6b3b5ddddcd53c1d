// Regular expressions to automata. ECMA-262 syntax with the `u` flag's meaning of characters (JSON Schema patterns),
// no look-around (but ^ and $ wherever they can be resolved), no back-references, no \b \B; \d \w \s and \p{..} of
// general categories and scripts as ECMA has them. What is not supported is refused by name, never read otherwise.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"

namespace barg::text::grammar {

struct RegexOptions {
  /// The pattern may match anywhere (JSON Schema's `pattern`); false: it is the whole text (`guided_regex`), where a
  /// leading ^ and a trailing $ are allowed and change nothing.
  bool search = true;
  DfaLimits limits = {};
};

/// The language of UTF-8 texts that the pattern accepts. kInvalidValue for bad syntax (the message has the offset),
/// kUnsupported for what is named above and for what exceeds the limits.
Result<Dfa> regex_dfa(std::string_view pattern, const RegexOptions& options = {});

}  // namespace barg::text::grammar
