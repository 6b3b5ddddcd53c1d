// Json: a small ordered JSON value, and a strict parser and writer for it. nlohmann/json does the work behind
// json.cpp, the only file that instantiates it; exceptions stop there.
//
// Objects keep insertion order. Integers that fit int64 are kInt, those that fit only uint64 are kUint, other
// numbers kDouble; "1e999" and numbers beyond uint64 written as integers are parse errors, never infinities.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "barg/result.h"

namespace barg {

class Json {
 public:
  enum class Type : std::uint8_t { kNull, kBool, kInt, kUint, kDouble, kString, kArray, kObject };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool b) : value_(b) {}
  Json(int v) : value_(std::int64_t{v}) {}
  Json(long v) : value_(std::int64_t{v}) {}
  Json(long long v) : value_(std::int64_t{v}) {}
  Json(unsigned v) : value_(std::int64_t{v}) {}
  Json(unsigned long v) { set_uint(v); }
  Json(unsigned long long v) { set_uint(v); }
  Json(double v) : value_(v) {}
  Json(float v) : value_(static_cast<double>(v)) {}
  Json(const char* s) : value_(std::string(s)) {}
  Json(std::string_view s) : value_(std::string(s)) {}
  Json(std::string s) : value_(std::move(s)) {}
  Json(Array a) : value_(std::move(a)) {}
  Json(Object o) : value_(std::move(o)) {}
  Json(const Json&) = default;
  Json(Json&&) = default;
  ~Json() = default;
  // The source may be a part of this value (`j = *j.find("x")`), so it leaves before this value goes.
  Json& operator=(const Json& other) { return *this = Json(other); }
  Json& operator=(Json&& other) {
    Value moved = std::move(other.value_);
    value_ = std::move(moved);
    return *this;
  }

  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }
  static Json object(std::initializer_list<Member> members) { return Json(Object(members)); }

  Type type() const { return static_cast<Type>(value_.index()); }
  bool is_null() const { return type() == Type::kNull; }
  bool is_bool() const { return type() == Type::kBool; }
  bool is_integer() const { return type() == Type::kInt || type() == Type::kUint; }
  bool is_number() const { return is_integer() || type() == Type::kDouble; }
  bool is_string() const { return type() == Type::kString; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_object() const { return type() == Type::kObject; }

  // REQUIRES the matching type (checked).
  bool as_bool() const;
  std::int64_t as_int() const;     ///< kInt only
  std::uint64_t as_uint() const;   ///< kUint, or kInt >= 0
  double as_double() const;        ///< any number
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  /// Member by name, nullptr if absent or not an object. Linear; objects are small.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  /// Appends (or replaces) a member; makes an object of a null.
  Json& set(std::string key, Json value);
  /// Appends an element; makes an array of a null.
  Json& push(Json value);
  std::size_t size() const { return is_array() ? as_array().size() : is_object() ? as_object().size() : 0; }

  bool operator==(const Json& other) const;

 private:
  /// Alternatives in the order of Type.
  using Value =
      std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;
  void set_uint(std::uint64_t v);

  Value value_;
};

struct JsonLimits {
  std::size_t max_depth = 64;
  std::size_t max_members = 1024;   ///< keys of one object; 0 = unlimited (our own large files)
  bool reject_duplicate_keys = true;
};

/// One document, nothing but whitespace after it. Errors say the byte offset and what was expected; they never
/// quote more than a few bytes of the input. Refuses: depth, duplicate keys, invalid UTF-8, lone surrogates,
/// a BOM, numbers out of range. `bytes` may be hostile; memory is bounded by a small multiple of its size.
Result<Json> parse_json(std::string_view bytes, const JsonLimits& limits = {});

struct JsonStyle {
  int indent = -1;             ///< -1 = one line
  bool spaces = false;         ///< one line with ", " and ": " as Python's json.dumps
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// Compact by default. Doubles print as the shortest text that reads back equal ("1.0", "0.1", "1e-07");
/// invalid UTF-8 becomes U+FFFD; non-finite numbers are a CHECK failure (callers clip them).
std::string dump_json(const Json& value, const JsonStyle& style = {});

/// Quoted and escaped as a JSON string.
std::string json_quote(std::string_view s);
/// The same, appended.
void append_json_quoted(std::string& out, std::string_view s);

}  // namespace barg
