// Normaliser: the keywords of arrays and objects.
#include <algorithm>

#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar::schema {
namespace {

Norm if_array(ArrayShape shape) {
  Norm norm = everything();
  norm.arrays = {std::move(shape)};
  return norm;
}

Norm if_object(ObjectShape shape) {
  Norm norm = everything();
  norm.objects = {std::move(shape)};
  return norm;
}

}  // namespace

// ----------------------------------------------------------------------------------------------- arrays

namespace {

/// prefixItems and items, or items and additionalItems before 2020-12.
ArrayShape items_shape(SchemaDocument& document, Terms& terms, Place place) {
  ArrayShape shape;
  const Json& schema = document.json(place);
  const bool old = document.draft() != Draft::k2020;
  const Json* items = schema.find("items");
  const bool list_in_items = old && items != nullptr && items->is_array();
  const std::string_view front = list_in_items ? "items" : "prefixItems";
  const std::string_view rest = list_in_items ? "additionalItems" : "items";
  if (list_in_items || (!old && schema.find("prefixItems") != nullptr)) {
    const Place list = document.member(place, front);
    for (std::size_t i = 0; i < document.json(list).size(); ++i) {
      shape.prefix.push_back(terms.schema(document.item(list, i)));
    }
  }
  shape.evaluated = static_cast<std::int64_t>(shape.prefix.size());
  if (schema.find(rest) != nullptr) {
    shape.items = terms.schema(document.member(place, rest));
    shape.all_evaluated = true;
  }
  return shape;
}

}  // namespace

Checked<void> Normaliser::apply_arrays(Work& work) {
  const auto meet = [&](std::string_view keyword, ArrayShape shape) {
    return run(work, keyword, [&](const Norm& known) {
      Norm norm = if_array(std::move(shape));
      if (!algebra_.settle(norm.arrays[0])) norm.arrays.clear();
      return algebra_.intersection(known, norm);
    });
  };
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  if (has("items") || has("prefixItems")) {
    for (const std::string_view keyword : {"items", "prefixItems", "additionalItems"}) {
      if (has(keyword)) enforced_.emplace(work.place, keyword);
    }
    ArrayShape shape = items_shape(document_, terms_, work.place);
    if (!document_.has_unevaluated()) shape.evaluated = 0, shape.all_evaluated = false;
    if (auto done = meet(has("items") ? "items" : "prefixItems", std::move(shape)); !done) return done;
  }
  if (const auto count = count_of(work.find("minItems"))) {
    ArrayShape shape;
    shape.min = *count;
    if (auto done = meet("minItems", std::move(shape)); !done) return done;
  }
  if (const auto count = count_of(work.find("maxItems"))) {
    ArrayShape shape;
    shape.max = *count;
    if (auto done = meet("maxItems", std::move(shape)); !done) return done;
  }
  if (const Json* unique = work.find("uniqueItems"); unique != nullptr && unique->as_bool()) {
    ArrayShape shape;
    shape.unique_at = work.place;
    if (auto done = meet("uniqueItems", std::move(shape)); !done) return done;
  }
  if (!has("contains")) return {};
  ArrayShape shape;
  shape.contains.push_back({.what = terms_.schema(document_.member(work.place, "contains")),
                            .min = count_of(work.find("minContains")).value_or(1),
                            .max = count_of(work.find("maxContains")).value_or(kUnbounded),
                            .at = work.place});
  for (const std::string_view keyword : {"minContains", "maxContains"}) {
    if (has(keyword)) enforced_.emplace(work.place, keyword);
  }
  shape.contains_evaluates = document_.has_unevaluated() && document_.draft() == Draft::k2020;
  return meet("contains", std::move(shape));
}

// ---------------------------------------------------------------------------------------------- objects

namespace {

/// Names by the patterns that they match.
struct NameClass {
  DfaPtr names;  // null: any
  Term value = kAnything;
  bool matched = false;
};

Checked<std::vector<NameClass>> refined(Languages& languages, Terms& terms, const std::vector<NameClass>& classes,
                                        const DfaPtr& pattern, Term value) {
  constexpr std::size_t kMost = 64;
  std::vector<NameClass> out;
  for (const NameClass& old : classes) {
    auto inside = languages.both(old.names, pattern);
    if (!inside) return std::unexpected(inside.error());
    auto outside = languages.minus(old.names, pattern);
    if (!outside) return std::unexpected(outside.error());
    if (!(*inside)->empty()) out.push_back({*inside, terms.both(old.value, value), true});
    if (!(*outside)->empty()) out.push_back({*outside, old.value, old.matched});
  }
  if (out.size() > kMost) return unsupported("too many overlapping patterns of names");
  return out;
}

}  // namespace

/// properties, and with `with_patterns` patternProperties and additionalProperties.
Checked<ObjectShape> Normaliser::names_shape(const Work& work, bool with_patterns) {
  std::vector<NameClass> classes{NameClass{}};
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  if (with_patterns && has("patternProperties")) {
    for (const auto& [pattern, place] : document_.members(document_.member(work.place, "patternProperties"))) {
      auto dfa = languages_.pattern(std::string(pattern));
      if (!dfa) return std::unexpected(Issue{dfa.error().kind, work.place, "patternProperties", dfa.error().reason});
      auto finer = refined(languages_, terms_, classes, *dfa, terms_.schema(place));
      if (!finer)
        return std::unexpected(Issue{finer.error().kind, work.place, "patternProperties", finer.error().reason});
      classes = std::move(*finer);
    }
  }
  ObjectShape shape;
  shape.others.clear();
  const bool marks = document_.has_unevaluated();
  const bool rest = with_patterns && has("additionalProperties");
  for (const NameClass& c : classes) {
    const Term value =
        c.matched || !rest ? c.value : terms_.schema(document_.member(work.place, "additionalProperties"));
    shape.others.push_back({.names = c.names, .value = value, .evaluated = marks && (c.matched || rest)});
  }
  if (!has("properties")) return shape;
  for (const auto& [name, place] : document_.members(document_.member(work.place, "properties"))) {
    ObjectShape::Property property{
        .name = std::string(name), .value = terms_.schema(place), .declared = true, .evaluated = marks};
    for (const NameClass& c : classes) {
      const bool here = c.matched && c.names->matches(name);
      if (here) property.value = terms_.both(property.value, c.value);
    }
    shape.properties.push_back(std::move(property));
  }
  return shape;
}

Checked<Norm> Normaliser::with_names(const Norm& known, Place names, Mode mode) {
  auto norm = schema_at(names, mode);
  if (!norm) return std::unexpected(norm.error());
  auto language = language_of(languages_, (*norm)->strings);
  if (!language) return std::unexpected(language.error());
  ObjectShape shape;
  shape.others[0].names = *language;
  Norm rule = if_object(std::move(shape));
  algebra_.settle(rule.objects[0]);
  rule.dropped = (*norm)->dropped;
  return algebra_.intersection(known, rule);
}

Checked<void> Normaliser::apply_objects(Work& work) {
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  const auto meet = [&](std::string_view keyword, ObjectShape shape) {
    return run(work, keyword, [&](const Norm& known) {
      Norm norm = if_object(std::move(shape));
      if (!algebra_.settle(norm.objects[0])) norm.objects.clear();
      return algebra_.intersection(known, norm);
    });
  };
  constexpr std::string_view kNames[] = {"properties", "patternProperties", "additionalProperties"};
  const auto named = std::ranges::find_if(kNames, has);
  if (named != std::end(kNames)) {
    auto shape = names_shape(work, true);
    if (!shape) {
      // Without the patterns nobody knows which names are additional: both are left out.
      if (auto done = leave_out(work, shape.error()); !done) return done;
      if (has("additionalProperties")) {
        work.norm.dropped = algebra_.drops().with(work.norm.dropped,
                                                  {Issue::Kind::kUnsupported, work.place, "additionalProperties",
                                                   "it depends on patterns that are not enforced"});
      }
      shape = names_shape(work, false);
      if (!shape) return std::unexpected(shape.error());
    }
    for (const std::string_view keyword : kNames) {
      if (has(keyword)) enforced_.emplace(work.place, keyword);
    }
    if (auto done = meet(*named, std::move(*shape)); !done) return done;
  }
  if (const Json* required = work.find("required")) {
    ObjectShape shape;
    for (const Json& name : required->as_array())
      shape.properties.push_back({.name = name.as_string(), .required = true});
    if (auto done = meet("required", std::move(shape)); !done) return done;
  }
  if (const auto count = count_of(work.find("minProperties"))) {
    ObjectShape shape;
    shape.min = *count;
    if (auto done = meet("minProperties", std::move(shape)); !done) return done;
  }
  if (const auto count = count_of(work.find("maxProperties"))) {
    ObjectShape shape;
    shape.max = *count;
    if (auto done = meet("maxProperties", std::move(shape)); !done) return done;
  }
  if (!has("propertyNames")) return {};
  const Place names = document_.member(work.place, "propertyNames");
  return run(work, "propertyNames", [&](const Norm& known) { return with_names(known, names, work.mode); });
}

// ------------------------------------------------------------------------------------------ unevaluated*

Checked<void> Normaliser::apply_unevaluated(Work& work) {
  constexpr std::string_view kIncomplete = "what has been evaluated is not known where other keywords are left out";
  const auto step = [&](std::string_view keyword,
                        const std::function<Checked<void>(Norm&, Term)>& apply) -> Checked<void> {
    if (work.find(keyword) == nullptr) return {};
    const Term value = terms_.schema(document_.member(work.place, keyword));
    return run(work, keyword, [&](const Norm& known) -> Checked<Norm> {
      if (known.dropped != kNoneDropped) return unsupported(std::string(kIncomplete));
      Norm norm = known;
      if (auto done = apply(norm, value); !done) return std::unexpected(done.error());
      return norm;
    });
  };
  auto properties = step("unevaluatedProperties", [&](Norm& norm, Term value) -> Checked<void> {
    for (ObjectShape& shape : norm.objects) {
      for (ObjectShape::Property& p : shape.properties) p.value = p.evaluated ? p.value : terms_.both(p.value, value);
      for (ObjectShape::Property& p : shape.properties) p.evaluated = true;
      for (ObjectShape::Other& o : shape.others) o.value = o.evaluated ? o.value : terms_.both(o.value, value);
      for (ObjectShape::Other& o : shape.others) o.evaluated = true;
    }
    std::erase_if(norm.objects, [&](ObjectShape& shape) { return !algebra_.settle(shape); });
    return {};
  });
  if (!properties) return properties;
  return step("unevaluatedItems", [&](Norm& norm, Term value) -> Checked<void> {
    for (ArrayShape& shape : norm.arrays) {
      if (shape.contains_evaluates && !shape.all_evaluated && value != kAnything) {
        return unsupported("it depends on which items match 'contains'");
      }
      if (!shape.all_evaluated) {
        while (static_cast<std::int64_t>(shape.prefix.size()) < shape.evaluated) shape.prefix.push_back(shape.items);
        for (auto i = static_cast<std::size_t>(shape.evaluated); i < shape.prefix.size(); ++i) {
          shape.prefix[i] = terms_.both(shape.prefix[i], value);
        }
        shape.items = terms_.both(shape.items, value);
      }
      shape.all_evaluated = true;
    }
    std::erase_if(norm.arrays, [&](ArrayShape& shape) { return !algebra_.settle(shape); });
    return {};
  });
}

}  // namespace barg::text::grammar::schema
