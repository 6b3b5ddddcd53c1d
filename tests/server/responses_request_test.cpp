// Bodies of POST /v1/responses: what becomes of items, tools and fields, and what is refused.
#include "server/handlers.h"
#include "server/responses_request.h"

#include <gtest/gtest.h>

#include "fake_engine.h"
#include "fake_tokenizer.h"
#include "server/responses_extras.h"
#include "server/responses_ids.h"
#include "server/responses_seal.h"
#include "server/server_state.h"

namespace barg::server::responses_request_test {
namespace {

class ResponsesRequest : public ::testing::Test {
 protected:
  ServerState state_;
  ServedModel model_;
  HttpRequest http_;
  std::string key_;

  void SetUp() override {
    model_.names = {"fake"};
    model_.engine = std::make_shared<test::FakeEngine>(1024);
    model_.tokenizer = std::make_shared<test::FakeTokenizer>();
    model_.chat_template = std::make_shared<test::FakeTemplate>();
    store({.bytes = 1 << 20, .ttl_s = 100});
  }
  void store(ResponseStoreLimits limits) {
    state_.responses = std::make_unique<ResponseStore>(limits, state_.clock);
  }

  Result<ApiRequest> parse(std::string_view body) {
    const auto json = parse_json(body);
    EXPECT_TRUE(json) << body;
    return parse_responses_request(*json,
                                   {.state = state_, .model = model_, .request = http_, .api_key = key_});
  }
  ApiRequest good(std::string_view body) {
    auto request = parse(body);
    EXPECT_TRUE(request) << body << ": " << (request ? "" : request.error().message);
    return request ? std::move(*request) : ApiRequest{};
  }
  std::string messages(std::string_view body) { return dump_json(good(body).chat.messages); }
  Error bad(std::string_view body) {
    auto request = parse(body);
    EXPECT_FALSE(request) << body;
    return request ? Error{} : request.error();
  }
  static const ResponsesExtras& extras(const ApiRequest& request) {
    return static_cast<const ResponsesExtras&>(*request.output.extras);
  }
  /// A finished answer of the store: `input` and `output` are JSON arrays.
  std::shared_ptr<StoredResponse> answered(const std::string& id, std::string input, std::string output,
                                           std::vector<ItemList> history = {}) {
    auto record = std::make_shared<StoredResponse>(
        StoredResponse::Origin{.owner = key_owner(key_),
                               .history = std::move(history),
                               .input = std::make_shared<const std::string>(std::move(input)),
                               .background = false,
                               .streamed = false});
    EXPECT_TRUE(state_.responses->insert(id, record));
    record->finish("{}", std::move(output));
    state_.responses->recharge(id);
    return record;
  }
};

constexpr const char* kId = "resp_0123456789abcdef01234567";

TEST_F(ResponsesRequest, ATextIsAUsersMessage) {
  EXPECT_EQ(messages(R"({"input":"hi"})"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(messages(R"({"input":"","max_output_tokens":1})"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(messages(R"({"instructions":"Be brief.","input":"hi"})"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
  EXPECT_EQ(good(R"({"input":"hi","max_output_tokens":1})").max_tokens, 1);
}

TEST_F(ResponsesRequest, ItemsOfOneAnswerAreOneMessage) {
  EXPECT_EQ(
      messages(R"({"input":[
      {"role":"user","content":"Weather?"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Look."}]},
      {"type":"message","role":"assistant","id":"msg_1","status":"completed",
       "content":[{"type":"output_text","text":"One moment.","annotations":[]}]},
      {"type":"function_call","id":"fc_1","call_id":"c1","name":"weather","arguments":"{\"city\":\"Rome\"}"},
      {"type":"function_call","call_id":"c2","name":"time","arguments":"{}","namespace":"clock"},
      {"type":"function_call_output","call_id":"c1","output":"sunny"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"noon"},
                                                              {"type":"output_text","text":"GMT"}]},
      {"type":"message","role":"assistant","content":"Sunny."}]})"),
      R"([{"role":"user","content":"Weather?"},)"
      R"({"role":"assistant","reasoning_content":"Look.","content":"One moment.","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},)"
      R"({"id":"c2","type":"function","function":{"name":"clock__time","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","name":"weather","content":"sunny"},)"
      R"({"role":"tool","tool_call_id":"c2","name":"clock__time","content":"noon\nGMT"},)"
      R"({"role":"assistant","content":"Sunny."}])");
}

TEST_F(ResponsesRequest, CustomCallsAreFunctionsOfOneText) {
  EXPECT_EQ(messages(R"({"input":[{"role":"user","content":"go"},
      {"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin"},
      {"type":"custom_tool_call_output","call_id":"c","output":"done"}]})"),
            R"([{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c",)"
            R"("type":"function","function":{"name":"apply_patch","arguments":{"input":"*** Begin"}}}]},)"
            R"({"role":"tool","tool_call_id":"c","name":"apply_patch","content":"done"}])");
}

TEST_F(ResponsesRequest, SeveralPartsStayParts) {
  EXPECT_EQ(
      messages(
          R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]})"),
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  EXPECT_EQ(messages(R"({"input":[{"role":"developer","content":[{"type":"input_text","text":"a"}]}]})"),
            R"([{"role":"developer","content":"a"}])");
}

TEST_F(ResponsesRequest, UnknownItemsAreSkippedAndNamed) {
  const ApiRequest request = good(R"({"input":[
      {"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"x"}},
      {"type":"local_shell_call","call_id":"c","action":{}},{"type":"compaction","encrypted_content":"zzz"},
      {"type":"reasoning","summary":[],"encrypted_content":"gAAAAAB-of-another-server"},
      {"role":"user","content":"hi"}]})");
  EXPECT_EQ(dump_json(request.chat.messages), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.ignored,
            (std::vector<std::string>{"input[0].web_search_call", "input[1].local_shell_call",
                                      "input[2].compaction", "input[3].encrypted_content"}));
}

TEST_F(ResponsesRequest, PicturesInResultsAreLeftOutAndInMessagesRefused) {
  const ApiRequest request = good(R"({"input":[{"role":"user","content":"go"},
      {"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:x"}]}]})");
  EXPECT_EQ(
      dump_json(request.chat.messages.as_array()[1]),
      R"({"role":"tool","tool_call_id":"c","content":"[input_image left out: this model reads text]"})");
  const Error error =
      bad(R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:x"}]}]})");
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.param, "input[0].content[0].type");
}

TEST_F(ResponsesRequest, SealedReasoningIsOpened) {
  const std::string sealed = seal_reasoning(state_.responses->secret(), key_owner(key_), "I know.");
  EXPECT_EQ(
      messages(
          R"({"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":")" +
          sealed + R"("},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]})"),
      R"([{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"I know.","content":"b"},)"
      R"({"role":"user","content":"c"}])");
  key_ = "somebody else";
  EXPECT_EQ(
      good(
          R"({"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[],"encrypted_content":")" +
          sealed + R"("}]})")
          .ignored,
      std::vector<std::string>{"input[1].encrypted_content"});
}

/// What Codex sends in one request, kinds of tools included that other servers refuse.
TEST_F(ResponsesRequest, CodexIsUnderstood) {
  const ApiRequest request = good(R"({"model":"fake","instructions":"You are Codex.","input":[
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"<permissions>"}]},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}],
      "tools":[{"type":"function","name":"exec_command","description":"Runs.","strict":false,
                "parameters":{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"]}},
               {"type":"namespace","name":"mcp__files__","description":"Files.","tools":[
                 {"type":"function","name":"read","description":"Reads.","parameters":{"type":"object"},"strict":false}]},
               {"type":"web_search","external_web_access":true},{"type":"image_generation","output_format":"png"},
               {"type":"custom","name":"apply_patch","description":"Patches.",
                "format":{"type":"grammar","syntax":"lark","definition":"start: x"}}],
      "tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"effort":"medium","summary":"auto"},"store":false,
      "stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"abc","text":{"verbosity":"low"},
      "client_metadata":{"x":"y"}})");
  std::vector<std::string> names;
  for (const ToolSpec& tool : request.output.tools.tools) names.push_back(tool.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exec_command", "mcp__files__read", "apply_patch"}));
  EXPECT_TRUE(request.output.tools.tools[2].custom);
  EXPECT_NE(request.output.tools.tools[2].description.find("start: x"), std::string::npos);
  EXPECT_EQ(request.output.reasoning.effort, "medium");
  EXPECT_TRUE(extras(request).seal);
  EXPECT_EQ(extras(request).record, nullptr);
  ASSERT_EQ(extras(request).spaces.size(), 1U);
  EXPECT_EQ(extras(request).spaces[0].space, "mcp__files__");
  EXPECT_EQ(extras(request).object.find("tools")->size(), 5U) << "as they came";
  for (const char* name : {"tools[2].web_search", "tools[3].image_generation", "tools[4].format",
                           "prompt_cache_key", "client_metadata", "text.verbosity"}) {
    EXPECT_NE(std::find(request.ignored.begin(), request.ignored.end(), name), request.ignored.end()) << name;
  }
}

TEST_F(ResponsesRequest, TheObjectHasEveryMemberThatOpenResponsesWants) {
  const Json object =
      extras(good(R"({"input":"hi","metadata":{"a":"b"},"temperature":0.5,"reasoning":{"effort":"low"}})"))
          .object;
  for (const char* key : {"previous_response_id", "instructions", "tools", "tool_choice", "truncation",
                          "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty",
                          "top_logprobs", "temperature", "reasoning", "max_output_tokens", "max_tool_calls",
                          "service_tier", "metadata", "safety_identifier", "prompt_cache_key"})
    EXPECT_NE(object.find(key), nullptr) << key;
  EXPECT_EQ(dump_json(*object.find("text")), R"({"format":{"type":"text"}})");
  EXPECT_EQ(dump_json(*object.find("reasoning")), R"({"effort":"low","summary":null})");
  EXPECT_EQ(dump_json(*object.find("metadata")), R"({"a":"b"})");
  EXPECT_EQ(dump_json(*object.find("temperature")), "0.5");
}

TEST_F(ResponsesRequest, AConversationGoesOnWithoutItsInstructions) {
  answered(
      kId, R"([{"type":"message","role":"user","content":"one"}])",
      R"([{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"two"}]}])");
  const ApiRequest request =
      good(std::string(R"({"instructions":"New.","input":"three","previous_response_id":")") + kId + "\"}");
  EXPECT_EQ(
      dump_json(request.chat.messages),
      R"([{"role":"system","content":"New."},{"role":"user","content":"one"},{"role":"assistant","content":"two"},)"
      R"({"role":"user","content":"three"}])");
  ASSERT_NE(extras(request).record, nullptr);
  EXPECT_EQ(extras(request).record->origin().history.size(), 2U);
  EXPECT_EQ(*extras(request).record->origin().input,
            R"([{"type":"message","role":"user","content":"three"}])");
  EXPECT_EQ(good(std::string(R"({"previous_response_id":")") + kId + "\"}").chat.messages.size(), 2U)
      << "no input";
}

TEST_F(ResponsesRequest, WhatIsNotThereIsSaidSo) {
  Error error = bad(R"({"input":"x","previous_response_id":"resp_none"})");
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.param, "previous_response_id");
  EXPECT_NE(error.message.find("resp_none"), std::string::npos);
  answered(kId, "[]", "[]");
  key_ = "somebody else";
  EXPECT_EQ(bad(std::string(R"({"input":"x","previous_response_id":")") + kId + "\"}").code,
            ErrorCode::kNotFound);
  key_ = "";
  auto running = std::make_shared<StoredResponse>(
      StoredResponse::Origin{.owner = "",
                             .history = {},
                             .input = std::make_shared<const std::string>("[]"),
                             .background = true,
                             .streamed = false});
  ASSERT_TRUE(state_.responses->insert("resp_running", running));
  EXPECT_NE(bad(R"({"input":"x","previous_response_id":"resp_running"})").message.find("running"),
            std::string::npos);
}

TEST_F(ResponsesRequest, ReferencesFindStoredItems) {
  const std::string own = item_id("msg", kId, 0);
  answered(
      kId,
      R"([{"type":"message","role":"user","content":"one"},{"type":"message","id":"msg_mine","role":"user","content":"mine"}])",
      R"([{"type":"message","id":")" + own +
          R"(","role":"assistant","content":[{"type":"output_text","text":"two"}]}])");
  const std::string first = input_item_id(Json::object({{"type", "message"}}), kId, 0);
  const ApiRequest request = good(R"({"input":[{"type":"item_reference","id":")" + first + R"("},{"id":")" +
                                  own + R"("},{"role":"user","content":"three"}]})");
  EXPECT_EQ(
      dump_json(request.chat.messages),
      R"([{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}])");
  EXPECT_EQ(extras(request).record->origin().input->find("item_reference"), std::string::npos)
      << "resolved when kept";
  const std::string gone = item_id("msg", "resp_ffffffffffffffffffffffff", 0);
  EXPECT_EQ(bad(R"({"input":[{"type":"item_reference","id":")" + gone + R"("}]})").param, "input[0].id");
  EXPECT_EQ(
      good(R"({"input":[{"type":"item_reference","id":"of another server"},{"role":"user","content":"x"}]})")
          .ignored,
      std::vector<std::string>{"input[0].item_reference"});
  key_ = "somebody else";
  EXPECT_EQ(bad(R"({"input":[{"type":"item_reference","id":")" + own + R"("}]})").param, "input[0].id");
}

TEST_F(ResponsesRequest, StoreIsSilentlyOffWhereTheServerStoresNothing) {
  EXPECT_NE(extras(good(R"({"input":"x"})")).record, nullptr);
  EXPECT_EQ(extras(good(R"({"input":"x","store":false})")).record, nullptr);
  EXPECT_EQ(bad(R"({"input":"x","store":false,"background":true})").param, "background");
  store({.bytes = 0, .ttl_s = 1});
  EXPECT_EQ(extras(good(R"({"input":"x","store":true})")).record, nullptr);
  EXPECT_EQ(bad(R"({"input":"x","background":true})").param, "background");
}

TEST_F(ResponsesRequest, ToolChoices) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"a"},{"type":"function","name":"b"},{"type":"web_search"}])";
  const auto choose = [&](const std::string& choice) {
    return R"({"input":"x",)" + tools + R"(,"tool_choice":)" + choice + "}";
  };
  EXPECT_EQ(good(choose("null")).output.tools.tools.size(), 2U);
  EXPECT_EQ(good(choose(R"("auto")")).output.tools.tools.size(), 2U);
  EXPECT_EQ(good(choose(R"("none")")).output.tools.tools.size(), 0U);
  const ApiRequest one = good(choose(
      R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"b"},{"type":"web_search"}]})"));
  ASSERT_EQ(one.output.tools.tools.size(), 1U);
  EXPECT_EQ(one.output.tools.tools[0].name, "b");
  EXPECT_EQ(good(choose(R"("required")")).output.tools.mode, ToolMode::kRequired);
  const ApiRequest named = good(choose(R"({"type":"function","name":"a"})"));
  EXPECT_TRUE(named.output.tools.must_call());
  EXPECT_EQ(named.output.tools.tools.size(), 1U);
  EXPECT_EQ(bad(choose(R"({"type":"function","name":"c"})")).code, ErrorCode::kInvalidValue);
  EXPECT_EQ(bad(choose(R"({"type":"web_search"})")).code, ErrorCode::kUnsupported);
  EXPECT_EQ(bad(choose("7")).param, "tool_choice");
  EXPECT_EQ(good(R"({"input":"x","tools":[],"tool_choice":"auto"})").output.tools.tools.size(), 0U);
  EXPECT_EQ(good(R"({"input":"x","tools":null})").output.tools.tools.size(), 0U);
}

TEST_F(ResponsesRequest, LogprobsComeWhereTheyAreIncluded) {
  const ApiRequest with = good(
      R"({"input":"x","include":["message.output_text.logprobs","file_search_call.results"],"top_logprobs":3})");
  EXPECT_EQ(with.output.logprobs, 3);
  EXPECT_EQ(with.sampling.logprobs, 3);
  EXPECT_EQ(with.ignored, std::vector<std::string>{"include[1]"});
  const ApiRequest without = good(R"({"input":"x","top_logprobs":3})");
  EXPECT_FALSE(without.output.logprobs);
  EXPECT_EQ(without.ignored, std::vector<std::string>{"top_logprobs"});
}

TEST_F(ResponsesRequest, TruncationLeavesOutTheOldestWhole) {
  std::string items;
  for (int i = 0; i < 20; ++i) {
    items += R"({"role":"user","content":")" + std::to_string(i) + std::string(90, 'u') + R"("},)";
    items +=
        R"({"type":"function_call","call_id":"c)" + std::to_string(i) + R"(","name":"f","arguments":"{}"},)";
    items += R"({"type":"function_call_output","call_id":"c)" + std::to_string(i) + R"(","output":"ok"},)";
  }
  items += R"({"role":"user","content":"last"})";
  const std::string head = R"({"instructions":"system text","max_output_tokens":100,"truncation":)";
  const ApiRequest whole = good(head + R"("disabled","input":[)" + items + "]}");
  const ApiRequest cut = good(head + R"("auto","input":[)" + items + "]}");
  EXPECT_EQ(whole.chat.messages.size(), 62U);
  const auto& left = cut.chat.messages.as_array();
  ASSERT_LT(left.size(), 62U);
  ASSERT_GT(left.size(), 10U) << "no more than needed";
  EXPECT_EQ(left.front().find("content")->as_string(), "system text");
  EXPECT_EQ(left.back().find("content")->as_string(), "last");
  EXPECT_NE(left[1].find("role")->as_string(), "tool");
  EXPECT_EQ(extras(cut).object.find("truncated_messages")->as_int(),
            static_cast<std::int64_t>(62 - left.size()));
  const auto rendered = model_.chat_template->render(cut.chat);
  EXPECT_LE(model_.tokenizer->encode_marked(rendered->pieces()).size(), 1024U - 100U);
  EXPECT_EQ(good(R"({"input":"short","truncation":"auto"})").chat.messages.size(), 1U);
}

struct Refusal {
  const char* body;
  const char* param;
};

TEST_F(ResponsesRequest, RefusalsNameTheField) {
  const Refusal refusals[] = {
      {R"({})", "input"},
      {R"({"input":null})", "input"},
      {R"({"input":7})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":[{"type":"web_search_call"}]})", "input"},
      {R"({"input":[7]})", "input[0]"},
      {R"({"input":[[]]})", "input[0]"},
      {R"({"input":[{"type":7}]})", "input[0].type"},
      {R"({"input":[{"role":"user"}]})", "input[0].content"},
      {R"({"input":[{"role":7,"content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"critic","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user","content":7}]})", "input[0].content"},
      {R"({"input":[{"role":"user","content":[7]}]})", "input[0].content[0]"},
      {R"({"input":[{"role":"user","content":[{"type":"input_text"}]}]})", "input[0].content[0].text"},
      {R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":7}]}]})",
       "input[0].content[1].text"},
      {R"({"input":[{"type":"function_call","call_id":"c","arguments":"{}"}]})", "input[0].name"},
      {R"({"input":[{"type":"function_call","call_id":"c","name":"f","arguments":7}]})",
       "input[0].arguments"},
      {R"({"input":[{"type":"function_call_output","call_id":"c"}]})", "input[0].output"},
      {R"({"input":[{"type":"item_reference"}]})", "input[0].id"},
      {R"({"input":"x","instructions":7})", "instructions"},
      {R"({"input":"x","store":"yes"})", "store"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {R"({"input":"x","top_logprobs":21})", "top_logprobs"},
      {R"({"input":"x","truncation":"middle"})", "truncation"},
      {R"({"input":"x","include":"all"})", "include"},
      {R"({"input":"x","include":[7]})", "include[0]"},
      {R"({"input":"x","metadata":{"a":7}})", "metadata"},
      {R"({"input":"x","reasoning":{"effort":"enormous"}})", "reasoning.effort"},
      {R"({"input":"x","reasoning":7})", "reasoning"},
      {R"({"input":"x","text":{"format":{"type":"yaml"}}})", "text.format.type"},
      {R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format.schema"},
      {R"({"input":"x","text":{"format":{}}})", "text.format.type"},
      {R"({"input":"x","tools":[7]})", "tools[0]"},
      {R"({"input":"x","tools":[{"name":"f"}]})", "tools[0].type"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name"},
      {R"({"input":"x","tools":[{"type":"function","name":"f","parameters":[]}]})", "tools[0].parameters"},
      {R"({"input":"x","tools":[{"type":"namespace","tools":[]}]})", "tools[0].name"},
      {R"({"input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]})",
       "tools[1].name"},
      {R"({"input":"x","conversation":"conv_1"})", "conversation"},
      {R"({"input":"x","prompt":{"id":"pmpt_1"}})", "prompt"},
      {R"({"input":"x","temperature":3})", "temperature"},
      {R"({"input":"x","structured_outputs":{"json":7}})", "structured_outputs.json"},
      {R"({"input":"x","text":{"format":{"type":"json_object"}},"guided_regex":"a"})", "text.format"},
      {R"({"input":"x","stop":[""]})", "stop[0]"},
      {R"({"input":"x","strict_params":true,"nonsense":1})", "nonsense"},
  };
  for (const Refusal& refusal : refusals) {
    const Error error = bad(refusal.body);
    EXPECT_EQ(error.param, refusal.param) << refusal.body << ": " << error.message;
    EXPECT_FALSE(error.message.empty());
  }
}

TEST_F(ResponsesRequest, NullIsAbsentEverywhere) {
  const ApiRequest request = good(
      R"({"input":"x","instructions":null,"previous_response_id":null,"store":null,"background":null,"include":null,"tools":null,)"
      R"("tool_choice":null,"parallel_tool_calls":null,"reasoning":null,"text":null,"max_output_tokens":null,)"
      R"("max_tool_calls":null,"top_logprobs":null,"truncation":null,"metadata":null,"stream":null,"stream_options":null,)"
      R"("prompt_cache_key":null,"safety_identifier":null,"user":null,"service_tier":null,"temperature":null,"top_p":null,)"
      R"("conversation":null,"prompt":null})");
  EXPECT_TRUE(request.ignored.empty());
  EXPECT_TRUE(request.output.tools.parallel);
}

TEST_F(ResponsesRequest, AFloodIsBounded) {
  std::string many = R"({"input":[{"role":"user","content":"x"})";
  for (std::size_t i = 0; i < kMaxInputItems; ++i) many += R"(,{"type":"unknown"})";
  EXPECT_EQ(bad(many + "]}").code, ErrorCode::kInvalidValue);
  std::string parts = R"({"input":[{"role":"user","content":[{"type":"input_text","text":""})";
  for (std::size_t i = 0; i < kMaxItemParts; ++i) parts += R"(,{"type":"input_text","text":""})";
  EXPECT_EQ(bad(parts + "]}]}").param, "input[0].content");
}

}  // namespace
}  // namespace barg::server::responses_request_test
