// Emitter: arrays, with what one ArrayNode cannot say written out by place.
#include <algorithm>
#include <bit>

#include "text/grammar/schema_emit.h"

namespace barg::text::grammar::schema {
namespace {

constexpr std::int64_t kPlaces = 8;  // written out one by one
constexpr std::size_t kAlternatives = 128;
constexpr std::size_t kValues = 64;  // of ArrayNode::each_once

Issue with_place(Issue issue, Place at, const char* keyword) {
  if (issue.at == kNoPlace) issue.at = at;
  if (issue.keyword.empty()) issue.keyword = keyword;
  return issue;
}

/// The shape of exactly `size` items.
ArrayShape of_size(const ArrayShape& shape, std::int64_t size) {
  ArrayShape out = shape;
  while (static_cast<std::int64_t>(out.prefix.size()) < size) out.prefix.push_back(shape.items);
  out.prefix.resize(static_cast<std::size_t>(size));
  out.items = kNothing;
  out.min = out.max = size;
  return out;
}

}  // namespace

Checked<void> Emitter::arrays(ArrayShape shape, std::vector<NodeId>& options) {
  if (shape.unique_at != kNoPlace) {
    auto done = shape.contains.empty() ? unique(shape, options)
                                       : Checked<void>(unsupported("it cannot be combined with 'contains'"));
    if (done) return done;
    Issue issue = with_place(done.error(), shape.unique_at, "uniqueItems");
    if (!options_.lenient || issue.kind != Issue::Kind::kUnsupported) return std::unexpected(std::move(issue));
    drop(std::move(issue));
    shape.unique_at = kNoPlace;
  }
  if (shape.contains.empty()) {
    options.push_back(array(shape));
    return {};
  }
  auto done = counted(shape, options);
  if (done) return done;
  Issue issue = with_place(done.error(), shape.contains[0].at, "contains");
  if (!options_.lenient || issue.kind != Issue::Kind::kUnsupported) return std::unexpected(std::move(issue));
  drop(std::move(issue));
  shape.contains.clear();
  options.push_back(array(shape));
  return {};
}

/// REQUIRES no uniqueness, and at most one `contains`, that with an empty prefix.
NodeId Emitter::array(const ArrayShape& shape) {
  ArrayNode node;
  for (const Term term : shape.prefix) node.prefix.push_back(node_of(term));
  if (shape.items != kNothing) node.items = node_of(shape.items);
  node.min_items = shape.min;
  node.max_items = shape.max;
  if (!shape.contains.empty()) {
    const ArrayShape::Contains& c = shape.contains[0];
    node.contains = node_of(normaliser_.terms().both(shape.items, c.what));
    node.min_contains = c.min;
    node.max_contains = c.max;
    if (c.max >= 0) node.not_contains = not_counting(shape.items, c.what);
  }
  return add(std::move(node));
}

/// `items` that break one of the rules of `what`.
NodeId Emitter::not_counting(Term items, Term what) {
  Terms& terms = normaliser_.terms();
  const std::vector<Literal> rules = terms.literals(what);
  std::vector<NodeId> ways;
  for (const Literal rule : rules) ways.push_back(node_of(terms.without(items, rule)));
  return ways.size() == 1 ? ways[0] : add(ChoiceNode{std::move(ways)});
}

// ----------------------------------------------------------------------------------------------- contains

Checked<void> Emitter::counted(const ArrayShape& shape, std::vector<NodeId>& options) {
  if (shape.contains.size() == 1 && shape.prefix.empty()) {
    options.push_back(array(shape));
    return {};
  }
  if (shape.max < 0 || shape.max > kPlaces) {
    return unsupported(shape.contains.size() > 1
                           ? "several at once are enforced only in arrays of at most 8 items"
                           : "beside items of their own places it is enforced only up to 8 items");
  }
  std::vector<NodeId> written;
  for (std::int64_t size = shape.min; size <= shape.max; ++size) {
    if (auto done = counted_by_place(of_size(shape, size), written); !done) return done;
  }
  options.insert(options.end(), written.begin(), written.end());
  return {};
}

/// Every choice of the items that count. REQUIRES a fixed size.
Checked<void> Emitter::counted_by_place(const ArrayShape& shape, std::vector<NodeId>& options) {
  if (shape.contains.empty()) {
    options.push_back(array(shape));
    return {};
  }
  Terms& terms = normaliser_.terms();
  const ArrayShape::Contains rule = shape.contains.back();
  const std::vector<Literal> others = terms.literals(rule.what);
  if (rule.max >= 0 && others.size() != 1) return unsupported("several schemas at once cannot be counted");
  const std::int64_t most = rule.max < 0 ? rule.min : std::min(rule.max, shape.max);
  for (unsigned set = 0; set < 1U << shape.prefix.size(); ++set) {
    if (std::popcount(set) < rule.min || std::popcount(set) > most) continue;
    ArrayShape chosen = shape;
    chosen.contains.pop_back();
    for (std::size_t i = 0; i < chosen.prefix.size(); ++i) {
      Term& item = chosen.prefix[i];
      if ((set >> i & 1U) != 0)
        item = terms.both(item, rule.what);
      else if (rule.max >= 0)
        item = terms.without(item, others[0]);
    }
    if (!normaliser_.algebra().settle(chosen)) continue;
    if (auto done = counted_by_place(chosen, options); !done) return done;
    if (options.size() > kAlternatives) return unsupported("too many ways to place the items that count");
  }
  return {};
}

// -------------------------------------------------------------------------------------------- uniqueItems

Checked<void> Emitter::unique(const ArrayShape& shape, std::vector<NodeId>& options) {
  if (!shape.prefix.empty()) return unique_by_place(shape, options);
  auto values = values_of(shape.items, 0);
  if (!values) return std::unexpected(values.error());
  if (!*values || (*values)->size() > kValues) {
    return unsupported("it is enforced only over at most 64 values, such as an enum");
  }
  const auto count = static_cast<std::int64_t>((*values)->size());
  if (shape.min > count) return {};
  ArrayNode node;
  std::vector<NodeId> ids;
  for (const Value& value : **values) ids.push_back(value.node);
  node.items = add(ChoiceNode{std::move(ids)});
  node.min_items = shape.min;
  node.max_items = lower_max(shape.max, count);
  node.each_once = true;
  options.push_back(add(std::move(node)));
  return {};
}

/// Every list of different values, if they are few.
Checked<void> Emitter::unique_by_place(const ArrayShape& shape, std::vector<NodeId>& options) {
  if (shape.max < 0 || shape.max > kPlaces)
    return unsupported("beside items of their own places it is enforced only up to 8 items");
  std::vector<std::vector<Value>> lists{{}};
  std::vector<NodeId> written;
  for (std::int64_t size = 0;; ++size) {
    for (const std::vector<Value>& list : lists) {
      if (size < shape.min) break;
      ArrayNode node;
      for (const Value& value : list) node.prefix.push_back(value.node);
      node.min_items = node.max_items = size;
      written.push_back(add(std::move(node)));
    }
    if (size == shape.max) break;
    auto values = values_of(shape.at(static_cast<std::size_t>(size)), 0);
    if (!values) return std::unexpected(values.error());
    if (!*values) return unsupported("it is enforced only over few values, such as an enum");
    std::vector<std::vector<Value>> longer;
    for (const std::vector<Value>& list : lists) {
      for (const Value& value : **values) {
        if (std::ranges::any_of(list, [&](const Value& old) { return old.key == value.key; })) continue;
        longer.push_back(list);
        longer.back().push_back(value);
        if (longer.size() > kAlternatives) return unsupported("there are too many lists of different values");
      }
    }
    lists = std::move(longer);
  }
  options.insert(options.end(), written.begin(), written.end());
  return {};
}

}  // namespace barg::text::grammar::schema
