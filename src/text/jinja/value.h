// Value: what a template computes with. A small copy of Python's objects: None, bool, int, float, str, list,
// tuple, dict, range, dict views, iterators, and Jinja's own (undefined, namespace, loop, macro, methods).
//
// Invariants:
//  1. Strings are immutable valid UTF-8; `chars` is their number of code points, `marks` says which bytes
//  came
//     from the request (see text/marked_string.h). Containers are shared by reference, as in Python.
//  2. `Object::depth` of a container is above that of its elements and at most Limits::call_depth, so
//  recursion
//     over values (print, compare, destroy) is bounded. Runtime's make_* functions keep it.
//  3. Ints are 128 bits wide, so every JSON integer fits; arithmetic beyond that is an error.
//
// One render, one thread; literals in the AST are shared between renders but never written. Creating values
// costs budget and so goes through Runtime (runtime.h); nothing here allocates without bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace barg::text::jinja {

__extension__ typedef __int128 Int;
using Range = std::pair<std::size_t, std::size_t>;
using Marks = std::vector<Range>;

enum class Kind : std::uint8_t {
  kMissing,  ///< a name declared but not yet set; never seen by template code
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      ///< dict.keys(), .values(), .items()
  kIterator,  ///< generators and reversed(): consumed once
  kNamespace,
  kLoop,
  kMacro,
  kMethod,    ///< bound to its object
  kFunction,  ///< a global
  kCycler,
  kJoiner,
};

struct Object {
  int depth = 0;
  virtual ~Object() = default;
  /// repr() of the kinds that print as themselves (loop, macro).
  virtual std::string describe() const { return {}; }
};

struct Str final : Object {
  std::string text;
  Marks marks;            ///< ascending, disjoint
  std::size_t chars = 0;  ///< code points; equal to text.size() iff ASCII
  bool markup = false;    ///< markupsafe.Markup: `+`, `%`, join and replace escape what they take in
  bool ascii() const { return chars == text.size(); }
};

struct List;
struct Dict;

class Value {
 public:
  Value() = default;  ///< None
  static Value missing() { return Value(Kind::kMissing); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.num_.i = b;
    return v;
  }
  static Value integer(Int i) {
    Value v(Kind::kInt);
    v.num_.i = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.num_.d = d;
    return v;
  }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  /// int or bool: what Python takes where it wants an index.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  // REQUIRES the kind.
  bool as_bool() const { return num_.i != 0; }
  Int as_int() const { return num_.i; }  ///< int or bool
  double as_float() const { return kind_ == Kind::kFloat ? num_.d : static_cast<double>(num_.i); }
  const Str& str() const { return static_cast<const Str&>(*object_); }
  const std::string& text() const { return str().text; }
  List& list() const;  ///< list or tuple
  Dict& dict() const;
  template <class T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) { num_.i = 0; }
  Kind kind_ = Kind::kNone;
  union {
    Int i = 0;
    double d;
  } num_;
  std::shared_ptr<Object> object_;
};

struct List final : Object {
  std::vector<Value> items;
  bool group = false;  ///< a tuple of groupby: also has .grouper and .list
};

/// Insertion-ordered. Keys are hashable values; equal numbers are one key (1, 1.0 and True).
struct Dict final : Object {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_map<std::string, std::size_t> index;  ///< string keys, once there are many

  const Value* find(const Value& key) const;  ///< REQUIRES a hashable key
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  void erase(const Value& key);

 private:
  std::ptrdiff_t position(const Value& key) const;
  std::ptrdiff_t position(std::string_view key) const;
  void reindex();
};

struct Undefined final : Object {
  std::string message;  ///< what using it says
};

struct RangeObject final : Object {
  Int start = 0, stop = 0, step = 1;
  Int size() const;
};

struct View final : Object {
  enum class What : std::uint8_t { kKeys, kValues, kItems } what = What::kKeys;
  Value dict;
};

/// Made eagerly: what the generator would yield, then the error it would raise, if any.
struct Iterator final : Object {
  std::vector<Value> items;
  std::size_t next = 0;
  std::string error;  ///< raised once `items` are consumed, if not empty
  std::string type_name = "generator";
};

struct Namespace final : Object {
  Dict attributes;
};

struct Cycler final : Object {
  std::vector<Value> items;
  std::size_t position = 0;
};

struct Joiner final : Object {
  Value separator;
  bool used = false;
};

/// Python's type name, for messages ("str", "dict", "NoneType").
std::string_view type_name(const Value& v);
bool truthy(const Value& v);
bool is_hashable(const Value& v);

/// repr(float): the shortest text that reads back equal, with ".0" or an exponent.
std::string float_repr(double d);
std::string int_text(Int i);

}  // namespace barg::text::jinja
