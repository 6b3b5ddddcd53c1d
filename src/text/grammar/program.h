// Expressions as a nondeterministic automaton: instructions that take one code point, or none. Values;
// internal to expression_dfa.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "text/grammar/expression.h"

namespace barg::text::grammar {

/// A set without code points.
inline constexpr std::uint32_t kNoSet = 0xFFFF'FFFF;

struct Instruction {
  enum class Kind : std::uint8_t { kChars, kSplit, kTextStart, kTextEnd, kMatch };
  Kind kind = Kind::kMatch;
  std::uint32_t set = 0;  ///< kChars
  std::uint32_t next = 0;
  std::uint32_t other = 0;  ///< kSplit: the second way
};

struct Program {
  std::vector<Instruction> code;
  std::uint32_t entry = 0;
};

/// nullopt: over `most` instructions (found without building them).
std::optional<Program> compile_program(const Expressions& expressions, ExpressionId root, std::uint64_t most);

}  // namespace barg::text::grammar
