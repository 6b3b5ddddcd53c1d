#include "text/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>

namespace barg::text::grammar::schema {
namespace {

constexpr unsigned k7 = 1, k2019 = 2, k2020 = 4, kNew = k2019 | k2020, kEvery = 7;

enum class Value : std::uint8_t {
  kAny,
  kString,
  kBool,
  kCount,
  kNumber,
  kPositive,
  kSchema,
  kSchemas,       // a list of at least one
  kSchemaOrList,  // items before 2020-12
  kNamedSchemas,  // an object of schemas
  kNames,         // a list of different strings
  kNamedNames,    // an object of such lists
  kDependencies,  // an object of schemas and such lists
  kTypes,
  kList,
};

struct Row {
  Keyword keyword;
  unsigned drafts;
  Value value;
};

constexpr std::string_view kDynamic = "references that depend on how a schema was reached are not followed";
constexpr std::string_view kContent = "what a string encodes is not enforced";

constexpr Row kRows[] = {
    {{"$schema", Role::kAnnotation}, kEvery, Value::kString},
    {{"$comment", Role::kAnnotation}, kEvery, Value::kString},
    {{"title", Role::kAnnotation}, kEvery, Value::kString},
    {{"description", Role::kAnnotation}, kEvery, Value::kString},
    {{"default", Role::kAnnotation}, kEvery, Value::kAny},
    {{"examples", Role::kAnnotation}, kEvery, Value::kList},
    {{"readOnly", Role::kAnnotation}, kEvery, Value::kBool},
    {{"writeOnly", Role::kAnnotation}, kEvery, Value::kBool},
    {{"deprecated", Role::kAnnotation}, kEvery, Value::kBool},
    {{"$id", Role::kIdentity}, kEvery, Value::kString},
    {{"$anchor", Role::kIdentity}, kNew, Value::kString},
    {{"$dynamicAnchor", Role::kIdentity}, k2020, Value::kString},
    {{"$recursiveAnchor", Role::kIdentity}, k2019, Value::kBool},
    {{"$defs", Role::kIdentity}, kEvery, Value::kNamedSchemas},
    {{"definitions", Role::kIdentity}, kEvery, Value::kNamedSchemas},
    {{"$ref"}, kEvery, Value::kString},
    {{"$dynamicRef", Role::kRefused, kDynamic}, k2020, Value::kString},
    {{"$recursiveRef", Role::kRefused, kDynamic}, k2019, Value::kString},
    {{"$vocabulary", Role::kRefused, "it belongs into a meta schema"}, kNew, Value::kAny},
    {{"contentEncoding", Role::kRefused, kContent}, kEvery, Value::kString},
    {{"contentMediaType", Role::kRefused, kContent}, kEvery, Value::kString},
    {{"contentSchema", Role::kRefused, kContent}, kNew, Value::kSchema},
    {{"type"}, kEvery, Value::kTypes},
    {{"enum"}, kEvery, Value::kList},
    {{"const"}, kEvery, Value::kAny},
    {{"multipleOf"}, kEvery, Value::kPositive},
    {{"minimum"}, kEvery, Value::kNumber},
    {{"maximum"}, kEvery, Value::kNumber},
    {{"exclusiveMinimum"}, kEvery, Value::kNumber},
    {{"exclusiveMaximum"}, kEvery, Value::kNumber},
    {{"minLength"}, kEvery, Value::kCount},
    {{"maxLength"}, kEvery, Value::kCount},
    {{"pattern"}, kEvery, Value::kString},
    {{"format"}, kEvery, Value::kString},
    {{"items"}, k7 | k2019, Value::kSchemaOrList},
    {{"items"}, k2020, Value::kSchema},
    {{"additionalItems"}, k7 | k2019, Value::kSchema},
    {{"prefixItems"}, k2020, Value::kSchemas},
    {{"minItems"}, kEvery, Value::kCount},
    {{"maxItems"}, kEvery, Value::kCount},
    {{"uniqueItems"}, kEvery, Value::kBool},
    {{"contains"}, kEvery, Value::kSchema},
    {{"minContains"}, kNew, Value::kCount},
    {{"maxContains"}, kNew, Value::kCount},
    {{"unevaluatedItems"}, kNew, Value::kSchema},
    {{"properties"}, kEvery, Value::kNamedSchemas},
    {{"patternProperties"}, kEvery, Value::kNamedSchemas},
    {{"additionalProperties"}, kEvery, Value::kSchema},
    {{"propertyNames"}, kEvery, Value::kSchema},
    {{"required"}, kEvery, Value::kNames},
    {{"minProperties"}, kEvery, Value::kCount},
    {{"maxProperties"}, kEvery, Value::kCount},
    {{"dependencies"}, k7, Value::kDependencies},
    {{"dependentRequired"}, kNew, Value::kNamedNames},
    {{"dependentSchemas"}, kNew, Value::kNamedSchemas},
    {{"unevaluatedProperties"}, kNew, Value::kSchema},
    {{"allOf"}, kEvery, Value::kSchemas},
    {{"anyOf"}, kEvery, Value::kSchemas},
    {{"oneOf"}, kEvery, Value::kSchemas},
    {{"not"}, kEvery, Value::kSchema},
    {{"if"}, kEvery, Value::kSchema},
    {{"then"}, kEvery, Value::kSchema},
    {{"else"}, kEvery, Value::kSchema},
};

struct Hint {
  std::string_view name;
  unsigned drafts;  // in which it is not a keyword
  std::string_view text;
};
constexpr Hint kHints[] = {
    {"dependencies", kNew,
     "it is a keyword of draft 7; dependentRequired and dependentSchemas are those of this draft"},
    {"additionalItems", k2020, "it is a keyword of older drafts; 'items' beside 'prefixItems' is that of 2020-12"},
    {"prefixItems", k7 | k2019, "it is a keyword of 2020-12; a list in 'items' is that of this draft"},
    {"discriminator", kEvery,
     "it is no keyword of JSON Schema; 'const' in each branch of 'oneOf' says it, and 'lenient' leaves it out"},
    {"nullable", kEvery, "it is no keyword of JSON Schema; a list in 'type' with \"null\" says it"},
};

constexpr unsigned bit(Draft draft) { return 1U << static_cast<unsigned>(draft); }

const Row* find_row(std::string_view name, Draft draft) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return r.keyword.name == name && (r.drafts & bit(draft)) != 0; });
  return row == std::end(kRows) ? nullptr : row;
}

bool is_schema(const Json& v) { return v.is_object() || v.is_bool(); }

bool is_count(const Json& v) {
  if (v.type() == Json::Type::kInt) return v.as_int() >= 0;
  if (v.type() == Json::Type::kUint) return true;
  return v.is_number() && v.as_double() >= 0 && v.as_double() == std::floor(v.as_double());
}

bool are_names(const Json& v) {
  if (!v.is_array()) return false;
  std::set<std::string_view> seen;
  return std::ranges::all_of(v.as_array(),
                             [&](const Json& n) { return n.is_string() && seen.insert(n.as_string()).second; });
}

bool is_type_name(const Json& v) {
  constexpr std::string_view kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return v.is_string() && std::ranges::find(kNames, v.as_string()) != std::end(kNames);
}

bool are_types(const Json& v) {
  return is_type_name(v) || (are_names(v) && v.size() > 0 && std::ranges::all_of(v.as_array(), is_type_name));
}

template <class Each>
bool each_member(const Json& v, Each each) {
  return v.is_object() && std::ranges::all_of(v.as_object(), [&](const Json::Member& m) { return each(m.second); });
}

bool are_schemas(const Json& v) { return v.is_array() && v.size() > 0 && std::ranges::all_of(v.as_array(), is_schema); }

/// Empty: `v` is such a value.
std::string_view wants(Value kind, const Json& v) {
  switch (kind) {
    case Value::kAny:
      return "";
    case Value::kString:
      return v.is_string() ? "" : "a string";
    case Value::kBool:
      return v.is_bool() ? "" : "true or false";
    case Value::kCount:
      return is_count(v) ? "" : "an integer that is not negative";
    case Value::kNumber:
      return v.is_number() ? "" : "a number";
    case Value::kPositive:
      return v.is_number() && v.as_double() > 0 ? "" : "a number above 0";
    case Value::kSchema:
      return is_schema(v) ? "" : "a schema (an object, true or false)";
    case Value::kSchemas:
      return are_schemas(v) ? "" : "a list of schemas, not empty";
    case Value::kSchemaOrList:
      return is_schema(v) || (v.is_array() && std::ranges::all_of(v.as_array(), is_schema))
                 ? ""
                 : "a schema or a list of them";
    case Value::kNamedSchemas:
      return each_member(v, is_schema) ? "" : "an object of schemas";
    case Value::kNames:
      return are_names(v) ? "" : "a list of different strings";
    case Value::kNamedNames:
      return each_member(v, are_names) ? "" : "an object of lists of different strings";
    case Value::kDependencies:
      return each_member(v, [](const Json& d) { return is_schema(d) || are_names(d); })
                 ? ""
                 : "an object of schemas and of lists of names";
    case Value::kTypes:
      return are_types(v) ? "" : "a type's name or a list of different ones";
    case Value::kList:
      return v.is_array() ? "" : "a list";
  }
  return "";
}

}  // namespace

const Keyword* find_keyword(std::string_view name, Draft draft) {
  const Row* row = find_row(name, draft);
  return row == nullptr ? nullptr : &row->keyword;
}

std::string why_unknown(std::string_view name, Draft draft) {
  for (const Hint& hint : kHints) {
    if (hint.name == name && (hint.drafts & bit(draft)) != 0) return std::string(hint.text);
  }
  constexpr std::string_view kDrafts[] = {"draft 7", "2019-09", "2020-12"};
  return "it is no keyword of " + std::string(kDrafts[static_cast<std::size_t>(draft)]);
}

bool only_annotations(const Json& schema, Draft draft) {
  return schema.is_object() && std::ranges::all_of(schema.as_object(), [&](const Json::Member& m) {
           const Row* row = find_row(m.first, draft);
           return row != nullptr && row->keyword.role == Role::kAnnotation && wants(row->value, m.second).empty();
         });
}

Checked<void> check_values(const Json& schema, Draft draft, Place place) {
  for (const Json::Member& m : schema.as_object()) {
    const Row* row = find_row(m.first, draft);
    if (row == nullptr) continue;
    const std::string_view wanted = wants(row->value, m.second);
    if (!wanted.empty()) return invalid(place, m.first, "it must be " + std::string(wanted));
  }
  return {};
}

std::optional<std::int64_t> count_of(const Json* value) {
  if (value == nullptr) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // more than any text has
  if (value->type() == Json::Type::kInt) return std::min(value->as_int(), kMost);
  return static_cast<std::int64_t>(std::min(value->as_double(), static_cast<double>(kMost)));
}

}  // namespace barg::text::grammar::schema
