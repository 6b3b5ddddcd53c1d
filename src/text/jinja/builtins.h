// The tables of filters, tests, methods and global functions, and the lookups the interpreter and the filters
// share. One literal row per entry; a row without a function is known to Jinja2 but not supported here, and
// using it is an error that names it.
//
// All functions may raise RenderError and charge the Runtime.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace barg::text::jinja {

/// Arguments bound to a signature such as "old new count?": required names, then optional ones. "*" takes
/// anything and leaves it in raw().
class Args {
 public:
  /// TypeError (naming `callee`) when the call does not fit.
  Args(std::string_view signature, CallArgs call, std::string_view callee);
  bool has(std::size_t i) const { return i < values_.size() && !values_[i].is(Kind::kMissing); }
  const Value& operator[](std::size_t i) const { return values_[i]; }
  // Typed access; TypeError when the argument is of another type.
  Int integer(std::size_t i, Int fallback) const;
  bool truth(std::size_t i, bool fallback) const { return has(i) ? truthy(values_[i]) : fallback; }
  const Str& text(std::size_t i) const;
  /// Null when absent or None.
  const Str* optional_text(std::size_t i) const;
  CallArgs& raw() { return raw_; }

 private:
  std::vector<Value> values_;
  CallArgs raw_;
};

using FilterFn = Value (*)(Runtime& rt, const Value& input, Args& args);
using TestFn = bool (*)(Runtime& rt, const Value& input, Args& args);
using FunctionFn = Value (*)(Runtime& rt, Args& args);

struct FilterRow {
  std::string_view name, signature;
  FilterFn fn;
};
struct TestRow {
  std::string_view name, signature;
  TestFn fn;
};
struct MethodRow {
  Kind kind;
  std::string_view name, signature;
  FilterFn fn;
  bool mutates = false;  ///< refused by the sandbox unless RenderOptions::allow_mutation
};
struct FunctionRow {
  std::string_view name, signature;
  FunctionFn fn;
};

struct Method final : Object {
  Value self;
  const MethodRow* row = nullptr;
};
struct Function final : Object {
  const FunctionRow* row = nullptr;
};

std::span<const FilterRow> text_filters();
std::span<const FilterRow> number_filters();
std::span<const FilterRow> sequence_filters();
std::span<const MethodRow> string_methods();
std::span<const MethodRow> container_methods();
std::span<const FunctionRow> functions();

const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);
const MethodRow* find_method(Kind kind, std::string_view name);

/// `value|name(...)`, for the interpreter and for map(). A null row is an unknown filter.
Value apply_filter(Runtime& rt, const FilterRow* row, std::string_view name, const Value& value,
                   CallArgs args);
bool apply_test(Runtime& rt, const TestRow* row, std::string_view name, const Value& value, CallArgs args);

/// `object.name`: attributes and methods first, then the key.
Value get_attribute(Runtime& rt, const Value& object, const Value& name);
/// `object[key]`: the key first, then the attribute.
Value get_item(Runtime& rt, const Value& object, const Value& key);
/// Only the attribute; kMissing if there is none (the `attr` filter).
Value attribute_only(Runtime& rt, const Value& object, std::string_view name);

/// json.dumps with Python's keywords.
Value to_json(Runtime& rt, const Value& value, const Args& args);
/// `format % args`, and str.format().
Value percent_format(Runtime& rt, const Str& format, const Value& args);
Value brace_format(Runtime& rt, const Str& format, const CallArgs& args);

enum class Binary { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Value binary(Runtime& rt, Binary op, const Value& a, const Value& b);
Value negate(const Value& v);
Value unary_plus(const Value& v);
/// object[start:stop:step], each None when absent.
Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);
/// int(v) for indices: int or bool, else TypeError.
Int as_index(const Value& v, std::string_view what);
/// Raises the undefined's message if `v` is one.
void require_defined(const Value& v);
Value make_literal(std::string text);

}  // namespace barg::text::jinja
