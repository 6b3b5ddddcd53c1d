// What a parameter may be, by its tool's schema, and text without a type as JSON of it. Pure functions, any thread.
//
// Rules, for families whose values carry no type (dialect_spec.h, Typing::kSchema):
//  - `null` or `None` is null wherever the schema allows null;
//  - the other types are tried in the order in which the schema names them (`type`, lists of types, enum, anyOf, oneOf,
//    allOf, $ref); a string always fits;
//  - booleans and objects may be written as JSON or as Python prints them, for that is what templates do;
//  - a schema without any type takes JSON if the text is JSON, else a string;
//  - a parameter that the schema does not have, and a value that reads as none of its types, is a string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/dialect_bound.h"

namespace barg::text {

enum class JsonKind : std::uint8_t { kString, kInteger, kNumber, kBoolean, kNull, kObject, kArray };

struct ValueTypes {
  std::vector<JsonKind> kinds;  ///< each once, in the schema's order; empty and not `any`: a string
  bool any = false;

  bool has(JsonKind kind) const;
  /// It is a string whatever it looks like, so it need not be waited for.
  bool surely_string() const { return !has(JsonKind::kNull) && string_first(); }
  /// It is a string unless it is null.
  bool string_first() const;
};

/// Of property `key` of a tool's `parameters` (a JSON Schema, or null). Bounded however the schema refers to itself.
ValueTypes value_types(const Json& parameters, std::string_view key);

/// `text` as JSON.
std::string typed_value(const BoundDialectImpl& dialect, std::string_view text, const ValueTypes& types);
/// `text`, which its model says is JSON: as it stands if so, else as a string.
std::string json_value(const BoundDialectImpl& dialect, std::string_view text);
/// Might `text`, white space aside, still become null?
bool may_become_null(std::string_view text);

}  // namespace barg::text
