#include "text/grammar/machine_alphabet.h"

#include <bitset>
#include <string_view>

namespace barg::text::grammar::pushdown {
namespace {

using ByteSet = std::bitset<256>;

constexpr std::string_view kEscapes = "\"\\/bfnrtu0123456789abcdefABCDEF";  // one may have begun any

void add(ByteSet& set, std::string_view bytes) {
  for (const char c : bytes) set.set(static_cast<std::uint8_t>(c));
}

void add_range(ByteSet& set, int first, int last) {
  for (int b = first; b <= last; ++b) set.set(static_cast<std::size_t>(b));
}

/// Bytes on a shortest way from any state.
void add_shortest(ByteSet& set, const Dfa& dfa) {
  for (std::uint32_t q = 0; q < dfa.num_states(); ++q) {
    for (int b = 0; b < 256; ++b) {
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to != Dfa::kDead && dfa.min_bytes(to) + 1 == dfa.min_bytes(q)) set.set(static_cast<std::size_t>(b));
    }
  }
}

/// `all`: also what is needed where more must come than a shortest word has, or other words than the
/// shortest.
void add_content(ByteSet& set, const Content& content, bool all) {
  add(set, kEscapes);
  const Dfa& dfa = *content.dfa;
  if (all && dfa_equal(dfa, dfa_valid_utf8())) {
    add_range(set, 0x20, 0x7E);
    add_range(set, 0x80, 0xBF);  // the rest of a character that has begun
    return;
  }
  for (std::uint32_t q = 0; q < dfa.num_states(); ++q) {
    for (int b = 0; b < 256; ++b) {
      const std::uint32_t to = dfa.next(q, static_cast<std::uint8_t>(b));
      if (to == Dfa::kDead || !is_plain(static_cast<std::uint8_t>(b))) continue;
      if (all || content.distance[to] + 1 == content.distance[q]) set.set(static_cast<std::size_t>(b));
    }
  }
}

/// Nodes of texts: those that the root reaches and that have a string.
std::vector<NodeId> live_nodes(const Plan& plan) {
  std::vector<std::uint8_t> seen(plan.facts.size(), 0);
  std::vector<NodeId> out, todo = {plan.grammar.root};
  seen[plan.grammar.root] = 1;
  while (!todo.empty()) {
    const NodeId id = todo.back();
    todo.pop_back();
    out.push_back(id);
    for (const Child& child : children_of(plan.grammar, plan, id)) {
      if (seen[child.id] || plan.facts[child.id].min == kNever) continue;
      seen[child.id] = 1;
      todo.push_back(child.id);
    }
  }
  return out;
}

void add_object(ByteSet& set, const Plan& plan, NodeId id) {
  add(set, "{}:,\"");
  const auto& node = plan.node<ObjectNode>(id);
  if (!node.properties.empty()) add(set, kEscapes);
  for (const auto& p : node.properties) {
    for (const char c : p.name) {
      if (is_plain(static_cast<std::uint8_t>(c))) set.set(static_cast<std::uint8_t>(c));
    }
  }
  for (const auto& other : plan.object_of(id).others) add_content(set, *other.names, true);
}

}  // namespace

std::vector<std::uint8_t> needed_bytes(const Plan& plan) {
  ByteSet set;
  for (const NodeId id : live_nodes(plan)) {
    const Node& node = plan.grammar.nodes[id];
    if (std::holds_alternative<BytesNode>(node)) add_shortest(set, *plan.bytes_of(id).dfa);
    if (std::holds_alternative<StringNode>(node)) {
      add_content(set, plan.text_of(id).content(), plan.text_of(id).bounded());
    }
    if (std::holds_alternative<ArrayNode>(node)) add(set, "[],");
    if (std::holds_alternative<ObjectNode>(node)) add_object(set, plan, id);
  }
  std::vector<std::uint8_t> out;
  for (int b = 0; b < 256; ++b) {
    if (set[static_cast<std::size_t>(b)]) out.push_back(static_cast<std::uint8_t>(b));
  }
  return out;
}

std::vector<TokenId> needed_tokens(const Plan& plan) {
  std::vector<TokenId> out;
  for (const NodeId id : live_nodes(plan)) {
    if (const auto* token = std::get_if<TokenNode>(&plan.grammar.nodes[id])) out.push_back(token->id);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace barg::text::grammar::pushdown
