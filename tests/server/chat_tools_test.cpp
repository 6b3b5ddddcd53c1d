// What a chat request may say of tools and reasoning, and what becomes of it.
#include "server/tool_rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/protocol.h"

namespace barg::server::chat_tools_test {
namespace {

Result<ApiRequest> parse(const std::string& more) {
  const auto json = parse_json(R"({"messages":[{"role":"user","content":"hi"}],)" + more + "}");
  EXPECT_TRUE(json) << more;
  return parse_chat_request(*json, {}, 1000);
}
ApiRequest accepted(const std::string& more) {
  auto r = parse(more);
  EXPECT_TRUE(r) << more << ": " << (r ? "" : r.error().message);
  return r ? std::move(*r) : ApiRequest{};
}

const std::string kTwo = R"("tools":[{"type":"function","function":{"name":"get.weather","description":"Of a city",
  "parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},{"type":"function","function":{"name":"now"}}])";

std::vector<std::string> names(const ToolOptions& options) {
  std::vector<std::string> out;
  for (const ToolSpec& t : options.tools) out.push_back(t.name);
  return out;
}

TEST(ChatTools, BadToolsNameTheirField) {
  struct Row {
    std::string more;
    ErrorCode code;
    std::string param;
  };
  constexpr auto kInvalid = ErrorCode::kInvalidValue;
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  std::string many = R"("tools":[)";
  for (int i = 0; i < 513; ++i)
    many += (i > 0 ? "," : "") + std::string(R"({"type":"function","function":{"name":"f)") + std::to_string(i) + "\"}}";
  const std::vector<Row> rows = {
      {R"("tools":5)", kInvalid, "tools"},
      {R"("tools":[5])", kInvalid, "tools[0]"},
      {R"("tools":[{"type":"function"}])", kInvalid, "tools[0].function"},
      {R"("tools":[{"type":"function","function":{}}])", kInvalid, "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", kInvalid, "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":5}}])", kInvalid, "tools[0].function.name"},
      {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" + std::string(129, 'a') + "\"}}]", kInvalid,
       "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])", kInvalid,
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"web_search"}])", kUnsupported, "tools[0].type"},
      {R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])", kInvalid,
       "tools[1].function.name"},
      {R"("tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar"}}}])", kUnsupported,
       "tools[0].custom.format.type"},
      {many + "]", kInvalid, "tools"},
      {R"("tool_choice":"required")", kInvalid, "tool_choice"},
      {R"("tool_choice":"maybe")", kInvalid, "tool_choice"},
      {R"("tool_choice":5)", kInvalid, "tool_choice"},
      {kTwo + R"(,"tool_choice":"required","response_format":{"type":"json_object"})", kInvalid, "tool_choice"},
      {kTwo + R"(,"tool_choice":{"type":"function","function":{"name":"nope"}})", kInvalid, "tool_choice"},
      {kTwo + R"(,"tool_choice":{"type":"function"})", kInvalid, "tool_choice"},
      {kTwo + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})", kInvalid, "tool_choice"},
      {kTwo + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"nope"}}]}})",
       kInvalid, "tool_choice.allowed_tools.tools"},
      {kTwo + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{}]}})", kInvalid,
       "tool_choice.allowed_tools.tools[0]"},
      {kTwo + R"(,"functions":[{"name":"f"}])", kInvalid, "functions"},
      {R"("functions":[{"name":""}])", kInvalid, "functions[0].name"},
      {R"("functions":[{"name":"f"}],"function_call":{"name":"g"})", kInvalid, "function_call"},
      {R"("functions":[{"name":"f"}],"function_call":{"name":"f"},"guided_json":{})", kInvalid, "function_call"},
  };
  for (const Row& row : rows) {
    const auto r = parse(row.more);
    ASSERT_FALSE(r) << row.more.substr(0, 200);
    EXPECT_EQ(r.error().code, row.code) << row.more.substr(0, 200) << ": " << r.error().message;
    EXPECT_EQ(r.error().param, row.param) << row.more.substr(0, 200) << ": " << r.error().message;
  }
}

TEST(ChatTools, CallsMayBeAskedFor) {
  const ApiRequest required = accepted(kTwo + R"(,"tool_choice":"required")");
  EXPECT_EQ(required.output.tools.mode, ToolMode::kRequired);
  EXPECT_EQ(names(required.output.tools), (std::vector<std::string>{"get.weather", "now"}));
  const ApiRequest named = accepted(kTwo + R"(,"tool_choice":{"type":"function","function":{"name":"now"}})");
  EXPECT_EQ(named.output.tools.mode, ToolMode::kNamed);
  EXPECT_EQ(names(named.output.tools), std::vector<std::string>{"now"});
  const ApiRequest some = accepted(kTwo + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"now"}}]}})");
  EXPECT_TRUE(some.output.tools.must_call());
  EXPECT_EQ(names(some.output.tools), std::vector<std::string>{"now"});
  const ApiRequest legacy = accepted(R"("functions":[{"name":"f"}],"function_call":{"name":"f"})");
  EXPECT_EQ(legacy.output.tools.mode, ToolMode::kNamed);
  const ApiRequest strict = accepted(R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])");
  EXPECT_TRUE(strict.output.tools.tools[0].strict);
  EXPECT_EQ(strict.output.tools.tools[0].field, "tools[0].function.parameters");
}

// "vLLM answers 400 to `tools: []`": an empty list, and null, are none.
TEST(ChatTools, EmptyListsAndNullsAreNone) {
  for (const char* more : {R"("tools":[])", R"("tools":null,"tool_choice":"auto")", R"("tools":[],"tool_choice":"none")",
                           R"("functions":[],"function_call":"auto")"}) {
    const ApiRequest r = accepted(more);
    EXPECT_TRUE(r.output.tools.tools.empty());
    EXPECT_TRUE(template_tools(r.output.tools).is_null());
    EXPECT_TRUE(r.ignored.empty()) << r.ignored.front();
  }
}

TEST(ChatTools, AreRenderedInOpenAisForm) {
  const ApiRequest r = accepted(kTwo + R"(,"parallel_tool_calls":false)");
  EXPECT_FALSE(r.output.tools.parallel);
  EXPECT_EQ(dump_json(template_tools(r.output.tools)),
            R"([{"type":"function","function":{"name":"get.weather","description":"Of a city",)"
            R"("parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},)"
            R"({"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}])");
  const ApiRequest custom = accepted(R"("tools":[{"type":"custom","custom":{"name":"sh","description":"Runs it"}}])");
  ASSERT_EQ(custom.output.tools.tools.size(), 1U);
  EXPECT_TRUE(custom.output.tools.tools[0].custom);
  EXPECT_NE(dump_json(template_tools(custom.output.tools)).find(R"("input":{"type":"string"})"), std::string::npos);
}

TEST(ChatTools, ChoicesNarrow) {
  EXPECT_TRUE(accepted(kTwo + R"(,"tool_choice":"none")").output.tools.tools.empty());
  EXPECT_EQ(names(accepted(kTwo + R"(,"tool_choice":"auto")").output.tools),
            (std::vector<std::string>{"get.weather", "now"}));
  EXPECT_EQ(names(accepted(kTwo + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"now"}}]}})")
                      .output.tools),
            std::vector<std::string>{"now"});
}

TEST(ChatTools, UnknownMembersOfToolsAreListed) {
  const ApiRequest r = accepted(R"("tools":[{"type":"function","cache":1,"function":{"name":"f","defer_loading":true}}])");
  EXPECT_EQ(r.ignored, (std::vector<std::string>{"tools[0].cache", "tools[0].function.defer_loading"}));
}

TEST(ChatTools, FunctionsAreToolsOfOneCall) {
  const ApiRequest r = accepted(R"("functions":[{"name":"f","parameters":{"type":"object"}}],"function_call":"auto")");
  EXPECT_EQ(names(r.output.tools), std::vector<std::string>{"f"});
  EXPECT_FALSE(r.output.tools.parallel);
}

// ---- reasoning

TEST(ChatReasoning, AllItsSpellings) {
  const auto options = [](const std::string& more) { return accepted(more).output.reasoning; };
  EXPECT_FALSE(options(R"("seed":1)").enabled);
  EXPECT_FALSE(options(R"("reasoning_effort":"none")").enabled) << "no switch; the template is told the effort";
  EXPECT_EQ(options(R"("reasoning_effort":"none")").effort, "none");
  EXPECT_EQ(options(R"("reasoning_effort":"high")").effort, "high");
  EXPECT_EQ(options(R"("reasoning":{"effort":"low"})").effort, "low");
  EXPECT_EQ(options(R"("reasoning":{"enabled":false},"reasoning_effort":"low")").enabled, false);
  EXPECT_FALSE(options(R"("reasoning":{"exclude":true})").show);
  EXPECT_EQ(options(R"("thinking":{"type":"disabled"})").enabled, false);
  EXPECT_EQ(options(R"("thinking":{"type":"enabled","budget_tokens":7})").budget, 7);
  EXPECT_EQ(options(R"("chat_template_kwargs":{"enable_thinking":false})").enabled, false);
  EXPECT_EQ(options(R"("enable_thinking":true)").enabled, true);
  EXPECT_EQ(options(R"("thinking_token_budget":0)").budget, 0);
  EXPECT_FALSE(options(R"("thinking_token_budget":-1)").budget);
  EXPECT_FALSE(options(R"("include_reasoning":false)").show);
  EXPECT_FALSE(options(R"("separate_reasoning":false)").separate);
}

// "enable_thinking loses to reasoning_effort": who says on or off is heard, the effort says how much.
TEST(ChatReasoning, ASwitchWinsOverAnEffort) {
  struct Row {
    std::string more;
    bool enabled;
    std::string by;
  };
  for (const Row& row : std::vector<Row>{
           {R"("enable_thinking":false,"reasoning_effort":"high")", false, "enable_thinking"},
           {R"("reasoning_effort":"none","enable_thinking":true)", true, "enable_thinking"},
           {R"("chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low")", false,
            "chat_template_kwargs.enable_thinking"},
           {R"("chat_template_kwargs":{"thinking":true},"reasoning_effort":"none")", true, "chat_template_kwargs.thinking"},
           {R"("thinking":{"type":"disabled"},"reasoning_effort":"max")", false, "thinking.type"},
           {R"("reasoning":{"enabled":true,"effort":"none"})", true, "reasoning.enabled"}}) {
    const ReasoningOptions got = accepted(row.more).output.reasoning;
    EXPECT_EQ(got.enabled, row.enabled) << row.more;
    EXPECT_EQ(got.enabled_by, row.by) << row.more;
    EXPECT_FALSE(got.effort.empty()) << row.more;
    EXPECT_FALSE(got.effort_by.empty()) << row.more;
  }
}

TEST(ChatReasoning, ContradictionsNameBothFields) {
  struct Row {
    std::string more, one, other;
  };
  for (const Row& row : std::vector<Row>{
           {R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})",
            "chat_template_kwargs.enable_thinking", "enable_thinking"},
           {R"("thinking":{"type":"enabled"},"enable_thinking":false)", "thinking.type", "enable_thinking"},
           {R"("reasoning":{"enabled":true},"thinking":{"type":"disabled"})", "reasoning.enabled", "thinking.type"},
           {R"("reasoning":{"effort":"low"},"reasoning_effort":"high")", "reasoning.effort", "reasoning_effort"},
           {R"("reasoning":{"max_tokens":5},"thinking_token_budget":6)", "reasoning.max_tokens", "thinking_token_budget"}}) {
    const auto r = parse(row.more);
    ASSERT_FALSE(r) << row.more;
    EXPECT_EQ(r.error().code, ErrorCode::kInvalidValue) << row.more;
    EXPECT_EQ(r.error().param, row.other) << row.more;
    EXPECT_EQ(r.error().message, row.one + " and " + row.other + " contradict each other");
  }
  accepted(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":true},"reasoning":{"enabled":true})");
  accepted(R"("reasoning":{"effort":"low","max_tokens":6},"reasoning_effort":"low","thinking_token_budget":6)");
}

// ---- history

Json history(const std::string& message) {
  const auto json = parse_json(R"({"messages":[{"role":"user","content":"hi"},)" + message + "]}");
  auto r = parse_chat_request(*json, {}, 1000);
  EXPECT_TRUE(r) << message << ": " << (r ? "" : r.error().message);
  return r ? r->chat.messages.as_array()[1] : Json();
}

// "`tool_calls: []`, several calls, or content with thinking in the history raise inside the template"; "history
// arguments passed as a string break": all shapes that clients send are taken.
TEST(ChatHistory, ShapesOfAllAges) {
  for (const char* message : {
           R"({"role":"assistant","content":null,"tool_calls":[]})",
           R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"function":{"name":"g","arguments":{"x":1}}},{"function":{"name":"h","arguments":null}}]})",
           R"({"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"sunny"}]})",
           R"({"role":"assistant","content":"x","reasoning":"why"})",
           R"({"role":"assistant","content":"x","reasoning_content":"why","refusal":null,"function_call":null})",
       }) {
    history(message);
  }
  EXPECT_EQ(dump_json(history(R"({"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}})")),
            R"({"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]})");
  EXPECT_EQ(history(R"({"role":"function","name":"f","content":"1"})").find("role")->as_string(), "tool");
  EXPECT_EQ(dump_json(history(R"({"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"sh","input":"ls"}}]})")),
            R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"sh","arguments":{"input":"ls"}}}]})");
  EXPECT_EQ(dump_json(history(R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"}]})")),
            R"({"role":"assistant","content":[{"type":"text","text":"yes"}],"reasoning_content":"hm"})");
}

// ---- the tables

TEST(FieldTables, RowsAreUniqueAndDescribed) {
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    std::vector<std::string_view> seen;
    for (const FieldSpec& row : fields_of(api)) {
      EXPECT_FALSE(row.about.empty()) << row.name;
      EXPECT_EQ(std::find(seen.begin(), seen.end(), row.name), seen.end()) << row.name;
      EXPECT_TRUE(row.members.empty() || row.type == FieldType::kObject || row.type == FieldType::kArray) << row.name;
      seen.push_back(row.name);
    }
    EXPECT_GT(seen.size(), 40U);
  }
}

}  // namespace
}  // namespace barg::server::chat_tools_test
