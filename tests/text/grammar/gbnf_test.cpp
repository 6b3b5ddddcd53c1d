#include "text/grammar/gbnf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>

#include "base/utf8.h"
#include "text/grammar/regex.h"

namespace barg::text::grammar::gbnf_test {
namespace {

// The meaning of nodes by their definition: the places where a node may end that begins at `from`.
class Reader {
 public:
  Reader(const Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  bool accepts() { return ends(grammar_.root, 0).contains(text_.size()); }

 private:
  using Places = std::set<std::size_t>;

  const Places& ends(NodeId id, std::size_t from) {
    const auto key = std::pair{id, from};
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
    Places places = std::visit([&](const auto& node) { return read(node, from); },
                               grammar_.nodes[static_cast<std::size_t>(id)]);
    return known_[key] = std::move(places);
  }

  Places read(const BytesNode& node, std::size_t from) {
    Places places;
    Dfa::State s = node.dfa->start();
    for (std::size_t i = from;; ++i) {
      if (s != Dfa::kDead && node.dfa->accepting(s)) places.insert(i);
      if (s == Dfa::kDead || i == text_.size()) return places;
      s = node.dfa->next(s, static_cast<std::uint8_t>(text_[i]));
    }
  }
  Places read(const SequenceNode& node, std::size_t from) {
    Places places{from};
    for (const NodeId part : node.parts) places = follow(places, part);
    return places;
  }
  Places read(const ChoiceNode& node, std::size_t from) {
    Places places;
    for (const NodeId option : node.options) places.merge(Places(ends(option, from)));
    return places;
  }
  Places read(const RepeatNode& node, std::size_t from) {
    EXPECT_EQ(node.separator, kNoNode);
    Places all, now{from};
    for (std::int64_t n = 0; node.max == kUnbounded || n <= node.max; ++n) {
      const std::size_t before = all.size();
      if (n >= node.min) all.insert(now.begin(), now.end());
      if (now.empty() || (n > node.min && all.size() == before)) break;
      now = follow(now, node.item);
    }
    return all;
  }
  Places read(const RefNode& node, std::size_t from) { return ends(node.target, from); }
  template <class Other>
  Places read(const Other&, std::size_t) {
    ADD_FAILURE() << "a node that GBNF cannot say";
    return {};
  }

  Places follow(const Places& from, NodeId id) {
    Places places;
    for (const std::size_t p : from) places.merge(Places(ends(id, p)));
    return places;
  }

  const Grammar& grammar_;
  std::string_view text_;
  std::map<std::pair<NodeId, std::size_t>, Places> known_;
};

bool accepts(const Grammar& grammar, std::string_view text) { return Reader(grammar, text).accepts(); }

std::size_t count_refs(const Grammar& grammar) {
  return static_cast<std::size_t>(
      std::ranges::count_if(grammar.nodes, [](const Node& n) { return std::holds_alternative<RefNode>(n); }));
}

void expect_texts(const char* source, const std::vector<std::string>& in,
                  const std::vector<std::string>& out) {
  const auto grammar = parse_gbnf(source);
  ASSERT_TRUE(grammar) << grammar.error().message << "\n" << source;
  for (const std::string& t : in) EXPECT_TRUE(accepts(*grammar, t)) << t << " in\n" << source;
  for (const std::string& t : out) EXPECT_FALSE(accepts(*grammar, t)) << t << " in\n" << source;
}

constexpr const char* kJson = R"(# JSON, as grammars for language models write it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST(Gbnf, Json) {
  expect_texts(
      kJson,
      {"{}", R"({"a": [1, -2.5e3, {"b": "x\n\u00e9"}], "c": null})", "{ \"\xE4\xB8\xAD\": true}",
       "{\n\t\"deep\": [[[[[[]]]]]]}"},
      {"", "[]", "{", "{\"a\"}", "{\"a\": }", R"({"a": 01})", R"({"a": "\x"})", "{\"a\": \"\n\"}", "{}{}"});
}

TEST(Gbnf, Samples) {
  expect_texts(R"g(
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)g",
               {"a+b=c\n", "( 1 +x_1 ) *2 = 7\na=b\n"}, {"a+b", "a+=c\n", "(a=b\n", "=1\n"});
  expect_texts("root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n",
               {"- one\n- two\n", "- \xC3\xA9\n"}, {"", "one\n", "- \n", "- a\r\n", "- a\xC2\x85\n"});
  // Moves of chess: a class at the end of a rule, ranges of repetition, rules before and after use.
  expect_texts(R"g(root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n"){0,3}
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?)g",
               {"1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6\n3. O-O dxe5+\n"},
               {"1. e4\n", "1. e9 e5\n", "1. e4 e5\n2. Zf3 Nc6\n"});
}

TEST(Gbnf, Syntax) {
  expect_texts(R"(root ::= "a"{2} "b"{1,} "c"{,2} "d"{ 1 , 2 } .? "\x41\u00e9\U0001F600\t\"\\\[\]"? )",
               {"aabd", "aabbbccdd", "aabd\xF0\x9F\x98\x80", "aabddA\xC3\xA9\xF0\x9F\x98\x80\t\"\\[]"},
               {"abd", "aabcccd", "aabdddd", "aab"});
  expect_texts("root ::= [^a-c\\]]\"\" | ([\\]-] | [-a])* | \"\"", {"x", "]", "-", "", "-]a", "\n"},
               {"b", "xx"});
  expect_texts("root::=a|b-c # comment | \"z\"\na::=\"1\"\n\n b-c ::= \"2\"\n| \"3\"", {"1", "2", "3"},
               {"z", ""});
  expect_texts("root ::= \"ab\"* \"c\"+?", {"", "ababcc", "c"}, {"aba", "abb"});
  expect_texts("root ::= x {2}\nx ::= \"a\" | y\ny ::= \"b\" y?", {"ab", "bbbb", "aa"}, {"a", "aaa", ""});
  expect_texts("root ::= \"a\"\nunused ::= unused2 [0-9]\nunused2 ::= unused2 \"x\"", {"a"}, {""});
}

TEST(Gbnf, RegularGrammarsAreOneAutomaton) {
  const auto grammar = parse_gbnf("root ::= a (\",\" a)*\na ::= [0-9]+ b?\nb ::= \".\" [0-9]{1,3}");
  ASSERT_TRUE(grammar);
  EXPECT_EQ(grammar->nodes.size(), 2U) << "a reference to the root and its bytes";
  ASSERT_TRUE(std::holds_alternative<BytesNode>(grammar->nodes[1]));
  EXPECT_EQ(*std::get<BytesNode>(grammar->nodes[1]).dfa,
            *regex_dfa("[0-9]+(?:\\.[0-9]{1,3})?(?:,[0-9]+(?:\\.[0-9]{1,3})?)*", {.search = false}));
}

TEST(Gbnf, RepeatOfEmptyItemsNeedsNoCount) {
  const auto grammar = parse_gbnf("root ::= (x?){3,5}\nx ::= \"(\" x \")\" | \".\"");
  ASSERT_TRUE(grammar);
  for (const Node& node : grammar->nodes) {
    if (const auto* repeat = std::get_if<RepeatNode>(&node)) {
      EXPECT_EQ(repeat->min, 0);
    }
  }
  EXPECT_TRUE(accepts(*grammar, ""));
  EXPECT_TRUE(accepts(*grammar, "((.)).(.)"));
  EXPECT_FALSE(accepts(*grammar, "......"));
}

// Random grammars without recursion, and the same as regular expressions.
class Twin {
 public:
  explicit Twin(std::mt19937& rng) : rng_(rng) {}

  std::pair<std::string, std::string> make() {
    for (int i = 0; i < 3; ++i) {
      auto [gbnf, regex] = choice(2);
      rules_.emplace_back("r" + std::to_string(i), gbnf, regex);
    }
    const auto [gbnf, regex] = choice(2);
    std::string text = "root ::= " + gbnf + "\n";
    for (const auto& [name, body, unused] : rules_) text += name + " ::= " + body + "\n";
    return {text, regex};
  }

 private:
  using Pair = std::pair<std::string, std::string>;
  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(rng_() % n); }

  Pair choice(int depth) {
    Pair p = sequence(depth);
    for (std::uint32_t n = pick(3); n > 0; --n) {
      const Pair q = sequence(depth);
      p = {p.first + " | " + q.first, p.second + "|" + q.second};
    }
    return p;
  }
  Pair sequence(int depth) {
    Pair p;
    for (std::uint32_t n = pick(4); n > 0; --n) {
      static const std::vector<std::string> operators = {"", "", "*", "+", "?", "{2}", "{1,2}", "{0,3}"};
      const Pair q = item(depth);
      const std::string& op = operators[pick(8)];
      p = {p.first + " " + q.first + op, p.second + "(?:" + q.second + ")" + op};
    }
    return p;
  }
  Pair item(int depth) {
    static const std::vector<Pair> items = {
        {"\"a\"", "a"}, {"\"ab\"", "ab"}, {"[a-c]", "[a-c]"},          {"[^a]", "[^a]"},
        {".", "[^]"},   {"\"\"", ""},     {"\"\xC3\xA9\"", "\xC3\xA9"}};
    if (depth > 0 && pick(3) == 0) {
      const Pair p = choice(depth - 1);
      return {"(" + p.first + ")", p.second};
    }
    if (!rules_.empty() && pick(3) == 0) {
      const auto& [name, unused, regex] = rules_[pick(static_cast<std::uint32_t>(rules_.size()))];
      return {name, regex};
    }
    return items[pick(static_cast<std::uint32_t>(items.size()))];
  }

  std::mt19937& rng_;
  std::vector<std::tuple<std::string, std::string, std::string>> rules_;
};

TEST(Gbnf, AgreesWithRegularExpressions) {
  std::mt19937 rng(3);
  static const std::vector<std::string> letters = {"a", "a", "b", "c", "d", "\xC3\xA9"};
  int compared = 0, accepted = 0;
  for (int i = 0; i < 1'000; ++i) {
    const auto [source, regex] = Twin(rng).make();
    const auto dfa = regex_dfa(regex, {.search = false, .limits = {.states = 300}});
    if (!dfa) continue;  // too large
    const auto grammar = parse_gbnf(source);
    ASSERT_TRUE(grammar) << source << grammar.error().message;
    for (int k = 0; k < 40; ++k) {
      std::string text;
      for (std::uint32_t n = static_cast<std::uint32_t>(rng() % 7); n > 0; --n)
        text += letters[rng() % letters.size()];
      ASSERT_EQ(accepts(*grammar, text), dfa->matches(text)) << source << regex << "\n" << text;
      ++compared;
      accepted += dfa->matches(text) ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 15'000);
  EXPECT_GT(accepted, compared / 5);
}

// What does not fit into one automaton must mean the same in pieces.
TEST(Gbnf, LargeRegularPartsStayInPieces) {
  const char* source = R"(root ::= (word " "){1,900} "." | digits{3000}
word ::= [a-z]+ | "\"" [^"]{1,500} "\""
digits ::= [0-9] [0-9])";
  const auto grammar = parse_gbnf(source);
  ASSERT_TRUE(grammar);
  EXPECT_GT(count_refs(*grammar), 1U);
  EXPECT_TRUE(accepts(*grammar, "one two \"three\xC3\xA9\" ."));
  EXPECT_TRUE(accepts(*grammar, std::string(6000, '7')));
  EXPECT_FALSE(accepts(*grammar, std::string(5999, '7')));
  EXPECT_FALSE(accepts(*grammar, "one two"));
}

TEST(Gbnf, Refusals) {
  struct Refusal {
    std::string source;
    ErrorCode code;
    const char* words;
  };
  constexpr auto kBad = ErrorCode::kInvalidValue, kCannot = ErrorCode::kUnsupported;
  const Refusal refusals[] = {
      {"", kBad, "no rule 'root'"},
      {"a ::= \"x\"", kBad, "no rule 'root'"},
      {"root ::= \"a\" missing", kBad, "line 1, column 14: rule 'missing' is not defined"},
      {"root ::= \"a\"\nb ::= \"\xC3\xA9\" (", kBad, "line 2, column 11"},
      {"root ::= \"a\"\nroot ::= \"b\"", kBad, "line 2, column 1: rule 'root' is defined twice"},
      {"root ::= \"a", kBad, "closing quote"},
      {"root ::= [a", kBad, "']'"},
      {"root ::= [b-a]", kBad, "out of order"},
      {"root ::= \"\\q\"", kBad, "unknown escape"},
      {"root ::= \"\\x4\"", kBad, "hexadecimal"},
      {"root ::= \"\\uD800\"", kBad, "no such character"},
      {"root ::= \"\\U00110000\"", kBad, "no such character"},
      {"root ::= *", kBad, "nothing to repeat"},
      {"root ::= \"a\"{2,1}", kBad, "out of order"},
      {"root ::= \"a\"{}", kBad, "expected {n}"},
      {"root ::= \"a\"{1", kBad, "expected {n}"},
      {"root ::= \"a\")", kBad, "unmatched ')'"},
      {"root = \"a\"", kBad, "expected a rule"},
      {"root ::= \"a\" ; \"b\"", kBad, "line 1, column 14"},
      {"root ::= \xFF", kBad, "UTF-8"},
      {"root ::= <think>", kCannot, "tokens"},
      {"root ::= \"a\" (=\"b\")", kCannot, "look-ahead"},
      {"root ::= \"a\"{99999999}", kCannot, "repetition"},
      {"root ::= root \"a\" | \"b\"", kCannot, "rule 'root' is left-recursive"},
      {"root ::= \"x\" a\na ::= b \"1\"\nb ::= c? a | \"2\"\nc ::= \"3\"", kCannot, "left-recursive"},
      {"root ::= (\"a\"? | \"\")* [x]{0} root", kCannot, "rule 'root' is left-recursive"},
      {"root ::= \"<\" list \">\"\nlist ::= (list \",\")* \"x\"", kCannot, "rule 'list' is left-recursive"},
      {"root ::= " + std::string(300, '(') + "\"a\"" + std::string(300, ')'), kCannot, "nesting"},
      {"root ::= \"a\"" + std::string(1000, '*'), kBad, "too many repetitions"},
      {"root ::= \"" + std::string(600'000, 'a') + "\"", kCannot, "too large"},
  };
  for (const Refusal& r : refusals) {
    const auto grammar = parse_gbnf(r.source);
    ASSERT_FALSE(grammar) << r.source.substr(0, 200);
    EXPECT_EQ(grammar.error().code, r.code) << r.source.substr(0, 200) << ": " << grammar.error().message;
    EXPECT_NE(grammar.error().message.find(r.words), std::string::npos)
        << r.source.substr(0, 200) << ": " << grammar.error().message;
  }
  EXPECT_TRUE(parse_gbnf("root ::= \"a\" root | \"b\"")) << "right recursion is fine";
}

TEST(Gbnf, HostileSourcesTakeBoundedTime) {
  // A long chain of rules, doubling at each step, wide choices and deep nesting.
  std::string chain = "root ::= r0\n", doubling = "root ::= r0\n", wide = "root ::= \"(\" root \")\"",
              mentions = "a ::= ";
  for (int i = 0; i < 20'000; ++i) {
    chain += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + "\n";
    wide += " | \"w" + std::to_string(i) + "\" r?";
    mentions += "w \"x\" ";
  }
  chain += "r20000 ::= \"b\"\n";
  for (int i = 0; i < 200; ++i)
    doubling +=
        "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  doubling += "r200 ::= \"b\"?\n";
  wide += "\nr ::= \"x\"{100} | [^x]{1,100}\n";
  mentions += "\nw ::= ([a-z]+ \" \"?){100}\nroot ::= a root?\n";
  std::string letters = "root ::= \"(\" root \")\"";
  for (char32_t cp = 0x4E00; cp < 0x4E00 + 20'000; ++cp) {
    letters += " | \"";
    append_utf8(letters, cp);
    letters += "\" root";
  }
  for (const std::string& source : {chain, doubling, wide, mentions, letters}) {
    const auto start = std::chrono::steady_clock::now();
    const auto grammar = parse_gbnf(source);
    EXPECT_TRUE(grammar) << source.substr(0, 80) << grammar.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << source.substr(0, 80);
  }
}

}  // namespace
}  // namespace barg::text::grammar::gbnf_test
