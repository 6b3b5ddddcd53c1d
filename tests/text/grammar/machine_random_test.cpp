// Random grammars: the machine against their words enumerated (machine_reference.h). Up to the length of the
// enumeration everything must be exact: which bytes may follow, where a text is whole, how far it is to the
// end.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "text/grammar/machine.h"
#include "text/grammar/machine_reference.h"

namespace barg::test::machine_random_test {
namespace {

using namespace text::grammar;

std::string printable(const std::string& s) {
  std::string out;
  for (const char c : s)
    out +=
        c >= 0x20 && c < 0x7F ? std::string(1, c) : "<" + std::to_string(static_cast<std::uint8_t>(c)) + ">";
  return out;
}

// The tree of all beginnings of words, with the distance to the nearest whole word.
struct Beginning {
  std::map<char, std::unique_ptr<Beginning>> next;
  bool whole = false;
  std::int64_t distance = INT64_MAX;

  void add(const std::string& word) {
    Beginning* at = this;
    for (std::size_t i = 0;; ++i) {
      at->distance = std::min(at->distance, static_cast<std::int64_t>(word.size() - i));
      if (i == word.size()) break;
      auto& child = at->next[word[i]];
      if (!child) child = std::make_unique<Beginning>();
      at = child.get();
    }
    at->whole = true;
  }
};

class Comparison {
 public:
  Comparison(Machine& machine, std::size_t longest) : machine_(machine), longest_(longest) {}

  /// What is wrong first; empty: nothing.
  const std::string& error() const { return error_; }

  void check(const Beginning& at, const Machine::StatePtr& state, const std::string& text) {
    if (!state) return wrong("refused", text);
    if (Machine::accepting(*state) != at.whole) return wrong(at.whole ? "not whole" : "whole", text);
    const std::int64_t min = Machine::min_bytes(*state);
    if (min != at.distance) {
      return wrong("min_bytes " + std::to_string(min) + ", not " + std::to_string(at.distance), text);
    }
    check_run(*state, text);
    check_tokens(at, state, text);
    for (const char c : kTried) {
      if (!at.next.contains(c)) check_dead(step(state, c), text + c);
    }
    for (const auto& [c, child] : at.next) {
      if (!error_.empty()) return;
      check(*child, step(state, c), text + c);
    }
  }

 private:
  static constexpr std::string_view kTried =
      "\x01\x02"
      "ab1xy\"\\u0629nefEFdD83/,:[]{} \n\t\xC3\xA9\xF0\x9F\x98\x80";

  void wrong(const std::string& what, const std::string& text) {
    if (error_.empty()) error_ = what + ": " + printable(text);
  }
  static bool is_token(char c) { return c == 1 || c == 2; }
  Machine::StatePtr step(const Machine::StatePtr& from, char c) {
    return is_token(c) ? machine_.next_token(from, c - 1) : machine_.next(from, static_cast<std::uint8_t>(c));
  }

  // No word of the enumeration begins so: then all words that do are longer than it went.
  void check_dead(const Machine::StatePtr& state, const std::string& text) {
    if (!state) return;
    const std::int64_t shortest = static_cast<std::int64_t>(text.size()) + Machine::min_bytes(*state);
    if (shortest <= static_cast<std::int64_t>(longest_)) wrong("taken", text);
  }

  void check_tokens(const Beginning& at, const Machine::StatePtr& state, const std::string& text) {
    const std::vector<TokenId> tokens = machine_.tokens(state);
    for (const char c : {'\x01', '\x02'}) {
      const bool listed = std::count(tokens.begin(), tokens.end(), c - 1) > 0;
      if (listed != (step(state, c) != nullptr)) wrong("tokens()", text);
      if (at.next.contains(c) && !listed) wrong("token missing", text);
    }
  }

  // Never more than promised: these characters lead on, and to nothing that costs more than plain_run_worst.
  void check_run(const Machine::State& state, const std::string& text) {
    if (Machine::plain_run(state) > 0 && Machine::plain_run_worst(state) < Machine::min_bytes(state)) {
      wrong("plain_run_worst", text);
    }
  }

  Machine& machine_;
  std::size_t longest_;
  std::string error_;
};

// --- grammars --------------------------------------------------------------------------------------------

class RandomGrammar {
 public:
  explicit RandomGrammar(std::uint64_t seed) : rng_(seed) {}

  Grammar make() {
    g_.spacing = chance(4) ? Spacing::kFlexible : Spacing::kNone;
    const int size = 2 + pick(6);
    for (int i = 0; i < size; ++i) g_.nodes.push_back(RefNode{static_cast<NodeId>(i)});  // places to refer to
    size_ = size;
    for (int i = 0; i < size; ++i) {
      Node made = node();
      g_.nodes[i] = std::move(made);
    }
    g_.root = 0;
    return std::move(g_);
  }

 private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  bool chance(int of) { return pick(of) == 0; }
  NodeId leaf() {
    return g_.add(chance(6) ? Node(TokenNode{pick(2)}) : chance(3) ? string() : Node(BytesNode{bytes()}));
  }
  NodeId any() { return chance(2) ? leaf() : static_cast<NodeId>(pick(size_)); }
  std::int64_t few(int n) { return chance(3) ? -1 : pick(n); }

  static DfaPtr ptr(Dfa dfa) { return std::make_shared<const Dfa>(std::move(dfa)); }
  DfaPtr bytes() {
    switch (pick(7)) {
      case 0:
        return ptr(dfa_literal(""));
      case 1:
        return ptr(dfa_literal("1"));
      case 2:
        return ptr(dfa_literals({"a", "ab"}));
      case 3:
        return ptr(dfa_literals({"", "b", "ba"}));
      case 4:
        return ptr(*dfa_repeat(dfa_literal("a"), pick(2), few(4)));
      case 5:
        return ptr(*dfa_repeat(dfa_literals({"x", "xy"}), pick(2), -1));
      default:
        return ptr(dfa_literals({"1", "a\"", "\xC3\xA9"}));
    }
  }
  DfaPtr text() {
    switch (pick(8)) {
      case 0:
        return ptr(dfa_literal("a"));
      case 1:
        return ptr(dfa_literals({"", "a", "b", "ab"}));
      case 2:
        return ptr(*dfa_repeat(dfa_literals({"a", "\""}), 0, -1));
      case 3:
        return ptr(dfa_literals({"\xC3\xA9", "\n", "a"}));
      case 4:
        return ptr(dfa_literals({"\xF0\x9F\x98\x80", "\x01", "ab1"}));
      case 5:
        return ptr(*dfa_repeat(dfa_literals({"a", "\xC3\xA9"}), 0, 3));
      case 6:
        return ptr(dfa_literals({"\xFF", "b", "/"}));
      default:
        return ptr(*dfa_repeat(dfa_literals({"b"}), 0, -1));
    }
  }
  Node string() { return StringNode{text(), pick(2) * pick(3), few(4)}; }

  Node node() {
    switch (pick(8)) {
      case 0:
        return sequence();
      case 1:
        return sequence();
      case 2:
        return choice();
      case 3:
        return repeat();
      case 4:
        return array();
      case 5:
        return array();
      case 6:
        return object();
      default:
        return object();
    }
  }
  Node sequence() {
    SequenceNode n;
    for (int i = pick(4); i > 0; --i) n.parts.push_back(any());
    return n;
  }
  Node choice() {
    ChoiceNode n;
    for (int i = pick(4); i > 0; --i) n.options.push_back(any());
    return n;
  }
  Node repeat() {
    RepeatNode n{.item = any(), .separator = chance(2) ? any() : kNoNode, .min = pick(4), .max = few(5)};
    return n;
  }
  Node array() {
    ArrayNode n;
    n.min_items = pick(3);
    n.max_items = few(5);
    if (chance(4)) {
      n.each_once = true;
      ChoiceNode options;
      for (int i = pick(4); i >= 0; --i)
        options.options.push_back(g_.add(BytesNode{ptr(dfa_literal(std::to_string(i)))}));
      n.items = g_.add(options);
      return n;
    }
    if (!chance(4)) n.items = any();
    if (n.items != kNoNode && chance(3)) {
      n.contains = leaf();
      n.min_contains = pick(3);
      if (chance(2)) {
        n.max_contains = pick(3);
        n.not_contains = g_.add(BytesNode{ptr(dfa_literal("y"))});
      } else {
        n.items = g_.add(ChoiceNode{{n.contains, n.items}});  // what counts is an item too
      }
    }
    for (int i = pick(4); i > 1; --i) n.prefix.push_back(any());
    return n;
  }
  Node object() {
    ObjectNode n;
    n.min_properties = pick(4);
    n.max_properties = few(5);
    const std::vector<std::string> names = {"a", "ab", "b", "", "\xC3\xA9", "\n"};
    for (std::size_t i = pick(2); i < names.size() && n.properties.size() < 3; i += 1 + pick(3)) {
      n.properties.push_back({names[i], any(), chance(3)});
    }
    std::shuffle(n.properties.begin(), n.properties.end(), rng_);
    if (chance(2)) n.others.push_back({ptr(dfa_literals({"a", "b", "ab", "\""})), any()});
    if (chance(3)) n.others.push_back({ptr(*dfa_repeat(dfa_literals({"1", "\xC3\xA9"}), 0, -1)), leaf()});
    return n;
  }

  Grammar g_;
  int size_ = 0;
  std::mt19937_64 rng_;
};

std::string shown(const std::vector<NodeId>& ids) {
  std::string out;
  for (const NodeId id : ids) out += " " + std::to_string(id);
  return out;
}

std::string shown(const Dfa& dfa) {
  const auto words = dfa_words(dfa, 8);
  if (!words) return " endless";
  std::string out;
  for (const std::string& w : *words) out += " '" + printable(w) + "'";
  return out;
}

std::string shown(const Node& node) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (const auto* n = std::get_if<BytesNode>(&node)) return "bytes" + shown(*n->dfa);
  if (const auto* n = std::get_if<TokenNode>(&node)) return "token " + number(n->id);
  if (const auto* n = std::get_if<SequenceNode>(&node)) return "sequence" + shown(n->parts);
  if (const auto* n = std::get_if<ChoiceNode>(&node)) return "choice" + shown(n->options);
  if (const auto* n = std::get_if<RefNode>(&node)) return "ref " + number(n->target);
  if (const auto* n = std::get_if<StringNode>(&node)) {
    return "string " + number(n->min_chars) + ".." + number(n->max_chars) + shown(*n->content);
  }
  if (const auto* n = std::get_if<RepeatNode>(&node)) {
    return "repeat " + number(n->min) + ".." + number(n->max) + " of " + number(n->item) + ", " +
           number(n->separator);
  }
  if (const auto* n = std::get_if<ArrayNode>(&node)) {
    return "array " + number(n->min_items) + ".." + number(n->max_items) + " prefix" + shown(n->prefix) +
           " items " + number(n->items) + (n->each_once ? " once" : "") + " contains " + number(n->contains) +
           "/" + number(n->not_contains) + " " + number(n->min_contains) + ".." + number(n->max_contains);
  }
  const auto& n = std::get<ObjectNode>(node);
  std::string out = "object " + number(n.min_properties) + ".." + number(n.max_properties);
  for (const auto& p : n.properties) {
    out += " '" + printable(p.name) + (p.required ? "'! " : "' ") + number(p.value);
  }
  for (const auto& o : n.others) out += " {" + shown(*o.names) + "} " + number(o.value);
  return out;
}

std::string shown(const Grammar& grammar) {
  std::string out = grammar.spacing == Spacing::kNone ? "compact\n" : "spaced\n";
  for (std::size_t i = 0; i < grammar.nodes.size(); ++i) {
    out += std::to_string(i) + ": " + shown(grammar.nodes[i]) + "\n";
  }
  return out;
}

struct Tally {
  int compared = 0, empty = 0, left_recursive = 0, too_many = 0;
};

std::string compare(const Grammar& grammar, std::size_t memory, Tally& tally) {
  const std::size_t longest = grammar.spacing == Spacing::kFlexible ? 7 : 17;
  const auto words = Reference(grammar, longest, 1500).words();
  if (!words) {
    ++tally.too_many;
    return {};
  }
  auto machine = Machine::compile(grammar, {.memory_bytes = memory});
  if (!machine) {
    const bool left = machine.error().code == ErrorCode::kUnsupported;
    ++(left ? tally.left_recursive : tally.empty);
    return left || words->empty() ? "" : machine.error().message + " " + printable(*words->begin());
  }
  const auto start = (*machine)->start();
  if (words->empty()) {
    const bool longer = Machine::min_bytes(*start) > static_cast<std::int64_t>(longest);
    return longer ? "" : "no words, but one of " + std::to_string(Machine::min_bytes(*start));
  }
  ++tally.compared;
  Beginning root;
  for (const std::string& w : *words) root.add(w);
  Comparison comparison(**machine, longest);
  comparison.check(root, start, "");
  return comparison.error();
}

TEST(MachineRandom, EqualsTheEnumeration) {
  Tally tally;
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 2000 && wrong < 5; ++seed) {
    const Grammar grammar = RandomGrammar(seed).make();
    // Every twentieth machine forgets everything between any two steps.
    const std::string error = compare(grammar, seed % 20 == 0 ? 1 : std::size_t{1} << 24, tally);
    if (error.empty()) continue;
    ++wrong;
    ADD_FAILURE() << "seed " << seed << ": " << error << "\n" << shown(grammar);
  }
  std::printf("compared %d, empty %d, left-recursive %d, too many words %d\n", tally.compared, tally.empty,
              tally.left_recursive, tally.too_many);
  EXPECT_GT(tally.compared, 500);
}

}  // namespace
}  // namespace barg::test::machine_random_test
