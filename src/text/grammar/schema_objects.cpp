// Algebra of objects.
#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "text/grammar/schema_algebra.h"

namespace barg::text::grammar::schema {
namespace {

using Property = ObjectShape::Property;
using Other = ObjectShape::Other;

constexpr std::size_t kMostClasses = 64;
constexpr std::size_t kWordsToTry = 16;
constexpr std::size_t kWordsToCount = 256;

struct Rule {
  Term value = kNothing;
  bool required = false, declared = false, evaluated = false;
};

/// A shape's rules by name; fast for many names.
class Rules {
 public:
  explicit Rules(const ObjectShape& shape) : shape_(shape) {
    for (const Property& p : shape.properties) by_name_.emplace(p.name, &p);
  }
  bool names(const std::string& name) const { return by_name_.contains(name); }
  Rule of(const std::string& name) const {
    if (const auto it = by_name_.find(name); it != by_name_.end()) {
      const Property& p = *it->second;
      return {p.value, p.required, p.declared, p.evaluated};
    }
    const Other* other = Algebra::class_of(shape_, name);
    return other == nullptr ? Rule{} : Rule{other->value, false, false, other->evaluated};
  }

 private:
  const ObjectShape& shape_;
  std::unordered_map<std::string_view, const Property*> by_name_;
};

/// Names of both: what `a` declares, what `b` declares, then those that are only ruled.
std::vector<std::string> names_of(const ObjectShape& a, const ObjectShape& b) {
  std::vector<std::string> out;
  std::unordered_set<std::string_view> known;
  for (const bool declared : {true, false}) {
    for (const ObjectShape* shape : {&a, &b}) {
      for (const Property& p : shape->properties) {
        if (p.declared == declared && known.insert(p.name).second) out.push_back(p.name);
      }
    }
  }
  return out;
}

/// `shape` with this rule for the name.
ObjectShape with_rule(const ObjectShape& shape, const std::string& name, Term value, bool required) {
  ObjectShape out = shape;
  auto it =
      std::find_if(out.properties.begin(), out.properties.end(), [&](const Property& p) { return p.name == name; });
  if (it == out.properties.end()) {
    out.properties.push_back({.name = name, .evaluated = Rules(shape).of(name).evaluated});
    it = std::prev(out.properties.end());
  }
  it->value = value;
  it->required = required;
  return out;
}

/// How many names the others have; a large number where they are not few.
std::int64_t free_names(const ObjectShape& shape) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  std::int64_t count = 0;
  for (const Other& other : shape.others) {
    const auto words = other.names ? dfa_words(*other.names, kWordsToCount) : std::nullopt;
    if (!words) return kMany;
    const Rules known(shape);
    count += std::ranges::count_if(*words, [&](const std::string& word) { return !known.names(word); });
  }
  return count;
}

}  // namespace

const ObjectShape::Other* Algebra::class_of(const ObjectShape& shape, const std::string& name) {
  const auto it = std::find_if(shape.others.begin(), shape.others.end(),
                               [&](const Other& other) { return !other.names || other.names->matches(name); });
  return it == shape.others.end() ? nullptr : &*it;
}

bool Algebra::settle(ObjectShape& shape) {
  std::int64_t required = 0, possible = 0;
  for (Property& p : shape.properties) {
    if (surely_empty_(p.value)) p.value = kNothing;
    if (p.value == kNothing && p.required) return false;
    required += p.required ? 1 : 0;
    possible += p.value == kNothing ? 0 : 1;
  }
  std::erase_if(shape.others, [&](const Other& other) {
    return (other.names && other.names->empty()) || surely_empty_(other.value);
  });
  if (shape.max >= 0 && required > shape.max) return false;
  if (shape.max == required) {
    // No room for more: what is not required is forbidden.
    for (Property& p : shape.properties) p.value = p.required ? p.value : kNothing;
    shape.others.clear();
    possible = required;
  }
  if (shape.min > possible && shape.min > possible + free_names(shape)) return false;
  return shape.max < 0 || shape.min <= shape.max;
}

Checked<std::vector<Other>> Algebra::others_of_both(const ObjectShape& a, const ObjectShape& b) {
  std::vector<Other> out;
  for (const Other& x : a.others) {
    for (const Other& y : b.others) {
      const Term value = terms_.both(x.value, y.value);
      if (value == kNothing) continue;
      auto names = languages_.both(x.names, y.names);
      if (!names) return std::unexpected(names.error());
      if (*names && (*names)->empty()) continue;
      out.push_back({*names, value, x.evaluated || y.evaluated});
    }
  }
  if (out.size() > kMostClasses) return unsupported("too many overlapping patterns of names");
  return out;
}

Checked<std::optional<ObjectShape>> Algebra::intersection(const ObjectShape& a, const ObjectShape& b) {
  const std::size_t rules = a.properties.size() + b.properties.size() + a.others.size() * b.others.size();
  if (auto done = spend(rules); !done) return std::unexpected(done.error());
  ObjectShape out;
  const Rules in_a(a), in_b(b);
  for (const std::string& name : names_of(a, b)) {
    const Rule x = in_a.of(name), y = in_b.of(name);
    out.properties.push_back({.name = name,
                              .value = terms_.both(x.value, y.value),
                              .required = x.required || y.required,
                              .declared = x.declared || y.declared,
                              .evaluated = x.evaluated || y.evaluated});
  }
  auto others = others_of_both(a, b);
  if (!others) return std::unexpected(others.error());
  out.others = std::move(*others);
  out.min = std::max(a.min, b.min);
  out.max = lower_max(a.max, b.max);
  if (!settle(out)) return std::nullopt;
  return out;
}

void Algebra::break_names(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out) {
  const Rules in_a(a), in_b(b);
  for (const std::string& name : names_of(a, b)) {
    const Rule x = in_a.of(name), y = in_b.of(name);
    if (x.value == kNothing) continue;
    // Where `b` needs the name, to lack it is a way out too, and goes together with a value that `b` does not take.
    const bool may_lack = y.required && !x.required;
    const std::vector<Term> ways = ways_out(x.value, y.value);
    if (may_lack && ways.empty()) keep(with_rule(a, name, kNothing, false), out);
    for (const Term way : ways) keep(with_rule(a, name, way, !may_lack), out);
  }
}

/// A property that `b`, which has no others, does not know: one more than those of its names that are there. One piece
/// for each choice of these.
Checked<void> Algebra::break_closed(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out) {
  constexpr std::size_t kMostFree = 5;
  if (a.others.empty()) return {};
  const Rules in_a(a);
  ObjectShape all = a;
  std::vector<std::string> free;
  std::int64_t present = 0;
  for (const Property& p : b.properties) {
    const Rule x = in_a.of(p.name);
    if (x.value == kNothing || p.value == kNothing) continue;
    ++present;
    all = with_rule(all, p.name, x.value, true);
    if (!p.required && !x.required) free.push_back(p.name);
  }
  if (free.size() > kMostFree) return unsupported("'a property that is not declared' cannot be said");
  for (unsigned absent = 0; absent < 1U << free.size(); ++absent) {
    ObjectShape piece = all;
    for (std::size_t i = 0; i < free.size(); ++i) {
      if ((absent >> i & 1U) != 0) piece = with_rule(piece, free[i], kNothing, false);
    }
    piece.min = std::max(a.min, present - std::popcount(absent) + 1);
    keep(std::move(piece), out);
  }
  return {};
}

Checked<void> Algebra::break_others(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out) {
  if (b.others.empty()) return break_closed(a, b, out);
  const DfaPtr named = languages_.words(names_of(a, b));
  const auto break_class = [&](const Other& x, const DfaPtr& names, Term rule) -> Checked<void> {
    if (terms_.implies(x.value, rule)) return {};
    auto region = languages_.minus(names, named);
    if (!region) return std::unexpected(region.error());
    const auto words = dfa_words(**region, kWordsToTry);
    if (!words) return unsupported("'a property of any name breaks the rule' cannot be said");
    for (const std::string& word : *words) {
      for (const Term way : ways_out(x.value, rule)) keep(with_rule(a, word, way, true), out);
    }
    return {};
  };
  for (const Other& x : a.others) {
    DfaPtr forbidden = x.names;
    bool all_known = false;
    for (const Other& y : b.others) {
      auto names = languages_.both(x.names, y.names);
      if (!names) return std::unexpected(names.error());
      if (auto done = break_class(x, *names, y.value); !done) return done;
      all_known = all_known || !y.names;
      auto rest = all_known ? Checked<DfaPtr>(DfaPtr()) : languages_.minus(forbidden, y.names);
      if (!rest) return std::unexpected(rest.error());
      forbidden = *rest;
    }
    if (all_known) continue;
    if (auto done = break_class(x, forbidden, kNothing); !done) return done;
  }
  return {};
}

Checked<void> Algebra::difference(const ObjectShape& a, const ObjectShape& b, std::vector<ObjectShape>& out) {
  auto meet = intersection(a, b);
  if (!meet) return std::unexpected(meet.error());
  if (!*meet) {
    out.push_back(a);
    return {};
  }
  break_names(a, b, out);
  break_counts(a, b, out);
  return break_others(a, b, out);
}

}  // namespace barg::text::grammar::schema
