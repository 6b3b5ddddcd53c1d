// The machine case by case: what JSON asks of it, its limits, and that it forgets without harm.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "text/grammar/machine_support.h"

namespace barg::test::machine_test {
namespace {

using namespace machines;
using namespace text::grammar;

// --- strings ---

TEST(MachineString, TakesEveryEscapeAndNothingElse) {
  Builder b;
  const auto m = b.machine(b.string());
  for (const std::string text : {R"("")", R"("a b")", R"("\"\\\/\b\f\n\r\t")", R"("\u0000\uFFFF\uabCD")",
                                 R"("\ud83d\uDE00")", "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\""}) {
    EXPECT_TRUE(accepts(*m, text)) << text;
  }
  for (const std::string text : {"\"\n\"",        "\"\x1f\"",
                                 R"("\a")",       R"("\U0041")",
                                 R"("\u00g0")",   R"("\ud83d")",
                                 R"("\ud83d\n")", R"("\ud83d\u0041")",
                                 R"("\ud83dx")",  R"("\ude00")",
                                 R"("\udc00)",    R"("\ud83d\udb)",
                                 "\"\xC3\"",      "\"\xC3\\",
                                 "\"\x80\"",      "\"\xED\xA0\x80\"",
                                 "\"\xC0\x80\"",  "\"\xF5\x80\x80\x80\"",
                                 R"(""")",        "\"\" ",
                                 " \"\"",         "a"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
}

TEST(MachineString, KnowsHowFarItIsToTheQuote) {
  Builder b;
  const auto m = b.machine(b.string());
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, int>>{{"", 2},
                                                                            {"\"", 1},
                                                                            {"\"\\", 2},
                                                                            {"\"\\u", 5},
                                                                            {"\"\\u00", 3},
                                                                            {"\"\\ud", 4},
                                                                            {"\"\\ud8", 9},
                                                                            {"\"\\ud83d", 7},
                                                                            {"\"\\ud83d\\", 6},
                                                                            {"\"\\ud83d\\u", 5},
                                                                            {"\"\\ud83d\\ud", 4},
                                                                            {"\"\\ud83d\\udE0", 2},
                                                                            {"\"\xF0", 4},
                                                                            {"\"\xE2\x82", 2},
                                                                            {"\"\"", 0}}) {
    EXPECT_EQ(left(*m, text), bytes) << text;
  }
}

TEST(MachineString, EscapesLeadOnlyToWhatTheContentAllows) {
  Builder b;
  const auto m = b.machine(b.string(words({"\xC3\xA9", "k", "\xF0\x9F\x98\x80", "\n"})));
  for (const std::string text : {R"("\u00E9")", "\"\xC3\xA9\"", R"("\u006b")", R"("\u006B")",
                                 R"("\uD83D\uDE00")", R"("\n")", R"("\u000a")"}) {
    EXPECT_TRUE(accepts(*m, text)) << text;
  }
  for (const std::string text : {R"("\t)", R"("\u1)", R"("\u00f)", R"("\u006c)", R"("\u000b)", R"("\ud83c)",
                                 R"("\ud83d\udd)", R"("\ud83d\ude01)", R"("kk)", R"("\\)"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_EQ(left(*m, "\"\\"), 2);  // \n
  EXPECT_EQ(left(*m, "\"\\u"), 5);
  EXPECT_EQ(left(*m, "\"\\u000"), 2);
  EXPECT_EQ(left(*m, "\"\\ud83"), 8);
  EXPECT_EQ(left(*m, "\""), 2);  // k
}

TEST(MachineString, ABackslashIsDeadWhereNoCharacterMayFollow) {
  Builder b;
  const auto m = b.machine(b.string(word("ab")));
  EXPECT_TRUE(behind(*m, "\"a\\"));
  EXPECT_FALSE(behind(*m, "\"ab\\"));
  EXPECT_FALSE(behind(*m, "\"\\n"));
}

TEST(MachineString, LengthsCountCharacters) {
  Builder b;
  const auto m = b.machine(b.string(nullptr, 1, 2));
  for (const std::string text : {R"("a")", R"("\ud83d\ude00\n")", "\"\xF0\x9F\x98\x80\xC3\xA9\""}) {
    EXPECT_TRUE(accepts(*m, text)) << text;
  }
  for (const std::string text : {R"("")", R"("abc)", R"("\ud83d\ude00ab)", "\"ab\xC3", R"("ab\)"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_EQ(left(*m, "\""), 2);
  EXPECT_EQ(left(*m, "\"\\u"), 5);
  EXPECT_EQ(left(*m, "\"\xF0"), 4);
}

TEST(MachineString, LengthsAndContentTogether) {
  Builder b;
  const auto m = b.machine(b.string(many({"ab", "c"}), 3, 4));
  EXPECT_TRUE(accepts(*m, "\"abab\""));
  EXPECT_TRUE(accepts(*m, "\"cab\""));
  EXPECT_FALSE(behind(*m, "\"ab\""));
  EXPECT_FALSE(behind(*m, "\"abca\""));
  EXPECT_TRUE(behind(*m, "\"ccca") == nullptr);  // only c fits the last place
  EXPECT_EQ(left(*m, "\"ab"), 2);
  EXPECT_EQ(left(*m, "\"aba"), 2);
  Builder odd;
  EXPECT_FALSE(odd.compile(odd.string(many({"ab"}), 3, 3)));
}

TEST(MachineString, HugeLengthsAreBoundedNotCounted) {
  Builder b;
  const auto m = b.machine(b.string(nullptr, 0, INT64_MAX));
  EXPECT_TRUE(accepts(*m, "\"" + std::string(1000, 'x') + "\""));
  Builder c;
  EXPECT_EQ(c.compile(c.string(nullptr, 1'000'000'000, -1)).error().code, ErrorCode::kUnsupported);
  // Where the content ends by itself the bound does not matter.
  Builder d;
  EXPECT_TRUE(accepts(*d.machine(d.string(word("ab"), 1, INT64_MAX)), "\"ab\""));
}

TEST(MachineString, ContentOfInvalidUtf8IsLeftOut) {
  Builder b;
  const auto m = b.machine(b.string(words({"\xFF", "\xC3", "a\x80", "\xC3\xA9", "ok"})));
  EXPECT_FALSE(behind(*m, "\"\xFF"));
  EXPECT_FALSE(behind(*m, "\"a"));
  EXPECT_FALSE(accepts(*m, "\"\xC3\""));
  EXPECT_TRUE(accepts(*m, "\"\xC3\xA9\""));
  EXPECT_TRUE(accepts(*m, "\"ok\""));
}

// --- objects ---

struct ObjectCase {
  Builder b;
  ObjectNode node;
  void property(std::string name, bool required) {
    node.properties.push_back({std::move(name), b.bytes("1"), required});
  }
  void others(DfaPtr names, std::string_view value = "2") {
    node.others.push_back({std::move(names), b.bytes(value)});
  }
  std::shared_ptr<Machine> machine() { return b.machine(b.add(node)); }
};

TEST(MachineObject, DeclaredOnesComeInOrderAndMayBeSkipped) {
  ObjectCase c;
  c.property("a", false);
  c.property("ab", true);
  c.property("b", false);
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"ab":1})"));
  EXPECT_TRUE(accepts(*m, R"({"a":1,"ab":1,"b":1})"));
  EXPECT_TRUE(accepts(*m, R"({"\u0061":1,"a\u0062":1})"));
  for (const std::string text : {R"({})", R"({"b)", R"({"a":1})", R"({"ab":1,"a)", R"({"ab":1,"ab)", R"({"c)",
                                 R"({"a":1,"a")", R"({"ab":1,"b":1,)", R"({"\u0062)"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_EQ(left(*m, ""), 8);
  EXPECT_EQ(left(*m, "{\"a"), 5);
  EXPECT_EQ(left(*m, "{\"a\""), 10);
  EXPECT_EQ(left(*m, "{\"\\u00"), 7);
  EXPECT_EQ(left(*m, R"({"ab":1,)"), 6);
}

TEST(MachineObject, NoNameTwice) {
  ObjectCase c;
  c.property("a", false);
  c.others(nullptr);
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"a":1,"b":2,"":2,"ab":2,"\u00e9":2})"));
  EXPECT_TRUE(accepts(*m, R"({"b":2})"));
  for (const std::string text :
       {R"({"b":2,"b")", R"({"b":2,"\u0062")", R"({"a":2)", R"({"\u0061":2)", R"({"b":2,"a")", R"({"":2,"")",
        "{\"\xC3\xA9\":2,\"\\u00e9\"", R"({"\n":2,"\u000A")"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_TRUE(behind(*m, R"({"b":2,"b)"));  // it may go on
  EXPECT_EQ(left(*m, R"({"b":2,"b)"), 5);   // x":2}
  EXPECT_EQ(left(*m, R"({"b":2,")"), 4);    // the empty name
  EXPECT_EQ(left(*m, R"({"":2,")"), 5);
  EXPECT_EQ(left(*m, R"({"b":2,"\u006)"), 5);
  EXPECT_EQ(left(*m, R"({"bc":2,"b)"), 4);
}

TEST(MachineObject, NamesOfAFiniteLanguageRunOut) {
  ObjectCase c;
  c.others(words({"x", "xy", "z"}));
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"xy":2,"z":2,"x":2})"));
  EXPECT_FALSE(behind(*m, R"({"xy":2,"z":2,"x":2,)"));
  EXPECT_FALSE(behind(*m, R"({"xy":2,"x":2,"x)"));
  EXPECT_FALSE(behind(*m, R"({"z":2,"\u007a)"));
  EXPECT_FALSE(behind(*m, R"({"z":2,"\u007A)"));
  EXPECT_TRUE(behind(*m, R"({"z":2,"\u0078)"));
  EXPECT_EQ(left(*m, R"({"x":2,"x)"), 5);
}

TEST(MachineObject, CountsAreMet) {
  ObjectCase c;
  c.property("a", false);
  c.property("b", false);
  c.others(words({"a", "x", "yy"}));
  c.node.min_properties = 3;
  c.node.max_properties = 3;
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"a":1,"b":1,"x":2})"));
  EXPECT_TRUE(accepts(*m, R"({"a":1,"yy":2,"x":2})"));
  for (const std::string text :
       {R"({"a":1,"b":1})", R"({"a":1,"b":1,"x":2,)", R"({"x":2,)", R"({"b":1,"a)"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_EQ(left(*m, ""), 19);
  EXPECT_EQ(left(*m, R"({"a":1,"b":1,"y)"), 5);
  EXPECT_EQ(left(*m, R"({"a":1,"y)"), 11);
}

TEST(MachineObject, OthersComeBehindWhatIsRequired) {
  ObjectCase c;
  c.property("a", true);
  c.property("b", false);
  c.others(nullptr);
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"a":1,"x":2})"));
  EXPECT_FALSE(behind(*m, R"({"x)"));
  EXPECT_FALSE(behind(*m, R"({"a":1,"x":2,"b")"));
}

TEST(MachineObject, OthersKeepTheirValues) {
  ObjectCase c;
  c.others(many({"x"}, 1), "3");
  c.others(many({"y"}, 1), "4");
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"x":3,"yy":4,"xx":3})"));
  EXPECT_FALSE(behind(*m, R"({"x":4)"));
  EXPECT_FALSE(behind(*m, R"({"xy)"));
}

TEST(MachineObject, ManyPropertiesAreOneConfiguration) {
  ObjectCase c;
  for (int i = 0; i < 3000; ++i) c.property("name_" + std::to_string(i), i == 1500);
  const auto m = c.machine();
  EXPECT_TRUE(accepts(*m, R"({"name_3":1,"name_1500":1,"name_2999":1})"));
  EXPECT_FALSE(behind(*m, R"({"name_1501)"));
  EXPECT_FALSE(behind(*m, R"({"name_1500":1,"name_3")"));
  EXPECT_EQ(left(*m, ""), 15);
}

// --- arrays ---

TEST(MachineArray, PrefixItemsAndBounds) {
  Builder b;
  ArrayNode n;
  n.prefix = {b.bytes("1"), b.bytes("22")};
  n.items = b.bytes("3");
  n.min_items = 1;
  n.max_items = 4;
  const auto m = b.machine(b.add(n));
  EXPECT_TRUE(accepts(*m, "[1]"));
  EXPECT_TRUE(accepts(*m, "[1,22,3,3]"));
  for (const std::string text : {"[]", "[2", "[1,3", "[1,22,3,3,", "[1,]", "[,"})
    EXPECT_FALSE(behind(*m, text)) << text;
  EXPECT_EQ(left(*m, "["), 2);
  EXPECT_EQ(left(*m, "[1,"), 3);
}

TEST(MachineArray, ContainsWithBounds) {
  Builder b;
  ArrayNode n;
  n.items = b.bytes(words({"7", "8"}));
  n.contains = b.bytes("7");
  n.not_contains = b.bytes("8");
  n.min_contains = 2;
  n.max_contains = 3;
  n.max_items = 4;
  const auto m = b.machine(b.add(n));
  EXPECT_TRUE(accepts(*m, "[7,7]"));
  EXPECT_TRUE(accepts(*m, "[8,7,7,7]"));
  for (const std::string text : {"[7]", "[8,8,8", "[7,7,7,7", "[8,8,7,7,"})
    EXPECT_FALSE(behind(*m, text)) << text;
  EXPECT_EQ(left(*m, "[8,8"), 5);
}

TEST(MachineArray, EachOptionOnce) {
  Builder b;
  ArrayNode n;
  n.items = b.choice({b.bytes("1"), b.bytes("2"), b.bytes("30")});
  n.each_once = true;
  n.min_items = 2;
  const auto m = b.machine(b.add(n));
  EXPECT_TRUE(accepts(*m, "[30,1]"));
  EXPECT_TRUE(accepts(*m, "[2,30,1]"));
  for (const std::string text : {"[1]", "[1,1", "[1,2,30,"}) EXPECT_FALSE(behind(*m, text)) << text;
  EXPECT_EQ(left(*m, "[2"), 3);
  EXPECT_EQ(left(*m, "[1,2,"), 3);
  n.min_items = 4;
  Builder again;
  n.items = again.choice({again.bytes("1"), again.bytes("2")});
  EXPECT_EQ(again.compile(again.add(n)).error().code, ErrorCode::kInvalidValue);
}

// --- white space ---

TEST(MachineSpacing, IsBounded) {
  Builder b;
  b.grammar.spacing = Spacing::kFlexible;
  const auto m = b.machine(b.value());
  const std::string blanks(60, ' ');
  for (const std::string text :
       {"{ }", "[ ]", "[\n]", "{ \"a\" : 1 , \"b\" : [ 1 , 2 ] }", "[\n\t1,\n \t2\n]"}) {
    EXPECT_TRUE(accepts(*m, text)) << text;
  }
  EXPECT_TRUE(accepts(*m, "[\n" + blanks + "1\n" + blanks + "]"));
  EXPECT_FALSE(behind(*m, "[\n" + blanks + " "));
  for (const std::string text : {"[  ", "[\t", "[ \n", "[\n\n", " [", "[] ", "[1 2", "{ \"a\" \"", "[\r"}) {
    EXPECT_FALSE(behind(*m, text)) << text;
  }
  EXPECT_EQ(left(*m, "{\"\":\n  "), 2);
  Builder tight;
  const auto none = tight.machine(tight.value());
  for (const std::string text : {"[ ", "[1 ", "[1, ", "{ ", "{\"\" ", "{\"\": ", "[\n"})
    EXPECT_FALSE(behind(*none, text)) << text;
}

// --- recursion and limits ---

TEST(MachineRecursion, RightRecursionIsFlat) {
  Builder b;
  const NodeId list = b.later();
  b.put(list, ChoiceNode{{b.sequence({b.bytes("a"), b.add(RefNode{list})}), b.bytes("")}});
  const auto m = b.machine(list);
  const auto few = behind(*m, "aaa");
  EXPECT_EQ(few, behind(*m, std::string(5000, 'a')));
  EXPECT_TRUE(accepts(*m, std::string(100'000, 'a')));
}

TEST(MachineRecursion, NestingEndsAtTheBoundAndCanBeClosedThere) {
  Builder b;
  const auto m = b.machine(b.value());
  for (const std::string open : {"[", "{\"\":"}) {
    auto state = m->start();
    std::size_t depth = 0;
    const auto deeper = [&] {
      auto to = state;
      for (const char c : open) to = to ? m->next(to, static_cast<std::uint8_t>(c)) : nullptr;
      return to;
    };
    for (auto to = deeper(); to; to = deeper(), ++depth) state = to;
    EXPECT_EQ(depth, 1000U);
    for (std::size_t bytes = 0; !Machine::accepting(*state); ++bytes) {
      ASSERT_LE(bytes, depth + 1);
      Machine::StatePtr nearer;
      for (int c = 0; c < 256 && !nearer; ++c) {
        auto to = m->next(state, static_cast<std::uint8_t>(c));
        if (to && Machine::min_bytes(*to) < Machine::min_bytes(*state)) nearer = to;
      }
      ASSERT_TRUE(nearer);
      state = nearer;
    }
  }
}

TEST(MachineRecursion, WhatIsNeededDeepInsideFitsBelowTheBound) {
  // ( A ) or five frames at once: near the bound only what can still be finished is begun.
  Builder b;
  const NodeId a = b.later();
  const NodeId x = b.bytes("x"), open = b.bytes("("), close = b.bytes(")");
  NodeId deep = x;
  for (int i = 0; i < 5; ++i) deep = b.sequence({deep, x});
  b.put(a, ChoiceNode{{b.sequence({open, b.add(RefNode{a}), close}), deep}});
  const auto m = b.machine(a);
  std::string text;
  while (behind(*m, text + "(")) text += "(";
  EXPECT_EQ(text.size(), 995U);
  EXPECT_TRUE(accepts(*m, text + "xxxxxx" + std::string(text.size(), ')')));
}

TEST(MachineLimits, RefusesWhatItCannotRun) {
  Builder left;
  const NodeId a = left.later();
  left.put(a, ChoiceNode{{left.sequence({left.add(RefNode{a}), left.bytes("x")}), left.bytes("y")}});
  EXPECT_EQ(left.compile(a).error().code, ErrorCode::kUnsupported);

  Builder hidden;  // the first part may be empty
  const NodeId h = hidden.later();
  const NodeId maybe = hidden.bytes(words({"", "x"}));
  hidden.put(h, ChoiceNode{{hidden.sequence({maybe, hidden.add(RefNode{h}), hidden.bytes("z")}),
                            hidden.bytes("y")}});
  EXPECT_EQ(hidden.compile(h).error().code, ErrorCode::kUnsupported);

  Builder endless;
  const NodeId e = endless.later();
  endless.put(e, SequenceNode{{endless.bytes("x"), e}});
  EXPECT_EQ(endless.compile(e).error().code, ErrorCode::kInvalidValue);

  Builder large;
  NodeId last = large.bytes("x");
  for (int i = 0; i < 100; ++i) last = large.add(RefNode{last});
  EXPECT_EQ(large.compile(last, {.nodes = 50}).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(accepts(*large.machine(last), "x"));

  Builder deep;
  NodeId d = deep.bytes("x");
  for (int i = 0; i < 2000; ++i) d = deep.sequence({d, deep.bytes("y")});
  EXPECT_EQ(deep.compile(d).error().code, ErrorCode::kUnsupported);
}

TEST(MachineLimits, LongChainsNeedNoRecursion) {
  Builder b;
  const NodeId end = b.bytes("x");
  NodeId last = end;
  for (int i = 0; i < 60'000; ++i) last = b.choice({last, end});
  EXPECT_TRUE(accepts(*b.machine(last), "x"));
}

TEST(MachineLimits, TheShortestWayIsKeptAmongTooManyReadings) {
  // An odd number of letters, read in ways that double with every letter; the dearest come first.
  Builder b;
  const NodeId letter = b.bytes(words({"a", "b"})), text = b.later();
  b.put(text, ChoiceNode{{b.sequence({letter, b.add(RefNode{text}), letter, b.bytes("cc")}),
                          b.sequence({letter, b.add(RefNode{text}), letter}), letter}});
  const auto m = b.machine(text);
  for (std::size_t n = 1; n <= 24; ++n) EXPECT_EQ(left(*m, std::string(n, 'a')), n % 2 == 0 ? 1 : 0) << n;
  EXPECT_TRUE(accepts(*m, std::string(41, 'b')));
}

TEST(MachineLimits, WhatMayBeEmptyRepeatsWithoutEnd) {
  Builder b;
  const NodeId item = b.bytes(words({"", "a"}));
  const NodeId inner = b.add(RepeatNode{item, kNoNode, 0, kUnbounded});
  const auto m = b.machine(b.add(RepeatNode{inner, item, 3, 1'000'000'000}));
  EXPECT_EQ(left(*m, ""), 0);
  EXPECT_TRUE(accepts(*m, std::string(300, 'a')));
  Builder c;
  const NodeId loop = c.later();
  c.put(loop, ChoiceNode{{c.add(RefNode{loop}), c.bytes("a"), loop}});
  EXPECT_TRUE(accepts(*c.machine(loop), "a"));
}

TEST(MachineLimits, LargeCountsAreExact) {
  Builder b;
  const auto m = b.machine(b.add(RepeatNode{b.bytes(words({"a", "bb"})), kNoNode, 1000, 1'000'000'000'000}));
  EXPECT_EQ(left(*m, ""), 1000);
  EXPECT_EQ(left(*m, "bbbb"), 998);
  EXPECT_TRUE(accepts(*m, std::string(1500, 'a')));
  Builder c;
  const NodeId much = c.add(RepeatNode{c.bytes("a"), kNoNode, INT64_MAX / 16, kUnbounded});
  EXPECT_GT(left(*c.machine(c.add(RepeatNode{much, kNoNode, 1, kUnbounded})), ""), INT64_MAX / 32);
}

// --- tokens ---

TEST(MachineTokens, AreSteps) {
  Builder b;
  const NodeId seven = b.add(TokenNode{7}), three = b.add(TokenNode{3});
  const auto m = b.machine(b.sequence({b.choice({seven, three, b.bytes("x")}), seven}));
  const auto start = m->start();
  EXPECT_EQ(m->tokens(start), (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(m->token_alphabet(), (std::vector<TokenId>{3, 7}));
  EXPECT_FALSE(m->next_token(start, 4));
  const auto one = m->next_token(start, 3);
  ASSERT_TRUE(one);
  EXPECT_EQ(one, m->next(start, 'x'));
  EXPECT_EQ(Machine::min_bytes(*one), 1);
  EXPECT_FALSE(m->next(one, 'x'));
  EXPECT_TRUE(Machine::accepting(*m->next_token(one, 7)));
}

// --- runs of plain characters ---

TEST(MachineRuns, AreKnownForStrings) {
  Builder b;
  ObjectNode node;
  node.properties.push_back({"s", b.string(), true});
  node.properties.push_back({"n", b.string(nullptr, 3, 5), false});
  node.properties.push_back({"c", b.string(many({"a", "b"})), false});
  node.others.push_back({nullptr, b.string()});
  const auto m = b.machine(b.add(node));
  const auto run = [&](std::string_view text) { return Machine::plain_run(*behind(*m, text)); };
  const auto worst = [&](std::string_view text) { return Machine::plain_run_worst(*behind(*m, text)); };
  EXPECT_EQ(run("{"), 0);
  EXPECT_EQ(run("{\""), 0);  // only declared names
  EXPECT_EQ(run("{\"s\":\"x"), Machine::kUnboundedRun);
  EXPECT_EQ(worst("{\"s\":\"x"), 2);
  EXPECT_EQ(run("{\"s\":\"\\"), 0);
  EXPECT_EQ(run("{\"s\":\"\xF0"), 0);
  EXPECT_EQ(run("{\"s\":\"\",\"n\":\""), 5);
  EXPECT_EQ(worst("{\"s\":\"\",\"n\":\""), 5);
  EXPECT_EQ(run("{\"s\":\"\",\"n\":\"xyz"), 2);
  EXPECT_EQ(run("{\"s\":\"\",\"n\":\"xyzxy"), 0);
  EXPECT_EQ(run("{\"s\":\"\",\"c\":\"a"), 0);
  EXPECT_EQ(run("{\"s\":\"\",\""), Machine::kUnboundedRun);  // any other name
  EXPECT_EQ(worst("{\"s\":\"\",\""), 6);                     // as behind s: x":""}
}

TEST(MachineRuns, KeepTheirPromise) {
  const auto text = shared(*dfa_subtract(dfa_valid_utf8(), *dfa_concat(dfa_literal("no"), dfa_valid_utf8())));
  Builder b;
  ObjectNode node;
  node.properties.push_back({"p", b.string(text), false});
  node.properties.push_back({"q", b.string(nullptr, 2, 6), false});
  node.properties.push_back({"r", b.bytes(text), false});
  node.others.push_back({text, b.string(nullptr, 4, -1)});
  const auto m = b.machine(b.add(node));
  const std::vector<std::string> characters = {
      "n", "o", "p", " ", "\x7F", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
  std::mt19937_64 rng(7);
  int runs = 0;
  for (const std::string before :
       {"{\"p\":\"", "{\"q\":\"", "{\"r\":\"", "{\"", "{\"p\":\"\",\"", "{\"n\":\"abcd\",\"", "{\"n\":\""}) {
    for (int i = 0; i < 300; ++i) {
      auto state = behind(*m, before);
      std::int64_t most = 0, worst = 0;
      for (int n = 0; n < 8 && state; ++n) {
        if (Machine::plain_run(*state) > most) {
          most = Machine::plain_run(*state);
          worst = Machine::plain_run_worst(*state);
          ++runs;
        }
        if (most > 0) {
          ASSERT_LE(Machine::min_bytes(*state), worst) << before;
        }
        for (const char c : characters[rng() % characters.size()]) {
          if (state) state = m->next(state, static_cast<std::uint8_t>(c));
        }
        ASSERT_TRUE(state || most == 0) << before;
        most -= most != Machine::kUnboundedRun && most > 0;
      }
    }
  }
  EXPECT_GT(runs, 500);
}

TEST(MachineRuns, PlainBytesToo) {
  Builder b;
  const auto m = b.machine(b.sequence({b.bytes(shared(dfa_valid_utf8())), b.bytes("!")}));
  EXPECT_EQ(Machine::plain_run(*m->start()), Machine::kUnboundedRun);
  EXPECT_EQ(Machine::plain_run_worst(*m->start()), 1);  // between characters
}

// --- what is remembered ---

TEST(MachineMemory, ForgettingChangesNothing) {
  Builder b;
  const NodeId root = b.value();
  const auto roomy = b.machine(root);
  const auto forgetful = b.machine(root, {.memory_bytes = 1});
  const std::string text =
      R"({"a":[1,{"b":"x\u00e9"},{"c":{"d":[]}}],"e\n":null,"a2":"\ud83d\ude00","ff":{"":1,"a":{}}})";
  auto x = roomy->start(), y = forgetful->start();
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int c = 0; c < 256; ++c) {
      const auto p = roomy->next(x, static_cast<std::uint8_t>(c)),
                 q = forgetful->next(y, static_cast<std::uint8_t>(c));
      ASSERT_EQ(p == nullptr, q == nullptr) << text.substr(0, i) << " and " << c;
      if (!p) continue;
      ASSERT_EQ(Machine::min_bytes(*p), Machine::min_bytes(*q));
      ASSERT_EQ(Machine::plain_run(*p), Machine::plain_run(*q));
      ASSERT_EQ(Machine::plain_run_worst(*p), Machine::plain_run_worst(*q));
    }
    x = roomy->next(x, static_cast<std::uint8_t>(text[i]));
    y = forgetful->next(y, static_cast<std::uint8_t>(text[i]));
    ASSERT_TRUE(x && y);
  }
  EXPECT_TRUE(Machine::accepting(*x) && Machine::accepting(*y));
}

TEST(MachineMemory, OldStatesLiveOn) {
  Builder b;
  const auto m = b.machine(b.value(), {.memory_bytes = 20'000});
  const auto held = behind(*m, R"({"key":[1,)");
  const auto seen = m->next(held, '2');
  for (int i = 0; i < 3000; ++i) behind(*m, "{\"" + std::to_string(i) + "\":");
  EXPECT_EQ(Machine::min_bytes(*held), 3);  // 0]}
  const auto later = m->next(held, '2');
  ASSERT_TRUE(later);
  EXPECT_NE(later, seen);  // of another generation
  EXPECT_EQ(Machine::min_bytes(*later), Machine::min_bytes(*seen));
  EXPECT_FALSE(behind(*m, R"({"key":1,"key")"));
}

TEST(MachineMemory, EqualStatesAreOne) {
  Builder b;
  const auto m = b.machine(b.value());
  EXPECT_EQ(behind(*m, "[1,[\"x"), behind(*m, "[\"abc\",[\"\\n"));
  EXPECT_EQ(behind(*m, R"({"a":1,"b":)"), behind(*m, R"({"b":{},"a":)"));  // a set, not an order
  EXPECT_NE(behind(*m, R"({"a":1,"b":)"), behind(*m, R"({"b":)"));
}

TEST(MachineWalk, GoesOnFromStatesOfAnywhere) {
  Builder b;
  const auto m = b.machine(b.value(), {.memory_bytes = 1});
  const auto old = behind(*m, "[");
  Machine::StatePtr kept;
  {
    Machine::Walk walk(*m);
    const Machine::State* one = walk.next(old.get(), '1');
    ASSERT_TRUE(one);
    EXPECT_EQ(walk.next(old.get(), '1'), one);
    EXPECT_EQ(walk.next(one, 'x'), nullptr);
    kept = walk.keep(walk.next(one, ']'));
  }
  EXPECT_TRUE(Machine::accepting(*kept));
}

// Forgets again and again; all states of the way stay what they were.
TEST(MachineWalk, ForgetsAllButTheStatesOfItsWay) {
  Builder b;
  const auto m = b.machine(b.value(), {.memory_bytes = 1});
  const std::string text = R"([{"a":["\u00e9",{"b":null,"cc":[15,{"d":"x)";
  const auto start = m->start();
  Machine::Walk walk(*m);
  std::vector<const Machine::State*> way = {start.get()};
  std::vector<std::int64_t> bytes = {Machine::min_bytes(*start)};
  int forgotten = 0;
  for (const char c : text) {
    way.push_back(walk.next(way.back(), static_cast<std::uint8_t>(c)));
    ASSERT_TRUE(way.back()) << c;
    bytes.push_back(Machine::min_bytes(*way.back()));
    for (const auto* state : way) {  // more to forget than is kept
      for (int any = 0; any < 256; ++any) walk.next(state, static_cast<std::uint8_t>(any));
    }
    const auto before = way;
    way.push_back(nullptr);
    walk.forget_but(way);
    ASSERT_EQ(way.back(), nullptr);
    way.pop_back();
    forgotten += way != before;
  }
  EXPECT_GT(forgotten, 3);
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(Machine::min_bytes(*way[i]), bytes[i]) << text.substr(0, i);
    const auto* next = walk.next(way[i], static_cast<std::uint8_t>(text[i]));
    ASSERT_TRUE(next) << text.substr(0, i);
    EXPECT_EQ(Machine::min_bytes(*next), bytes[i + 1]) << text.substr(0, i + 1);
  }
}

TEST(MachineWalk, ThreadsShareAMachine) {
  Builder b;
  b.grammar.spacing = Spacing::kFlexible;
  const auto m = b.machine(b.value(), {.memory_bytes = 30'000});
  const auto run = [&](std::uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (int round = 0; round < 30; ++round) {
      std::string text;
      auto state = m->start();
      for (int i = 0; i < 300 && !(Machine::accepting(*state) && i > 50); ++i) {
        const auto byte = static_cast<std::uint8_t>(std::string_view("{}[]\",:abc123 \n\\ntu0")[rng() % 20]);
        auto to = m->next(state, byte);
        if (!to) continue;
        text += static_cast<char>(byte);
        state = to;
      }
      while (!Machine::accepting(*state)) {
        Machine::Walk walk(*m);
        const Machine::State* nearer = nullptr;
        for (int c = 0; c < 256 && !nearer; ++c) {
          const Machine::State* to = walk.next(state.get(), static_cast<std::uint8_t>(c));
          if (!to || Machine::min_bytes(*to) >= Machine::min_bytes(*state)) continue;
          nearer = to;
          text += static_cast<char>(c);
        }
        ASSERT_TRUE(nearer);
        state = walk.keep(nearer);
      }
      ASSERT_EQ(first_failure(*m, text), std::nullopt) << text;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(run, t);
  for (std::thread& t : threads) t.join();
}

// --- the rest ---

TEST(MachineFailure, NamesTheFirstByte) {
  Builder b;
  const auto m = b.machine(b.value());
  EXPECT_EQ(first_failure(*m, R"({"a":[1,2]})"), std::nullopt);
  EXPECT_EQ(first_failure(*m, R"({"a":[1,x]})"), 8U);
  EXPECT_EQ(first_failure(*m, R"({"a":[1,2)"), 9U);
  EXPECT_EQ(first_failure(*m, ""), 0U);
  EXPECT_EQ(first_failure(*m, "[]]"), 2U);
  std::string large = "[";
  for (int i = 0; i < 100'000; ++i) large += "12,";
  EXPECT_EQ(first_failure(*m, large + "1]"), std::nullopt);
  EXPECT_EQ(first_failure(*m, large + "]"), large.size());
}

TEST(MachineAlphabet, HoldsWhatIsNeededOnly) {
  Builder b;
  const auto has = [](const Machine& m, int byte) {
    const auto all = m.alphabet();
    return std::binary_search(all.begin(), all.end(), static_cast<std::uint8_t>(byte));
  };
  const auto m = b.machine(b.bytes(words({"red", "green"})));
  EXPECT_EQ(m->alphabet(),
            (std::vector<std::uint8_t>{'d', 'e', 'n', 'r'}));  // also for a g that somebody wrote
  Builder c;
  c.grammar.spacing = Spacing::kFlexible;
  const auto json = c.machine(c.value());
  for (const char needed : std::string("{}[]:,\"\\uadbcDEF019x "))
    EXPECT_TRUE(has(*json, static_cast<std::uint8_t>(needed))) << needed;
  EXPECT_TRUE(has(*json, 0x80));
  EXPECT_TRUE(has(*json, 0xBF));
  for (const int idle : {0x0A, 0x09, 0, 0xC3, 0xF0, 0xFF}) EXPECT_FALSE(has(*json, idle)) << idle;
}

}  // namespace
}  // namespace barg::test::machine_test
