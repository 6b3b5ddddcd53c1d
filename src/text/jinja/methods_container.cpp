// Methods of dict, list, tuple, range, numbers, and of Jinja's own loop and cycler.
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace barg::text::jinja {

namespace {

template <View::What what>
Value view(Runtime& rt, const Value& v, Args&) {
  rt.charge(sizeof(View));
  auto view = std::make_shared<View>();
  view->depth = rt.checked_depth(v.depth());
  view->what = what;
  view->dict = v;
  return Value(Kind::kView, std::move(view));
}

void require_hashable(const Value& v) {
  if (!is_hashable(v)) type_error("unhashable type: '" + std::string(type_name(v)) + "'");
}

Value dict_get(Runtime& rt, const Value& v, Args& args) {
  rt.step();
  require_hashable(args[0]);
  const Value* found = v.dict().find(args[0]);
  if (found != nullptr) return *found;
  return args.has(1) ? args[1] : Value();
}

Value dict_copy(Runtime& rt, const Value& v, Args&) { return rt.dict(v.dict()); }

Value count(Runtime& rt, const Value& v, Args& args) {
  Int n = 0;
  for (const Value& item : iterate(rt, v)) n += equals(rt, item, args[0]);
  return Value::integer(n);
}

Value index(Runtime& rt, const Value& v, Args& args) {
  const std::vector<Value> items = iterate(rt, v);
  const Int n = static_cast<Int>(items.size());
  const auto clip = [&](std::size_t i, Int fallback) {
    Int x = args.integer(i, fallback);
    if (x < 0) x = std::max<Int>(0, x + n);
    return std::min(x, n);
  };
  for (Int i = clip(1, 0); i < clip(2, n); ++i) {
    if (equals(rt, items[static_cast<std::size_t>(i)], args[0])) return Value::integer(i);
  }
  value_error("the value is not in the " + std::string(type_name(v)));
}

Value list_copy(Runtime& rt, const Value& v, Args&) { return rt.list(v.list().items); }

// ---- what changes its object; only with RenderOptions::allow_mutation

// A container that goes into another one is copied, so that nothing can hold itself.
Value detached(Runtime& rt, const Value& v) {
  rt.step();
  if (v.is_sequence()) {
    std::vector<Value> items;
    for (const Value& item : v.list().items) items.push_back(detached(rt, item));
    return v.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
  }
  if (v.is_dict()) {
    Dict dict;
    for (const auto& [k, x] : v.dict().items) dict.set(k, detached(rt, x));
    return rt.dict(std::move(dict));
  }
  if (v.shared() && !v.is_string()) type_error("only plain values can be added to a list or dict");
  return v;
}

void grown(Runtime& rt, const Value& v, const Value& added) {
  rt.charge(2 * sizeof(Value));
  v.shared()->depth = std::max(v.depth(), rt.checked_depth(added.depth()));
}

Value append(Runtime& rt, const Value& v, Args& args) {
  const Value item = detached(rt, args[0]);
  grown(rt, v, item);
  v.list().items.push_back(item);
  return Value();
}

Value extend(Runtime& rt, const Value& v, Args& args) {
  for (const Value& item : iterate(rt, args[0])) {
    CallArgs one;
    one.positional.push_back(item);
    Args bound("object", std::move(one), "append");
    append(rt, v, bound);
  }
  return Value();
}

Value insert(Runtime& rt, const Value& v, Args& args) {
  const Value item = detached(rt, args[1]);
  grown(rt, v, item);
  auto& items = v.list().items;
  const Int n = static_cast<Int>(items.size());
  Int at = args.integer(0, 0);
  if (at < 0) at = std::max<Int>(0, at + n);
  rt.step(1 + items.size() / 16);
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(std::min(at, n)), item);
  return Value();
}

Value list_pop(Runtime& rt, const Value& v, Args& args) {
  auto& items = v.list().items;
  const Int n = static_cast<Int>(items.size());
  Int at = args.integer(0, -1);
  if (at < 0) at += n;
  if (at < 0 || at >= n)
    raise(RenderError::Type::kLookup, n == 0 ? "pop from empty list" : "pop index out of range");
  rt.step(1 + items.size() / 16);
  Value item = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  return item;
}

Value dict_update(Runtime& rt, const Value& v, Args& args) {
  CallArgs& raw = args.raw();
  if (raw.positional.size() > 1) type_error("update expected at most 1 argument");
  const auto put = [&](const Value& key, const Value& value) {
    const Value copy = detached(rt, value);
    grown(rt, v, copy);
    v.dict().set(key, copy);
  };
  if (!raw.positional.empty()) {
    if (!raw.positional[0].is_dict()) type_error("update() wants a mapping");
    const Dict other = raw.positional[0].dict();
    for (const auto& [k, x] : other.items) put(k, x);
  }
  for (const auto& [name, x] : raw.named) put(rt.string(name), x);
  return Value();
}

Value dict_pop(Runtime& rt, const Value& v, Args& args) {
  require_hashable(args[0]);
  rt.step(1 + v.dict().items.size() / 4);
  const Value* found = v.dict().find(args[0]);
  if (found == nullptr) {
    if (args.has(1)) return args[1];
    raise(RenderError::Type::kLookup, "KeyError");
  }
  Value item = *found;
  v.dict().erase(args[0]);
  return item;
}

Value set_default(Runtime& rt, const Value& v, Args& args) {
  require_hashable(args[0]);
  if (const Value* found = v.dict().find(args[0])) return *found;
  const Value item = detached(rt, args.has(1) ? args[1] : Value());
  grown(rt, v, item);
  v.dict().set(args[0], item);
  return item;
}

// ---- numbers, loop, cycler

Value is_integer(Runtime&, const Value& v, Args&) {
  return Value::boolean(v.as_float() == std::floor(v.as_float()));
}

Value bit_length(Runtime&, const Value& v, Args&) {
  Int i = v.as_int() < 0 ? -v.as_int() : v.as_int(), n = 0;
  for (; i > 0; i >>= 1) ++n;
  return Value::integer(n);
}

Value loop_cycle(Runtime&, const Value& v, Args& args) {
  const auto& values = args.raw().positional;
  if (!args.raw().named.empty()) type_error("cycle() takes no keyword arguments");
  if (values.empty()) type_error("no items for cycling given");
  return values[static_cast<std::size_t>(v.object<LoopObject>().index0 % static_cast<Int>(values.size()))];
}

Value loop_changed(Runtime& rt, const Value& v, Args& args) {
  auto& loop = v.object<LoopObject>();
  const Value now = rt.tuple(args.raw().positional);
  if (loop.last_changed && equals(rt, *loop.last_changed, now)) return Value::boolean(false);
  loop.last_changed = now;
  return Value::boolean(true);
}

Value cycler_next(Runtime&, const Value& v, Args&) {
  auto& c = v.object<Cycler>();
  const Value item = c.items[c.position];
  c.position = (c.position + 1) % c.items.size();
  return item;
}

Value cycler_reset(Runtime&, const Value& v, Args&) {
  v.object<Cycler>().position = 0;
  return Value();
}

constexpr MethodRow kMethods[] = {
    {Kind::kDict, "copy", "", dict_copy},
    {Kind::kDict, "fromkeys", "*", nullptr},
    {Kind::kDict, "get", "key default?", dict_get},
    {Kind::kDict, "items", "", view<View::What::kItems>},
    {Kind::kDict, "keys", "", view<View::What::kKeys>},
    {Kind::kDict, "values", "", view<View::What::kValues>},
    {Kind::kDict, "clear", "*", nullptr, true},
    {Kind::kDict, "pop", "key default?", dict_pop, true},
    {Kind::kDict, "popitem", "*", nullptr, true},
    {Kind::kDict, "setdefault", "key default?", set_default, true},
    {Kind::kDict, "update", "*", dict_update, true},
    {Kind::kList, "copy", "", list_copy},
    {Kind::kList, "count", "value", count},
    {Kind::kList, "index", "value start? stop?", index},
    {Kind::kList, "append", "object", append, true},
    {Kind::kList, "clear", "*", nullptr, true},
    {Kind::kList, "extend", "iterable", extend, true},
    {Kind::kList, "insert", "index object", insert, true},
    {Kind::kList, "pop", "index?", list_pop, true},
    {Kind::kList, "remove", "*", nullptr, true},
    {Kind::kList, "reverse", "*", nullptr, true},
    {Kind::kList, "sort", "*", nullptr, true},
    {Kind::kTuple, "count", "value", count},
    {Kind::kTuple, "index", "value start? stop?", index},
    {Kind::kRange, "count", "value", count},
    {Kind::kRange, "index", "value", index},
    {Kind::kView, "isdisjoint", "*", nullptr},
    {Kind::kView, "mapping", "*", nullptr},
    {Kind::kFloat, "is_integer", "", is_integer},
    {Kind::kFloat, "hex", "*", nullptr},
    {Kind::kFloat, "fromhex", "*", nullptr},
    {Kind::kFloat, "conjugate", "*", nullptr},
    {Kind::kFloat, "as_integer_ratio", "*", nullptr},
    {Kind::kInt, "bit_length", "", bit_length},
    {Kind::kInt, "bit_count", "*", nullptr},
    {Kind::kInt, "conjugate", "*", nullptr},
    {Kind::kInt, "to_bytes", "*", nullptr},
    {Kind::kInt, "from_bytes", "*", nullptr},
    {Kind::kInt, "as_integer_ratio", "*", nullptr},
    {Kind::kLoop, "cycle", "*", loop_cycle},
    {Kind::kLoop, "changed", "*", loop_changed},
    {Kind::kCycler, "next", "", cycler_next},
    {Kind::kCycler, "reset", "", cycler_reset},
};

}  // namespace

std::span<const MethodRow> container_methods() { return kMethods; }

}  // namespace barg::text::jinja
