// Bodies of the Messages protocol: what agents send, in the form that templates read, and what is refused.
#include "server/messages_request.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/env.h"
#include "server/messages_ids.h"

namespace barg::server::messages_request_test {
namespace {

Result<ApiRequest> parse(const std::string& body, bool strip = true) {
  const auto json = parse_json(body);
  if (!json) return std::unexpected(json.error());
  static const SamplingDefaults kDefaults;
  return parse_messages_request(*json, {.defaults = kDefaults,
                                        .vocab_size = 1000,
                                        .strip_volatile = strip,
                                        .thought_key = thought_key("secret"),
                                        .counting = false});
}

/// A request with these members beside a model, a limit and, unless given, one message.
std::string body(const std::string& more, const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  return R"({"model":"m","max_tokens":5,"messages":)" + messages + (more.empty() ? "" : "," + more) + "}";
}

std::string chat_of(const std::string& request, bool strip = true) {
  const auto r = parse(request, strip);
  return r ? dump_json(r->chat.messages) : "error: " + r.error().message;
}
std::string turns(const std::string& messages) { return chat_of(body("", messages)); }

std::string ignored_of(const std::string& request) {
  const auto r = parse(request);
  if (!r) return "error: " + r.error().message;
  std::string out;
  for (const std::string& name : r->ignored) out += (out.empty() ? "" : " ") + name;
  return out;
}

TEST(MessagesRequest, Defaults) {
  const auto r = parse(body(""));
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->output.api, Api::kMessages);
  EXPECT_EQ(r->max_tokens, 5);
  EXPECT_FALSE(r->output.stream);
  EXPECT_TRUE(r->chat.add_generation_prompt);
  EXPECT_FALSE(r->chat.continue_final_message);
  EXPECT_FALSE(r->output.reasoning.enabled);
  EXPECT_EQ(r->cache_pin_s, 0);
  EXPECT_TRUE(r->ignored.empty());
  EXPECT_EQ(dump_json(r->chat.messages), R"([{"role":"user","content":"hi"}])");
}

TEST(MessagesRequest, FieldsAreRead) {
  const auto r = parse(body(R"("stream":true,"temperature":0.5,"top_p":0.9,"top_k":7,"stop_sequences":["a","b"],)"
                            R"("thinking":{"type":"enabled","budget_tokens":2048},"output_config":{"effort":"high"},)"
                            R"("metadata":{"user_id":"u"},"service_tier":"auto","novelty":1,"system":null)"));
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->output.stream);
  EXPECT_FLOAT_EQ(r->sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(r->sampling.top_p, 0.9F);
  EXPECT_EQ(r->sampling.top_k, 7);
  EXPECT_EQ(r->output.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r->output.reasoning.enabled, true);
  EXPECT_EQ(r->output.reasoning.budget, 2048);
  EXPECT_EQ(r->output.reasoning.effort, "high");
  auto ignored = r->ignored;
  std::sort(ignored.begin(), ignored.end());
  EXPECT_EQ(ignored, (std::vector<std::string>{"metadata", "novelty", "service_tier"}));
}

TEST(MessagesRequest, Thinking) {
  EXPECT_EQ(parse(body(R"("thinking":{"type":"disabled"})"))->output.reasoning.enabled, false);
  EXPECT_EQ(parse(body(R"("thinking":{"type":"adaptive"})"))->output.reasoning.enabled, true);
  EXPECT_FALSE(parse(body(R"("thinking":{"type":"between_tools"})"))->output.reasoning.enabled);
  EXPECT_TRUE(parse(body(R"("thinking":{"type":"adaptive"})"))->output.reasoning.show);
  EXPECT_FALSE(parse(body(R"("thinking":{"type":"adaptive","display":"omitted"})"))->output.reasoning.show);
  EXPECT_FALSE(parse(body(R"("thinking":{"type":"disabled","budget_tokens":9})"))->output.reasoning.budget);
}

TEST(MessagesRequest, RolesAndNeighbours) {
  EXPECT_EQ(turns(R"([{"role":"user","content":"a"},{"role":"ctx","content":"b"},{"role":"msg","content":[{"type":"text","text":"c"}]},)"
                  R"({"role":"assistant","content":"d"},{"role":"assistant","content":"e"},{"role":"user","content":"f"}])"),
            R"([{"role":"user","content":"a\nb\nc"},{"role":"assistant","content":"d\ne"},{"role":"user","content":"f"}])");
  EXPECT_EQ(chat_of(body(R"("system":"S")", R"([{"role":"developer","content":"T"},{"role":"user","content":"u"},)"
                                            R"({"role":"system","content":"late"},{"role":"user","content":"v"}])")),
            R"([{"role":"system","content":"S\nT"},{"role":"user","content":"u"},{"role":"system","content":"late"},{"role":"user","content":"v"}])")
      << "a late system message stays where it is: what is before it stays cached";
  EXPECT_EQ(turns(R"([{"role":"user","content":"a"},{"role":"assistant","content":[]},{"role":"assistant","content":null},{"role":"user","content":"b"}])"),
            R"([{"role":"user","content":"a\nb"}])");
}

TEST(MessagesRequest, ToolsInTheHistory) {
  EXPECT_EQ(turns(R"([{"role":"user","content":"w?"},{"role":"assistant","content":[{"type":"text","text":"See."},)"
                  R"({"type":"tool_use","id":"toolu_1","name":"w","input":{"b":1,"a":2}},{"type":"tool_use","id":"toolu_2","name":"t"}]},)"
                  R"({"role":"user","content":[{"type":"text","text":"and now"},{"type":"tool_result","tool_use_id":"toolu_1","content":"sun"},)"
                  R"({"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":[{"type":"text","text":"no"},{"type":"text","text":"clock"}]}]}])"),
            R"([{"role":"user","content":"w?"},{"role":"assistant","content":"See.","tool_calls":[)"
            R"({"id":"toolu_1","type":"function","function":{"name":"w","arguments":{"b":1,"a":2}}},)"
            R"({"id":"toolu_2","type":"function","function":{"name":"t","arguments":{}}}]},)"
            R"({"role":"tool","tool_call_id":"toolu_1","name":"w","content":"sun"},)"
            R"({"role":"tool","tool_call_id":"toolu_2","name":"t","content":"Error: no\nclock"},)"
            R"({"role":"user","content":"and now"}])");
  EXPECT_EQ(turns(R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","is_error":true,"content":"<tool_use_error>bad"},)"
                  R"({"type":"tool_result","tool_use_id":"y"}]}])"),
            R"([{"role":"tool","tool_call_id":"x","content":"<tool_use_error>bad"},{"role":"tool","tool_call_id":"y","content":""}])");
}

TEST(MessagesRequest, TheModelsOwnIdsComeBack) {
  const std::string id = tool_use_id("msg_1", 0, "functions.w:0");
  const std::string out = turns(R"([{"role":"user","content":"w"},{"role":"assistant","content":[{"type":"tool_use","id":")" + id +
                                R"(","name":"w","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":")" + id +
                                R"(","content":"sun"}]}])");
  EXPECT_NE(out.find(R"("id":"functions.w:0")"), std::string::npos) << out;
  EXPECT_NE(out.find(R"("tool_call_id":"functions.w:0","name":"w")"), std::string::npos) << out;
}

TEST(MessagesRequest, ThoughtsComeBackAndChangedOnesAreNamed) {
  const std::string text = "I think";
  const std::string signature = thought_signature(thought_key("secret"), sha256(text.data(), text.size()));
  const auto with = [&](const std::string& thought, const std::string& sign) {
    return body("", R"([{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":")" + thought +
                        R"(","signature":")" + sign + R"("},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}])");
  };
  EXPECT_EQ(chat_of(with("I think", signature)),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"I think"},{"role":"user","content":"c"}])");
  EXPECT_EQ(ignored_of(with("I think", signature)), "messages.1.content.1");
  EXPECT_EQ(ignored_of(with("I thought", signature)), "messages.1.content.0.signature messages.1.content.1");
  EXPECT_EQ(ignored_of(with("I thought", "EqQBforeign")), "messages.1.content.1");
}

TEST(MessagesRequest, TextOfOtherBlocks) {
  EXPECT_EQ(turns(R"([{"role":"user","content":[{"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"D"}},)"
                  R"({"type":"document","source":{"type":"content","content":[{"type":"text","text":"E"}]}},)"
                  R"({"type":"search_result","source":"url","title":"R","content":[{"type":"text","text":"F"}]},)"
                  R"({"type":"tool_reference","tool_name":"grep"},{"type":"compaction","content":"G"}]}])"),
            R"([{"role":"user","content":"T\nC\nD\nE\nR\nurl\nF\ngrep\nG"}])");
  EXPECT_EQ(ignored_of(body("", R"([{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},)"
                                R"({"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"text","text":"a"}]},{"role":"user","content":"r"}])")),
            "messages.1.content.0 messages.1.content.1");
}

TEST(MessagesRequest, VolatileLinesOfSystemTextGoAndAreNamed) {  // api.md 7, item 58
  const std::string claude = body(
      R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.175; cch=ea6aa;"},)"
      R"({"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},)"
      R"({"type":"text","text":"Tools.\n<total_tokens>14999436 tokens left</total_tokens>"}])",
      R"([{"role":"user","content":"q <total_tokens>1 tokens left</total_tokens>"},{"role":"system","content":"<total_tokens>5 tokens left</total_tokens>"}])");
  EXPECT_EQ(chat_of(claude), R"([{"role":"system","content":"You are an agent.\nTools."},)"
                             R"({"role":"user","content":"q <total_tokens>1 tokens left</total_tokens>"}])");
  EXPECT_EQ(ignored_of(claude), "system.0 system.2 messages.1.content");
  EXPECT_NE(chat_of(claude, false).find("billing"), std::string::npos) << "and may be kept";
  EXPECT_EQ(chat_of(body(R"("system":"x-anthropic-billing-header: a\nYou")")),
            R"([{"role":"system","content":"You"},{"role":"user","content":"hi"}])");
}

TEST(MessagesRequest, CacheControlPinsForTheLongest) {
  const auto pin = [](const std::string& request) { return parse(request)->cache_pin_s; };
  EXPECT_EQ(pin(body(R"("system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}])")), 300);
  EXPECT_EQ(pin(body(R"("cache_control":{"type":"ephemeral","ttl":"5m"})")), 300);
  EXPECT_EQ(pin(body(R"("tools":[{"name":"f","input_schema":{},"cache_control":{"type":"ephemeral","ttl":"1h"}}])")), 3600);
  EXPECT_EQ(pin(body("", R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"5m"}},)"
                         R"({"type":"tool_result","tool_use_id":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]}])")), 3600);
  EXPECT_EQ(pin(body(R"("cache_pin_s":9000,"cache_control":{"type":"ephemeral"})")), 9000);
  EXPECT_EQ(ignored_of(body(R"("cache_control":{"type":"eternal"})")), "cache_control");
  EXPECT_EQ(ignored_of(body(R"("system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"2d"}}])")),
            "system.0.cache_control");
  EXPECT_EQ(ignored_of(body(R"("cache_control":7)")), "cache_control");
}

TEST(MessagesRequest, Tools) {
  const auto r = parse(body(R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},)"
                            R"({"type":"web_search_20250305","name":"web_search","max_uses":3},)"
                            R"({"type":"custom","name":"g","input_schema":{"type":"object"},"defer_loading":true,"novel":1}],)"
                            R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})"));
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_EQ(r->output.tools.tools.size(), 2U);
  EXPECT_EQ(r->output.tools.tools[0].name, "f");
  EXPECT_EQ(r->output.tools.tools[0].description, "d");
  EXPECT_EQ(dump_json(r->output.tools.tools[0].parameters), R"({"type":"object"})");
  EXPECT_FALSE(r->output.tools.parallel);
  EXPECT_EQ(r->ignored, (std::vector<std::string>{"tools.1", "tools.2.defer_loading", "tools.2.novel"}));
  EXPECT_TRUE(parse(body(R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"none"})"))->output.tools.tools.empty());
  EXPECT_TRUE(parse(body(R"("tools":[])"))->output.tools.tools.empty());
}

TEST(MessagesRequest, APrefilledAnswerGoesOn) {
  const auto r = parse(body("", R"([{"role":"user","content":"a"},{"role":"assistant","content":"The best answer is ("}])"));
  EXPECT_TRUE(r->chat.continue_final_message);
  EXPECT_FALSE(r->chat.add_generation_prompt);
  const auto call = parse(body("", R"([{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f","input":{}}]}])"));
  EXPECT_FALSE(call->chat.continue_final_message);
  EXPECT_TRUE(call->chat.add_generation_prompt);
}

TEST(MessagesRequest, RefusalsNameTheField) {
  struct Case {
    std::string body;
    ErrorCode code;
    const char* param;
  };
  using enum ErrorCode;
  const std::string image = R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"x"}}]}])";
  const Case cases[] = {
      {R"({"model":"m","messages":[{"role":"user","content":"a"}]})", kMissingParameter, "max_tokens"},
      {R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"a"}]})", kInvalidValue, "max_tokens"},
      {R"({"model":"m","max_tokens":"5","messages":[{"role":"user","content":"a"}]})", kInvalidValue, "max_tokens"},
      {R"({"model":"m","max_tokens":5})", kMissingParameter, "messages"},
      {R"([])", kInvalidValue, ""},
      {body("", "[]"), kInvalidValue, "messages"},
      {body("", "{}"), kInvalidValue, "messages"},
      {body("", "[7]"), kInvalidValue, "messages.0"},
      {body("", R"([{"content":"a"}])"), kMissingParameter, "messages.0.role"},
      {body("", R"([{"role":1,"content":"a"}])"), kInvalidValue, "messages.0.role"},
      {body("", R"([{"role":"user"}])"), kMissingParameter, "messages.0.content"},
      {body("", R"([{"role":"user","content":7}])"), kInvalidValue, "messages.0.content"},
      {body("", R"([{"role":"user","content":["a"]}])"), kInvalidValue, "messages.0.content.0"},
      {body("", R"([{"role":"user","content":[{"text":"a"}]}])"), kMissingParameter, "messages.0.content.0.type"},
      {body("", R"([{"role":"user","content":[{"type":"text"}]}])"), kMissingParameter, "messages.0.content.0.text"},
      {body("", image), kUnsupported, "messages.0.content.1.type"},
      {body("", R"([{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"x"}}]}])"), kUnsupported, "messages.0.content.0.source.type"},
      {body("", R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"image"}]}]}])"), kUnsupported, "messages.0.content.0.content.0.type"},
      {body("", R"([{"role":"user","content":[{"type":"tool_use","id":"x","name":"f","input":{}}]}])"), kInvalidValue, "messages.0.content.0.type"},
      {body("", R"([{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"x"}]}])"), kInvalidValue, "messages.0.content.0.type"},
      {body("", R"([{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f","input":"{}"}]}])"), kInvalidValue, "messages.0.content.0.input"},
      {body("", R"([{"role":"user","content":[{"type":"tool_result"}]}])"), kMissingParameter, "messages.0.content.0.tool_use_id"},
      {body("", R"([{"role":"assistant","content":""}])"), kInvalidValue, "messages"},
      {body(R"("system":7)"), kInvalidValue, "system"},
      {body(R"("system":[{"type":"image"}])"), kUnsupported, "system.0.type"},
      {body(R"("temperature":3)"), kInvalidValue, "temperature"},
      {body(R"("stop_sequences":[""])"), kInvalidValue, "stop_sequences.0"},
      {body(R"("stop_sequences":"x")"), kInvalidValue, "stop_sequences"},
      {body(R"("thinking":{"type":"sometimes"})"), kInvalidValue, "thinking.type"},
      {body(R"("thinking":{})"), kMissingParameter, "thinking.type"},
      {body(R"("thinking":{"type":"enabled","budget_tokens":-1})"), kInvalidValue, "thinking.budget_tokens"},
      {body(R"("output_config":{"format":{"schema":{}}})"), kMissingParameter, "output_config.format.type"},
      {body(R"("output_config":{"format":{"type":"json_schema"}})"), kMissingParameter, "output_config.format.schema"},
      {body(R"("output_format":{"type":"json_schema"})"), kMissingParameter, "output_format.schema"},
      {body(R"("output_config":{"format":{"type":"json_schema","schema":{}}},"output_format":{"type":"json_object"})"), kInvalidValue,
       "output_format"},
      {body(R"("tools":[{"input_schema":{}}])"), kInvalidValue, "tools.0.name"},
      {body(R"("tools":[{"name":"f","input_schema":[]}])"), kInvalidValue, "tools.0.input_schema"},
      {body(R"("tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}])"), kInvalidValue, "tools.1.name"},
      {body(R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"},"output_config":{"format":{"type":"json_schema","schema":{}}})"),
       kInvalidValue, "tool_choice"},
      {body(R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"})"), kInvalidValue, "tool_choice"},
      {body(R"("tool_choice":{"type":"any"})"), kInvalidValue, "tool_choice"},
      {body(R"("tool_choice":{"type":"perhaps"})"), kInvalidValue, "tool_choice.type"},
      {body(R"("strict_params":true,"metadata":{"a":1})"), kUnsupported, "metadata"},
  };
  for (const Case& c : cases) {
    const auto r = parse(c.body);
    ASSERT_FALSE(r) << c.body;
    EXPECT_EQ(static_cast<int>(r.error().code), static_cast<int>(c.code)) << c.body << ": " << r.error().message;
    EXPECT_EQ(r.error().param, c.param) << c.body << ": " << r.error().message;
    EXPECT_FALSE(r.error().message.empty());
  }
}

TEST(MessagesRequest, NullIsAbsent) {
  const auto r = parse(body(R"("system":null,"tools":null,"tool_choice":null,"stop_sequences":null,"thinking":null,"output_config":null,)"
                            R"("output_format":null,"cache_control":null,"metadata":null,"stream":null,"temperature":null,"top_k":null)"));
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->ignored.empty());
}

TEST(MessagesRequest, ManyBadBlocksFillNoMemory) {
  std::string blocks;
  for (int i = 0; i < 50'000; ++i) blocks += R"({"type":"novel"},)";
  const auto r = parse(body("", R"([{"role":"user","content":[)" + blocks + R"({"type":"text","text":"a"}]}])"));
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_LE(r->ignored.size(), 64U);
}

/// Any JSON in any place gives a request or an error, never anything else.
TEST(MessagesRequest, HostileBodies) {
  Rng rng(11);
  constexpr const char* kValues[] = {"null", "7", "-1", "1e300", "\"\"", "\"x\"", "[]", "{}", "[[]]", "true",
                                     R"({"type":"text"})", R"([{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[]}}]}])",
                                     R"({"type":"text","text":"a"})", R"([{"role":"user","content":"a"}])"};
  constexpr const char* kKeys[] = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stop_sequences",
                                   "thinking", "output_config", "cache_control", "metadata", "stream", "top_k"};
  const auto value = [&](auto&& self, int depth) -> std::string {
    if (depth == 0 || rng.below(3) == 0) return kValues[rng.below(std::size(kValues))];
    std::string out;
    const bool list = rng.below(2) == 0;
    constexpr const char* kInner[] = {"type", "role", "content", "text", "id", "name", "input", "tool_use_id", "source",
                                      "thinking", "signature", "data", "cache_control", "ttl", "input_schema", "is_error"};
    std::size_t at = rng.below(std::size(kInner));
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      if (!out.empty()) out += ',';
      if (!list) out += '"' + std::string(kInner[at++ % std::size(kInner)]) + "\":";
      out += self(self, depth - 1);
    }
    return list ? "[" + out + "]" : "{" + out + "}";
  };
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = R"({"model":"m")";
    const std::size_t hostile = 1 + rng.below(std::size(kKeys) - 1);
    for (std::size_t k = 1; k < std::size(kKeys); ++k) {
      const std::string key = ",\"" + std::string(kKeys[k]) + "\":";
      if (k == hostile || rng.below(16) == 0) {
        text += key + value(value, 4);
      } else if (k <= 2) {
        text += key + (k == 1 ? "5" : R"([{"role":"user","content":"a"}])");
      }
    }
    const auto json = parse_json(text + "}");
    ASSERT_TRUE(json) << text;
    const auto r = parse(text + "}");
    accepted += r ? 1 : 0;
    if (r) {
      EXPECT_GT(r->chat.messages.size(), 0U);
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_LT(accepted, 19'000);
}

}  // namespace
}  // namespace barg::server::messages_request_test
