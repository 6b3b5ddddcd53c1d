// Runtime: the budget of one render, the errors it raises, and the makers of values that are charged to it.
//
// RenderError is the module's exception: thrown anywhere below Template::render, caught there (and by the few
// filters that Python says swallow TypeError or ValueError). It never leaves src/text/jinja.
//
// Owned by one render on one thread.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace barg::text::jinja {

struct RenderError {
  enum class Type { kTemplate, kType, kValue, kLookup, kOverflow, kUndefined, kLimit };
  Type type = Type::kTemplate;
  std::string message;
};

[[noreturn]] void raise(RenderError::Type type, std::string message);
[[noreturn]] inline void type_error(std::string message) {
  raise(RenderError::Type::kType, std::move(message));
}
[[noreturn]] inline void value_error(std::string message) {
  raise(RenderError::Type::kValue, std::move(message));
}

/// Arguments of a call as written: positional, then by name.
struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Runtime {
 public:
  Runtime(const Limits& limits, const RenderOptions& options, std::size_t input_bytes);

  const Limits& limits() const { return limits_; }
  const RenderOptions& options() const { return options_; }

  /// One unit of work, or `n`. Raises kLimit when the budget is spent.
  void step(std::uint64_t n = 1) {
    if (n > steps_left_) [[unlikely]]
      out_of_steps();
    steps_left_ -= n;
  }
  /// Bytes about to be allocated. Raises kLimit.
  void charge(std::size_t bytes);
  /// charge(), and refuses a string of that many bytes.
  void charge_string(std::size_t bytes);

  // Makers. They charge, and refuse what is too long or too deep.
  Value string(std::string text, Marks marks = {}, bool markup = false);
  Value string(std::string_view text) { return string(std::string(text)); }
  Value string(const char* text) { return string(std::string(text)); }
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value dict(Dict dict);
  Value iterator(std::vector<Value> items, std::string error = {}, std::string type = "generator");
  Value undefined(std::string message);
  /// `obj.name` or `obj[name]` that is not there.
  Value undefined(const Value& obj, const Value& name);
  Value range(Int start, Int stop, Int step);

  /// Filters that call filters: at most Limits::call_depth deep while one of these lives.
  struct Nested {
    explicit Nested(Runtime& r);
    ~Nested() { --runtime.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Runtime& runtime;
  };

  /// Recomputes the depth of a container whose content changed; raises kLimit.
  int checked_depth(int deepest_child) const;

  /// A namespace (or whatever may hold itself): emptied when the render ends, so cycles cannot leak.
  void keep(std::shared_ptr<Namespace> ns) { kept_.push_back(std::move(ns)); }
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  [[noreturn]] void out_of_steps() const;

  Limits limits_;
  RenderOptions options_;
  std::uint64_t steps_left_;
  std::size_t bytes_left_;
  int nested_ = 0;
  std::vector<std::shared_ptr<Namespace>> kept_;
};

/// Text under construction, with its marks. add() charges nothing; finish() and check() do.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  void add(std::string_view trusted);
  void add(const Str& s) { add(s, 0, s.text.size()); }
  void add(const Str& s, std::size_t begin, std::size_t end);
  /// `text` as a whole from the request, if `untrusted`.
  void add(std::string_view text, bool untrusted);
  std::size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  Value finish(bool markup = false);
  MarkedString take() { return {std::move(text_), std::move(marks_)}; }

 private:
  void mark(std::size_t begin, std::size_t end);
  void reserve(std::size_t more);
  Runtime& runtime_;
  std::string text_;
  Marks marks_;
};

// Python's protocols. All may raise RenderError; all charge what they visit.
bool equals(Runtime& rt, const Value& a, const Value& b);
/// a < b; TypeError when Python has no order for them.
bool less(Runtime& rt, const Value& a, const Value& b, std::string_view op = "<");
bool contains(Runtime& rt, const Value& container, const Value& item);
/// list(v): consumes iterators. TypeError when not iterable.
std::vector<Value> iterate(Runtime& rt, const Value& v);
bool is_iterable(const Value& v);
/// len(v), TypeError without one.
Int length(Runtime& rt, const Value& v);
/// str(v) and repr(v); strings come back as they are (Markup too, as soft_str).
Value to_string(Runtime& rt, const Value& v);
Value repr(Runtime& rt, const Value& v);
/// str(v) for messages and lookups, no marks.
void append_str(Runtime& rt, TextBuilder& out, const Value& v);
void append_repr(Runtime& rt, TextBuilder& out, const Value& v);
/// Any byte of any string inside came from the request.
bool any_untrusted(Runtime& rt, const Value& v);

}  // namespace barg::text::jinja
