#include "text/jinja/value.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace barg::text::jinja {

namespace {

constexpr std::size_t kIndexAbove = 16;

// Equality of hashable scalars as dict keys see it. Tuples compare by their elements.
bool same_key(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_float() == b.as_float();
  if (a.kind() != b.kind()) return false;
  if (a.is_none() || a.is_undefined()) return true;
  if (a.is(Kind::kTuple)) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    if (x.size() != y.size()) return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!same_key(x[i], y[i])) return false;
    }
    return true;
  }
  return a.shared() == b.shared();
}

}  // namespace

List& Value::list() const { return object<List>(); }
Dict& Value::dict() const { return object<Dict>(); }

std::ptrdiff_t Dict::position(const Value& key) const {
  if (key.is_string()) return position(std::string_view(key.text()));
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (same_key(items[i].first, key)) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

std::ptrdiff_t Dict::position(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(std::string(key));
    return it == index.end() ? -1 : static_cast<std::ptrdiff_t>(it->second);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Value& k = items[i].first;
    if (k.is_string() && k.text() == key) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

const Value* Dict::find(const Value& key) const {
  const std::ptrdiff_t at = position(key);
  return at < 0 ? nullptr : &items[static_cast<std::size_t>(at)].second;
}

const Value* Dict::find(std::string_view key) const {
  const std::ptrdiff_t at = position(key);
  return at < 0 ? nullptr : &items[static_cast<std::size_t>(at)].second;
}

void Dict::set(Value key, Value value) {
  if (const std::ptrdiff_t at = position(key); at >= 0) {
    items[static_cast<std::size_t>(at)].second = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() > kIndexAbove) {
    if (index.empty()) {
      reindex();
    } else if (items.back().first.is_string()) {
      index.emplace(items.back().first.text(), items.size() - 1);
    }
  }
}

void Dict::erase(const Value& key) {
  const std::ptrdiff_t at = position(key);
  if (at < 0) return;
  items.erase(items.begin() + at);
  if (!index.empty()) reindex();
}

void Dict::reindex() {
  index.clear();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].first.is_string()) index.emplace(items[i].first.text(), i);
  }
}

Int RangeObject::size() const {
  if (step > 0) return stop > start ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.str().markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return v.list().group ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      switch (v.object<View>().what) {
        case View::What::kKeys:
          return "dict_keys";
        case View::What::kValues:
          return "dict_values";
        case View::What::kItems:
          return "dict_items";
      }
      break;
    case Kind::kIterator:
      return v.object<Iterator>().type_name;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_float() != 0;
    case Kind::kString:
      return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !v.list().items.empty();
    case Kind::kDict:
      return !v.dict().items.empty();
    case Kind::kRange:
      return v.object<RangeObject>().size() != 0;
    case Kind::kView:
      return !v.object<View>().dict.dict().items.empty();
    default:
      return true;
  }
}

bool is_hashable(const Value& v) {
  if (v.is(Kind::kTuple)) {
    for (const Value& item : v.list().items) {
      if (!is_hashable(item)) return false;
    }
    return true;
  }
  return !v.is(Kind::kList) && !v.is(Kind::kDict) && !v.is(Kind::kView);
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buf[64];
  const auto r = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::scientific);
  const std::string_view sci(buf, static_cast<std::size_t>(r.ptr - buf));
  const std::size_t e = sci.find('e');
  const int exponent = std::atoi(std::string(sci.substr(e + 1)).c_str());
  std::string digits;
  for (char c : sci.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = d < 0 || (d == 0 && std::signbit(d)) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += exponent < 0 ? "e-" : "e+";
    const std::string digits_e = std::to_string(std::abs(exponent));
    return out + (digits_e.size() < 2 ? "0" : "") + digits_e;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string int_text(Int i) {
  // The magnitude as unsigned, so that the smallest value does not overflow.
  __extension__ typedef unsigned __int128 Unsigned;
  Unsigned u = i < 0 ? -static_cast<Unsigned>(i) : static_cast<Unsigned>(i);
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(u % 10)));
    u /= 10;
  } while (u != 0);
  return i < 0 ? "-" + digits : digits;
}

}  // namespace barg::text::jinja
