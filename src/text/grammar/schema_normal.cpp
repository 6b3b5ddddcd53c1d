#include "text/grammar/schema_normal.h"

#include <algorithm>
#include <tuple>

#include "text/grammar/schema_keywords.h"

namespace barg::text::grammar::schema {
namespace {

constexpr std::int32_t kDeepest = 150;     // of schemas that ask for each other at the same value
constexpr std::int32_t kDeepestProof = 4;  // levels of values looked into to see that a Term is empty

/// The schema inside, where the only thing that `schema` says is `not`.
bool only_not(const Json& schema, Draft draft) {
  if (!schema.is_object() || schema.find("not") == nullptr) return false;
  if (draft == Draft::k7 && schema.find("$ref") != nullptr) return false;
  return std::ranges::all_of(schema.as_object(), [&](const Json::Member& m) {
    const Keyword* keyword = find_keyword(m.first, draft);
    return m.first == "not" || (keyword != nullptr && keyword->role == Role::kAnnotation);
  });
}

}  // namespace

Norm everything() {
  Norm norm;
  norm.null = norm.no = norm.yes = true;
  norm.numbers.all = true;
  norm.strings.emplace_back();
  norm.arrays.emplace_back();
  norm.objects.emplace_back();
  return norm;
}

Normaliser::Normaliser(SchemaDocument& document, bool lenient, std::int64_t& work)
    : document_(document),
      lenient_(lenient),
      languages_(work),
      terms_(document),
      algebra_(terms_, languages_, [this](Term term) { return surely_empty(term); }) {}

Checked<const Norm*> Normaliser::norm(Term term, Mode mode) {
  const auto key = std::pair(term, mode);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const std::vector<Literal>& literals = terms_.literals(term);
  Checked<const Norm*> out = nullptr;
  // A negation that cannot be said is left out where that only widens: make_term does it.
  if (literals.size() == 1 && (literals[0] > 0 || mode == Mode::kExact)) {
    out = literal(literals[0], mode);
  } else if (auto made = make_term(term, mode)) {
    out = &norms_.emplace_back(std::move(*made));
  } else {
    out = std::unexpected(made.error());
  }
  // Below a schema that is being computed, "pending" and "too deep" may be untrue later.
  if (out || depth_ == 0) known_.emplace(key, out);
  return out;
}

Checked<Norm> Normaliser::make_term(Term term, Mode mode) {
  if (term == kNothing) return Norm{};
  Norm out = everything();
  const std::vector<Literal> literals = terms_.literals(term);
  for (const Literal each : literals) {
    auto part = literal(each, mode);
    Checked<Norm> both = part ? algebra_.intersection(out, **part) : Checked<Norm>(std::unexpected(part.error()));
    if (both) {
      out = std::move(*both);
      continue;
    }
    Issue issue = both.error();
    if (issue.at == kNoPlace) issue.at = terms_.claim(each).place;
    if (mode == Mode::kExact || issue.kind != Issue::Kind::kUnsupported) return std::unexpected(std::move(issue));
    out.dropped = algebra_.drops().with(out.dropped, std::move(issue));
  }
  return out;
}

Checked<const Norm*> Normaliser::literal(Literal literal, Mode mode) {
  const auto key = std::pair(literal, mode);
  if (const auto it = literals_.find(key); it != literals_.end()) return it->second;
  const Place place = terms_.claim(literal).place;
  if (!open_.insert(key).second) {
    return std::unexpected(Issue{Issue::Kind::kPending, place, "$ref", "the schema refers to itself without an end"});
  }
  Checked<Norm> made = unsupported(place, "", "the schema is nested too deeply");
  if (--norms_left_ < 0) {
    made = unsupported(place, "", "the schema as a whole is too complex");
  } else if (depth_ < kDeepest) {
    ++depth_;
    made = make_literal(literal, mode);
    --depth_;
  }
  open_.erase(key);
  Checked<const Norm*> out = nullptr;
  if (made) {
    out = &norms_.emplace_back(std::move(*made));
  } else {
    out = std::unexpected(made.error());
  }
  if (out || depth_ == 0) literals_.emplace(key, out);
  return out;
}

Checked<Norm> Normaliser::make_literal(Literal literal, Mode mode) {
  const Claim claim = terms_.claim(literal);
  if (literal > 0) return claim.place == kNoPlace ? constant(*claim.json) : make_schema(claim.place, mode);
  if (claim.place != kNoPlace && only_not(*claim.json, document_.draft())) {
    auto inside = schema_at(document_.member(claim.place, "not"), mode);
    if (!inside) return std::unexpected(inside.error());
    return **inside;
  }
  auto positive = this->literal(-literal, Mode::kExact);
  if (!positive) return std::unexpected(positive.error());
  auto rest = algebra_.difference(everything(), **positive);
  if (rest) return rest;
  Issue issue = rest.error();
  std::tie(issue.at, issue.keyword) =
      claim.place == kNoPlace ? std::pair(document_.root(), std::string("const")) : document_.owner(claim.place);
  return std::unexpected(std::move(issue));
}

bool Normaliser::surely_empty(Term term) {
  if (term == kNothing) return true;
  if (terms_.literals(term).size() < 2) return false;  // one schema alone: it is met when it is written out
  if (const auto it = empty_.find(term); it != empty_.end()) return it->second;
  if (proof_depth_ >= kDeepestProof || depth_ >= kDeepest) return false;
  ++proof_depth_;
  const auto known = norm(term);
  --proof_depth_;
  if (!known) return false;
  return empty_[term] = (*known)->empty();
}

}  // namespace barg::text::grammar::schema
