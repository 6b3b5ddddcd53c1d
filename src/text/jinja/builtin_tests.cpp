// The tests behind `is`.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

bool remainder_is(Runtime& rt, const Value& v, const Value& by, int rest) {
  return equals(rt, binary(rt, Binary::kMod, v, by), Value::integer(rest));
}

// str(v).islower() and .isupper(): at least one cased code point and none of the other case.
bool all_case(Runtime& rt, const Value& v, bool upper) {
  const Value text = to_string(rt, v);
  bool any = false;
  for (std::size_t i = 0; i < text.text().size();) {
    const char32_t c = decode(text.text(), i);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    any |= upper ? is_upper(c) : is_lower(c);
  }
  return any;
}

bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_none() || a.is(Kind::kBool) || a.is(Kind::kInt)) return a.as_int() == b.as_int();
  if (a.is(Kind::kFloat)) return a.as_float() == b.as_float();
  return a.shared() == b.shared();
}

bool has_items(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
      return true;
    default:
      return false;
  }
}

bool table_key(const Value& v) {
  if (!is_hashable(v)) type_error("unhashable type: '" + std::string(type_name(v)) + "'");
  return v.is_string();
}

template <Kind kind>
bool is_kind(Runtime&, const Value& v, Args&) {
  return v.is(kind);
}

constexpr TestRow kTests[] = {
    {"odd", "", [](Runtime& rt, const Value& v, Args&) { return remainder_is(rt, v, Value::integer(2), 1); }},
    {"even", "",
     [](Runtime& rt, const Value& v, Args&) { return remainder_is(rt, v, Value::integer(2), 0); }},
    {"divisibleby", "num", [](Runtime& rt, const Value& v, Args& a) { return remainder_is(rt, v, a[0], 0); }},
    {"defined", "", [](Runtime&, const Value& v, Args&) { return !v.is_undefined(); }},
    {"undefined", "", [](Runtime&, const Value& v, Args&) { return v.is_undefined(); }},
    {"none", "", is_kind<Kind::kNone>},
    {"boolean", "", is_kind<Kind::kBool>},
    {"false", "", [](Runtime&, const Value& v, Args&) { return v.is(Kind::kBool) && !v.as_bool(); }},
    {"true", "", [](Runtime&, const Value& v, Args&) { return v.is(Kind::kBool) && v.as_bool(); }},
    {"integer", "", is_kind<Kind::kInt>},
    {"float", "", is_kind<Kind::kFloat>},
    {"number", "", [](Runtime&, const Value& v, Args&) { return v.is_number(); }},
    {"string", "", is_kind<Kind::kString>},
    {"mapping", "", is_kind<Kind::kDict>},
    {"sequence", "", [](Runtime&, const Value& v, Args&) { return has_items(v); }},
    {"iterable", "", [](Runtime&, const Value& v, Args&) { return is_iterable(v) || v.is(Kind::kLoop); }},
    {"callable", "",
     [](Runtime&, const Value& v, Args&) {
       return v.is(Kind::kMacro) || v.is(Kind::kMethod) || v.is(Kind::kFunction) || v.is(Kind::kLoop) ||
              v.is(Kind::kJoiner) || v.is_undefined();
     }},
    {"escaped", "", [](Runtime&, const Value& v, Args&) { return v.is_string() && v.str().markup; }},
    {"lower", "", [](Runtime& rt, const Value& v, Args&) { return all_case(rt, v, false); }},
    {"upper", "", [](Runtime& rt, const Value& v, Args&) { return all_case(rt, v, true); }},
    {"filter", "",
     [](Runtime&, const Value& v, Args&) { return table_key(v) && find_filter(v.text()) != nullptr; }},
    {"test", "",
     [](Runtime&, const Value& v, Args&) { return table_key(v) && find_test(v.text()) != nullptr; }},
    {"sameas", "other", [](Runtime&, const Value& v, Args& a) { return same(v, a[0]); }},
    {"in", "seq", [](Runtime& rt, const Value& v, Args& a) { return contains(rt, a[0], v); }},
};

struct Comparison {
  std::string_view names[3];
  TestFn fn;
};

constexpr Comparison kComparisons[] = {
    {{"==", "eq", "equalto"}, [](Runtime& rt, const Value& v, Args& a) { return equals(rt, v, a[0]); }},
    {{"!=", "ne", "ne"}, [](Runtime& rt, const Value& v, Args& a) { return !equals(rt, v, a[0]); }},
    {{">", "gt", "greaterthan"}, [](Runtime& rt, const Value& v, Args& a) { return less(rt, a[0], v, ">"); }},
    {{"<", "lt", "lessthan"}, [](Runtime& rt, const Value& v, Args& a) { return less(rt, v, a[0], "<"); }},
    {{">=", "ge", "ge"},
     [](Runtime& rt, const Value& v, Args& a) { return less(rt, a[0], v, ">=") || equals(rt, a[0], v); }},
    {{"<=", "le", "le"},
     [](Runtime& rt, const Value& v, Args& a) { return less(rt, v, a[0], "<=") || equals(rt, v, a[0]); }},
};

}  // namespace

const TestRow* find_test(std::string_view name) {
  static const std::vector<TestRow> kRows = [] {
    std::vector<TestRow> rows(std::begin(kTests), std::end(kTests));
    for (const Comparison& c : kComparisons) {
      for (std::string_view n : c.names) rows.push_back({n, "other", c.fn});
    }
    return rows;
  }();
  for (const TestRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace barg::text::jinja
