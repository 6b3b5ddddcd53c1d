// Attribute and item access as Jinja2's sandbox does it, argument binding, and the lookups in the tables.
#include <algorithm>
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/pystr.h"

namespace barg::text::jinja {

namespace {

// The types' names in messages of the sandbox.
Value unsafe(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined("access to attribute '" + std::string(name.substr(0, 200)) + "' of '" +
                      std::string(type_name(object)) + "' object is unsafe.");
}

bool is_internal(std::string_view name) {
  // Attributes every Python object has; others that begin with an underscore do not exist on our types.
  static constexpr std::string_view kNames[] = {
      "__class__",  "__doc__",       "__init__",   "__new__",          "__repr__",         "__str__",
      "__hash__",   "__eq__",        "__ne__",     "__lt__",           "__le__",           "__gt__",
      "__ge__",     "__dir__",       "__format__", "__getattribute__", "__setattr__",      "__delattr__",
      "__reduce__", "__reduce_ex__", "__sizeof__", "__subclasshook__", "__init_subclass__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value number_attribute(const Value& v, std::string_view name) {
  if (v.is(Kind::kFloat)) {
    if (name == "real") return v;
    if (name == "imag") return Value::real(0);
    return Value::missing();
  }
  if (name == "real" || name == "numerator") return Value::integer(v.as_int());
  if (name == "imag") return Value::integer(0);
  if (name == "denominator") return Value::integer(1);
  return Value::missing();
}

Value data_attribute(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number_attribute(object, name);
    case Kind::kTuple:
      if (object.list().group && name == "grouper") return object.list().items[0];
      if (object.list().group && name == "list") return object.list().items[1];
      break;
    case Kind::kRange: {
      const auto& r = object.object<RangeObject>();
      if (name == "start") return Value::integer(r.start);
      if (name == "stop") return Value::integer(r.stop);
      if (name == "step") return Value::integer(r.step);
      break;
    }
    case Kind::kNamespace:
      if (const Value* v = object.object<Namespace>().attributes.find(name)) return *v;
      break;
    case Kind::kCycler: {
      const auto& c = object.object<Cycler>();
      if (name == "current") return c.items[c.position];
      if (name == "pos") return Value::integer(static_cast<Int>(c.position));
      break;
    }
    case Kind::kJoiner:
      if (name == "sep") return object.object<Joiner>().separator;
      if (name == "used") return Value::boolean(object.object<Joiner>().used);
      break;
    default:
      break;
  }
  return Value::missing();
}

// object[key] without the attribute fallback; missing where Python raises TypeError or LookupError.
Value plain_item(Runtime& rt, const Value& object, const Value& key) {
  rt.step();
  switch (object.kind()) {
    case Kind::kDict: {
      if (!is_hashable(key)) return Value::missing();
      const Value* v = object.dict().find(key);
      return v == nullptr ? Value::missing() : *v;
    }
    case Kind::kString:
      if (!key.is_integral()) return Value::missing();
      return pystr::char_at(rt, object.str(), key.as_int()).value_or(Value::missing());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      if (!key.is_integral()) return Value::missing();
      const Int n = length(rt, object);
      const Int i = key.as_int() < 0 ? key.as_int() + n : key.as_int();
      if (i < 0 || i >= n) return Value::missing();
      if (object.is_sequence()) return object.list().items[static_cast<std::size_t>(i)];
      const auto& r = object.object<RangeObject>();
      return Value::integer(r.start + i * r.step);
    }
    default:
      return Value::missing();
  }
}

}  // namespace

void require_defined(const Value& v) {
  if (v.is_undefined()) raise(RenderError::Type::kUndefined, v.object<Undefined>().message);
}

Value attribute_only(Runtime& rt, const Value& object, std::string_view name) {
  rt.step();
  if (Value v = data_attribute(object, name); !v.is(Kind::kMissing)) return v;
  if (object.is(Kind::kNamespace)) return Value::missing();
  if (const MethodRow* row = find_method(object.kind(), name)) {
    if (row->mutates && !rt.options().allow_mutation) return unsafe(rt, object, name);
    rt.charge(sizeof(Method));
    auto method = std::make_shared<Method>();
    method->depth = object.depth();
    method->self = object;
    method->row = row;
    return Value(Kind::kMethod, std::move(method));
  }
  if (is_internal(name)) return unsafe(rt, object, name);
  return Value::missing();
}

Value get_attribute(Runtime& rt, const Value& object, const Value& name) {
  require_defined(object);
  Value v = attribute_only(rt, object, name.text());
  if (v.is(Kind::kMissing)) v = plain_item(rt, object, name);
  return v.is(Kind::kMissing) ? rt.undefined(object, name) : v;
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  require_defined(object);
  Value v = plain_item(rt, object, key);
  if (v.is(Kind::kMissing) && key.is_string()) v = attribute_only(rt, object, key.text());
  return v.is(Kind::kMissing) ? rt.undefined(object, key) : v;
}

Int as_index(const Value& v, std::string_view what) {
  require_defined(v);
  if (!v.is_integral()) {
    type_error(std::string(what) + ": '" + std::string(type_name(v)) +
               "' object cannot be interpreted as an integer");
  }
  return v.as_int();
}

Value slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    type_error("'" + std::string(type_name(object)) + "' object is not subscriptable by a slice");
  }
  const Int by = step.is_none() ? 1 : as_index(step, "slice");
  if (by == 0) value_error("slice step cannot be zero");
  const Int n = length(rt, object);
  const auto clip = [&](const Value& v, Int fallback) {
    if (v.is_none()) return fallback;
    Int i = as_index(v, "slice");
    if (i < 0) i += n;
    const Int low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
    return i < low ? low : i > high ? high : i;
  };
  const Int from = clip(start, by < 0 ? n - 1 : 0);
  const Int to = clip(stop, by < 0 ? -1 : n);
  const Int count =
      by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);
  if (object.is_string()) return pystr::pick(rt, object.str(), from, by, count);
  if (object.is(Kind::kRange)) {
    const auto& r = object.object<RangeObject>();
    return rt.range(r.start + from * r.step, r.start + to * r.step, r.step * by);
  }
  rt.step(static_cast<std::uint64_t>(count));
  std::vector<Value> items;
  for (Int k = 0; k < count; ++k)
    items.push_back(object.list().items[static_cast<std::size_t>(from + k * by)]);
  return object.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Args::Args(std::string_view signature, CallArgs call, std::string_view callee) {
  if (signature == "*") {
    raw_ = std::move(call);
    return;
  }
  std::size_t used = 0;
  const std::string who(callee);
  while (!signature.empty()) {
    const std::size_t space = signature.find(' ');
    std::string_view name = signature.substr(0, space);
    signature = space == signature.npos ? std::string_view() : signature.substr(space + 1);
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    Value v = Value::missing();
    const auto it =
        std::find_if(call.named.begin(), call.named.end(), [&](const auto& n) { return n.first == name; });
    if (used < call.positional.size()) {
      if (it != call.named.end())
        type_error(who + "() got multiple values for argument '" + std::string(name) + "'");
      v = std::move(call.positional[used++]);
    } else if (it != call.named.end()) {
      v = std::move(it->second);
      call.named.erase(it);
    } else if (!optional) {
      type_error(who + "() missing 1 required positional argument: '" + std::string(name) + "'");
    }
    values_.push_back(std::move(v));
  }
  if (used < call.positional.size()) type_error(who + "() takes fewer positional arguments");
  if (!call.named.empty()) {
    type_error(who + "() got an unexpected keyword argument '" + call.named.front().first + "'");
  }
}

Int Args::integer(std::size_t i, Int fallback) const {
  return has(i) ? as_index(values_[i], "argument") : fallback;
}

const Str& Args::text(std::size_t i) const {
  require_defined(values_[i]);
  if (!values_[i].is_string()) type_error("must be str, not " + std::string(type_name(values_[i])));
  return values_[i].str();
}

const Str* Args::optional_text(std::size_t i) const {
  return !has(i) || values_[i].is_none() ? nullptr : &text(i);
}

const FilterRow* find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), number_filters(), sequence_filters()}) {
    for (const FilterRow& row : table) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

const MethodRow* find_method(Kind kind, std::string_view name) {
  for (const auto& table : {string_methods(), container_methods()}) {
    for (const MethodRow& row : table) {
      if (row.kind == kind && row.name == name) return &row;
    }
  }
  return nullptr;
}

Value apply_filter(Runtime& rt, const FilterRow* row, std::string_view name, const Value& value,
                   CallArgs args) {
  rt.step();
  if (row == nullptr)
    raise(RenderError::Type::kTemplate, "No filter named '" + std::string(name.substr(0, 200)) + "' found.");
  if (row->fn == nullptr)
    raise(RenderError::Type::kTemplate, "the filter '" + std::string(name) + "' is not supported");
  const Runtime::Nested nested(rt);
  Args bound(row->signature, std::move(args), name);
  return row->fn(rt, value, bound);
}

bool apply_test(Runtime& rt, const TestRow* row, std::string_view name, const Value& value, CallArgs args) {
  rt.step();
  if (row == nullptr)
    raise(RenderError::Type::kTemplate, "No test named '" + std::string(name.substr(0, 200)) + "' found.");
  Args bound(row->signature, std::move(args), name);
  return row->fn(rt, value, bound);
}

}  // namespace barg::text::jinja
