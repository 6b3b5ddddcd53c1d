#include "text/grammar/build.h"

#include <optional>
#include <utility>

#include "base/check.h"

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

/// A table over all bytes, one class a byte.
struct Table {
  std::vector<Dfa::State> next;
  std::vector<std::uint8_t> accepting;

  Dfa::State add(bool accepts) {
    next.resize(next.size() + 256, Dfa::kDead);
    accepting.push_back(accepts ? 1 : 0);
    return static_cast<Dfa::State>(accepting.size() - 1);
  }
  Dfa::State& at(Dfa::State s, std::size_t byte) { return next[s * 256 + byte]; }
  Dfa make(Dfa::State start) && {
    std::array<std::uint8_t, 256> classes{};
    for (std::size_t b = 0; b < 256; ++b) classes[b] = static_cast<std::uint8_t>(b);
    return Dfa::make(classes, 256, std::move(next), std::move(accepting), start);
  }
};

/// All byte strings in which none of `words` occurs: Aho and Corasick's automaton without what completes a word.
Dfa bytes_without(std::span<const std::string> words) {
  Table t;
  t.add(true);
  std::vector<std::uint8_t> ends{0};
  for (const std::string& word : words) {
    Dfa::State s = 0;
    for (const char c : word) {
      const auto b = static_cast<unsigned char>(c);
      if (t.at(s, b) == Dfa::kDead) {
        const Dfa::State made = t.add(true);
        ends.push_back(0);
        t.at(s, b) = made;
      }
      s = t.at(s, b);
    }
    ends[s] = 1;
  }
  // Breadth first, so that a state's fallback is complete before the state is.
  std::vector<Dfa::State> fallback(t.accepting.size(), 0), queue;
  for (std::size_t b = 0; b < 256; ++b) {
    if (t.at(0, b) == Dfa::kDead) {
      t.at(0, b) = 0;
    } else {
      queue.push_back(t.at(0, b));
    }
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const Dfa::State s = queue[i];
    ends[s] |= ends[fallback[s]];
    for (std::size_t b = 0; b < 256; ++b) {
      const Dfa::State below = t.at(fallback[s], b);
      if (t.at(s, b) == Dfa::kDead) {
        t.at(s, b) = below;
      } else {
        fallback[t.at(s, b)] = below;
        queue.push_back(t.at(s, b));
      }
    }
  }
  for (Dfa::State& next : t.next) {
    if (next != Dfa::kDead && ends[next] != 0) next = Dfa::kDead;
  }
  return std::move(t).make(0);
}

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

Literal bind_literal(std::string_view text, const Tokenizer& tokenizer) {
  Literal out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = text.size() - at;
    std::optional<TokenId> id;
    for (; length > 0; --length) {
      id = tokenizer.find(text.substr(at, length));
      if (id && tokenizer.is_added(*id)) break;
      id.reset();
    }
    out.push_back(id ? token_symbol(*id, true) : byte_symbol(text[at]));
    at += id ? length : 1;
  }
  return out;
}

NodeId add_marked(Grammar& g, std::string_view text, const Tokenizer& tokenizer) {
  return add_symbols(g, bind_literal(text, tokenizer));
}

NodeId add_gap(Grammar& g) { return add_bytes(g, dfa_literals({"", " ", "\n", "\n\n"})); }

NodeId splice(Grammar& g, const Grammar& other) {
  const Shift shift{static_cast<NodeId>(g.nodes.size())};
  g.nodes.reserve(g.nodes.size() + other.nodes.size());
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

Result<Dfa> dfa_without(std::span<const std::string> words) {
  for (const std::string& word : words) CHECK(!word.empty());
  return dfa_intersect(dfa_valid_utf8(), bytes_without(words));
}

Dfa dfa_any_char() {
  Table t;
  const Dfa::State start = t.add(false), end = t.add(true);
  const Dfa::State one = t.add(false), two = t.add(false), three = t.add(false);
  const auto range = [&](Dfa::State from, std::size_t first, std::size_t last, Dfa::State to) {
    for (std::size_t b = first; b <= last; ++b) t.at(from, b) = to;
  };
  range(start, 0x00, 0x7F, end);
  range(start, 0xC2, 0xDF, one);
  range(one, 0x80, 0xBF, end);
  range(two, 0x80, 0xBF, one);
  range(three, 0x80, 0xBF, two);
  range(start, 0xE1, 0xEF, two);
  range(start, 0xF1, 0xF3, three);
  // No overlong forms, no surrogates, nothing beyond U+10FFFF.
  const Dfa::State e0 = t.add(false), ed = t.add(false), f0 = t.add(false), f4 = t.add(false);
  t.at(start, 0xE0) = e0;
  range(e0, 0xA0, 0xBF, one);
  t.at(start, 0xED) = ed;
  range(ed, 0x80, 0x9F, one);
  t.at(start, 0xF0) = f0;
  range(f0, 0x90, 0xBF, two);
  t.at(start, 0xF4) = f4;
  range(f4, 0x80, 0x8F, two);
  return std::move(t).make(start);
}

}  // namespace barg::text::grammar
