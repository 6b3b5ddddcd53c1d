// Terms: what is asked of one value, by name. A Literal is a schema of the document, a constant, or the negation of
// either; a Term is a conjunction of Literals. Equal conjunctions are one Term, so that recursion closes and work is
// remembered. Terms stay unevaluated (schema_normal.h does that) until someone needs to know what they mean. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/grammar/schema_document.h"

namespace barg::text::grammar::schema {

using Term = std::int32_t;
inline constexpr Term kAnything = 0;
inline constexpr Term kNothing = 1;

/// n + 1 for the claim n, -(n + 1) for its negation.
using Literal = std::int32_t;

/// A schema (of a place) or a constant.
struct Claim {
  const Json* json = nullptr;
  Place place = kNoPlace;  ///< kNoPlace: the constant *json
};

class Terms {
 public:
  explicit Terms(SchemaDocument& document) : document_(document) { terms_.resize(2); }

  Term schema(Place place);
  Term constant(const Json& value);
  /// Both; in this order, which is that of declared properties.
  Term both(Term a, Term b);
  /// `term` and not `literal`.
  Term without(Term term, Literal literal) { return with(term, -literal); }
  Term with(Term term, Literal literal);

  const std::vector<Literal>& literals(Term term) const { return terms_[static_cast<std::size_t>(term)]; }
  const Claim& claim(Literal literal) const {
    return claims_[static_cast<std::size_t>(literal > 0 ? literal - 1 : -literal - 1)];
  }
  /// Whatever is in `a` is in `b`, by the names alone.
  bool implies(Term a, Term b) const;
  std::size_t size() const { return terms_.size(); }

 private:
  Term intern(std::vector<Literal> literals);
  Literal literal_of(const Json* key, Claim claim);

  SchemaDocument& document_;
  std::vector<Claim> claims_;
  std::unordered_map<const Json*, Literal> schemas_, constants_;
  std::vector<std::vector<Literal>> terms_;  ///< [0]: anything, [1]: nothing
  std::map<std::vector<Literal>, Term> interned_;
};

}  // namespace barg::text::grammar::schema
