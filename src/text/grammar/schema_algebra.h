// Algebra: intersection, union and difference of Norms, shape by shape. Exact, or an Issue.
//
// A shape that surely has no member is left out at once; to see that, Algebra asks its owner whether a Term is surely
// empty. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "text/grammar/schema_dropped.h"
#include "text/grammar/schema_languages.h"
#include "text/grammar/schema_shape.h"
#include "text/grammar/schema_terms.h"

namespace barg::text::grammar::schema {

class Algebra {
 public:
  /// `surely_empty` may say no where it does not know.
  Algebra(Terms& terms, Languages& languages, std::function<bool(Term)> surely_empty)
      : terms_(terms), languages_(languages), surely_empty_(std::move(surely_empty)) {}

  Checked<Norm> intersection(const Norm& a, const Norm& b);
  /// `a` without `b`. REQUIRES that `b` is exact.
  Checked<Norm> difference(const Norm& a, const Norm& b);
  /// Adds `b` to `a`. With `marks`, shapes that differ only in what is evaluated stay apart.
  Checked<void> unite(Norm& a, const Norm& b, bool marks);

  /// Tightens the bounds of a shape; false: it has no member.
  bool settle(ArrayShape& shape);
  bool settle(ObjectShape& shape);

  std::optional<ArrayShape> intersection(const ArrayShape& a, const ArrayShape& b);
  Checked<std::optional<ObjectShape>> intersection(const ObjectShape& a, const ObjectShape& b);
  Checked<void> difference(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out);
  Checked<void> difference(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out);

  /// What a shape says of a name outside of its properties.
  static const ObjectShape::Other* class_of(const ObjectShape& shape, const std::string& name);

  /// Counts work, so that a product of alternatives ends in an Issue and not in minutes.
  Checked<void> spend(std::size_t rules);

  Terms& terms() { return terms_; }
  Languages& languages() { return languages_; }
  DropLists& drops() { return drops_; }

 private:
  Checked<std::vector<ObjectShape::Other>> others_of_both(const ObjectShape& a, const ObjectShape& b);
  /// All ways in which a value is of `a` and not of `b`.
  std::vector<Term> ways_out(Term a, Term b);
  Checked<void> break_items(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out);
  Checked<void> break_contains(const ArrayShape& a, const ArrayShape& b, std::vector<ArrayShape>& out);
  void break_names(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out);
  Checked<void> break_closed(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out);
  Checked<void> break_others(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out);
  /// Arrays or objects with fewer or more members than `b` takes.
  template <class Shape>
  void break_counts(const Shape& a, const Shape& b, std::vector<Shape>& out) {
    if (b.min > a.min) {
      Shape fewer = a;
      fewer.max = lower_max(a.max, b.min - 1);
      keep(std::move(fewer), out);
    }
    if (b.max >= 0) {
      Shape more = a;
      more.min = std::max(a.min, b.max + 1);
      keep(std::move(more), out);
    }
  }
  template <class Shape>
  void keep(Shape shape, std::vector<Shape>& out) {
    if (settle(shape)) out.push_back(std::move(shape));
  }

  Terms& terms_;
  Languages& languages_;
  std::function<bool(Term)> surely_empty_;
  DropLists drops_;
  std::int64_t rules_left_ = 2'000'000;
};

}  // namespace barg::text::grammar::schema
