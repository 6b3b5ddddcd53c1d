// Normaliser: one schema object, keyword by keyword, and the keywords of scalars.
#include <algorithm>

#include "base/utf8.h"
#include "text/grammar/formats.h"
#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar::schema {
namespace {

/// All values that are no strings, and these strings.
Norm if_string(Strings strings) {
  Norm norm = everything();
  norm.strings = {std::move(strings)};
  return norm;
}

Checked<Norm> if_number(Languages& languages, const NumberRange& range) {
  auto numbers = numbers_in(languages, range, false);
  if (!numbers) return std::unexpected(numbers.error());
  Norm norm = everything();
  norm.numbers = std::move(*numbers);
  return norm;
}

void allow_type(Norm& norm, const Norm& any, const Numbers& integers, const std::string& name) {
  if (name == "null") norm.null = true;
  if (name == "boolean") norm.no = norm.yes = true;
  if (name == "number") norm.numbers = any.numbers;
  if (name == "integer" && !norm.numbers.all) norm.numbers = integers;
  if (name == "string") norm.strings = any.strings;
  if (name == "array") norm.arrays = any.arrays;
  if (name == "object") norm.objects = any.objects;
}

/// Formats that OpenAPI gives to numbers, as the ranges they name.
struct NumberFormat {
  std::string_view name, minimum, maximum;
};
constexpr NumberFormat kNumberFormats[] = {
    {"int8", "-128", "127"},
    {"int16", "-32768", "32767"},
    {"int32", "-2147483648", "2147483647"},
    {"int64", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "0", "255"},
    {"uint16", "0", "65535"},
    {"uint32", "0", "4294967295"},
    {"uint64", "0", "18446744073709551615"},
    {"float", "", ""},
    {"double", "", ""},
};

bool has_effect(std::string_view name, Draft draft) {
  const Keyword* keyword = find_keyword(name, draft);
  return keyword == nullptr || keyword->role == Role::kAssertion || keyword->role == Role::kRefused;
}

}  // namespace

Checked<Norm> Normaliser::make_schema(Place place, Mode mode) {
  const Json& schema = document_.json(place);
  if (schema.is_bool()) return schema.as_bool() ? everything() : Norm{};
  if (!schema.is_object()) return invalid(place, "", "a schema is an object, true or false");
  Work work{place, mode, document_.draft(), schema, everything()};
  if (auto good = check_values(schema, document_.draft(), place); !good) return std::unexpected(good.error());
  note_without_effect(work);
  if (document_.draft() == Draft::k7 && schema.find("$ref") != nullptr) {
    if (auto done = apply_ref(work); !done) return std::unexpected(done.error());
    return std::move(work.norm);
  }
  using Apply = Checked<void> (Normaliser::*)(Work&);
  constexpr Apply kSteps[] = {
      &Normaliser::refuse_unknown,  &Normaliser::apply_types,  &Normaliser::apply_numbers,
      &Normaliser::apply_strings,   &Normaliser::apply_arrays, &Normaliser::apply_in_order,
      &Normaliser::apply_any_of,    &Normaliser::apply_not,    &Normaliser::apply_dependents,
      &Normaliser::apply_condition, &Normaliser::apply_one_of, &Normaliser::apply_unevaluated,
  };
  for (const Apply step : kSteps) {
    if (auto done = (this->*step)(work); !done) return std::unexpected(done.error());
  }
  return std::move(work.norm);
}

/// One keyword's step. What it cannot do ends the work or, where that only widens, is left out and recorded.
Checked<void> Normaliser::run(Work& work, std::string_view keyword, const Step& step) {
  auto next = step(work.norm);
  if (next) {
    work.norm = std::move(*next);
    enforced_.emplace(work.place, keyword);
    return {};
  }
  Issue issue = next.error();
  if (issue.at == kNoPlace) issue.at = work.place;
  if (issue.keyword.empty()) issue.keyword = std::string(keyword);
  return leave_out(work, std::move(issue));
}

Checked<void> Normaliser::leave_out(Work& work, Issue issue) {
  if (work.mode == Mode::kExact || issue.kind != Issue::Kind::kUnsupported) return std::unexpected(std::move(issue));
  work.norm.dropped = algebra_.drops().with(work.norm.dropped, std::move(issue));
  return {};
}

Checked<void> Normaliser::refuse_unknown(Work& work) {
  for (const Json::Member& m : work.schema.as_object()) {
    const Keyword* keyword = find_keyword(m.first, document_.draft());
    if (keyword != nullptr && keyword->role != Role::kRefused) continue;
    const std::string why = keyword == nullptr ? why_unknown(m.first, document_.draft()) : std::string(keyword->reason);
    auto refused =
        run(work, m.first.empty() ? "\"\"" : m.first, [&](const Norm&) -> Checked<Norm> { return unsupported(why); });
    if (!refused) return refused;
  }
  return {};
}

void Normaliser::note_without_effect(const Work& work) {
  const auto note = [&](const std::string& keyword, std::string_view why) {
    without_effect_.emplace(std::pair(work.place, keyword), why);
  };
  const auto has = [&](std::string_view keyword) { return work.find(keyword) != nullptr; };
  if (document_.draft() == Draft::k7 && has("$ref")) {
    for (const Json::Member& m : work.schema.as_object()) {
      if (m.first != "$ref" && has_effect(m.first, Draft::k7))
        note(m.first, "draft 7 ignores what stands beside a $ref");
    }
    return;
  }
  if (has("if") && !has("then") && !has("else")) note("if", "there is neither 'then' nor 'else'");
  for (const std::string keyword : {"then", "else"}) {
    if (has(keyword) && !has("if")) note(keyword, "there is no 'if'");
  }
  for (const std::string keyword : {"minContains", "maxContains"}) {
    if (has(keyword) && !has("contains")) note(keyword, "there is no 'contains'");
  }
  if (const Json* items = work.find("items"); has("additionalItems") && (items == nullptr || !items->is_array())) {
    note("additionalItems", "'items' is no list");
  }
}

// ------------------------------------------------------------------------------------- type, enum, const

Checked<void> Normaliser::apply_types(Work& work) {
  if (const Json* type = work.find("type")) {
    auto done = run(work, "type", [&](const Norm& known) -> Checked<Norm> {
      auto integers = numbers_in(languages_, {}, true);
      if (!integers) return std::unexpected(integers.error());
      const Norm any = everything();
      Norm types;
      if (type->is_string()) allow_type(types, any, *integers, type->as_string());
      if (type->is_array()) {
        for (const Json& name : type->as_array()) allow_type(types, any, *integers, name.as_string());
      }
      return algebra_.intersection(known, types);
    });
    if (!done) return done;
  }
  for (const std::string_view keyword : {"const", "enum"}) {
    const Json* value = work.find(keyword);
    if (value == nullptr) continue;
    auto done = run(work, keyword, [&](const Norm& known) -> Checked<Norm> {
      auto list = keyword == "const" ? constant(*value) : constants(value->as_array());
      if (!list) return list;
      return algebra_.intersection(known, *list);
    });
    if (!done) return done;
  }
  return {};
}

// ---------------------------------------------------------------------------------------------- numbers

Checked<void> Normaliser::apply_numbers(Work& work) {
  const auto cut = [&](std::string_view keyword, const NumberRange& range) {
    return run(work, keyword, [&](const Norm& known) -> Checked<Norm> {
      auto numbers = if_number(languages_, range);
      if (!numbers) return numbers;
      return algebra_.intersection(known, *numbers);
    });
  };
  for (const std::string_view keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    const Json* value = work.find(keyword);
    if (value == nullptr) continue;
    const std::string text = dump_json(*value);
    NumberRange range;
    if (keyword == "multipleOf") {
      range.multiple_of = text;
    } else {
      (keyword == "minimum" || keyword == "exclusiveMinimum" ? range.minimum : range.maximum) = text;
      range.exclusive_minimum = keyword == "exclusiveMinimum";
      range.exclusive_maximum = keyword == "exclusiveMaximum";
    }
    if (auto done = cut(keyword, range); !done) return done;
  }
  return {};
}

// ---------------------------------------------------------------------------------------------- strings

namespace {

Checked<Norm> format_norm(Languages& languages, const std::string& name) {
  for (const NumberFormat& format : kNumberFormats) {
    if (format.name != name) continue;
    if (format.minimum.empty()) return everything();
    NumberRange range;
    range.minimum = std::string(format.minimum);
    range.maximum = std::string(format.maximum);
    return if_number(languages, range);
  }
  if (name == "password") return everything();  // OpenAPI: a hint to hide what is typed
  DfaPtr dfa = format_dfa(name);
  if (!dfa) return unsupported("the format '" + repair_utf8(std::string_view(name).substr(0, 60)) + "' is not known");
  return if_string({.content = std::move(dfa)});
}

}  // namespace

Checked<void> Normaliser::apply_strings(Work& work) {
  const auto meet = [&](std::string_view keyword, const std::function<Checked<Norm>()>& make) {
    return run(work, keyword, [&](const Norm& known) -> Checked<Norm> {
      auto made = make();
      if (!made) return made;
      return algebra_.intersection(known, *made);
    });
  };
  for (const std::string_view keyword : {"minLength", "maxLength"}) {
    const auto count = count_of(work.find(keyword));
    if (!count) continue;
    const Strings bound = keyword == "minLength" ? Strings{.content = nullptr, .min = *count}
                                                 : Strings{.content = nullptr, .min = 0, .max = *count};
    if (auto done = meet(keyword, [&] { return if_string(bound); }); !done) return done;
  }
  if (const Json* pattern = work.find("pattern")) {
    auto done = meet("pattern", [&]() -> Checked<Norm> {
      auto dfa = languages_.pattern(pattern->as_string());
      if (!dfa) return std::unexpected(dfa.error());
      return if_string({.content = *dfa});
    });
    if (!done) return done;
  }
  if (const Json* format = work.find("format")) {
    return meet("format", [&] { return format_norm(languages_, format->as_string()); });
  }
  return {};
}

// ------------------------------------------------------------------------------------------------- $ref

Checked<void> Normaliser::apply_ref(Work& work) {
  return run(work, "$ref", [&](const Norm& known) -> Checked<Norm> {
    auto target = document_.resolve(work.place, work.find("$ref")->as_string());
    if (!target) return std::unexpected(target.error());
    auto there = schema_at(*target, work.mode);
    if (!there) return std::unexpected(there.error());
    return algebra_.intersection(known, **there);
  });
}

/// Properties are declared in the order in which the schema speaks of them: its own, those of $ref, those of allOf.
Checked<void> Normaliser::apply_in_order(Work& work) {
  bool objects = false;
  for (const Json::Member& m : work.schema.as_object()) {
    Checked<void> done;
    if (m.first == "$ref") done = apply_ref(work);
    if (m.first == "allOf") done = apply_all_of(work);
    if (m.first == "properties" && !objects) {
      objects = true;
      done = apply_objects(work);
    }
    if (!done) return done;
  }
  return objects ? Checked<void>() : apply_objects(work);
}

}  // namespace barg::text::grammar::schema
