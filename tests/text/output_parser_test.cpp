// What the fixtures of the dialects (dialect_fixtures_test.cpp) do not show: options, single steps of streaming, values
// and their types, and input that means harm.
#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "text/dialect_bound.h"
#include "text/dialect_support.h"
#include "text/output_schema.h"
#include "text/output_values.h"

namespace barg::text::output_parser_test {
namespace {

std::shared_ptr<const std::vector<ToolInfo>> tools() {
  const auto schema = [](const char* json) { return *parse_json(json); };
  return std::make_shared<const std::vector<ToolInfo>>(
      std::vector<ToolInfo>{{"f", schema(R"({"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},
                       "o":{"type":"object"},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},"any":{}}})"),
                             false},
                            {"g", {}, false},
                            {"shell", {}, true}});
}

const ReasoningMarkers kThink = {"<think>", "</think>"};

class Talk {
 public:
  explicit Talk(const char* dialect, ParserOptions options = {},
                std::vector<test::MarkerTokenizer::Marker> markers = {}, ReasoningMarkers reasoning = kThink)
      : tokenizer_(std::move(markers)) {
    if (!options.tools) options.tools = tools();
    parser_.emplace(bind_dialect({find_dialect(dialect), std::move(reasoning), ""}, tokenizer_), std::move(options));
  }

  /// What these pushes alone brought.
  std::string say(std::string_view text) {
    test::Pieces pieces;
    test::append_pieces(text, tokenizer_, true, pieces);
    OutputEvents out;
    for (const test::Piece& p : pieces) {
      if (p.id < 0) {
        parser_->push_text(p.text, out);
      } else {
        parser_->push_token(p.id, p.text, !tokenizer_.is_special(p.id), out);
      }
    }
    return test::shown(test::joined(out));
  }
  std::string end(bool natural = true) {
    OutputEvents out;
    parser_->finish(natural, out);
    return test::shown(test::joined(out));
  }
  std::string all(std::string_view text, bool natural = true) {
    OutputEvents out;
    test::Pieces pieces;
    test::append_pieces(text, tokenizer_, true, pieces);
    for (const test::Piece& p : pieces) {
      if (p.id < 0) {
        parser_->push_text(p.text, out);
      } else {
        parser_->push_token(p.id, p.text, !tokenizer_.is_special(p.id), out);
      }
    }
    parser_->finish(natural, out);
    return test::shown(test::joined(out));
  }
  OutputParser& parser() { return *parser_; }

 private:
  test::MarkerTokenizer tokenizer_;
  std::optional<OutputParser> parser_;
};

std::string parse(const char* dialect, std::string_view text, bool natural = true, ParserOptions options = {}) {
  return Talk(dialect, std::move(options)).all(text, natural);
}

// ---- streaming ----

TEST(OutputParser, ArgumentsLeaveAsTheyCome) {
  Talk t("hermes");
  EXPECT_EQ(t.say("Sure. <tool_call>\n{\"name\": \"f\", \"argu"), "text\"Sure.\" ");
  EXPECT_EQ(t.say("ments\": {"), "start#0\"f\" args\"{\" ");
  EXPECT_EQ(t.say("\"s\": \"a\\"), "args\"\\\"s\\\": \\\"a\" ");
  EXPECT_EQ(t.parser().held(), 1u);
  EXPECT_EQ(t.say("nb"), "args\"\\\\nb\" ");
  EXPECT_EQ(t.say("\", \"n\": 12"), "args\"\\\", \\\"n\\\": \" ");
  EXPECT_EQ(t.say("}"), "args\"12}\" ");
  EXPECT_EQ(t.say("}\n</tool_call>"), "end ");
  EXPECT_EQ(t.end(), "");
  EXPECT_EQ(t.parser().complete_calls(), 1);
  EXPECT_EQ(t.parser().note(), "");
}

TEST(OutputParser, StringsInTagsLeaveAsTheyCome) {
  Talk t("qwen3_coder");
  EXPECT_EQ(t.say("<tool_call>\n<function=f>\n<parameter=s>\nfirst\n"), "start#0\"f\" args\"{\\\"s\\\": \\\"first\" ");
  EXPECT_EQ(t.say("second </para"), "args\"\\\\nsecond \" ");
  EXPECT_EQ(t.say("\n</parameter>\n"), "args\"</para\" ");
  EXPECT_EQ(t.say("<parameter=n>\n4"), "args\"\\\", \\\"n\\\": \" ");
  EXPECT_EQ(t.say("2\n</parameter></function>"), "args\"42}\" ");
  EXPECT_EQ(t.say("</tool_call>"), "end ");
}

TEST(OutputParser, TextIsHeldOnlyWhileItMayBeAMarker) {
  Talk t("hermes");
  EXPECT_EQ(t.say("a <"), "text\"a\" ");
  EXPECT_EQ(t.parser().held(), 2u);
  EXPECT_EQ(t.say("b"), "text\" <b\" ");
  EXPECT_EQ(t.parser().held(), 0u);
  EXPECT_EQ(t.say("\n\n"), "");
  EXPECT_EQ(t.say("c"), "text\"\\n\\nc\" ");
}

TEST(OutputParser, TokensAreMarkersAndTheirSpellingIsNot) {
  Talk t("hermes", {}, {{"<tool_call>", false}, {"</tool_call>", true}});
  OutputEvents out;
  t.parser().push_text("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>", out);
  EXPECT_EQ(test::shown(test::joined(out)),
            "text" + json_quote("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>") + " ");
  EXPECT_EQ(t.say("<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"<tool_call></tool_call>\"}}</tool_call>"),
            "start#0\"f\" args" + json_quote("{\"s\":\"<tool_call></tool_call>\"}") + " end ");
  // A stray end marker is shown if the token is.
  EXPECT_EQ(t.say("x</tool_call>y"), "text\"xy\" ");
}

// ---- options ----

TEST(OutputParser, WithoutToolsNothingIsACall) {
  Talk t("hermes", {.tools = std::make_shared<std::vector<ToolInfo>>()});
  EXPECT_EQ(t.all("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
            "text" + json_quote("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>") + " ");
}

TEST(OutputParser, OneCallWhereNoMoreMayBe) {
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  EXPECT_EQ(parse("hermes", call + "\n" + call, true, {.parallel = false}),
            "start#0\"f\" args\"{}\" end text" + json_quote(call) + " ");
  EXPECT_EQ(parse("mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]", true,
                  {.parallel = false}),
            "start#0\"f\" args\"{}\" end text" + json_quote(", {\"name\":\"g\",\"arguments\":{}}]") + " ");
  EXPECT_EQ(parse("mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", true, {.parallel = false}),
            "start#0\"f\" args\"{}\" end ");
  Talk kimi("kimi_k2", {.parallel = false}, {{"<|tool_calls_section_begin|>", true}, {"<|tool_call_begin|>", true}});
  EXPECT_EQ(kimi.all("<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
                     "<|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"),
            "start#0\"f\"@f:0 args\"{}\" end "
            "text\"<|tool_call_begin|>g:1<|tool_call_argument_begin|>{}<|tool_call_end|>\" ");
  EXPECT_FALSE(kimi.parser().note().empty());
}

TEST(OutputParser, ReasoningLeftAlone) {
  EXPECT_EQ(parse("hermes", "<think>\nA\n</think>\n\nB", true, {.read_reasoning = false}),
            "text" + json_quote("<think>\nA\n</think>\n\nB") + " ");
  Talk t("minimax_append_think", {.inside_reasoning = true});
  EXPECT_EQ(t.all("A\n</think>\n\nB"), "text" + json_quote("<think>\nA\n</think>\n\nB") + " ");
}

TEST(OutputParser, ReasoningBlocks) {
  EXPECT_EQ(parse("hermes", "<think>A</think>B<think>C</think>D"), "reasoning\"A\" text\"B<think>C</think>D\" ");
  Talk t("hermes", {}, {{"<think>", false}, {"</think>", false}});
  EXPECT_EQ(t.all("<think>A</think>B<think>C</think>D"), "reasoning\"A\" text\"B\" reasoning\"C\" text\"D\" ");
  // A model that opens again what the prompt has opened.
  EXPECT_EQ(parse("hermes", "<think>\nA</think>B", true, {.inside_reasoning = true}), "reasoning\"A\" text\"B\" ");
  EXPECT_EQ(parse("hermes", "<think>\n\n</think>\n\nB"), "text\"B\" ");
  EXPECT_EQ(parse("hermes", "A </think> B"), "text\"A </think> B\" ");
  EXPECT_EQ(parse("hermes", "A\n", false, {.inside_reasoning = true}), "reasoning\"A\\n\" ");
  Talk u("hermes", {.inside_reasoning = true});
  EXPECT_TRUE(u.parser().in_reasoning());
  u.say("A</think>");
  EXPECT_FALSE(u.parser().in_reasoning());
}

TEST(OutputParser, WrappedAnswers) {
  const ReasoningMarkers granite = {"<think>", "</think>", "<response>", "</response>"};
  const auto parse_granite = [&](std::string_view text, bool natural = true) {
    return Talk("granite3", {}, {}, granite).all(text, natural);
  };
  EXPECT_EQ(parse_granite("<think>A</think>\n<response>B\n</response>\n"), "reasoning\"A\" text\"B\" ");
  EXPECT_EQ(parse_granite("B <response> </response> C"), "text\"B <response> </response> C\" ");
  EXPECT_EQ(parse_granite("<response>B</response> C"), "text\"B</response> C\" ");
  EXPECT_EQ(parse_granite("<response>B</resp", false), "text\"B</resp\" ");
}

// ---- custom tools ----

TEST(OutputParser, CustomToolsGetTheirPlainInput) {
  const std::string want = "start#0\"shell\" args" + json_quote("echo \"hi\"\n\\o/ é") + " end ";
  const std::string json = "{\"input\": \"echo \\\"hi\\\"\\n\\\\o/ \\u00e9\"}";
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"shell\",\"arguments\":" + json + "}</tool_call>"), want);
  EXPECT_EQ(
      parse("qwen3_coder",
            "<tool_call><function=shell><parameter=input>\necho \"hi\"\n\\o/ é\n</parameter></function></tool_call>"),
      want);
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"shell\",\"arguments\":{}}</tool_call>"), "start#0\"shell\" end ");
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"shell\",\"arguments\":{\"n\": [1]}}</tool_call>"),
            "start#0\"shell\" args" + json_quote("{\"n\": [1]}") + " end ");
  EXPECT_EQ(parse("harmony", "<|channel|>commentary to=functions.shell<|message|>ls -l {a}<|call|>"),
            "start#0\"shell\" args\"ls -l {a}\" end ");
  Talk t("hermes");
  t.say("<tool_call>{\"name\":\"shell\",\"arguments\":{\"input\":\"ab");
  EXPECT_EQ(t.say("c\\td"), "args" + json_quote("c\td") + " ");
}

// ---- what models get wrong ----

TEST(OutputParser, ArgumentsBeforeTheNameOrInAString) {
  const std::string want = "start#0\"f\" args" + json_quote("{\"s\": \"x\"}") + " end ";
  const auto call = [](std::string_view object) { return "<tool_call>" + std::string(object) + "</tool_call>"; };
  EXPECT_EQ(parse("hermes", call(R"({"arguments": {"s": "x"}, "name": "f"})")), want);
  EXPECT_EQ(parse("hermes", call(R"({"name": "f", "arguments": "{\"s\": \"x\"}"})")), want);
  EXPECT_EQ(
      parse("hermes", call(R"({"id": 7, "type": "function", "function": {"name": "f", "arguments": {"s": "x"}}})")),
      "start#0\"f\"@7 args" + json_quote("{\"s\": \"x\"}") + " end ");
  for (const char* none : {R"({"name": "f"})", R"({"name": "f", "arguments": null})",
                           R"({"name": "f", "arguments": ""})", R"({"name": "f", "arguments": {}})"}) {
    EXPECT_EQ(parse("hermes", call(none)), "start#0\"f\" args\"{}\" end ") << none;
  }
  for (const char* bad :
       {R"({"name": "f", "arguments": [1]})", R"({"name": 1, "arguments": {}})", R"({"arguments": {}})",
        R"({"name": "", "arguments": {}})", R"({"name": "f", "arguments": "x"})", "{}", "[]", "f(1)"}) {
    EXPECT_EQ(parse("hermes", call(bad)), "text" + json_quote(call(bad)) + " ") << bad;
  }
}

// Markers that nobody would see are seen where they are part of what was no call.
TEST(OutputParser, AMalformedCallIsTextAsItWasWritten) {
  Talk t("deepseek_v31", {},
         {{"<｜tool▁calls▁begin｜>", true}, {"<｜tool▁call▁begin｜>", true}, {"<｜tool▁sep｜>", true}});
  const std::string text = "A <｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>no such thing";
  EXPECT_EQ(t.all(text), "text" + json_quote(text) + " ");
  EXPECT_FALSE(t.parser().note().empty());
  // What one form has read is not searched again, and the next call is found.
  const std::string call = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
  EXPECT_EQ(parse("hermes", "<tool_call>{\"x\":\"<tool_call>\" so} " + call),
            "text" + json_quote("<tool_call>{\"x\":\"<tool_call>\" so}") + " start#0\"f\" args\"{}\" end ");
}

TEST(OutputParser, LenientBehindTheArguments) {
  const std::string want = "start#0\"f\" args\"{}\" end ";
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}</tool_call>"), want);
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}"), want);
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{}", false), "start#0\"f\" args\"{}\" broken ");
  EXPECT_EQ(parse("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}"), want);
  EXPECT_EQ(
      parse("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|><|tool_call_end|>"),
      want);
  EXPECT_EQ(parse("qwen3_coder", "<function=f>\n</function>"), want);
  EXPECT_EQ(parse("qwen3_coder", "<tool_call><function=f><parameter=s>a</parameter></tool_call>b"),
            "start#0\"f\" args" + json_quote("{\"s\": \"a\"}") + " end text\"b\" ");
  EXPECT_EQ(parse("qwen3_coder", "<function=f><parameter=s>a</parameter>"),
            "start#0\"f\" args" + json_quote("{\"s\": \"a\"}") + " end ");
}

// A model that repeats what a user typed: the outer tag as ordinary text, or an example of a call.
TEST(OutputParser, QuotedFunctionTagsAreNoCalls) {
  struct Family {
    const char *name, *open, *close;
  };
  const Family families[] = {{"qwen3_coder", "<tool_call>", "</tool_call>"},
                             {"seed_oss", "<seed:tool_call>", "</seed:tool_call>"}};
  const std::string inner = "<function=f>\n<parameter=s>a</parameter>\n</function>\n";
  const std::string example = "<function=example>\n<parameter=s>a</parameter>\n</function>";
  for (const Family& family : families) {
    const std::vector<test::MarkerTokenizer::Marker> tokens = {{family.open, false}, {family.close, false}};
    const std::string quoted = std::string(family.open) + "\n" + inner + family.close;
    for (const std::string& text : {quoted, "`" + inner + "`", example}) {
      Talk t(family.name, {}, tokens);
      OutputEvents out;
      t.parser().push_text(text, out);
      t.parser().finish(true, out);
      EXPECT_EQ(test::shown(test::joined(out)), "text" + json_quote(text) + " ") << family.name;
    }
    // The same tag as the token that it is.
    EXPECT_EQ(Talk(family.name, {}, tokens).all(quoted),
              "start#0\"f\" args" + json_quote("{\"s\": \"a\"}") + " end ")
        << family.name;
    EXPECT_EQ(Talk(family.name, {}, tokens).all(family.open + example + family.close),
              "start#0\"example\"? args" + json_quote("{\"s\": \"a\"}") + " end ")
        << family.name;
  }
}

TEST(OutputParser, WhatBreaksOffInsideACall) {
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\": tru}}</tool_call> so"),
            "start#0\"f\" args" + json_quote("{\"n\": ") + " broken text" + json_quote("tru}}</tool_call> so") + " ");
  EXPECT_EQ(parse("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"ab", false),
            "start#0\"f\" args" + json_quote("{\"s\":\"ab") + " broken ");
  Talk t("qwen3_coder");
  EXPECT_EQ(t.all("<tool_call><function=f><parameter=n>\n4", false),
            "start#0\"f\" args" + json_quote("{\"n\": ") + " broken text\"4\" ");
  EXPECT_FALSE(t.parser().note().empty());
  EXPECT_EQ(t.parser().complete_calls(), 0);
}

TEST(OutputParser, HarmonyWithoutHeadersAndWithOddOnes) {
  EXPECT_EQ(parse("harmony", "Today is"), "text\"Today is\" ");
  EXPECT_EQ(parse("harmony", "to be"), "text\"to be\" ");
  EXPECT_EQ(parse("harmony", "<|channel|>final<|message|>A<|return|>"), "text\"A\" ");
  EXPECT_EQ(parse("harmony", "<|channel|>analysis<|message|>A<|start|>assistant<|channel|>final<|message|>B"),
            "reasoning\"A\" text\"B\" ");
  EXPECT_EQ(
      parse("harmony", "A<|end|><|start|>assistant<|channel|>final<|message|>B", true, {.inside_reasoning = true}),
      "reasoning\"A\" text\"B\" ");
  EXPECT_EQ(parse("harmony", "<|channel|>analysis to=browser.search code<|message|>{\"q\":1}<|call|>"),
            "start#0\"browser.search\"? args" + json_quote("{\"q\":1}") + " end ");
  EXPECT_EQ(parse("harmony", "<|channel|>commentary to=functions.f<|message|>", false), "start#0\"f\" broken ");
  EXPECT_EQ(parse("harmony", "<|channel|>commentary to=functions.f<|message|><|call|>"),
            "start#0\"f\" args\"{}\" end ");
  EXPECT_EQ(parse("harmony", "<|channel|>final<|message|>A<|end|><|start|>assis", false), "text\"A\" ");
}

TEST(OutputParser, LlamaBuiltInTools) {
  EXPECT_EQ(parse("llama3_json", "<|python_tag|>brave_search.call(query=\"x\")"),
            "start#0\"brave_search\"? args" + json_quote("{\"query\": \"x\"}") + " end ");
  EXPECT_EQ(parse("llama3_json", "<|python_tag|>print(1)"), "text\"<|python_tag|>print(1)\" ");
}

TEST(OutputParser, GenericFences) {
  const std::string want = "text\"So:\" start#0\"f\" args\"{}\" end text\"Done.\" ";
  EXPECT_EQ(parse("generic", "So:\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```\nDone."), want);
  EXPECT_EQ(parse("generic", "So:\n```json\n[{\"name\": \"f\", \"arguments\": {}}]\n```\nDone."), want);
  EXPECT_EQ(parse("generic", "So: <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nDone."), want);
  const std::string code = "So:\n```json\n{\"a\": 1}\n```\n";
  EXPECT_EQ(parse("generic", code), "text" + json_quote(code) + " ");
  const std::string other = "{\"name\": \"f\", \"age\": 3}";
  EXPECT_EQ(parse("generic", other), "text" + json_quote(other) + " ");
}

// ---- values ----

class Values : public ::testing::Test {
 protected:
  test::MarkerTokenizer tokenizer_{std::vector<test::MarkerTokenizer::Marker>{}};
  BoundDialectImpl dialect_{{find_dialect("gemma4"), {}, ""}, tokenizer_};

  std::string read(std::string_view text, Lexis lexis, ValueReader::Top top = ValueReader::Top::kAny) {
    return value_as_json(dialect_, text, lexis, top).value_or("bad");
  }
};

TEST_F(Values, Json) {
  const auto json = [&](std::string_view s) { return read(s, Lexis::kJson); };
  for (const char* same :
       {"1", "-0.5e+7", "true", "null", "\"\"", "[]", "{}", "[1, [2,{\"a\" :\n3}]]", "\"\\n\\\"\\\\\""}) {
    EXPECT_EQ(json(same), same);
  }
  EXPECT_EQ(json("[1,2,]"), "[1,2]");
  EXPECT_EQ(json("[1e999, 123456789012345678901234567890, 18446744073709551615]"),
            "[\"1e999\", \"123456789012345678901234567890\", 18446744073709551615]");
  EXPECT_EQ(json("{\"a\":1 , }"), "{\"a\":1 }");
  EXPECT_EQ(json("[True, False, None]"), "[true, false, null]");
  EXPECT_EQ(json("\"a\nb\tc\x01\""), "\"a\\nb\\tc\\u0001\"");
  EXPECT_EQ(json(R"("\d \' \/")"), R"("\\d ' /")");
  EXPECT_EQ(json(R"("\u00e9 \ud83d\ude00")"), "\"é 😀\"");
  EXPECT_EQ(json(R"("\ud83d x \ude00")"), "\"\xEF\xBF\xBD x \xEF\xBF\xBD\"");
  EXPECT_EQ(json(R"("\u00g")"), R"("\\u00g")");
  for (const char* bad : {"", "01", "1.", ".5", "+1", "-", "1e", "NaN", "nul", "[", "[1 2]", "{\"a\"}", "{a:1}",
                          "{1:2}", "[,]", "'a'", "\"a", "(1)", "1 2"}) {
    EXPECT_EQ(json(bad), "bad") << bad;
  }
}

TEST_F(Values, Python) {
  const auto python = [&](std::string_view s) { return read(s, Lexis::kPython); };
  EXPECT_EQ(python("{'a': [1, 2.5, (3,)], \"b\": None, 4: {}}"), R"({"a": [1, 2.5, [3]], "b": null, "4": {}})");
  EXPECT_EQ(python("'it\\'s \"x\" \\x41\\u00e9\\U0001F600\\0 \\q'"), R"("it's \"x\" Aé😀\u0000 \\q")");
  EXPECT_EQ(python("'''a'b\"\n''c'''"), R"("a'b\"\n''c")");
  EXPECT_EQ(python("''"), "\"\"");
  EXPECT_EQ(python("['', \"\"]"), R"(["", ""])");
  EXPECT_EQ(python("1_000"), "1000");
  EXPECT_EQ(python("-.5"), "-0.5");
  EXPECT_EQ(python("5."), "5.0");
  EXPECT_EQ(python("+1e5"), "1e5");
  for (const char* bad : {"abc", "{1, 2}", "f()", "0x1F", "'a", "'''a''", "[1 2]"})
    EXPECT_EQ(python(bad), "bad") << bad;
  EXPECT_EQ(read("a=1, b_c='x', )", Lexis::kPython, ValueReader::Top::kKeywords), R"({"a": 1, "b_c": "x"})");
  EXPECT_EQ(read(")", Lexis::kPython, ValueReader::Top::kKeywords), "{}");
  EXPECT_EQ(read("1)", Lexis::kPython, ValueReader::Top::kKeywords), "bad");
}

TEST_F(Values, Gemma) {
  EXPECT_EQ(read("{a:<|\"|>x \"y\" <|\" \\ <|\"|>,b:[1,true],c:{d:None},<|\"|>e f<|\"|>:word}", Lexis::kGemma),
            R"({"a": "x \"y\" <|\" \\ ", "b": [1, true], "c": {"d": null}, "e f": "word"})");
}

TEST_F(Values, DepthIsBounded) {
  const auto nested = [&](std::size_t n) { return read(std::string(n, '[') + std::string(n, ']'), Lexis::kJson); };
  EXPECT_NE(nested(ValueReader::kMaxDepth), "bad");
  EXPECT_EQ(nested(ValueReader::kMaxDepth + 1), "bad");
}

TEST_F(Values, TypesOfASchema) {
  const Json schema = *parse_json(R"({
    "type": "object",
    "$defs": {"Color": {"enum": ["red", "green"]}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]}},
    "properties": {
      "s": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"}, "b": {"type": "boolean"},
      "o": {"type": "object"}, "a": {"items": {}}, "si": {"type": ["string", "integer"]}, "is": {"type": ["integer", "string"]},
      "ns": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "any": {}, "color": {"$ref": "#/$defs/Color"},
      "loop": {"$ref": "#/$defs/Loop"}, "const": {"const": 5}, "nullable": {"type": "integer", "nullable": true}},
    "additionalProperties": {"type": "integer"}})");
  const auto value = [&](const char* key, std::string_view text) {
    return typed_value(dialect_, text, value_types(schema, key));
  };
  EXPECT_EQ(value("s", " 5 "), "\" 5 \"");
  EXPECT_EQ(value("i", " 5 "), "5");
  EXPECT_EQ(value("i", "5.0"), "5");
  EXPECT_EQ(value("i", "5.5"), "\"5.5\"");
  EXPECT_EQ(value("i", "99999999999999999999999"), "\"99999999999999999999999\"");
  EXPECT_EQ(value("x", "1e3"), "1e3");
  EXPECT_EQ(value("b", "True"), "true");
  EXPECT_EQ(value("b", "yes"), "\"yes\"");
  EXPECT_EQ(value("o", "{\"a\": [1]}"), "{\"a\": [1]}");
  EXPECT_EQ(value("o", "{'a': [True]}"), "{\"a\": [true]}");
  EXPECT_EQ(value("o", "[1]"), "\"[1]\"");
  EXPECT_EQ(value("a", "[1, 2]"), "[1, 2]");
  EXPECT_EQ(value("a", "(1, 2)"), "[1, 2]");
  EXPECT_EQ(value("si", "5"), "\"5\"");
  EXPECT_EQ(value("is", "5"), "5");
  EXPECT_EQ(value("is", "five"), "\"five\"");
  EXPECT_EQ(value("ns", "null"), "null");
  EXPECT_EQ(value("ns", "None"), "null");
  EXPECT_EQ(value("ns", "nullify"), "\"nullify\"");
  EXPECT_EQ(value("any", "{\"a\":1}"), "{\"a\":1}");
  EXPECT_EQ(value("any", "5"), "5");
  EXPECT_EQ(value("any", "five"), "\"five\"");
  EXPECT_EQ(value("color", "red"), "\"red\"");
  EXPECT_EQ(value("const", "5"), "5");
  EXPECT_EQ(value("nullable", "null"), "null");
  EXPECT_EQ(value("loop", "x"), "\"x\"");
  EXPECT_EQ(value("unheard_of", "7"), "7");
  EXPECT_EQ(typed_value(dialect_, "7", value_types(Json(), "k")), "\"7\"");
  EXPECT_TRUE(value_types(schema, "s").surely_string());
  EXPECT_FALSE(value_types(schema, "ns").surely_string());
}

TEST(OutputParser, NullableStringsWaitOnlyWhileTheyMayBeNull) {
  Talk t("qwen3_coder");
  EXPECT_EQ(t.say("<function=f><parameter=maybe>\nnu"), "start#0\"f\" args" + json_quote("{\"maybe\": ") + " ");
  EXPECT_EQ(t.say("m"), "args" + json_quote("\"num") + " ");
  EXPECT_EQ(parse("qwen3_coder", "<function=f><parameter=maybe>\nnull\n</parameter></function>"),
            "start#0\"f\" args" + json_quote("{\"maybe\": null}") + " end ");
}

// ---- harm ----

std::string repeated(std::string_view piece, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += piece;
  return out;
}

// What is held stays bounded, but for a value that waits for its type, and time linear.
TEST(OutputParser, EndlessOutputs) {
  const char* pieces[] = {"<",
                          "{",
                          "[",
                          "\n",
                          "\"",
                          "{\"name\":",
                          "<tool_call>",
                          "[TOOL_CALLS]",
                          "<think>",
                          "f(",
                          "```json\n[",
                          "<｜tool▁calls▁begin｜>",
                          "<|channel|>",
                          "<|constrain|>",
                          "<|END_RESPONSE|>",
                          "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"",
                          "<function=f><parameter=s></parameter>",
                          "</parameter>",
                          "<function=f>\n<parameter=o>[",
                          "<|tool_call>call:f{a:<|\"|>",
                          "[f(a=[",
                          "{\"name\":\"f\",\"x\":[[["};
  for (const Dialect* d : dialects()) {
    for (const char* piece : pieces) {
      const std::string text = repeated(piece, 192 << 10);
      const bool waits = std::string_view(piece).ends_with("<parameter=o>[");
      const test::MarkerTokenizer tokenizer({});
      OutputParser parser(bind_dialect({d, kThink, ""}, tokenizer), {.tools = tools()});
      OutputEvents out;
      std::size_t held = 0;
      for (std::size_t at = 0; at < text.size(); at += 1000) {
        std::size_t end = std::min(at + 1000, text.size());
        parser.push_text(std::string_view(text).substr(at, end - at), out);
        held = std::max(held, parser.held());
      }
      parser.finish(false, out);
      EXPECT_LE(held, (waits ? std::size_t{192} : std::size_t{65}) << 10) << dialect_name(*d) << " " << piece;
    }
  }
}

// Whether it is null would be asked of all of it again at every byte.
TEST(OutputParser, WhiteSpaceThatMayPrecedeNullIsNotHeldForever) {
  for (const char* first : {"", "null"}) {
    Talk t("qwen3_coder");
    t.say(std::string("<function=f><parameter=maybe>") + first);
    const std::string spaces(1000, ' ');
    EXPECT_EQ(t.say(spaces), "args" + json_quote("\"" + std::string(first) + spaces) + " ");
    EXPECT_EQ(t.parser().held(), 0u);
  }
}

TEST(OutputParser, LongHeadersAreText) {
  const std::string name(1000, 'n');
  for (const std::string& text :
       {"<tool_call>{\"name\":\"" + name + "\",\"arguments\":{}}</tool_call>",
        "<tool_call>{\"x\":\"" + repeated("y", 80 << 10) + "\",\"name\":\"f\"}</tool_call>"}) {
    EXPECT_EQ(parse("hermes", text), "text" + json_quote(text) + " ");
  }
  const std::string tag = "<tool_call><function=" + name + "></function></tool_call>";
  EXPECT_EQ(parse("qwen3_coder", tag), "text" + json_quote(tag) + " ");
}

}  // namespace
}  // namespace barg::text::output_parser_test
