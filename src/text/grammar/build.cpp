#include "text/grammar/build.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar {
namespace {

/// Node ids of a copied grammar, moved behind the nodes that are there.
struct Shift {
  NodeId by;

  NodeId of(NodeId id) const { return id == kNoNode ? kNoNode : id + by; }
  void in(std::vector<NodeId>& ids) const {
    for (NodeId& id : ids) id = of(id);
  }
  void operator()(BytesNode&) const {}
  void operator()(StringNode&) const {}
  void operator()(TokenNode&) const {}
  void operator()(SequenceNode& n) const { in(n.parts); }
  void operator()(ChoiceNode& n) const { in(n.options); }
  void operator()(RepeatNode& n) const {
    n.item = of(n.item);
    n.separator = of(n.separator);
  }
  void operator()(ObjectNode& n) const {
    for (auto& property : n.properties) property.value = of(property.value);
    for (auto& other : n.others) other.value = of(other.value);
  }
  void operator()(ArrayNode& n) const {
    in(n.prefix);
    n.items = of(n.items);
    n.contains = of(n.contains);
    n.not_contains = of(n.not_contains);
  }
  void operator()(RefNode& n) const { n.target = of(n.target); }
};

}  // namespace

NodeId add_bytes(Grammar& g, Dfa dfa) { return g.add(BytesNode{std::make_shared<const Dfa>(std::move(dfa))}); }

NodeId add_literal(Grammar& g, std::string_view bytes) {
  if (bytes.empty()) return g.add(SequenceNode{});
  return add_bytes(g, dfa_literal(bytes));
}

NodeId add_sequence(Grammar& g, std::vector<NodeId> parts) {
  if (parts.size() == 1) return parts[0];
  return g.add(SequenceNode{std::move(parts)});
}

NodeId add_choice(Grammar& g, std::vector<NodeId> options) {
  if (options.size() == 1) return options[0];
  return g.add(ChoiceNode{std::move(options)});
}

NodeId add_optional(Grammar& g, NodeId node) { return g.add(ChoiceNode{{node, g.add(SequenceNode{})}}); }

NodeId add_symbols(Grammar& g, const Literal& literal) {
  std::vector<NodeId> parts;
  std::string bytes;
  const auto flush = [&] {
    if (!bytes.empty()) parts.push_back(add_literal(g, bytes));
    bytes.clear();
  };
  for (const Symbol s : literal) {
    if (!is_token(s)) {
      bytes += static_cast<char>(s);
      continue;
    }
    flush();
    parts.push_back(g.add(TokenNode{token_of(s)}));
  }
  flush();
  return add_sequence(g, std::move(parts));
}

NodeId add_marked(Grammar& g, std::string_view text, const Tokenizer& tokenizer) {
  return add_symbols(g, bind_literal(text, tokenizer));
}

NodeId add_gap(Grammar& g) { return add_bytes(g, dfa_literals({"", " ", "\n", "\n\n"})); }

NodeId splice(Grammar& g, const Grammar& other) {
  const Shift shift{static_cast<NodeId>(g.nodes.size())};
  for (const auto& [node, origin] : other.origins) g.origins.emplace(shift.of(node), origin);
  for (const Node& node : other.nodes) {
    g.nodes.push_back(node);
    std::visit(shift, g.nodes.back());
  }
  return shift.of(other.root);
}

NodeId resolve(const Grammar& g, NodeId id) {
  for (std::size_t hops = 0; hops <= g.nodes.size(); ++hops) {
    const Node& node = g.nodes[static_cast<std::size_t>(id)];
    const auto* ref = std::get_if<RefNode>(&node);
    const auto* choice = std::get_if<ChoiceNode>(&node);
    if (ref) {
      id = ref->target;
    } else if (choice && choice->options.size() == 1) {
      id = choice->options[0];
    } else {
      return id;
    }
  }
  return id;  // a circle of references: the machine refuses it
}

Result<Dfa> dfa_without(std::span<const std::string> words, const DfaLimits& limits) {
  for (const std::string& word : words) CHECK(!word.empty());
  const Dfa any = dfa_valid_utf8();
  auto holds = dfa_concat(any, dfa_literals({words.begin(), words.end()}), limits);
  if (holds) holds = dfa_concat(*holds, any, limits);
  return holds ? dfa_subtract(any, *holds, limits) : holds;
}

Dfa dfa_any_char() {
  auto any = regex_dfa(R"([\s\S])", {.search = false, .limits = {}});
  CHECK(any.has_value());
  return std::move(*any);
}

}  // namespace barg::text::grammar
