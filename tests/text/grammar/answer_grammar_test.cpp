// What the grammar of a dialect generates, its parser must read as calls of declared tools with arguments that fit their
// schemas: for every dialect, with its markers as tokens and as text.
#include "text/grammar/answer_grammar.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/dialect_support.h"
#include "text/grammar/schema.h"
#include "text/grammar/walk_support.h"
#include "text/tokenizer_data.h"

namespace barg::text::grammar::answer_grammar_test {
namespace {

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

const std::vector<std::pair<const char*, const char*>> kTools = {
    {"get_weather", R"({"type":"object","properties":{"city":{"type":"string","maxLength":12},"days":{"type":"integer",
       "minimum":1,"maximum":14}},"required":["city"],"additionalProperties":false})"},
    {"set-mode", R"({"type":"object","properties":{"mode":{"enum":["eco","full power","off"]},"sure":{"type":"boolean"},
       "level":{"type":"number","minimum":0,"maximum":9.5}},"required":["mode","sure"],"additionalProperties":false})"},
    {"make_list", R"({"type":"object","properties":{"items":{"type":"array","items":{"type":"integer","minimum":0,
       "maximum":99},"minItems":1,"maxItems":4},"note":{"type":["string","null"],"maxLength":9}},"required":["items"],
       "additionalProperties":false})"},
    {"ping", R"({"type":"object","properties":{},"additionalProperties":false})"},
};

AnswerTools tools(bool must_call, bool parallel) {
  AnswerTools out{.tools = {}, .must_call = must_call, .parallel = parallel};
  for (const auto& [name, schema] : kTools)
    out.tools.push_back({.name = name, .parameters = json(schema), .custom = false, .strict = true, .field = "tools"});
  return out;
}

std::shared_ptr<const std::vector<ToolInfo>> infos() {
  auto out = std::make_shared<std::vector<ToolInfo>>();
  for (const auto& [name, schema] : kTools) out->push_back({name, json(schema), false});
  return out;
}

struct Case {
  std::string name;
  Json fixture;
  bool tokens;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(BARG_SOURCE_DIR) + "/tests/data/dialects")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream in(path);
    auto parsed = parse_json(std::string{std::istreambuf_iterator<char>(in), {}});
    if (!parsed) continue;
    const Json* as_text = parsed->find("as_text");
    out.push_back({path.stem().string() + "_tokens", *parsed, true});
    if (as_text && as_text->as_bool()) out.push_back({path.stem().string() + "_text", *parsed, false});
  }
  return out;
}

struct Model {
  test::MarkerTokenizer tokenizer;
  std::shared_ptr<const BoundDialect> dialect;

  explicit Model(const Case& c) : tokenizer(markers(c)) {
    const Json& r = *c.fixture.find("reasoning");
    const auto marker = [&](const char* name) {
      const Json* text = r.find(name);
      return text ? text->as_string() : std::string();
    };
    dialect = bind_dialect({find_dialect(c.fixture.find("dialect")->as_string()),
                            {marker("open"), marker("close"), marker("answer_open"), marker("answer_close")},
                            ""},
                           tokenizer);
  }
  static std::vector<test::MarkerTokenizer::Marker> markers(const Case& c) {
    std::vector<test::MarkerTokenizer::Marker> out;
    for (const Json& a : c.fixture.find("added")->as_array()) {
      if (c.tokens) out.push_back({a.find("text")->as_string(), a.find("special")->as_bool()});
    }
    return out;
  }
};

class EveryDialect : public ::testing::TestWithParam<Case> {};

/// Nothing but whole calls whose arguments their schemas accept; how many.
int check_calls(const test::ParseResult& parsed, const std::string& raw) {
  using Kind = OutputEvent::Kind;
  int calls = 0;
  std::string name, arguments;
  for (const OutputEvent& e : parsed.events) {
    if (e.kind == Kind::kText || e.kind == Kind::kReasoning) ADD_FAILURE() << "text " << e.text << " in " << raw;
    if (e.kind == Kind::kToolArgs) arguments += e.text;
    if (e.kind == Kind::kToolStart) {
      EXPECT_TRUE(e.declared) << raw;
      name = e.text;
      arguments.clear();
    }
    if (e.kind != Kind::kToolEnd) continue;
    ++calls;
    EXPECT_TRUE(e.complete) << raw << "\n" << parsed.note;
    for (const auto& [tool, schema] : kTools) {
      if (name != tool) continue;
      auto compiled = compile_schema(json(schema), {});
      EXPECT_TRUE(compiled);
      auto machine = Machine::compile(std::move(compiled->grammar));
      EXPECT_TRUE(machine);
      EXPECT_EQ(first_failure(**machine, test::trimmed(arguments)), std::nullopt) << name << " " << arguments << "\n" << raw;
    }
  }
  return calls;
}

TEST_P(EveryDialect, CallsThatItGeneratesParse) {
  const Model model(GetParam());
  for (const bool parallel : {false, true}) {
    auto answer = answer_grammar(nullptr, tools(true, parallel), *model.dialect, {});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->unenforced.empty());
    auto machine = Machine::compile(std::move(answer->grammar));
    ASSERT_TRUE(machine) << machine.error().message;
    int several = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      std::mt19937_64 rng(seed);
      const auto pieces = test::random_output(**machine, model.tokenizer, rng, static_cast<int>(rng() % 250));
      ASSERT_TRUE(pieces);
      const auto parsed = test::parse_pieces(model.dialect, {.tools = infos(), .parallel = parallel}, model.tokenizer,
                                             *pieces, pieces->size(), true, [](std::size_t) { return false; });
      const int calls = check_calls(parsed, test::raw_text(*pieces));
      EXPECT_GE(calls, 1) << test::raw_text(*pieces);
      if (!parallel) EXPECT_EQ(calls, 1) << test::raw_text(*pieces);
      several += calls > 1;
    }
    const bool one = dialect_name(model.dialect->dialect()) == "harmony";  // a call ends the turn
    if (parallel && !one) EXPECT_GT(several, 0);
  }
}

TEST_P(EveryDialect, TextIsTextAndCallsAreBoundWhereToolsAreStrict) {
  const Model model(GetParam());
  auto answer = answer_grammar(nullptr, tools(false, true), *model.dialect, {});
  ASSERT_TRUE(answer) << answer.error().message;
  auto machine = Machine::compile(std::move(answer->grammar));
  ASSERT_TRUE(machine) << machine.error().message;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 rng(seed);
    const auto pieces = test::random_output(**machine, model.tokenizer, rng, static_cast<int>(rng() % 100));
    ASSERT_TRUE(pieces);
    auto parsed = test::parse_pieces(model.dialect, {.tools = infos()}, model.tokenizer, *pieces, pieces->size(), true,
                                     [](std::size_t) { return false; });
    std::erase_if(parsed.events, [](const OutputEvent& e) { return e.kind == OutputEvent::Kind::kText; });
    check_calls(parsed, test::raw_text(*pieces));
  }
}

TEST_P(EveryDialect, AnAnswerFitsTheSchemaOrCalls) {
  const Model model(GetParam());
  const Json schema = json(R"({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],
                               "additionalProperties":false})");
  auto content = compile_schema(schema, {});
  ASSERT_TRUE(content);
  auto answer = answer_grammar(&content->grammar, tools(false, true), *model.dialect, {});
  ASSERT_TRUE(answer) << answer.error().message;
  auto machine = Machine::compile(std::move(answer->grammar));
  ASSERT_TRUE(machine) << machine.error().message;
  auto alone = Machine::compile(std::move(content->grammar));
  ASSERT_TRUE(alone);
  int texts = 0, calls = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 rng(seed);
    const auto pieces = test::random_output(**machine, model.tokenizer, rng, static_cast<int>(rng() % 100));
    ASSERT_TRUE(pieces);
    const auto parsed = test::parse_pieces(model.dialect, {.tools = infos()}, model.tokenizer, *pieces, pieces->size(),
                                           true, [](std::size_t) { return false; });
    if (!parsed.events.empty() && parsed.events[0].kind == OutputEvent::Kind::kText) {
      ++texts;
      EXPECT_EQ(parsed.events.size(), 1U);
      EXPECT_EQ(first_failure(**alone, parsed.events[0].text), std::nullopt) << test::raw_text(*pieces);
    } else {
      calls += check_calls(parsed, test::raw_text(*pieces)) > 0;
    }
  }
  EXPECT_GT(texts, 0);
  EXPECT_GT(calls, 0);
}

INSTANTIATE_TEST_SUITE_P(AnswerGrammar, EveryDialect, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AnswerGrammar, WhatAToolCannotEnforceIsRefusedWhereItIsStrictAndListedElsewhere) {
  const test::MarkerTokenizer tokenizer({{"<tool_call>", false}, {"</tool_call>", false}});
  const auto dialect = bind_dialect({find_dialect("hermes"), {}, ""}, tokenizer);
  AnswerTools given{.tools = {{.name = "f", .parameters = json(R"({"type":"object","minSum":3})"), .custom = false, .strict = true, .field = "tools[0].function.parameters"}},
                    .must_call = true, .parallel = true};
  const auto refused = answer_grammar(nullptr, given, *dialect, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "tools[0].function.parameters");
  given.tools[0].strict = false;
  const auto listed = answer_grammar(nullptr, given, *dialect, {});
  ASSERT_TRUE(listed) << listed.error().message;
  ASSERT_FALSE(listed->unenforced.empty());
  EXPECT_TRUE(listed->unenforced[0].pointer.starts_with("tools[0].function.parameters#"));
}

}  // namespace
}  // namespace barg::text::grammar::answer_grammar_test
