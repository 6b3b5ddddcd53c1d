// What tests of constrained decoding share: a tokenizer that is a list of byte strings, and grammars of many kinds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/tokenizer.h"
#include "text/grammar/machine.h"
#include "text/grammar/node.h"

namespace barg::test {

/// Token i is tokens[i]; an empty one is special.
class ListTokenizer final : public Tokenizer {
 public:
  explicit ListTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::vector<TokenId> encode_marked(const std::vector<MarkedText>&) const override { return {}; }
  std::string_view token_bytes(TokenId id) const override { return tokens_.at(static_cast<std::size_t>(id)); }
  bool is_special(TokenId id) const override { return token_bytes(id).empty(); }
  const std::vector<TokenId>& end_ids() const override { return end_ids_; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  std::string_view special_text(std::string_view) const override { return {}; }
  std::optional<TokenId> find(std::string_view) const override { return std::nullopt; }
  std::int32_t size() const override { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> end_ids_;
};

namespace g = text::grammar;

/// Grammars by hand, a node a call.
class GrammarBuilder {
 public:
  g::NodeId words(const std::vector<std::string>& words) {
    return grammar.add(g::BytesNode{std::make_shared<const g::Dfa>(g::dfa_literals(words))});
  }
  g::NodeId text(std::string_view text) { return words({std::string(text)}); }
  g::NodeId string(std::int64_t min = 0, std::int64_t max = g::kUnbounded) {
    return grammar.add(g::StringNode{.content = nullptr, .min_chars = min, .max_chars = max});
  }
  g::NodeId word_string(const std::vector<std::string>& words) {
    return grammar.add(g::StringNode{.content = std::make_shared<const g::Dfa>(g::dfa_literals(words))});
  }
  g::NodeId number() {
    const std::vector<std::string> digits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    const auto more = repeat(words(digits), g::kNoNode, 0, g::kUnbounded);
    return choice({text("0"), sequence({words({digits.begin() + 1, digits.end()}), more})});
  }
  g::NodeId repeat(g::NodeId item, g::NodeId separator, std::int64_t min, std::int64_t max) {
    return grammar.add(g::RepeatNode{.item = item, .separator = separator, .min = min, .max = max});
  }
  g::NodeId choice(std::vector<g::NodeId> options) { return grammar.add(g::ChoiceNode{std::move(options)}); }
  g::NodeId sequence(std::vector<g::NodeId> parts) { return grammar.add(g::SequenceNode{std::move(parts)}); }
  g::NodeId token(TokenId id) { return grammar.add(g::TokenNode{id}); }
  g::NodeId object(std::vector<g::ObjectNode::Property> properties) {
    return grammar.add(g::ObjectNode{.properties = std::move(properties), .others = {}});
  }
  g::NodeId array(g::NodeId items, std::int64_t min = 0, std::int64_t max = g::kUnbounded) {
    g::ArrayNode node;
    node.items = items;
    node.min_items = min;
    node.max_items = max;
    return grammar.add(std::move(node));
  }
  /// Of any names, besides a declared one.
  g::NodeId open_object(g::NodeId value, std::int64_t min = 0) {
    g::ObjectNode node;
    node.properties = {{"kind", value, false}};
    node.others = {{nullptr, value}};
    node.min_properties = min;
    return grammar.add(std::move(node));
  }
  /// A reference whose target is set later.
  g::NodeId later() { return grammar.add(g::RefNode{}); }
  void set(g::NodeId ref, g::NodeId target) { std::get<g::RefNode>(grammar.nodes[static_cast<std::size_t>(ref)]).target = target; }

  std::shared_ptr<g::Machine> compile(g::NodeId root, const g::MachineLimits& limits = {}) {
    grammar.root = root;
    auto machine = g::Machine::compile(grammar, limits);
    EXPECT_TRUE(machine) << (machine ? "" : machine.error().message);
    return machine ? *machine : nullptr;
  }

  g::Grammar grammar;
};

struct NamedMachine {
  std::string name;
  std::shared_ptr<g::Machine> machine;
  bool json = false;
};

/// Of every kind: strings free, bounded and of few words; nested objects; arrays; recursion; plain text.
inline std::vector<NamedMachine> some_machines(const g::MachineLimits& limits = {}) {
  std::vector<NamedMachine> out;
  {
    GrammarBuilder b;
    out.push_back({"choice", b.compile(b.words({"positive", "negative", "neither"}), limits)});
  }
  {
    GrammarBuilder b;
    b.grammar.spacing = g::Spacing::kNone;
    const auto point = b.object({{"x", b.number(), true}, {"y", b.number(), true}, {"label", b.string(), false}});
    out.push_back({"compact", b.compile(b.object({{"name", b.string(0, 5), true}, {"at", b.array(point, 1, 3), true}}), limits), true});
  }
  {
    GrammarBuilder b;
    const auto value = b.later();
    const auto node = b.object({{"text", b.string(2, g::kUnbounded), true}, {"kind", b.word_string({"leaf", "l\xC3\xB6we", "a\"b"}), false},
                                {"children", b.array(value), false}});
    b.set(value, node);
    out.push_back({"tree", b.compile(value, limits), true});
  }
  {
    GrammarBuilder b;
    const auto line = b.sequence({b.text("- "), b.number(), b.choice({b.text(" apples"), b.text(" pears"), b.text("")})});
    out.push_back({"list", b.compile(b.repeat(line, b.text("\n"), 1, 4), limits)});
  }
  {
    GrammarBuilder b;
    const g::Dfa any = g::dfa_valid_utf8();
    out.push_back({"anything", b.compile(b.grammar.add(g::BytesNode{std::make_shared<const g::Dfa>(any)}), limits)});
  }
  {
    GrammarBuilder b;
    out.push_back({"strings", b.compile(b.array(b.choice({b.string(3, 3), b.string(0, 40), b.words({"null", "true"})})), limits), true});
  }
  {
    GrammarBuilder b;
    const auto leaf = b.choice({b.string(), b.number()});
    out.push_back({"map", b.compile(b.open_object(b.choice({leaf, b.open_object(leaf, 2)})), limits), true});
  }
  return out;
}

}  // namespace barg::test
