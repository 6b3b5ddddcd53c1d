// Expressions over code points: what regular expressions and the regular parts of grammars are parsed to, and
// their way to an automaton. An arena of plain nodes, built by one thread, then immutable.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "barg/result.h"
#include "text/grammar/code_set.h"
#include "text/grammar/dfa.h"

namespace barg::text::grammar {

using ExpressionId = std::uint32_t;

struct Expression {
  enum class Kind : std::uint8_t {
    kChars,      ///< one code point of a set
    kSequence,   ///< the parts in order; none: the empty text
    kChoice,     ///< any of the parts; none: nothing
    kRepeat,     ///< parts[0], min..max times (max < 0: without end)
    kTextStart,  ///< ^
    kTextEnd,    ///< $
    kRef,        ///< as the expression `index` is; REQUIRES no circle
  };
  Kind kind = Kind::kSequence;
  std::uint32_t index = 0;  ///< kChars: of the set; kRef: the target
  std::vector<ExpressionId> parts = {};
  std::int64_t min = 0, max = 0;
};

class Expressions {
 public:
  Expressions() = default;
  Expressions(Expressions&&) = default;
  Expressions& operator=(Expressions&&) = default;
  Expressions(const Expressions&) = delete;
  Expressions& operator=(const Expressions&) = delete;

  ExpressionId add(Expression e) {
    nodes_.push_back(std::move(e));
    return static_cast<ExpressionId>(nodes_.size() - 1);
  }
  ExpressionId chars(CodeSet set) {
    const auto [at, is_new] = names_.emplace(std::move(set), static_cast<std::uint32_t>(sets_.size()));
    if (is_new) sets_.push_back(&at->first);
    return add({.kind = Expression::Kind::kChars, .index = at->second});
  }
  /// A kRef may be added before what it stands for.
  void set_target(ExpressionId ref, ExpressionId target) { nodes_[ref].index = target; }
  const Expression& operator[](ExpressionId id) const { return nodes_[id]; }
  const CodeSet& set(std::uint32_t index) const { return *sets_[index]; }
  std::uint32_t num_sets() const { return static_cast<std::uint32_t>(sets_.size()); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }

 private:
  std::vector<Expression> nodes_;
  std::map<CodeSet, std::uint32_t> names_;
  std::vector<const CodeSet*> sets_;  // keys of names_, which stay where they are
};

/// The valid UTF-8 texts that the expression matches; with `search` those in which it matches somewhere. `^`
/// and `$` are exact wherever they stand. kUnsupported ("too large") beyond the limits. REQUIRES that
/// references and all nest no deeper than a recursion may go (about 2000).
Result<Dfa> expression_dfa(const Expressions& expressions, ExpressionId root, bool search,
                           const DfaLimits& limits);

}  // namespace barg::text::grammar
