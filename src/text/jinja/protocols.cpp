// Python's protocols over values: equality, order, membership, iteration, length, str and repr.
#include <algorithm>
#include <cmath>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

using Items = std::vector<Value>;

bool equal_items(Runtime& rt, const Items& a, const Items& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equals(rt, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& rt, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [k, v] : a.items) {
    rt.step();
    const Value* other = b.find(k);
    if (other == nullptr || !equals(rt, v, *other)) return false;
  }
  return true;
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return a.as_float() == b.as_float();
  // Int against float, exactly: the float must be whole and equal as an integer.
  const double d = a.is(Kind::kFloat) ? a.as_float() : b.as_float();
  const Int i = a.is(Kind::kFloat) ? b.as_int() : a.as_int();
  return std::isfinite(d) && std::fabs(d) < 0x1p126 && d == std::floor(d) && static_cast<Int>(d) == i;
}

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  return a.as_float() < b.as_float();
}

Value view_item(Runtime& rt, const View& view, const std::pair<Value, Value>& item) {
  switch (view.what) {
    case View::What::kKeys:
      return item.first;
    case View::What::kValues:
      return item.second;
    case View::What::kItems:
      break;
  }
  return rt.tuple({item.first, item.second});
}

[[noreturn]] void no_order(const Value& a, const Value& b, std::string_view op) {
  type_error("'" + std::string(op) + "' not supported between instances of '" + std::string(type_name(a)) +
             "' and '" + std::string(type_name(b)) + "'");
}

}  // namespace

bool equals(Runtime& rt, const Value& a, const Value& b) {
  rt.step();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kMissing:
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.shared() == b.shared() || equal_items(rt, a.list().items, b.list().items);
    case Kind::kDict:
      return a.shared() == b.shared() || equal_dicts(rt, a.dict(), b.dict());
    case Kind::kRange:
      return equal_items(rt, iterate(rt, a), iterate(rt, b));
    default:
      return a.shared() == b.shared();
  }
}

bool less(Runtime& rt, const Value& a, const Value& b, std::string_view op) {
  rt.step();
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) raise(RenderError::Type::kUndefined, v->object<Undefined>().message);
  }
  if (a.is_number() && b.is_number()) return less_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Items& x = a.list().items;
    const Items& y = b.list().items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equals(rt, x[i], y[i])) return less(rt, x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  no_order(a, b, op);
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        type_error("'in <string>' requires string as left operand, not " + std::string(type_name(item)));
      }
      rt.step(1 + container.text().size() / 64);
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict:
      rt.step();
      if (!is_hashable(item)) type_error("unhashable type: '" + std::string(type_name(item)) + "'");
      return container.dict().find(item) != nullptr;
    case Kind::kIterator: {
      auto& it = container.object<Iterator>();
      while (it.next < it.items.size()) {
        if (equals(rt, it.items[it.next++], item)) return true;
      }
      if (!it.error.empty()) raise(RenderError::Type::kTemplate, it.error);
      return false;
    }
    case Kind::kList:
    case Kind::kTuple: {
      const Items& items = container.list().items;
      return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equals(rt, v, item); });
    }
    default: {
      if (!is_iterable(container)) {
        type_error("argument of type '" + std::string(type_name(container)) + "' is not iterable");
      }
      const Items items = iterate(rt, container);
      return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equals(rt, v, item); });
    }
  }
}

bool is_iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

std::vector<Value> iterate(Runtime& rt, const Value& v) {
  Items out;
  switch (v.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kString: {
      const Str& s = v.str();
      rt.step(s.chars);
      for (std::size_t i = 0; i < s.text.size();) {
        const std::size_t begin = i;
        decode(s.text, i);
        TextBuilder one(rt);
        one.add(s, begin, i);
        out.push_back(one.finish());
      }
      break;
    }
    case Kind::kList:
    case Kind::kTuple:
      out = v.list().items;
      break;
    case Kind::kDict:
      for (const auto& item : v.dict().items) out.push_back(item.first);
      break;
    case Kind::kRange: {
      const auto& r = v.object<RangeObject>();
      const Int n = r.size();
      rt.step(static_cast<std::uint64_t>(n));
      for (Int i = 0; i < n; ++i) out.push_back(Value::integer(r.start + i * r.step));
      break;
    }
    case Kind::kView: {
      const auto& view = v.object<View>();
      for (const auto& item : view.dict.dict().items) out.push_back(view_item(rt, view, item));
      break;
    }
    case Kind::kIterator: {
      auto& it = v.object<Iterator>();
      out.assign(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      it.next = it.items.size();
      if (!it.error.empty()) raise(RenderError::Type::kTemplate, it.error);
      break;
    }
    default:
      type_error("'" + std::string(type_name(v)) + "' object is not iterable");
  }
  rt.step(out.size());
  rt.charge(out.size() * sizeof(Value));
  return out;
}

Int length(Runtime&, const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<Int>(v.str().chars);
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<Int>(v.list().items.size());
    case Kind::kDict:
      return static_cast<Int>(v.dict().items.size());
    case Kind::kRange:
      return v.object<RangeObject>().size();
    case Kind::kView:
      return static_cast<Int>(v.object<View>().dict.dict().items.size());
    default:
      type_error("object of type '" + std::string(type_name(v)) + "' has no len()");
  }
}

bool any_untrusted(Runtime& rt, const Value& v) {
  rt.step();
  const auto any = [&](const Items& items) {
    return std::any_of(items.begin(), items.end(), [&](const Value& x) { return any_untrusted(rt, x); });
  };
  switch (v.kind()) {
    case Kind::kString:
      return !v.str().marks.empty();
    case Kind::kList:
    case Kind::kTuple:
      return any(v.list().items);
    case Kind::kIterator:
      return any(v.object<Iterator>().items);
    case Kind::kView:
      return any_untrusted(rt, v.object<View>().dict);
    case Kind::kDict:
      return std::any_of(v.dict().items.begin(), v.dict().items.end(), [&](const auto& item) {
        return any_untrusted(rt, item.first) || any_untrusted(rt, item.second);
      });
    default:
      return false;
  }
}

}  // namespace barg::text::jinja
