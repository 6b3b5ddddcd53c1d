#include "text/grammar/schema_algebra.h"

#include <algorithm>

namespace barg::text::grammar::schema {
namespace {

constexpr std::size_t kMostShapes = 400;         // of one type in one union
constexpr std::size_t kShapesOfARule = 8;        // shapes are compared faster than rules are met
constexpr std::int64_t kStepsOfARule = 20;       // of DfaLimits::work
constexpr std::uint32_t kSmallLanguage = 2'000;  // states up to which two languages of strings become one

Checked<void> check_count(const Norm& norm) {
  if (std::max({norm.strings.size(), norm.arrays.size(), norm.objects.size()}) <= kMostShapes) return {};
  return unsupported("too many combinations of alternatives");
}

template <class Shape>
void add_once(std::vector<Shape>& list, Shape shape) {
  if (std::find(list.begin(), list.end(), shape) == list.end()) list.push_back(std::move(shape));
}

Checked<void> unite_strings(Languages& languages, std::vector<Strings>& list, const Strings& more) {
  if (more.full()) {
    list = {more};
    return {};
  }
  const auto plain = [](const Strings& s) {
    return s.content && s.min == 0 && s.max < 0 && s.content->num_states() < kSmallLanguage;
  };
  for (Strings& old : list) {
    if (old.full() || old == more) return {};
    if (!plain(old) || !plain(more)) continue;
    auto content = languages.either(old.content, more.content);
    if (!content) return std::unexpected(content.error());
    old.content = *content;
    return {};
  }
  list.push_back(more);
  return {};
}

template <class Shape>
void unite_shapes(std::vector<Shape>& list, const std::vector<Shape>& more) {
  for (const Shape& shape : more) add_once(list, shape);
  const auto full = std::find(list.begin(), list.end(), Shape{});
  if (full != list.end()) list = {Shape{}};
}

}  // namespace

Checked<void> Algebra::spend(std::size_t rules) {
  rules_left_ -= static_cast<std::int64_t>(rules) + 1;
  languages_.spend((static_cast<std::int64_t>(rules) + 1) * kStepsOfARule);
  if (languages_.spent()) return unsupported("the schema as a whole takes too much work");
  if (rules_left_ < 0) return unsupported("the schema as a whole has too many combinations of alternatives");
  return {};
}

Checked<void> Algebra::unite(Norm& a, const Norm& b, bool marks) {
  a.null |= b.null;
  a.no |= b.no;
  a.yes |= b.yes;
  auto numbers = either(languages_, a.numbers, b.numbers);
  if (!numbers) return std::unexpected(numbers.error());
  a.numbers = std::move(*numbers);
  const std::size_t compared = a.strings.size() * b.strings.size() + a.arrays.size() * b.arrays.size() +
                               a.objects.size() * b.objects.size();
  if (auto done = spend(compared / kShapesOfARule); !done) return done;
  for (const Strings& strings : b.strings) {
    if (auto done = unite_strings(languages_, a.strings, strings); !done) return done;
  }
  if (marks) {
    for (const ArrayShape& shape : b.arrays) add_once(a.arrays, shape);
    for (const ObjectShape& shape : b.objects) add_once(a.objects, shape);
  } else {
    unite_shapes(a.arrays, b.arrays);
    unite_shapes(a.objects, b.objects);
  }
  a.dropped = drops_.both(a.dropped, b.dropped);
  return check_count(a);
}

Checked<Norm> Algebra::intersection(const Norm& a, const Norm& b) {
  Norm out;
  out.null = a.null && b.null;
  out.no = a.no && b.no;
  out.yes = a.yes && b.yes;
  auto numbers = schema::intersection(languages_, a.numbers, b.numbers);
  if (!numbers) return std::unexpected(numbers.error());
  out.numbers = std::move(*numbers);
  for (const Strings& x : a.strings) {
    for (const Strings& y : b.strings) {
      auto both = schema::intersection(languages_, x, y);
      if (!both) return std::unexpected(both.error());
      std::int64_t steps = 0;
      if (any_in(*both, steps)) add_once(out.strings, std::move(*both));
      languages_.spend(steps);
      if (auto done = spend(out.strings.size() / kShapesOfARule); !done) return std::unexpected(done.error());
    }
  }
  for (const ArrayShape& x : a.arrays) {
    for (const ArrayShape& y : b.arrays) {
      if (auto done = spend(x.prefix.size() + y.prefix.size()); !done) return std::unexpected(done.error());
      if (auto both = intersection(x, y)) add_once(out.arrays, std::move(*both));
      if (auto done = spend(out.arrays.size() / kShapesOfARule); !done) return std::unexpected(done.error());
    }
  }
  for (const ObjectShape& x : a.objects) {
    for (const ObjectShape& y : b.objects) {
      auto both = intersection(x, y);
      if (!both) return std::unexpected(both.error());
      if (*both) add_once(out.objects, std::move(**both));
      if (auto done = spend(out.objects.size() / kShapesOfARule); !done) return std::unexpected(done.error());
    }
  }
  out.dropped = drops_.both(a.dropped, b.dropped);
  if (auto few = check_count(out); !few) return std::unexpected(few.error());
  return out;
}

namespace {

/// `from` without each of `away`, one after the other; `subtract` appends what is left of one shape.
template <class Shape, class Subtract>
Checked<std::vector<Shape>> without_all(std::vector<Shape> from, const std::vector<Shape>& away, Subtract subtract) {
  for (const Shape& b : away) {
    std::vector<Shape> left;
    for (const Shape& a : from) {
      if (auto done = subtract(a, b, left); !done) return std::unexpected(done.error());
      if (left.size() > kMostShapes) return unsupported("too many combinations of alternatives");
    }
    from.clear();
    for (Shape& shape : left) add_once(from, std::move(shape));
  }
  return from;
}

}  // namespace

Checked<Norm> Algebra::difference(const Norm& a, const Norm& b) {
  Norm out;
  out.null = a.null && !b.null;
  out.no = a.no && !b.no;
  out.yes = a.yes && !b.yes;
  auto numbers = schema::difference(languages_, a.numbers, b.numbers);
  if (!numbers) return std::unexpected(numbers.error());
  out.numbers = std::move(*numbers);
  auto strings = without_all(a.strings, b.strings, [&](const Strings& x, const Strings& y, std::vector<Strings>& left) {
    return schema::difference(languages_, x, y, left);
  });
  if (!strings) return std::unexpected(strings.error());
  out.strings = std::move(*strings);
  auto arrays = without_all(
      a.arrays, b.arrays,
      [&](const ArrayShape& x, const ArrayShape& y, std::vector<ArrayShape>& left) { return difference(x, y, left); });
  if (!arrays) return std::unexpected(arrays.error());
  out.arrays = std::move(*arrays);
  auto objects = without_all(a.objects, b.objects,
                             [&](const ObjectShape& x, const ObjectShape& y, std::vector<ObjectShape>& left) {
                               return difference(x, y, left);
                             });
  if (!objects) return std::unexpected(objects.error());
  out.objects = std::move(*objects);
  out.dropped = a.dropped;
  return out;
}

std::vector<Term> Algebra::ways_out(Term a, Term b) {
  if (terms_.implies(a, b)) return {};
  if (b == kNothing) return {a};
  std::vector<Term> out;
  const std::vector<Literal> rules = terms_.literals(b);
  for (const Literal rule : rules) {
    const Term way = terms_.without(a, rule);
    if (way != kNothing) out.push_back(way);
  }
  return out;
}

}  // namespace barg::text::grammar::schema
