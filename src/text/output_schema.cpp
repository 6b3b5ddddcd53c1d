#include "text/output_schema.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/output_values.h"

namespace barg::text {
namespace {

constexpr std::array<std::pair<std::string_view, JsonKind>, 15> kTypeNames = {{
    {"string", JsonKind::kString}, {"integer", JsonKind::kInteger}, {"number", JsonKind::kNumber},
    {"boolean", JsonKind::kBoolean}, {"null", JsonKind::kNull}, {"object", JsonKind::kObject},
    {"array", JsonKind::kArray},
    // what clients write that think in Python
    {"str", JsonKind::kString}, {"int", JsonKind::kInteger}, {"float", JsonKind::kNumber},
    {"bool", JsonKind::kBoolean}, {"dict", JsonKind::kObject}, {"list", JsonKind::kArray},
    {"tuple", JsonKind::kArray}, {"NoneType", JsonKind::kNull},
}};
constexpr int kMaxVisits = 256;
constexpr JsonLimits kValueLimits = {.max_depth = 128, .max_members = 0, .reject_duplicate_keys = false};

std::string_view trimmed(std::string_view s) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = s.find_first_not_of(kSpace);
  if (begin == s.npos) return {};
  return s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

std::optional<JsonKind> kind_of(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull: return JsonKind::kNull;
    case Json::Type::kBool: return JsonKind::kBoolean;
    case Json::Type::kInt:
    case Json::Type::kUint: return JsonKind::kInteger;
    case Json::Type::kDouble: return JsonKind::kNumber;
    case Json::Type::kString: return JsonKind::kString;
    case Json::Type::kArray: return JsonKind::kArray;
    case Json::Type::kObject: return JsonKind::kObject;
  }
  return std::nullopt;
}

class TypeCollector {
 public:
  explicit TypeCollector(const Json& root) : root_(root) {}

  void visit(const Json& schema) {
    if (++visits_ > kMaxVisits) return;
    if (schema.is_bool()) {
      out.any = out.any || schema.as_bool();
      return;
    }
    if (!schema.is_object()) return;
    const bool any_before = std::exchange(out.any, false);
    if (const Json* nullable = schema.find("nullable"); nullable && nullable->is_bool() && nullable->as_bool()) {
      add(JsonKind::kNull);
    }
    const bool typed = by_type(schema) || by_values(schema) || by_parts(schema);
    const bool shaped = !typed && by_shape(schema);
    out.any = out.any || any_before || (!typed && !shaped);
  }

  ValueTypes out;

 private:
  void add(JsonKind kind) {
    if (!out.has(kind)) out.kinds.push_back(kind);
  }
  bool add_named(const Json& name) {
    if (!name.is_string()) return false;
    for (const auto& [text, kind] : kTypeNames) {
      if (text != name.as_string()) continue;
      add(kind);
      return true;
    }
    return false;
  }
  bool by_type(const Json& schema) {
    const Json* type = schema.find("type");
    if (!type) return false;
    if (!type->is_array()) return add_named(*type);
    bool found = false;
    for (const Json& name : type->as_array()) found = add_named(name) || found;
    return found;
  }
  bool by_values(const Json& schema) {
    if (const Json* value = schema.find("const")) {
      if (const auto kind = kind_of(*value)) add(*kind);
      return true;
    }
    const Json* values = schema.find("enum");
    if (!values || !values->is_array() || values->size() == 0) return false;
    for (const Json& value : values->as_array()) {
      if (const auto kind = kind_of(value)) add(*kind);
    }
    return true;
  }
  bool by_parts(const Json& schema) {
    if (const Json* ref = schema.find("$ref"); ref && ref->is_string()) {
      if (const Json* target = resolve(ref->as_string())) visit(*target);
      return true;
    }
    bool found = false;
    for (const char* word : {"anyOf", "oneOf", "allOf"}) {
      const Json* parts = schema.find(word);
      if (!parts || !parts->is_array()) continue;
      for (const Json& part : parts->as_array()) {
        if (visits_ > kMaxVisits) break;
        visit(part);
      }
      found = found || parts->size() > 0;
    }
    return found;
  }
  bool by_shape(const Json& schema) {
    if (schema.find("properties") || schema.find("additionalProperties")) {
      add(JsonKind::kObject);
      return true;
    }
    if (schema.find("items") || schema.find("prefixItems")) {
      add(JsonKind::kArray);
      return true;
    }
    return false;
  }
  /// "#/$defs/Name"
  const Json* resolve(std::string_view pointer) const {
    if (!pointer.starts_with("#/")) return pointer == "#" ? &root_ : nullptr;
    pointer.remove_prefix(2);
    const Json* at = &root_;
    while (at) {
      const std::size_t slash = pointer.find('/');
      at = at->find(pointer.substr(0, slash));
      if (slash == pointer.npos) return at;
      pointer.remove_prefix(slash + 1);
    }
    return nullptr;
  }

  const Json& root_;
  int visits_ = 0;
};

std::optional<std::string> as_number(std::string_view text, bool integer) {
  const auto json = word_as_json(text, Lexis::kPython);
  if (!json) return std::nullopt;
  const auto parsed = parse_json(*json);  // refuses what no number can hold
  if (!parsed || !parsed->is_number()) return std::nullopt;
  if (!integer || parsed->is_integer()) return json;
  // 5.0 is the integer 5 to JSON Schema.
  const double value = parsed->as_double();
  if (value < -9e15 || value > 9e15 || value != static_cast<double>(static_cast<std::int64_t>(value))) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(value));
}

std::optional<std::string> as_container(const BoundDialectImpl& dialect, std::string_view text, char open) {
  if (text.empty() || (text[0] != open && !(open == '[' && text[0] == '('))) return std::nullopt;
  if (text[0] == open && parse_json(text, kValueLimits)) return std::string(text);
  auto json = value_as_json(dialect, text, Lexis::kPython, ValueReader::Top::kAny);
  if (json && json->front() != open) return std::nullopt;
  return json;
}

std::optional<std::string> as_kind(const BoundDialectImpl& dialect, std::string_view raw, JsonKind kind) {
  const std::string_view text = trimmed(raw);
  switch (kind) {
    case JsonKind::kString: return json_quote(raw);
    case JsonKind::kInteger: return as_number(text, true);
    case JsonKind::kNumber: return as_number(text, false);
    case JsonKind::kBoolean:
      if (text == "true" || text == "True") return "true";
      if (text == "false" || text == "False") return "false";
      return std::nullopt;
    case JsonKind::kNull:
      if (text == "null" || text == "None") return "null";
      return std::nullopt;
    case JsonKind::kObject: return as_container(dialect, text, '{');
    case JsonKind::kArray: return as_container(dialect, text, '[');
  }
  return std::nullopt;
}

}  // namespace

bool ValueTypes::has(JsonKind kind) const { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }

bool ValueTypes::string_first() const {
  for (const JsonKind kind : kinds) {
    if (kind != JsonKind::kNull) return kind == JsonKind::kString;
  }
  return !any && kinds.empty();
}

ValueTypes value_types(const Json& parameters, std::string_view key) {
  const Json* properties = parameters.find("properties");
  const Json* schema = properties ? properties->find(key) : nullptr;
  if (!schema) {
    const Json* more = parameters.find("additionalProperties");
    schema = more && more->is_object() ? more : nullptr;
  }
  if (!schema) return {};
  TypeCollector collector(parameters);
  collector.visit(*schema);
  return std::move(collector.out);
}

std::string typed_value(const BoundDialectImpl& dialect, std::string_view text, const ValueTypes& types) {
  if (types.has(JsonKind::kNull)) {
    if (auto null = as_kind(dialect, text, JsonKind::kNull)) return std::move(*null);
  }
  for (const JsonKind kind : types.kinds) {
    if (auto json = as_kind(dialect, text, kind)) return std::move(*json);
  }
  return types.any ? json_value(dialect, text) : json_quote(text);
}

std::string json_value(const BoundDialectImpl& dialect, std::string_view text) {
  const std::string_view json = trimmed(text);
  if (!json.empty()) {
    const auto parsed = parse_json(json, kValueLimits);
    if (parsed) return parsed->is_string() ? json_quote(parsed->as_string()) : std::string(json);
  }
  for (const JsonKind kind : {JsonKind::kNull, JsonKind::kBoolean, JsonKind::kObject, JsonKind::kArray}) {
    if (auto value = as_kind(dialect, text, kind)) return std::move(*value);
  }
  return json_quote(text);
}

bool may_become_null(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return true;
  const std::string_view start = text.substr(begin, 5);
  for (const std::string_view word : {std::string_view("null"), std::string_view("None")}) {
    if (word.starts_with(start)) return true;
    if (start.starts_with(word)) return trimmed(text) == word;
  }
  return false;
}

}  // namespace barg::text
