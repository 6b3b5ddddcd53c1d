#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

constexpr std::size_t kMaxMessage = 2048;

std::size_t saturating(std::size_t base, std::size_t each, std::size_t count) {
  std::size_t product = 0, sum = 0;
  if (__builtin_mul_overflow(each, count, &product) || __builtin_add_overflow(base, product, &sum))
    return SIZE_MAX;
  return sum;
}

int deepest(const std::vector<Value>& items) {
  int d = 0;
  for (const Value& v : items) d = std::max(d, v.depth());
  return d;
}

}  // namespace

void raise(RenderError::Type type, std::string message) {
  if (message.size() > kMaxMessage) {
    std::size_t cut = kMaxMessage;
    while (cut > 0 && (static_cast<unsigned char>(message[cut]) & 0xC0) == 0x80) --cut;
    message.resize(cut);
  }
  throw RenderError{type, std::move(message)};
}

Runtime::Runtime(const Limits& limits, const RenderOptions& options, std::size_t input_bytes)
    : limits_(limits),
      options_(options),
      steps_left_(limits.steps),
      bytes_left_(saturating(limits.work_bytes, limits.work_per_input_byte, input_bytes)) {}

Runtime::~Runtime() {
  for (auto& ns : kept_) {
    ns->attributes.items.clear();
    ns->attributes.index.clear();
  }
}

Runtime::Nested::Nested(Runtime& r) : runtime(r) {
  if (++r.nested_ > r.limits_.call_depth) {
    --r.nested_;
    raise(RenderError::Type::kLimit,
          "filters are nested more than " + std::to_string(r.limits_.call_depth) + " deep");
  }
}

void Runtime::out_of_steps() const {
  raise(RenderError::Type::kLimit,
        "the template takes more than " + std::to_string(limits_.steps) + " steps");
}

void Runtime::charge(std::size_t bytes) {
  if (bytes > bytes_left_) raise(RenderError::Type::kLimit, "the template makes too much data");
  bytes_left_ -= bytes;
}

void Runtime::charge_string(std::size_t bytes) {
  if (bytes > limits_.string_bytes) {
    raise(RenderError::Type::kLimit,
          "the template makes a string of more than " + std::to_string(limits_.string_bytes) + " bytes");
  }
  charge(bytes + sizeof(Str));
}

int Runtime::checked_depth(int deepest_child) const {
  if (deepest_child >= limits_.call_depth) {
    raise(RenderError::Type::kLimit,
          "values are nested more than " + std::to_string(limits_.call_depth) + " deep");
  }
  return deepest_child + 1;
}

Value Runtime::string(std::string text, Marks marks, bool markup) {
  charge_string(text.size());
  auto s = std::make_shared<Str>();
  s->chars = count_code_points(text);
  s->text = std::move(text);
  s->marks = std::move(marks);
  s->markup = markup;
  return Value(Kind::kString, std::move(s));
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  charge(sizeof(List) + items.size() * sizeof(Value));
  auto list = std::make_shared<List>();
  list->depth = checked_depth(deepest(items));
  list->items = std::move(items);
  return Value(kind, std::move(list));
}

Value Runtime::dict(Dict dict) {
  charge(sizeof(Dict) + dict.items.size() * 2 * sizeof(Value));
  int d = 0;
  for (const auto& [k, v] : dict.items) d = std::max({d, k.depth(), v.depth()});
  auto out = std::make_shared<Dict>(std::move(dict));
  out->depth = checked_depth(d);
  return Value(Kind::kDict, std::move(out));
}

Value Runtime::iterator(std::vector<Value> items, std::string error, std::string type) {
  charge(sizeof(Iterator) + items.size() * sizeof(Value));
  auto it = std::make_shared<Iterator>();
  it->depth = checked_depth(deepest(items));
  it->items = std::move(items);
  it->error = std::move(error);
  it->type_name = std::move(type);
  return Value(Kind::kIterator, std::move(it));
}

Value Runtime::undefined(std::string message) {
  charge(sizeof(Undefined) + message.size());
  auto u = std::make_shared<Undefined>();
  u->message = std::move(message);
  return Value(Kind::kUndefined, std::move(u));
}

Value Runtime::undefined(const Value& obj, const Value& name) {
  const std::string type = obj.is_none() ? "None" : std::string(type_name(obj)) + " object";
  if (name.is_string()) {
    std::string_view shown = name.text();
    return undefined("'" + type + "' has no attribute '" + std::string(shown.substr(0, 200)) + "'");
  }
  return undefined(type + " has no element " +
                   (name.is(Kind::kInt) ? int_text(name.as_int()) : "of that kind"));
}

Value Runtime::range(Int start, Int stop, Int step_by) {
  charge(sizeof(RangeObject));
  auto r = std::make_shared<RangeObject>();
  r->start = start;
  r->stop = stop;
  r->step = step_by;
  return Value(Kind::kRange, std::move(r));
}

void TextBuilder::reserve(std::size_t more) {
  if (more > runtime_.limits().string_bytes - std::min(text_.size(), runtime_.limits().string_bytes)) {
    runtime_.charge_string(runtime_.limits().string_bytes + 1);
  }
  runtime_.charge(more);
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!marks_.empty() && marks_.back().second == begin) {
    marks_.back().second = end;
  } else {
    runtime_.charge(sizeof(Range));
    marks_.emplace_back(begin, end);
  }
}

void TextBuilder::add(std::string_view trusted) {
  reserve(trusted.size());
  text_ += trusted;
}

void TextBuilder::add(std::string_view text, bool untrusted) {
  const std::size_t begin = text_.size();
  add(text);
  if (untrusted) mark(begin, text_.size());
}

void TextBuilder::add(const Str& s, std::size_t begin, std::size_t end) {
  const std::size_t base = text_.size();
  add(std::string_view(s.text).substr(begin, end - begin));
  auto it = std::lower_bound(s.marks.begin(), s.marks.end(), begin,
                             [](const Range& r, std::size_t at) { return r.second <= at; });
  for (; it != s.marks.end() && it->first < end; ++it) {
    mark(base + std::max(it->first, begin) - begin, base + std::min(it->second, end) - begin);
  }
}

Value TextBuilder::finish(bool markup) {
  Value v = runtime_.string(std::move(text_), std::move(marks_), markup);
  text_.clear();
  marks_.clear();
  return v;
}

}  // namespace barg::text::jinja
