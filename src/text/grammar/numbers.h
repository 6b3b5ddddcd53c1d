// Numbers as JSON writes them, bounded exactly by their digits.
#pragma once

#include <optional>
#include <string>

#include "text/grammar/dfa.h"

namespace barg::text::grammar {

/// Bounds are decimal numbers as JSON writes them (also with exponents, of any length up to 400 bytes): compared as
/// digits, never as doubles.
struct NumberRange {
  std::optional<std::string> minimum = {}, maximum = {};
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<std::string> multiple_of = {};  ///< > 0
  auto operator<=>(const NumberRange&) const = default;
};

/// JSON numbers that are integers: -?(0|[1-9][0-9]*), and with a fraction of zeros only (at most three), within the
/// range. Without bounds any length; no exponent. kUnsupported (it names the keyword) where the automaton would be too
/// large (a divisor with too many residues).
Result<Dfa> integer_dfa(const NumberRange& range, const DfaLimits& limits = {});
/// Any JSON number; an exponent only where there is no bound at all. multiple_of: decimals such as 0.01 and 2.5.
Result<Dfa> number_dfa(const NumberRange& range, const DfaLimits& limits = {});

}  // namespace barg::text::grammar
