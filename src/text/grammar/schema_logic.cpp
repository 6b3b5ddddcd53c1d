// Normaliser: the keywords that combine schemas.
#include <algorithm>
#include <set>

#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar::schema {

Checked<std::vector<const Norm*>> Normaliser::branches(Place list, Mode mode) {
  std::vector<const Norm*> out;
  for (std::size_t i = 0; i < document_.json(list).size(); ++i) {
    auto branch = schema_at(document_.item(list, i), mode);
    if (!branch) return std::unexpected(branch.error());
    out.push_back(*branch);
  }
  return out;
}

Checked<void> Normaliser::apply_all_of(Work& work) {
  const Place list = document_.member(work.place, "allOf");
  for (std::size_t i = 0; i < document_.json(list).size(); ++i) {
    const Place place = document_.item(list, i);
    auto done = run(work, "allOf", [&](const Norm& known) -> Checked<Norm> {
      auto part = schema_at(place, work.mode);
      if (!part) return std::unexpected(part.error());
      return algebra_.intersection(known, **part);
    });
    if (!done) return done;
  }
  return {};
}

// ------------------------------------------------------------------------------------------------ anyOf

Checked<Norm> Normaliser::any_of(const Norm& known, Place list, Mode mode) {
  constexpr std::size_t kMostSubsets = 64;
  auto parts = branches(list, mode);
  if (!parts) return std::unexpected(parts.error());
  const bool marks = document_.has_unevaluated();
  std::vector<Norm> met;
  for (const Norm* part : *parts) {
    // Who matches two branches has what both have evaluated, so those are alternatives of their own.
    const std::size_t subsets = marks ? met.size() : 0;
    auto alone = algebra_.intersection(known, *part);
    if (!alone) return alone;
    for (std::size_t i = 0; i < subsets; ++i) {
      auto both = algebra_.intersection(met[i], *part);
      if (!both) return both;
      if (!both->empty()) met.push_back(std::move(*both));
    }
    met.push_back(std::move(*alone));
    if (marks && met.size() > kMostSubsets) return unsupported("too many alternatives beside an unevaluated keyword");
  }
  Norm out;
  for (const Norm& norm : met) {
    if (auto done = algebra_.unite(out, norm, marks); !done) return std::unexpected(done.error());
  }
  return out;
}

Checked<void> Normaliser::apply_any_of(Work& work) {
  if (work.find("anyOf") == nullptr) return {};
  const Place list = document_.member(work.place, "anyOf");
  return run(work, "anyOf", [&](const Norm& known) { return any_of(known, list, work.mode); });
}

// ------------------------------------------------------------------------------------------------ oneOf

namespace {

const ObjectShape::Property* required_property(const ObjectShape& shape, const std::string& name) {
  const auto it = std::ranges::find(shape.properties, name, &ObjectShape::Property::name);
  return it == shape.properties.end() || !it->required ? nullptr : &*it;
}

bool only_objects(const Norm& norm) {
  return !norm.null && !norm.no && !norm.yes && norm.numbers.none() && norm.strings.empty() && norm.arrays.empty();
}

bool only_few_strings(const Norm& norm) {
  return !norm.null && !norm.no && !norm.yes && norm.numbers.none() && norm.arrays.empty() && norm.objects.empty() &&
         std::ranges::all_of(norm.strings, [](const Strings& s) { return s.content != nullptr; });
}

}  // namespace

bool Normaliser::told_apart_by(const std::string& name, const std::vector<Norm>& norms, Mode mode) {
  constexpr std::size_t kMostWords = 64;
  std::set<std::string> taken;
  for (const Norm& branch : norms) {
    std::set<std::string> own;
    for (const ObjectShape& shape : branch.objects) {
      const ObjectShape::Property* property = required_property(shape, name);
      if (property == nullptr) return false;
      const auto value = norm(property->value, mode);
      if (!value || !only_few_strings(**value)) return false;
      for (const Strings& strings : (*value)->strings) {
        const auto words = dfa_words(*strings.content, kMostWords);
        if (!words) return false;
        own.insert(words->begin(), words->end());
      }
    }
    for (const std::string& word : own) {
      if (!taken.insert(word).second) return false;
    }
  }
  return true;
}

bool Normaliser::told_apart(const std::vector<Norm>& norms, Mode mode) {
  if (!std::ranges::all_of(norms, only_objects)) return false;
  const auto first = std::ranges::find_if(norms, [](const Norm& norm) { return !norm.objects.empty(); });
  if (first == norms.end()) return true;
  return std::ranges::any_of(first->objects[0].properties, [&](const ObjectShape::Property& p) {
    return p.required && told_apart_by(p.name, norms, mode);
  });
}

/// Each branch without the others, where they are not disjoint anyway.
Checked<Norm> Normaliser::one_of(const Norm& known, Place list, Mode mode) {
  auto parts = branches(list, mode);
  if (!parts) return std::unexpected(parts.error());
  std::vector<Norm> met;
  for (const Norm* part : *parts) {
    auto one = algebra_.intersection(known, *part);
    if (!one) return one;
    met.push_back(std::move(*one));
  }
  const bool disjoint = told_apart(met, mode);
  Norm out;
  for (std::size_t i = 0; i < met.size(); ++i) {
    Checked<Norm> one = std::move(met[i]);
    for (std::size_t j = 0; !disjoint && one && j < met.size() && !one->empty(); ++j) {
      if (i == j) continue;
      auto meet = algebra_.intersection(*one, *(*parts)[j]);
      if (meet && meet->empty()) continue;
      auto other = schema_at(document_.item(list, j), Mode::kExact);
      if (!other) return std::unexpected(other.error());
      one = algebra_.difference(*one, **other);
    }
    if (!one) return one;
    if (auto done = algebra_.unite(out, *one, document_.has_unevaluated()); !done) return std::unexpected(done.error());
  }
  return out;
}

Checked<void> Normaliser::apply_one_of(Work& work) {
  if (work.find("oneOf") == nullptr) return {};
  const Place list = document_.member(work.place, "oneOf");
  auto exact = one_of(work.norm, list, work.mode);
  const bool widen = !exact && work.mode == Mode::kWiden && exact.error().kind == Issue::Kind::kUnsupported;
  auto done = run(work, "oneOf", [&](const Norm&) { return exact; });
  if (!done || !widen) return done;
  // "At least one" is what is left of "exactly one".
  return run(work, "oneOf", [&](const Norm& known) { return any_of(known, list, work.mode); });
}

// -------------------------------------------------------------------------------------- not, if, dependent

Checked<void> Normaliser::apply_not(Work& work) {
  if (work.find("not") == nullptr) return {};
  const Place place = document_.member(work.place, "not");
  return run(work, "not", [&](const Norm& known) -> Checked<Norm> {
    auto inside = schema_at(place, Mode::kExact);
    if (!inside) return std::unexpected(inside.error());
    return algebra_.difference(known, **inside);
  });
}

/// (if and then) or (not if and else).
Checked<Norm> Normaliser::condition(const Norm& known, const Work& work) {
  const auto branch = [&](std::string_view keyword) -> Checked<const Norm*> {
    return schema_at(document_.member(work.place, keyword), work.mode);
  };
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  const bool marks = document_.has_unevaluated();
  auto test = schema_at(document_.member(work.place, "if"), Mode::kExact);
  if (!test) return std::unexpected(test.error());
  Checked<Norm> yes = algebra_.intersection(known, **test);
  // Without `then`: if or else. Without both (what `if` has evaluated counts): if, or anything.
  Checked<Norm> no = has("then") || (marks && has("else")) ? algebra_.difference(known, **test) : Checked<Norm>(known);
  if (yes && has("then")) {
    auto then = branch("then");
    if (!then) return std::unexpected(then.error());
    yes = algebra_.intersection(*yes, **then);
  }
  if (no && has("else")) {
    auto otherwise = branch("else");
    if (!otherwise) return std::unexpected(otherwise.error());
    no = algebra_.intersection(*no, **otherwise);
  }
  if (!yes) return yes;
  if (!no) return no;
  if (auto done = algebra_.unite(*yes, *no, marks); !done) return std::unexpected(done.error());
  return yes;
}

Checked<void> Normaliser::apply_condition(Work& work) {
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  if (!has("if") || (!has("then") && !has("else") && !document_.has_unevaluated())) return {};
  for (const std::string_view keyword : {"then", "else"}) {
    if (has(keyword)) enforced_.emplace(work.place, keyword);
  }
  return run(work, "if", [&](const Norm& known) { return condition(known, work); });
}

Checked<Norm> Normaliser::depends(const Norm& known, std::string_view name, const Json* required, Place schema,
                                  Mode mode) {
  Norm absent = everything();
  absent.objects[0].properties.push_back({.name = std::string(name), .value = kNothing});
  Norm present;
  ObjectShape& shape = present.objects.emplace_back();
  shape.properties.push_back({.name = std::string(name), .required = true});
  if (required != nullptr) {
    for (const Json& other : required->as_array()) {
      if (other.as_string() != name) shape.properties.push_back({.name = other.as_string(), .required = true});
    }
  }
  auto out = algebra_.intersection(known, absent);
  if (!out) return out;
  auto with = algebra_.intersection(known, present);
  if (with && schema != kNoPlace) {
    auto rule = schema_at(schema, mode);
    if (!rule) return std::unexpected(rule.error());
    with = algebra_.intersection(*with, **rule);
  }
  if (!with) return with;
  if (auto done = algebra_.unite(*out, *with, document_.has_unevaluated()); !done) return std::unexpected(done.error());
  return out;
}

Checked<void> Normaliser::apply_dependents(Work& work) {
  for (const std::string_view keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    if (work.find(keyword) == nullptr) continue;
    for (const auto& [name, place] : document_.members(document_.member(work.place, keyword))) {
      const Json& value = document_.json(place);
      const bool list = value.is_array();
      if (list && value.size() == 0) continue;
      const std::string_view owner = name;
      const Place schema = list ? kNoPlace : place;
      auto done = run(work, keyword, [&](const Norm& known) {
        return depends(known, owner, list ? &value : nullptr, schema, work.mode);
      });
      if (!done) return done;
    }
  }
  return {};
}

}  // namespace barg::text::grammar::schema
