#include "text/grammar/schema_emit.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace barg::text::grammar::schema {

Emitter::Emitter(Normaliser& normaliser, const SchemaOptions& options) : normaliser_(normaliser), options_(options) {
  grammar_.spacing = options.spacing;
}

Checked<Grammar> Emitter::run(Term root) {
  grammar_.root = node_of(root);
  while (!open_.empty()) {
    const Term term = open_.front();
    open_.pop_front();
    if (auto written = write(term, nodes_.at(term)); !written) {
      Issue issue = written.error();
      const auto& literals = normaliser_.terms().literals(term);
      if (issue.at == kNoPlace && !literals.empty()) issue.at = normaliser_.terms().claim(literals[0]).place;
      return std::unexpected(std::move(issue));
    }
    if (grammar_.nodes.size() > options_.max_nodes) return unsupported("the grammar of the schema is too large");
  }
  return std::move(grammar_);
}

NodeId Emitter::node_of(Term term) {
  const auto [it, added] = nodes_.emplace(term, static_cast<NodeId>(grammar_.nodes.size()));
  if (added) {
    add(ChoiceNode{});
    open_.push_back(term);
  }
  return it->second;
}

Checked<void> Emitter::write(Term term, NodeId place) {
  auto found = normaliser_.norm(term);
  if (!found) return std::unexpected(found.error());
  const Norm& norm = **found;
  dropped_.push_back(norm.dropped);
  std::vector<NodeId> options;
  if (auto done = write_scalars(norm, options); !done) return done;
  for (const Strings& strings : norm.strings)
    options.push_back(add(StringNode{strings.content, strings.min, strings.max}));
  for (const ArrayShape& shape : norm.arrays) {
    if (auto done = arrays(shape, options); !done) return done;
  }
  for (const ObjectShape& shape : norm.objects) options.push_back(object(shape));
  for (const NodeId option : options) note_origin(option, term);
  grammar_.nodes[static_cast<std::size_t>(place)] = ChoiceNode{std::move(options)};
  return {};
}

/// Where the machine may have to count much.
void Emitter::note_origin(NodeId node, Term term) {
  constexpr std::int64_t kMany = 1000;
  const auto& literals = normaliser_.terms().literals(term);
  const Place at = literals.empty() ? kNoPlace : normaliser_.terms().claim(literals[0]).place;
  const Node& n = grammar_.nodes[static_cast<std::size_t>(node)];
  const auto note = [&](const char* keyword) { origins_.push_back({node, at, keyword}); };
  if (const auto* text = std::get_if<StringNode>(&n)) {
    if (text->min_chars > kMany || (text->content && text->min_chars > 0)) return note("minLength");
    if (text->max_chars > kMany || (text->content && text->max_chars >= 0)) note("maxLength");
  } else if (const auto* array = std::get_if<ArrayNode>(&n)) {
    if (std::max(array->min_items, array->min_contains) > kMany)
      note(array->min_items >= array->min_contains ? "minItems" : "minContains");
  } else if (const auto* object = std::get_if<ObjectNode>(&n)) {
    if (object->min_properties > 1) note("minProperties");
  }
}

Checked<void> Emitter::write_scalars(const Norm& norm, std::vector<NodeId>& options) {
  std::vector<std::string> words;
  if (norm.null) words.emplace_back("null");
  if (norm.no) words.emplace_back("false");
  if (norm.yes) words.emplace_back("true");
  Languages& languages = normaliser_.languages();
  auto all = shown(languages, norm.numbers);
  if (!all) return std::unexpected(all.error());
  if (!words.empty()) {
    const DfaPtr literals = languages.words(words);
    all = *all ? languages.either(*all, literals) : Checked<DfaPtr>(literals);
    if (!all) return std::unexpected(all.error());
  }
  if (*all && !(*all)->empty()) options.push_back(add(BytesNode{*all}));
  return {};
}

NodeId Emitter::object(const ObjectShape& shape) {
  ObjectNode node;
  for (const ObjectShape::Property& p : shape.properties) {
    node.properties.push_back({.name = p.name, .value = node_of(p.value), .required = p.required});
  }
  for (const ObjectShape::Other& other : shape.others) node.others.push_back({other.names, node_of(other.value)});
  node.min_properties = shape.min;
  node.max_properties = shape.max;
  return add(std::move(node));
}

// --------------------------------------------------------------------------------------------- productive

namespace {

/// Whether one node has a string, if those that `has` marks do.
class HasString {
 public:
  explicit HasString(const std::vector<bool>& has) : has_(has) {}

  bool operator()(const BytesNode& n) const { return n.dfa && !n.dfa->empty(); }
  bool operator()(const StringNode& n) const { 
    std::int64_t steps = 0;  // each node once
    return any_in({n.content, n.min_chars, n.max_chars}, steps);
  }
  bool operator()(const ChoiceNode& n) const { return std::ranges::any_of(n.options, has()); }
  bool operator()(const ObjectNode& n) const {
    std::int64_t possible = 0;
    for (const ObjectNode::Property& p : n.properties) {
      const bool one = at(p.value);
      if (p.required && !one) return false;
      possible += one ? 1 : 0;
    }
    const bool open = std::ranges::any_of(n.others, [&](const ObjectNode::Other& other) { return at(other.value); });
    return open || n.min_properties <= possible;
  }
  bool operator()(const ArrayNode& n) const {
    if (n.contains != kNoNode && n.min_contains > 0 && !at(n.contains)) return false;
    const auto front = static_cast<std::int64_t>(n.prefix.size());
    for (std::int64_t i = 0; i < std::min(front, n.min_items); ++i) {
      if (!at(n.prefix[static_cast<std::size_t>(i)])) return false;
    }
    return n.min_items <= front || (n.items != kNoNode && at(n.items)) || (n.contains != kNoNode && at(n.contains));
  }
  template <class Other>
  bool operator()(const Other&) const {
    CHECK(false);  // no Emitter makes one
  }

 private:
  std::function<bool(NodeId)> has() const {
    return [this](NodeId id) { return at(id); };
  }
  bool at(NodeId id) const { return has_[static_cast<std::size_t>(id)]; }
  const std::vector<bool>& has_;
};

template <class Each>
void each_child(const Node& node, Each each) {
  const auto all = [&](const std::vector<NodeId>& ids) {
    for (const NodeId id : ids) each(id);
  };
  if (const auto* choice = std::get_if<ChoiceNode>(&node)) all(choice->options);
  if (const auto* object = std::get_if<ObjectNode>(&node)) {
    for (const ObjectNode::Property& p : object->properties) each(p.value);
    for (const ObjectNode::Other& other : object->others) each(other.value);
  }
  if (const auto* array = std::get_if<ArrayNode>(&node)) {
    all(array->prefix);
    for (const NodeId id : {array->items, array->contains, array->not_contains}) {
      if (id != kNoNode) each(id);
    }
  }
}

}  // namespace

std::vector<bool> productive(const Grammar& grammar) {
  const std::size_t n = grammar.nodes.size();
  std::vector<bool> has(n, false), queued(n, true);
  std::vector<std::vector<NodeId>> parents(n);
  std::deque<NodeId> open;
  for (std::size_t i = n; i-- > 0;) {  // what a node needs was mostly made after it
    open.push_back(static_cast<NodeId>(i));
    each_child(grammar.nodes[i],
               [&](NodeId child) { parents[static_cast<std::size_t>(child)].push_back(static_cast<NodeId>(i)); });
  }
  while (!open.empty()) {
    const auto id = static_cast<std::size_t>(open.front());
    open.pop_front();
    queued[id] = false;
    if (has[id] || !std::visit(HasString(has), grammar.nodes[id])) continue;
    has[id] = true;
    for (const NodeId parent : parents[id]) {
      if (has[static_cast<std::size_t>(parent)] || queued[static_cast<std::size_t>(parent)]) continue;
      queued[static_cast<std::size_t>(parent)] = true;
      open.push_back(parent);
    }
  }
  return has;
}

}  // namespace barg::text::grammar::schema
