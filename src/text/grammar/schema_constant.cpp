// Normaliser: const and enum.
#include "base/json.h"
#include "text/grammar/schema_normal.h"

namespace barg::text::grammar::schema {
namespace {

/// 1 and 1.0 are one number.
NumberRange only(const Json& number) {
  NumberRange range;
  range.minimum = range.maximum = dump_json(number);
  return range;
}

ArrayShape array_of(Terms& terms, const Json& value) {
  ArrayShape shape;
  for (const Json& item : value.as_array()) shape.prefix.push_back(terms.constant(item));
  shape.items = kNothing;
  shape.min = shape.max = static_cast<std::int64_t>(shape.prefix.size());
  return shape;
}

ObjectShape object_of(Terms& terms, const Json& value) {
  ObjectShape shape;
  for (const Json::Member& m : value.as_object()) {
    shape.properties.push_back(
        {.name = m.first, .value = terms.constant(m.second), .required = true, .declared = true});
  }
  shape.others.clear();
  return shape;
}

}  // namespace

Checked<Norm> Normaliser::constant(const Json& value) {
  const Json::Array one{value};
  if (!value.is_array() && !value.is_object()) return constants(one);
  Norm norm;
  if (value.is_array()) norm.arrays.push_back(array_of(terms_, value));
  if (value.is_object()) norm.objects.push_back(object_of(terms_, value));
  return norm;
}

Checked<Norm> Normaliser::constants(const Json::Array& values) {
  Norm norm;
  std::vector<std::string> words;
  std::vector<std::string> integers;
  std::vector<DfaPtr> numbers;
  for (const Json& value : values) {
    norm.null |= value.is_null();
    norm.no |= value.is_bool() && !value.as_bool();
    norm.yes |= value.is_bool() && value.as_bool();
    if (value.is_string()) words.push_back(value.as_string());
    if (value.is_array()) norm.arrays.push_back(array_of(terms_, value));
    if (value.is_object()) norm.objects.push_back(object_of(terms_, value));
    if (value.is_integer() && value != Json(0)) integers.push_back(dump_json(value));
    if (!value.is_number() || (value.is_integer() && value != Json(0))) continue;
    auto number = numbers_in(languages_, only(value), false);
    if (!number) return std::unexpected(number.error());
    numbers.push_back(number->some);
  }
  if (!words.empty()) norm.strings.push_back({languages_.words(words)});
  if (!integers.empty()) {
    auto spelled = integers_spelled(languages_, integers);
    if (!spelled) return std::unexpected(spelled.error());
    numbers.push_back(*spelled);
  }
  if (!numbers.empty()) {
    auto all = languages_.any_of(std::move(numbers));
    if (!all) return std::unexpected(all.error());
    norm.numbers.some = *all;
  }
  return norm;
}

}  // namespace barg::text::grammar::schema
