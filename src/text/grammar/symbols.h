// Symbols: the code points that no set of an expression tells apart, so that automata over characters have
// few transitions; and how such automata become ones over the bytes of UTF-8. Internal to expression_dfa.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/grammar/code_set.h"
#include "text/grammar/dfa.h"
#include "text/grammar/minimise.h"

namespace barg::text::grammar {

struct Symbols {
  struct Interval {
    char32_t first, last;
    std::uint32_t symbol;
  };
  std::vector<Interval> intervals;                 ///< ascending, with gaps where no set is
  std::vector<std::vector<std::uint32_t>> of_set;  ///< by index of the set: its symbols, ascending
  std::uint32_t count = 0;

  /// nullopt: it would take over `steps`.
  static std::optional<Symbols> make(const std::vector<const CodeSet*>& sets, std::uint64_t steps);
};

/// A deterministic automaton over symbols, in which every state can accept. State 0 is the start.
struct SymbolDfa {
  std::uint32_t states = 0;
  std::vector<Transition> transitions;  ///< labels are symbols
  std::vector<std::uint8_t> accepting;
};

/// The same over bytes. kUnsupported beyond the limits.
Result<Dfa> encode_utf8(const SymbolDfa& dfa, const Symbols& symbols, const DfaLimits& limits);

}  // namespace barg::text::grammar
