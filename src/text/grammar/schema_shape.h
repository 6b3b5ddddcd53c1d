// Shapes: sets of JSON values of one type, as the rules of a schema describe them, with Terms for the values inside;
// and Norm, the normal form of a Term: a union of shapes. Plain data.
//
// "Evaluated" marks what unevaluatedProperties and unevaluatedItems need to know: that a keyword here has looked at the
// property or item. It is no part of which values are in the set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/grammar/schema_dropped.h"
#include "text/grammar/schema_issue.h"
#include "text/grammar/schema_languages.h"
#include "text/grammar/schema_terms.h"

namespace barg::text::grammar::schema {

struct ArrayShape {
  struct Contains {
    Term what = kAnything;
    std::int64_t min = 1;
    std::int64_t max = kUnbounded;
    Place at = kNoPlace;
    bool operator==(const Contains&) const = default;
  };
  std::vector<Term> prefix;
  Term items = kAnything;  ///< behind the prefix
  std::int64_t min = 0;
  std::int64_t max = kUnbounded;
  std::vector<Contains> contains;
  Place unique_at = kNoPlace;  ///< whose uniqueItems holds, if any
  std::int64_t evaluated = 0;  ///< so many items of the front
  bool all_evaluated = false;
  bool contains_evaluates = false;  ///< some `contains` has looked at items, no telling which

  Term at(std::size_t i) const { return i < prefix.size() ? prefix[i] : items; }
  bool operator==(const ArrayShape&) const = default;
};

struct ObjectShape {
  struct Property {
    std::string name;
    Term value = kAnything;  ///< kNothing and not required: the property is forbidden
    bool required = false;
    bool declared = false;  ///< named by `properties`, whose order counts
    bool evaluated = false;
    bool operator==(const Property&) const = default;
  };
  /// Names that are not in `properties`; disjoint, and what none has is forbidden.
  struct Other {
    DfaPtr names;  ///< null: any
    Term value = kAnything;
    bool evaluated = false;
    bool operator==(const Other&) const = default;
  };
  std::vector<Property> properties;
  std::vector<Other> others{Other{}};
  std::int64_t min = 0;
  std::int64_t max = kUnbounded;

  bool operator==(const ObjectShape&) const = default;
};

struct Norm {
  bool null = false, no = false, yes = false;  // null, false, true
  Numbers numbers;
  std::vector<Strings> strings;
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;
  Dropped dropped = kNoneDropped;  ///< what `lenient` has left out on the way

  bool empty() const {
    return !null && !no && !yes && numbers.none() && strings.empty() && arrays.empty() && objects.empty();
  }
};

/// Every JSON value.
Norm everything();

}  // namespace barg::text::grammar::schema
