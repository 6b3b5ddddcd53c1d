// Small grammars for tests of the machine, and texts pushed through it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/grammar/machine.h"

namespace barg::test::machines {  // support/grammars.h has a Builder too

namespace tg = text::grammar;

inline tg::DfaPtr shared(tg::Dfa dfa) { return std::make_shared<const tg::Dfa>(std::move(dfa)); }
inline tg::DfaPtr word(std::string_view bytes) { return shared(tg::dfa_literal(bytes)); }
inline tg::DfaPtr words(const std::vector<std::string>& all) { return shared(tg::dfa_literals(all)); }
inline tg::DfaPtr many(const std::vector<std::string>& of, std::int64_t min = 0, std::int64_t max = -1) {
  return shared(*tg::dfa_repeat(tg::dfa_literals(of), min, max));
}

struct Builder {
  tg::Grammar grammar{.nodes = {}, .root = tg::kNoNode, .spacing = tg::Spacing::kNone};

  tg::NodeId bytes(std::string_view b) { return grammar.add(tg::BytesNode{word(b)}); }
  tg::NodeId bytes(tg::DfaPtr dfa) { return grammar.add(tg::BytesNode{std::move(dfa)}); }
  tg::NodeId string(tg::DfaPtr content = nullptr, std::int64_t min = 0, std::int64_t max = -1) {
    return grammar.add(tg::StringNode{std::move(content), min, max});
  }
  tg::NodeId sequence(std::vector<tg::NodeId> parts) {
    return grammar.add(tg::SequenceNode{std::move(parts)});
  }
  tg::NodeId choice(std::vector<tg::NodeId> options) {
    return grammar.add(tg::ChoiceNode{std::move(options)});
  }
  tg::NodeId add(tg::Node node) { return grammar.add(std::move(node)); }
  /// A place for a node that is only known later.
  tg::NodeId later() { return grammar.add(tg::ChoiceNode{}); }
  void put(tg::NodeId at, tg::Node node) { grammar.nodes[at] = std::move(node); }

  /// Any JSON value (its numbers are whole ones).
  tg::NodeId value() {
    const tg::NodeId any = later();
    tg::ObjectNode object;
    object.others.push_back({nullptr, any});
    tg::ArrayNode array;
    array.items = any;
    const tg::NodeId number = bytes(many({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, 1));
    const tg::NodeId word = bytes(words({"true", "false", "null"}));
    put(any, tg::ChoiceNode{{add(object), add(array), string(), number, word}});
    return any;
  }

  Result<std::shared_ptr<tg::Machine>> compile(tg::NodeId root, const tg::MachineLimits& limits = {}) {
    grammar.root = root;
    return tg::Machine::compile(grammar, limits);
  }
  std::shared_ptr<tg::Machine> machine(tg::NodeId root, const tg::MachineLimits& limits = {}) {
    auto made = compile(root, limits);
    CHECK(made.has_value());
    return *made;
  }
};

/// nullptr where the text cannot be the beginning of anything.
inline tg::Machine::StatePtr behind(tg::Machine& machine, std::string_view text) {
  auto state = machine.start();
  for (const char c : text) {
    if (state) state = machine.next(state, static_cast<std::uint8_t>(c));
  }
  return state;
}
inline bool accepts(tg::Machine& machine, std::string_view text) {
  const auto state = behind(machine, text);
  return state && tg::Machine::accepting(*state);
}
/// Bytes to the end; -1: dead.
inline std::int64_t left(tg::Machine& machine, std::string_view text) {
  const auto state = behind(machine, text);
  return state ? tg::Machine::min_bytes(*state) : -1;
}

}  // namespace barg::test::machines
