// Algebra of arrays.
#include <algorithm>

#include "text/grammar/schema_algebra.h"

namespace barg::text::grammar::schema {
namespace {

constexpr std::int64_t kPlacesToTry = 16;

void pad(std::vector<Term>& prefix, Term items, std::size_t size) {
  while (prefix.size() < size) prefix.push_back(items);
}

/// Whether `contains` is only a bound of the length, or none; then it is made one.
bool absorbed(ArrayShape& shape, const ArrayShape::Contains& contains) {
  if (contains.what == kAnything) {
    shape.min = std::max(shape.min, contains.min);
    shape.max = lower_max(shape.max, contains.max);
    return true;
  }
  return contains.min == 0 && contains.max < 0;
}

}  // namespace

bool Algebra::settle(ArrayShape& shape) {
  std::erase_if(shape.contains, [&](const ArrayShape::Contains& c) { return absorbed(shape, c); });
  const auto never = [&](const ArrayShape::Contains& c) {
    return surely_empty_(shape.prefix.empty() ? terms_.both(shape.items, c.what) : c.what);
  };
  for (const ArrayShape::Contains& c : shape.contains) {
    if (c.max >= 0 && c.min > c.max) return false;
    if (c.min > 0 && never(c)) return false;
    shape.min = std::max(shape.min, c.min);
  }
  std::erase_if(shape.contains, never);
  if (shape.max >= 0 && static_cast<std::int64_t>(shape.prefix.size()) > shape.max) {
    shape.prefix.resize(static_cast<std::size_t>(shape.max));
  }
  for (std::size_t i = 0; i < shape.prefix.size(); ++i) {
    if (!surely_empty_(shape.prefix[i])) continue;
    shape.prefix.resize(i);
    shape.items = kNothing;
  }
  const auto front = static_cast<std::int64_t>(shape.prefix.size());
  if (front != shape.max && surely_empty_(shape.items)) shape.max = front;
  if (shape.max == front) shape.items = kNothing;
  if (shape.max == 0 || shape.max == 1) shape.unique_at = kNoPlace;
  return shape.max < 0 || shape.min <= shape.max;
}

std::optional<ArrayShape> Algebra::intersection(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  const std::size_t front = std::max(a.prefix.size(), b.prefix.size());
  for (std::size_t i = 0; i < front; ++i) out.prefix.push_back(terms_.both(a.at(i), b.at(i)));
  out.items = terms_.both(a.items, b.items);
  out.min = std::max(a.min, b.min);
  out.max = lower_max(a.max, b.max);
  out.contains = a.contains;
  for (const ArrayShape::Contains& c : b.contains) {
    const bool known = std::ranges::any_of(a.contains, [&](const ArrayShape::Contains& old) {
      return old.what == c.what && old.min >= c.min && (c.max < 0 || (old.max >= 0 && old.max <= c.max));
    });
    if (!known) out.contains.push_back(c);
  }
  out.unique_at = std::max(a.unique_at, b.unique_at);
  out.evaluated = std::max(a.evaluated, b.evaluated);
  out.all_evaluated = a.all_evaluated || b.all_evaluated;
  out.contains_evaluates = a.contains_evaluates || b.contains_evaluates;
  if (!settle(out)) return std::nullopt;
  return out;
}

Checked<void> Algebra::break_items(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out) {
  const auto front = static_cast<std::int64_t>(std::max(a.prefix.size(), b.prefix.size()));
  const std::int64_t longest = lower_max(a.max, b.max);  // longer ones break the bound of the length
  const auto break_at = [&](std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    for (const Term way : ways_out(a.at(place), b.at(place))) {
      ArrayShape piece = a;
      pad(piece.prefix, a.items, place + 1);
      piece.prefix[place] = way;
      piece.min = std::max(a.min, i + 1);
      keep(std::move(piece), out);
    }
  };
  for (std::int64_t i = 0; i < front; ++i) break_at(i);
  if (terms_.implies(a.items, b.items) || (longest >= 0 && longest <= front)) return {};
  if (longest >= 0 && longest - front <= kPlacesToTry) {
    for (std::int64_t i = front; i < longest; ++i) break_at(i);
    return {};
  }
  if (front > 0) return unsupported("'an item behind the first ones breaks the rule' cannot be said");
  for (const Term way : ways_out(kAnything, b.items)) {
    ArrayShape piece = a;
    piece.contains.push_back({.what = way});
    keep(std::move(piece), out);
  }
  return {};
}

Checked<void> Algebra::break_contains(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out) {
  for (const ArrayShape::Contains& c : b.contains) {
    if (std::find(a.contains.begin(), a.contains.end(), c) != a.contains.end()) continue;
    if (c.max >= 0) {
      ArrayShape more = a;
      more.contains.push_back({.what = c.what, .min = c.max + 1, .at = c.at});
      keep(std::move(more), out);
    }
    if (c.min == 0) continue;
    ArrayShape fewer = a;
    if (c.min > 1) {
      fewer.contains.push_back({.what = c.what, .min = 0, .max = c.min - 1, .at = c.at});
    } else {
      const std::vector<Literal> rules = terms_.literals(c.what);
      if (rules.size() > 1) return unsupported("'no item matches several schemas at once' cannot be said");
      if (rules.size() == 1) {
        for (Term& item : fewer.prefix) item = terms_.without(item, rules[0]);
        fewer.items = terms_.without(fewer.items, rules[0]);
      }
    }
    keep(std::move(fewer), out);
  }
  return {};
}

Checked<void> Algebra::difference(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out) {
  if (!intersection(a, b)) {
    out.push_back(a);
    return {};
  }
  break_counts(a, b, out);
  if (auto done = break_items(a, b, out); !done) return done;
  if (auto done = break_contains(a, b, out); !done) return done;
  if (b.unique_at != kNoPlace && a.unique_at == kNoPlace) return unsupported("'two items are equal' cannot be said");
  return {};
}

}  // namespace barg::text::grammar::schema
