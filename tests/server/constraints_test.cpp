// Constraints end to end: how requests spell them, what is refused and in whose words, and answers that obey.
#include "server/constraints.h"

#include <atomic>
#include <chrono>
#include <future>
#include <random>

#include "barg/constraint.h"
#include "server/choice_stream.h"
#include "server/prepare.h"
#include "server/replay.h"
#include "test_server.h"
#include "text/grammar/machine.h"

namespace barg::test::constraints_test {
namespace {

using server::ConstraintKind;

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

bool fits(const std::string& schema, std::string_view text) {
  auto compiled = text::grammar::compile_schema(json(schema), {});
  if (!compiled) return false;
  auto machine = text::grammar::Machine::compile(std::move(compiled->grammar));
  return machine && !text::grammar::first_failure(**machine, text);
}

/// What a model without any idea says where its request's constraint is kept. It opens no block of reasoning.
std::vector<TokenId> obedient(const Request& request, std::int32_t choice) {
  if (!request.sampling.constraint) return {'o', 'k', kEnd};
  std::mt19937_64 rng(static_cast<std::uint64_t>(request.sampling.top_k * 256 + choice));
  const auto state = request.sampling.constraint->start(false);
  std::vector<TokenId> out;
  for (std::int32_t left = request.sampling.max_tokens; left > 0; --left) {
    const auto said = static_cast<std::int32_t>(out.size());
    const auto soon = said < 100 ? left : std::max(1, 160 - said);  // it does not go on for ever
    const TokenMask mask = state->mask(std::min(left, soon));
    EXPECT_GT(mask.fits.count, 0);
    std::vector<TokenId> may;
    for (TokenId id = 0; id < kFakeVocab; ++id) {
      if (mask.fits.has(id)) may.push_back(id);
    }
    if (may.empty()) break;
    const bool ends = std::find(may.begin(), may.end(), kEnd) != may.end();
    const TokenId id = ends && rng() % 2 == 0 ? kEnd : may[rng() % may.size()];
    out.push_back(id);
    if (id == kEnd) break;
    state->push(id);
  }
  return out;
}

const std::string kSchema =
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":99},"b":{"enum":["x","yy"]}},"required":["a","b"],"additionalProperties":false})";
const std::string kTools = R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" + kSchema +
                           R"(}},{"type":"function","function":{"name":"g"}}])";

class ConstraintsTest : public ServerTest {
 protected:
  void SetUp() override {
    dialect_ = text::bind_dialect({.dialect = text::find_dialect("hermes"),
                                   .reasoning = {.open = "<think>", .close = "</think>"},
                                   .evidence = ""},
                                  *tokenizer_);
    engine_->set_script(obedient);
  }
  RawResponse ask_chat(const std::string& more) { return ask(post("/v1/chat/completions", chat("," + more))); }
  RawResponse ask_completion(const std::string& more) {
    return ask(post("/v1/completions", R"({"model":"fake","max_tokens":60,"prompt":"x",)" + more + "}"));
  }
  RawResponse ask_responses(const std::string& more) {
    return ask(post("/v1/responses", R"({"model":"fake","input":"hi",)" + more + "}"));
  }
  RawResponse ask_messages(const std::string& more) {
    return ask(post("/v1/messages",
                    R"({"model":"fake","max_tokens":200,"messages":[{"role":"user","content":"hi"}],)" + more + "}"));
  }
  static Json message(const RawResponse& r) {
    const Json* choices = r.json().find("choices");
    return choices ? *json(r.body).find("choices")->as_array()[0].find("message") : Json::object();
  }
  static std::string content(const RawResponse& r) {
    const Json m = message(r);
    const Json* text = m.find("content");
    return text && text->is_string() ? text->as_string() : "";
  }
  std::string metrics() { return ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").body; }
};

TEST_F(ConstraintsTest, EverySpellingIsKept) {
  start();
  const std::string schema = kSchema;
  const std::string quoted = json_quote(schema);
  const std::string grammar = json_quote("root ::= \"a\" [0-9]{1,3}");
  const std::string tag =
      R"({"type":"tag","begin":"<a>","content":{"type":"json_schema","json_schema":{"const":true}},"end":"</a>"})";
  const std::string object = R"({"type":"object"})";
  struct Row {
    std::string more;
    std::function<bool(const std::string&)> fine;
  };
  const auto by_schema = [&](const std::string& s) { return fits(schema, s); };
  const auto by_object = [&](const std::string& s) { return fits(object, s); };
  const auto letters = [](const std::string& s) { return !s.empty() && s.size() <= 3 && s.find_first_not_of("pq") == s.npos; };
  const auto choice = [](const std::string& s) { return s == "left" || s == "right"; };
  const auto gbnf = [](const std::string& s) { return s.size() >= 2 && s[0] == 'a' && s.find_first_not_of("0123456789", 1) == s.npos; };
  const auto tagged = [](const std::string& s) { return s == "<a>true</a>"; };
  const std::vector<Row> rows = {
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":false,"schema":)" + schema + "}}", by_schema},
      {R"("response_format":{"type":"json_schema","schema":)" + schema + "}", by_schema},
      {R"("response_format":{"type":"json_object","schema":)" + schema + "}", by_schema},
      {R"("response_format":{"type":"json_object"})", by_object},
      {R"("response_format":{"type":"regex","pattern":"[pq]{1,3}"})", letters},
      {R"("response_format":{"type":"grammar","grammar":)" + grammar + "}", gbnf},
      {R"("response_format":{"type":"structural_tag","format":)" + tag + "}", tagged},
      {R"("structured_outputs":{"json":)" + schema + "}", by_schema},
      {R"("structured_outputs":{"json":)" + quoted + "}", by_schema},
      {R"("structured_outputs":{"json_object":true})", by_object},
      {R"("structured_outputs":{"regex":"^[pq]{1,3}$"})", letters},
      {R"("structured_outputs":{"choice":["left","right"]})", choice},
      {R"("structured_outputs":{"grammar":)" + grammar + "}", gbnf},
      {R"("structured_outputs":{"structural_tag":{"format":)" + tag + "}}", tagged},
      {R"("guided_json":)" + schema, by_schema},
      {R"("guided_json":)" + quoted, by_schema},
      {R"("guided_regex":"[pq]{1,3}")", letters},
      {R"("guided_choice":["left","right"])", choice},
      {R"("guided_grammar":)" + grammar, gbnf},
      {R"("json_schema":)" + schema, by_schema},
      {R"("regex":"[pq]{1,3}")", letters},
      {R"("ebnf":)" + grammar, gbnf},
      {R"("grammar":)" + grammar, gbnf},
  };
  for (const Row& row : rows) {
    for (int seed = 0; seed < 3; ++seed) {
      const std::string more = row.more + ",\"top_k\":" + std::to_string(seed);
      const RawResponse answer = ask_chat(more);
      ASSERT_EQ(answer.status, 200) << row.more << answer.body;
      EXPECT_TRUE(row.fine(content(answer))) << row.more << "\n" << answer.body;
      EXPECT_FALSE(answer.headers.contains("x-barg-ignored")) << row.more << answer.headers.at("x-barg-ignored");
      EXPECT_FALSE(answer.headers.contains("x-barg-unenforced")) << row.more;
      const RawResponse plain = ask_completion(more);
      ASSERT_EQ(plain.status, 200) << row.more << plain.body;
      EXPECT_TRUE(row.fine(plain.json().find("choices")->as_array()[0].find("text")->as_string())) << row.more << plain.body;
    }
  }
  const std::string format = R"({"type":"json_schema","name":"n","strict":true,"schema":)" + schema + "}";
  const RawResponse response = ask_responses(R"("text":{"format":)" + format + "}");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = response.json();
  EXPECT_TRUE(by_schema(answer.find("output")->as_array()[0].find("content")->as_array()[0].find("text")->as_string()));
  EXPECT_EQ(dump_json(*answer.find("text")->find("format")), format) << "the object repeats what it was asked for";
  for (const char* field : {R"("output_config":{"format":)", R"("output_format":)"}) {
    const bool wrapped = std::string_view(field).ends_with(R"("format":)") && std::string_view(field).find("config") != std::string::npos;
    const RawResponse said = ask_messages(field + format + (wrapped ? "}" : ""));
    ASSERT_EQ(said.status, 200) << said.body;
    EXPECT_TRUE(by_schema(said.json().find("content")->as_array()[0].find("text")->as_string())) << said.body;
  }
}

TEST_F(ConstraintsTest, RefusalsNameTheFieldThePointerAndTheKeyword) {
  start();
  struct Row {
    std::string more, code, param;
    std::vector<std::string> words;
  };
  const std::string odd = R"({"type":"object","properties":{"p":{"type":"string","pattern":"(?=a)b"}}})";
  const std::string object = R"("response_format":{"type":"json_object"})";
  const std::vector<Row> rows = {
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + odd + "}}", "unsupported_parameter",
       "response_format.json_schema.schema", {"#/properties/p", "pattern"}},
      {R"("guided_json":)" + odd, "unsupported_parameter", "guided_json", {"#/properties/p", "pattern"}},
      {R"("guided_json":{"items":{"type":"string","minLength":9000000}})", "unsupported_parameter", "guided_json", {"#/items", "minLength"}},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"minLength":9000000}},"required":["a"]}}}])",
       "unsupported_parameter", "tools", {"#/properties/a", "minLength"}},
      {R"("guided_json":{"type":"strnig"})", "invalid_value", "guided_json", {"type"}},
      {R"("guided_json":false)", "invalid_value", "guided_json", {}},
      {R"("guided_json":"{")", "invalid_value", "guided_json", {"guided_json is no JSON"}},
      {R"("structured_outputs":{"json":5})", "invalid_value", "structured_outputs.json", {"structured_outputs.json must be"}},
      {R"("structured_outputs":{"choice":[]})", "invalid_value", "structured_outputs.choice", {}},
      {R"("structured_outputs":{"choice":["a",""]})", "invalid_value", "structured_outputs.choice", {}},
      {R"("guided_choice":[")" + std::string(70'000, 'x') + "\"]", "invalid_value", "guided_choice", {"65536"}},
      {R"("structured_outputs":{"whitespace_pattern":" "})", "unsupported_parameter", "structured_outputs.whitespace_pattern", {}},
      {R"("guided_regex":"(")", "invalid_value", "guided_regex", {}},
      {R"("guided_regex":"(?=a)b")", "unsupported_parameter", "guided_regex", {}},
      {R"("guided_regex":")" + std::string((1 << 20) + 1, 'a') + "\"", "invalid_value", "guided_regex", {"1048576"}},
      {R"("guided_json":")" + std::string((1 << 20) + 1, ' ') + "\"", "invalid_value", "guided_json", {"1048576"}},
      {R"("guided_json":{"const":")" + std::string((1 << 20) + 1, 'a') + "\"}", "invalid_value", "guided_json", {"1048576"}},
      {R"("grammar":"root ::= x")", "invalid_value", "grammar", {}},
      {R"("response_format":{})", "missing_required_parameter", "response_format.type", {}},
      {R"("response_format":{"type":"json_schema"})", "missing_required_parameter", "response_format.json_schema", {}},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})", "missing_required_parameter",
       "response_format.json_schema.schema", {}},
      {R"("response_format":{"type":"regex"})", "missing_required_parameter", "response_format.pattern", {}},
      {R"("response_format":{"type":"structural_tag"})", "missing_required_parameter", "response_format.format", {}},
      {R"("response_format":{"type":"structural_tag","format":{"type":"tag"}})", "invalid_value", "response_format.format.begin", {}},
      {R"("response_format":{"type":"structural_tag","structures":[{"begin":"<a>","end":"x"}],"triggers":["<b"]})",
       "invalid_value", "response_format.triggers", {}},
      {R"("response_format":{"type":"structural_tag","structures":[{"begin":"<a>","end":"x","schema":)" + odd + R"(}],"triggers":["<a"]})",
       "unsupported_parameter", "response_format.structures[0].schema", {"#/properties/p"}},
      // Two at once.
      {object + R"(,"guided_regex":"a")", "invalid_value", "guided_regex", {"response_format", "guided_regex"}},
      {R"("structured_outputs":{"json":{},"choice":["a"]})", "invalid_value", "structured_outputs.choice",
       {"structured_outputs.json", "structured_outputs.choice"}},
      {R"("response_format":{"type":"json_schema","schema":{},"json_schema":{"schema":{}}})", "invalid_value",
       "response_format.schema", {"response_format.json_schema.schema"}},
      // A constraint and a call that is required.
      {object + R"(,"tool_choice":"required",)" + kTools, "invalid_value", "tool_choice", {"tool_choice", "response_format"}},
      {object + R"(,"tool_choice":{"type":"function","function":{"name":"g"}},)" + kTools, "invalid_value", "tool_choice", {"response_format"}},
      // Tools.
      {R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" + odd + "}}]", "unsupported_parameter",
       "tools[0].function.parameters", {"#/properties/p", "pattern"}},
      // The request's own lists.
      {R"("guided_regex":"a+","banned_token_ids":[97])", "invalid_value", "banned_token_ids", {"(a)"}},
      {R"("guided_regex":"a+","allowed_token_ids":[98,256])", "invalid_value", "allowed_token_ids", {"(a)"}},
      {R"("guided_regex":"a+","allowed_token_ids":[97])", "invalid_value", "allowed_token_ids", {"end token"}},
      {R"("guided_regex":"a+","stop_token_ids":[97])", "invalid_value", "guided_regex", {"(a)"}},
  };
  for (const Row& row : rows) {
    for (const char* stream : {"", R"("stream":true,)"}) {
      const RawResponse r = ask_chat(stream + row.more);
      EXPECT_EQ(r.status, 400) << row.more.substr(0, 200) << r.body;
      EXPECT_EQ(r.error("code"), row.code) << row.more.substr(0, 200) << r.body;
      EXPECT_EQ(r.error("param"), row.param) << row.more.substr(0, 200) << r.body;
      for (const std::string& word : row.words)
        EXPECT_NE(r.error("message").find(word), std::string::npos) << word << ": " << r.body;
    }
  }
  const RawResponse scored = ask_completion(R"("prompt_logprobs":1,"guided_regex":"a","max_tokens":0)");
  EXPECT_EQ(scored.status, 400) << scored.body;
  const RawResponse zero = ask(post("/v1/completions", R"({"model":"fake","prompt":"x","echo":true,"max_tokens":0,"guided_regex":"a*"})"));
  EXPECT_EQ(zero.status, 400) << zero.body;
  EXPECT_EQ(zero.error("param"), "guided_regex");
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ConstraintsTest, ABudgetThatIsTooSmallIsRefusedInTheProtocolsWords) {
  engine_->set_verdict(fail(ErrorCode::kInvalidValue, "max_tokens must be at least 9: it is", "max_tokens"));
  start();
  const std::string regex = R"("guided_regex":"a{9}")";
  const auto check = [](const RawResponse& r, const std::string& field) {
    EXPECT_EQ(r.status, 400) << r.body;
    const Json* error = json(r.body).find("error");
    const std::string message = error ? r.json().find("error")->find("message")->as_string() : "";
    EXPECT_TRUE(message.starts_with(field + " must be at least 9") || message.find(field + " must") != std::string::npos) << r.body;
    if (!r.error("param").empty()) EXPECT_EQ(r.error("param"), field) << r.body;
  };
  check(ask_chat(regex + R"(,"max_tokens":3)"), "max_tokens");
  check(ask_chat(regex + R"(,"max_completion_tokens":3)"), "max_completion_tokens");
  check(ask_chat(regex + R"(,"max_completion_tokens":3,"stream":true)"), "max_completion_tokens");
  check(ask_completion(regex), "max_tokens");
  check(ask_responses(regex + R"(,"max_output_tokens":3)"), "max_output_tokens");
  check(ask_messages(regex), "max_tokens");
}

TEST_F(ConstraintsTest, CallsThatAreRequiredNamedOrStrict) {
  start();
  int several = 0;
  for (int seed = 0; seed < 12; ++seed) {
    const std::string more = kTools + ",\"top_k\":" + std::to_string(seed);
    const RawResponse answer = ask_chat(more + R"(,"tool_choice":"required")");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choice = json(answer.body).find("choices")->as_array()[0];
    EXPECT_EQ(choice.find("finish_reason")->as_string(), "tool_calls") << answer.body;
    const Json& calls = *choice.find("message")->find("tool_calls");
    several += calls.size() > 1;
    for (const Json& call : calls.as_array()) {
      const Json& function = *call.find("function");
      EXPECT_TRUE(fits(function.find("name")->as_string() == "f" ? kSchema : R"({"type":"object"})",
                       function.find("arguments")->as_string())) << answer.body;
    }
    const Json named = message(ask_chat(more + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"));
    ASSERT_TRUE(named.find("tool_calls") && named.find("tool_calls")->size() == 1) << dump_json(named);
    EXPECT_TRUE(fits(kSchema, named.find("tool_calls")->as_array()[0].find("function")->find("arguments")->as_string()));
    const Json one = message(ask_chat(more + R"(,"tool_choice":"required","parallel_tool_calls":false)"));
    EXPECT_EQ(one.find("tool_calls")->size(), 1U) << dump_json(one);
    // Strict tools alone: text, or calls that fit.
    const Json free = message(ask_chat(more));
    const Json* free_calls = free.find("tool_calls");
    for (std::size_t i = 0; free_calls && free_calls->is_array() && i < free_calls->size(); ++i) {
      const Json& function = *free_calls->as_array()[i].find("function");
      if (function.find("name")->as_string() == "f") EXPECT_TRUE(fits(kSchema, function.find("arguments")->as_string()));
    }
    // With a constraint: a call, or what fits.
    const Json either = message(ask_chat(more + R"(,"guided_json":{"type":"array","items":{"type":"integer"}})"));
    const Json* text = either.find("content");
    if (text && text->is_string()) EXPECT_TRUE(fits(R"({"type":"array","items":{"type":"integer"}})", text->as_string())) << dump_json(either);
  }
  EXPECT_GT(several, 0) << "calls may be several";
  const Json anthropic = ask_messages(R"("tool_choice":{"type":"tool","name":"f"},"tools":[{"name":"f","input_schema":)" + kSchema + "}]").json();
  EXPECT_EQ(anthropic.find("stop_reason")->as_string(), "tool_use") << dump_json(anthropic);
  EXPECT_TRUE(fits(kSchema, dump_json(*anthropic.find("content")->as_array()[0].find("input"))));
  const Json response = ask_responses(R"("tool_choice":"required","tools":[{"type":"function","name":"f","strict":true,"parameters":)" + kSchema + "}]").json();
  EXPECT_TRUE(fits(kSchema, response.find("output")->as_array()[0].find("arguments")->as_string())) << dump_json(response);
}

TEST_F(ConstraintsTest, AModelWithoutAFormatOfCallsSaysSo) {
  dialect_ = nullptr;
  start();
  const RawResponse r = ask_chat(kTools + R"(,"tool_choice":"required")");
  EXPECT_EQ(r.status, 400) << r.body;
  EXPECT_EQ(r.error("param"), "tools");
  EXPECT_EQ(ask_chat(R"("guided_regex":"a")").status, 200);
}

TEST_F(ConstraintsTest, WhatIsNotEnforcedIsListed) {
  start();
  const std::string odd = R"({"type":"object","properties":{"p":{"type":"string","pattern":"(?=a)b"}}})";
  for (const std::string& more : {R"("response_format":{"type":"json_schema","json_schema":{"lenient":true,"schema":)" + odd + "}}",
                                  R"("structured_outputs":{"lenient":true,"json":)" + odd + "}", R"("lenient":true,"guided_json":)" + odd}) {
    const RawResponse r = ask_chat(more);
    ASSERT_EQ(r.status, 200) << r.body;
    EXPECT_EQ(r.headers.at("x-barg-unenforced"), "#/properties/p pattern") << more;
    EXPECT_FALSE(r.headers.contains("x-barg-ignored"));
  }
  const std::string loose = R"("tools":[{"type":"function","function":{"name":"f","parameters":)" + odd + "}}]";
  EXPECT_EQ(ask_chat(loose + R"(,"tool_choice":"required")").headers.at("x-barg-unenforced"),
            "tools[0].function.parameters#/properties/p pattern");
  EXPECT_FALSE(ask_chat(loose).headers.contains("x-barg-unenforced")) << "nothing is bound";
  const std::string strict = R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)" + odd + "}}]";
  EXPECT_EQ(ask_chat(strict).status, 400);
  EXPECT_EQ(ask_chat(strict + R"(,"lenient":true)").status, 200);
  EXPECT_EQ(ask_chat(strict + R"(,"structured_outputs":{"lenient":true,"json":{}})").status, 400) << "that is of the text";
  const RawResponse old = ask_chat(R"("guided_json":{"$schema":"http://json-schema.org/draft-07/schema#","$defs":{"a":{"type":"integer"}},"$ref":"#/$defs/a","maximum":3})");
  ASSERT_EQ(old.status, 200) << old.body;
  EXPECT_EQ(old.headers.at("x-barg-unenforced"), "# maximum") << "draft 7 gives siblings of $ref no effect";
}

TEST(Constraints, TheHeaderIsPrintableAndBounded) {
  std::vector<text::grammar::Unenforced> lost(40, {"#/a\n,\xC3\xA9", "pattern", ""});
  const std::string header = server::unenforced_header(lost);
  EXPECT_EQ(header.find('\n'), std::string::npos);
  EXPECT_TRUE(header.starts_with("#/a???? pattern, #/a")) << header;
  EXPECT_TRUE(header.ends_with(", and 8 more")) << header;
  lost = {{std::string(5000, 'x'), "k", ""}};
  EXPECT_LE(server::unenforced_header(lost).size(), 200U);
  EXPECT_EQ(server::unenforced_header({}), "");
}

TEST_F(ConstraintsTest, IsCompiledOnceAndOthersDoNotWait) {
  start();
  const std::string regex = R"("guided_regex":"[pq]{1,3}")";
  ASSERT_EQ(ask_chat(regex).status, 200);
  ASSERT_EQ(ask_completion(regex).status, 200) << "another language: no dialect around it";
  ASSERT_EQ(ask_chat(regex + R"(,"temperature":0.5,"n":2)").status, 200);
  ASSERT_EQ(ask_chat(regex + R"(,"banned_token_ids":[98])").status, 200) << "another list, another constraint";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ask_chat(R"("guided_regex":"(")").status, 400);
  const std::string text = metrics();
  EXPECT_NE(text.find("barg_structured_outputs_total{result=\"cached\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("barg_structured_outputs_total{result=\"compiled\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("barg_structured_outputs_total{result=\"refused\"} 2\n"), std::string::npos) << text;

  const auto value = [](const std::string& all, const std::string& name) {
    return std::stoi(all.substr(all.find("\n" + name + " ") + name.size() + 2));
  };
  const std::string compiled = "barg_structured_outputs_total{result=\"compiled\"}";
  const auto all_are_there = [&](const std::string& all) {
    return value(all, "barg_requests_active") + value(all, compiled) >= 3 + 12;
  };
  std::vector<std::future<void>> slow;
  for (int i = 0; i < 12; ++i) {
    slow.push_back(std::async(std::launch::async, [&, i] {
      EXPECT_EQ(ask_chat(R"("guided_regex":"(a|b)*a(a|b){11}c{)" + std::to_string(i + 1) + "}\"").status, 200);
    }));
  }
  while (!all_are_there(metrics())) std::this_thread::yield();
  ASSERT_EQ(ask_chat(R"("temperature":0.5)").status, 200);
  ASSERT_EQ(ask_chat(regex).status, 200) << "it is there";
  EXPECT_LT(value(metrics(), compiled), 3 + 12 - 2) << "whoever waits for the compiles sees all but those that still run";
  for (auto& s : slow) s.get();
}

TEST_F(ConstraintsTest, IsExplained) {
  start();
  const auto explain = [&](const std::string& more) { return ask(post("/v1/explain", chat("," + more))).json(); };
  const Json none = explain(R"("temperature":1)");
  EXPECT_TRUE(none.find("constraint")->is_null());
  const Json shown = explain(R"("structured_outputs":{"lenient":true,"json":{"type":"string","pattern":"(?=a)b"}})");
  const Json& c = *shown.find("constraint");
  EXPECT_EQ(c.find("text")->as_string(), "json_schema");
  EXPECT_EQ(c.find("field")->as_string(), "structured_outputs.json");
  EXPECT_EQ(c.find("call")->as_string(), "none");
  EXPECT_EQ(c.find("min_tokens")->as_int(), 2);
  ASSERT_EQ(c.find("unenforced")->size(), 1U);
  EXPECT_EQ(c.find("unenforced")->as_array()[0].find("keyword")->as_string(), "pattern");
  EXPECT_FALSE(c.find("unenforced")->as_array()[0].find("reason")->as_string().empty());
  EXPECT_TRUE(shown.find("refused")->is_null());
  const Json refused = explain(R"("guided_json":{"type":"string","pattern":"(?=a)b"})");
  EXPECT_EQ(refused.find("refused")->find("param")->as_string(), "guided_json");
  EXPECT_TRUE(refused.find("constraint")->find("min_tokens")->is_null());
  EXPECT_FALSE(refused.find("prompts")->as_array().empty()) << "what there is to show is shown";
  const Json call = explain(kTools + R"(,"tool_choice":"required")");
  EXPECT_EQ(call.find("constraint")->find("call")->as_string(), "required");
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ConstraintsTest, ReasoningComesFirstUnlessItIsOff) {
  start();
  const std::string regex = R"("guided_regex":"a")";
  ASSERT_EQ(ask_chat(regex).status, 200);
  const auto limit = [&] { return engine_->last_request()->sampling.reasoning; };
  ASSERT_TRUE(limit());
  EXPECT_FALSE(limit()->open);
  EXPECT_EQ(limit()->close, std::vector<TokenId>{kThinkEnd});
  ASSERT_EQ(ask_chat(regex + R"(,"enable_thinking":true)").status, 200);
  EXPECT_TRUE(limit() && limit()->open);
  ASSERT_EQ(ask_chat(regex + R"(,"enable_thinking":true,"thinking_token_budget":9)").status, 200);
  EXPECT_EQ(limit()->budget, 9);
  ASSERT_EQ(ask_chat(regex + R"(,"enable_thinking":false)").status, 200);
  EXPECT_FALSE(limit()) << "no block may be opened";
  ASSERT_EQ(ask_completion(regex).status, 200);
  EXPECT_FALSE(limit()) << "of Completions everything is text";
}

TEST_F(ConstraintsTest, IsPartOfACapture) {
  options_.capture_memory_bytes = 1 << 20;
  start();
  server::ServedModel model;
  model.names = {"here"};
  model.engine = engine_;
  model.tokenizer = tokenizer_;
  model.chat_template = std::make_shared<FakeTemplate>();
  model.dialect = dialect_;
  const std::string schema = R"("guided_json":)" + kSchema;
  int checked = 0;
  for (int seed = 0; seed < 4; ++seed) {
    for (const std::string& more : {schema, schema + R"(,"stream":true)", schema + R"(,"stop":["\"b"],"stream":true)", schema + R"(,"n":2,"max_tokens":24)",
                                    kTools + R"(,"tool_choice":"required")", std::string(R"("guided_regex":"(")")}) {
      const RawResponse answer = ask(post("/v1/chat/completions", chat("," + more + ",\"seed\":7,\"top_k\":" + std::to_string(seed)), "X-Capture: 1\r\n"));
      ASSERT_TRUE(answer.headers.contains("x-barg-capture")) << answer.body;
      const Json capsule = ask("GET /v1/captures/" + answer.headers.at("x-barg-capture") + " HTTP/1.1\r\nHost: localhost\r\n\r\n").json();
      const auto report = server::replay(model, capsule, "9.9.9 abcdef");
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_TRUE(report->same) << more << "\n" << report->difference;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 24);
}

TEST(Constraints, WhatItsLengthShapedSaysSoAndIsWhole) {
  const FakeTokenizer tokenizer;
  const auto dialect = text::bind_dialect({.dialect = text::find_dialect("hermes"), .reasoning = {}, .evidence = ""}, tokenizer);
  const auto tools = std::make_shared<std::vector<text::ToolInfo>>(std::vector<text::ToolInfo>{{"f", Json::object(), false}});
  const auto finish = [&](bool marked, bool whole, FinishReason reason, TokenId stop, std::vector<std::string> stops = {}) {
    server::OutputSpec spec;
    spec.whole = whole;
    spec.stop = std::move(stops);
    server::ChoiceStream stream(tokenizer, spec, {});
    std::vector<OutputToken> tokens = {{.id = '4', .logprobs = {}, .for_length = false}, {.id = '2', .logprobs = {}, .for_length = marked}};
    if (stop != kNoToken) tokens.push_back({.id = stop, .logprobs = {}, .for_length = false});
    stream.push(std::move(tokens), reason, stop);
    return std::pair(stream.finish(), stream.stop_id());
  };
  EXPECT_EQ(finish(true, true, FinishReason::kStop, kEnd).first, FinishReason::kLength);
  EXPECT_EQ(finish(false, true, FinishReason::kStop, kEnd).first, FinishReason::kStop);
  EXPECT_EQ(finish(true, true, FinishReason::kLength, kNoToken).first, FinishReason::kLength);
  EXPECT_EQ(finish(true, true, FinishReason::kStop, kHello), std::pair(FinishReason::kStop, kHello)) << "a stop id says which";
  EXPECT_EQ(finish(true, true, FinishReason::kStop, kEnd, {"2"}).first, FinishReason::kStop) << "a stop string cut it";
  // A call that has used all its tokens is a call.
  for (const bool whole : {false, true}) {
    server::OutputSpec spec;
    spec.whole = whole;
    server::ChoiceStream stream(tokenizer, spec, {.dialect = dialect, .tools = tools});
    std::vector<OutputToken> tokens = {{.id = kCall, .logprobs = {}}};
    for (const TokenId id : bytes_of(R"({"name":"f","arguments":{}})")) tokens.push_back({.id = id, .logprobs = {}});
    stream.push(std::move(tokens), FinishReason::kLength, kNoToken);
    EXPECT_EQ(stream.complete_calls(), 1) << whole;
  }
}

}  // namespace
}  // namespace barg::test::constraints_test
