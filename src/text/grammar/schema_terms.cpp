#include "text/grammar/schema_terms.h"

#include <algorithm>
#include <utility>

#include "text/grammar/schema_keywords.h"

namespace barg::text::grammar::schema {

Literal Terms::literal_of(const Json* key, Claim claim) {
  auto& known = claim.place == kNoPlace ? constants_ : schemas_;
  const auto [it, added] = known.emplace(key, static_cast<Literal>(claims_.size() + 1));
  if (added) claims_.push_back(claim);
  return it->second;
}

Term Terms::schema(Place place) {
  const Json& json = document_.json(place);
  if (json.is_bool()) return json.as_bool() ? kAnything : kNothing;
  if (only_annotations(json, document_.draft())) return kAnything;
  return intern({literal_of(&json, {&json, place})});
}

Term Terms::constant(const Json& value) { return intern({literal_of(&value, {&value, kNoPlace})}); }

Term Terms::with(Term term, Literal literal) {
  if (term == kNothing) return kNothing;
  const std::vector<Literal>& old = literals(term);
  if (std::find(old.begin(), old.end(), literal) != old.end()) return term;
  if (std::find(old.begin(), old.end(), -literal) != old.end()) return kNothing;
  std::vector<Literal> more = old;
  more.push_back(literal);
  return intern(std::move(more));
}

Term Terms::both(Term a, Term b) {
  if (a == b || b == kAnything) return a;
  if (a == kAnything) return b;
  if (a == kNothing || b == kNothing) return kNothing;
  const std::vector<Literal> more = literals(b);
  for (const Literal literal : more) a = with(a, literal);
  return a;
}

bool Terms::implies(Term a, Term b) const {
  if (a == kNothing || b == kAnything) return true;
  if (b == kNothing) return false;
  const std::vector<Literal>& have = literals(a);
  return std::ranges::all_of(literals(b),
                             [&](Literal l) { return std::find(have.begin(), have.end(), l) != have.end(); });
}

Term Terms::intern(std::vector<Literal> literals) {
  const auto [it, added] = interned_.emplace(literals, static_cast<Term>(terms_.size()));
  if (added) terms_.push_back(std::move(literals));
  return it->second;
}

}  // namespace barg::text::grammar::schema
