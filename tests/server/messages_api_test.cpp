// The Messages protocol over HTTP: headers, errors of every origin in its envelope, counting, models, pings.
#include <thread>

#include "test_server.h"

namespace barg::test::messages_api_test {
namespace {

class MessagesApi : public ServerTest {
 protected:
  void say(const std::string& text) {
    engine_->set_script([text](const Request&, std::int32_t) {
      auto ids = bytes_of(text);
      ids.push_back(kEnd);
      return ids;
    });
  }
  static std::string body(std::string_view more = "") {
    return R"({"model":"fake","max_tokens":50,"messages":[{"role":"user","content":"hi"}])" + std::string(more) + "}";
  }
  RawResponse message(std::string_view more = "", std::string_view headers = "") {
    return ask(post("/v1/messages", body(more), headers));
  }
  std::string prompt() {
    return FakeTokenizer().decode(engine_->last_request()->prompt, false);
  }
  /// The envelope, complete, with the id of the header; returns the type.
  static std::string envelope(const RawResponse& r) {
    const Json j = r.json();
    EXPECT_EQ(j.size(), 3U) << r.body;
    const Json* error = j.find("error");
    if (!error || !j.find("type") || !j.find("request_id") || !r.headers.contains("request-id")) {
      ADD_FAILURE() << r.status << " " << r.body;
      return "";
    }
    EXPECT_EQ(*j.find("type"), Json("error"));
    EXPECT_EQ(error->size(), 2U) << r.body;
    EXPECT_FALSE(error->find("message")->as_string().empty());
    EXPECT_EQ(*j.find("request_id"), Json(r.headers.at("request-id")));
    EXPECT_EQ(r.headers.at("request-id"), r.headers.at("x-request-id"));
    EXPECT_EQ(r.headers.at("content-type"), "application/json");
    return error->find("type")->as_string();
  }
};

/// What Claude Code sends, in small: volatile system blocks, odd roles, many tools, cache marks, thinking, betas.
constexpr const char* kClaudeCode = R"({"model":"fake","max_tokens":32000,"stream":true,"temperature":1,
 "system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.175; cc_entrypoint=cli; cch=ea6aa;"},
  {"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},
  {"type":"text","text":"Be brief.\n<total_tokens>14999436 tokens left</total_tokens>","cache_control":{"type":"ephemeral","ttl":"1h"}}],
 "messages":[{"role":"user","content":[{"type":"text","text":"<system-reminder>x</system-reminder>"},{"type":"text","text":"list files","cache_control":{"type":"ephemeral"}}]},
  {"role":"assistant","content":[{"type":"thinking","thinking":"ls","signature":"EqQBCg"},{"type":"text","text":"Sure."},{"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command":"ls"}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":[{"type":"text","text":"a.txt"}],"is_error":false}]},
  {"role":"system","content":"<total_tokens>14990000 tokens left</total_tokens>"},
  {"role":"ctx","content":"go on"}],
 "tools":[TOOLS,{"type":"web_search_20250305","name":"web_search","max_uses":8}],
 "tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":31999},
 "metadata":{"user_id":"user_1"},"context_management":{"edits":[]},"betas":["interleaved-thinking-2025-05-14"]})";

std::string claude_code_request() {
  std::string tools;
  for (int i = 0; i < 60; ++i) {
    tools += std::string(i > 0 ? "," : "") +
             R"({"name":"mcp__server__tool)" + std::to_string(i) +
             R"(","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],)"
             R"("additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}})";
  }
  std::string out = kClaudeCode;
  return out.replace(out.find("TOOLS"), 5, tools);
}

TEST_F(MessagesApi, TheRequestOfClaudeCode) {  // api.md 7, item 58
  engine_ = std::make_shared<FakeEngine>(1 << 16);
  say("Done.");
  start();
  const RawResponse r = ask(post("/v1/messages?beta=true", claude_code_request(),
                                 "anthropic-version: 2023-06-01\r\nanthropic-beta: claude-code-20250219\r\n"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_NE(prompt().find("mcp__server__tool59"), std::string::npos);
  EXPECT_NE(prompt().find("<|start|>system\nYou are an agent.\nBe brief.<|end|>\n"
                          "<|start|>user\n<system-reminder>x</system-reminder>\nlist files<|end|>\n"
                          "<|start|>assistant\nSure.<|end|>\n<|start|>tool\na.txt<|end|>\n"
                          "<|start|>user\ngo on<|end|>\n<|start|>"),
            std::string::npos)
      << prompt();
  EXPECT_EQ(engine_->last_request()->cache_pin_s, 3600);
  const std::string& ignored = r.headers.at("x-barg-ignored");
  for (const char* name : {"system.0", "system.2", "messages.3.content", "tools.60", "metadata", "context_management"})
    EXPECT_NE(ignored.find(name), std::string::npos) << ignored;
  EXPECT_EQ(ignored.find("total_tokens"), std::string::npos);
  // The next turn has another header and counter, and the same prompt in front.
  const std::string first = prompt();
  std::string next = claude_code_request();
  next.replace(next.find("cch=ea6aa"), 9, "cch=00001").replace(next.find("14999436"), 8, "14000000");
  ask(post("/v1/messages", next));
  EXPECT_EQ(prompt(), first);
}

TEST_F(MessagesApi, VolatileLinesMayStay) {
  options_.strip_volatile_lines = false;
  engine_ = std::make_shared<FakeEngine>(1 << 16);
  start();
  ask(post("/v1/messages", claude_code_request()));
  EXPECT_NE(prompt().find("x-anthropic-billing-header"), std::string::npos);
}

TEST_F(MessagesApi, AnUnstreamedAnswer) {
  say("Hello!");
  start();
  const RawResponse r = message(R"(,"unknown_thing":1)");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json j = r.json();
  EXPECT_EQ(j.find("type")->as_string(), "message");
  EXPECT_TRUE(j.find("id")->as_string().starts_with("msg_"));
  EXPECT_EQ(dump_json(*j.find("content")), R"([{"type":"text","text":"Hello!"}])");
  EXPECT_EQ(j.find("stop_reason")->as_string(), "end_turn");
  const auto prompt_tokens = static_cast<std::int64_t>(engine_->last_request()->prompt.size());
  const Json& usage = *j.find("usage");  // api.md 7, item 33
  EXPECT_EQ(usage.find("cache_read_input_tokens")->as_int(), 3);
  EXPECT_EQ(usage.find("input_tokens")->as_int(), prompt_tokens - 3) << "cached ones are not among them";
  EXPECT_EQ(usage.find("cache_creation_input_tokens")->as_int(), 0);
  EXPECT_EQ(usage.find("output_tokens")->as_int(), 7);
  EXPECT_EQ(r.headers.at("x-barg-ignored"), "unknown_thing");
  EXPECT_EQ(r.headers.at("request-id"), r.headers.at("x-request-id"));
  EXPECT_EQ(book_->wait(1)[0].route, "/v1/messages");
}

TEST_F(MessagesApi, AStreamHasItsEventsInOrderAndNoDone) {
  say("Hi you");
  start();
  const RawResponse r = message(R"(,"stream":true)");
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(r.headers.at("request-id"), r.headers.at("x-request-id"));
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = r.body.find("event: ", at)) != std::string::npos; at += 7) {
    names.push_back(r.body.substr(at + 7, r.body.find('\n', at) - at - 7));
    if (names.size() > 1 && names.back() == "content_block_delta" && names[names.size() - 2] == names.back())
      names.pop_back();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                             "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(r.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(r.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

TEST_F(MessagesApi, StopSequencesAndLimits) {
  say("one two three");
  start();
  const Json stopped = message(R"(,"stop_sequences":["two"])").json();
  EXPECT_EQ(stopped.find("stop_reason")->as_string(), "stop_sequence");
  EXPECT_EQ(stopped.find("stop_sequence")->as_string(), "two");
  EXPECT_EQ(stopped.find("content")->as_array()[0].find("text")->as_string(), "one ");
  const Json cut = ask(post("/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":"hi"}]})")).json();
  EXPECT_EQ(cut.find("stop_reason")->as_string(), "max_tokens");
  const RawResponse clamped = ask(post("/v1/messages", R"({"max_tokens":65535,"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(clamped.status, 200);
  EXPECT_TRUE(clamped.headers.contains("x-barg-max-tokens"));
}

TEST_F(MessagesApi, APrefillIsContinued) {
  start();
  ask(post("/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"The best ("}]})"));
  EXPECT_EQ(prompt(), "<|start|>user\nhi<|end|>\n<|start|>assistant\nThe best (");
}

TEST_F(MessagesApi, WithoutThePrefixToo) {
  start();
  EXPECT_EQ(ask(post("/messages", body())).status, 200);
  EXPECT_EQ(ask(post("/messages/count_tokens", body())).status, 200);
  EXPECT_EQ(envelope(ask(post("/messages", "{}"))), "invalid_request_error");
}

TEST_F(MessagesApi, ASilentStreamIsPinged) {
  options_.sse_ping_s = 0.05;
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/messages", body(R"(,"stream":true)")));
  EXPECT_TRUE(client.wait_for("event: ping\ndata: {\"type\":\"ping\"}\n\n"));
  EXPECT_EQ(client.buffered().find(": ping\n"), client.buffered().find("event: ping\n") + 5) << "and no comments";
}

TEST_F(MessagesApi, ErrorsOfEveryOriginHaveTheEnvelope) {
  options_.api_key = {"k1"};
  options_.max_body_bytes = 4096;
  start();
  const std::string key = "x-api-key: k1\r\n";
  const auto check = [&](const RawResponse& r, int status, const std::string& type) {
    EXPECT_EQ(r.status, status) << r.body;
    EXPECT_EQ(envelope(r), type) << r.body;
  };
  check(message(), 401, "authentication_error");
  check(message("", "x-api-key: wrong\r\n"), 401, "authentication_error");
  EXPECT_EQ(message("", key).status, 200);
  EXPECT_EQ(message("", "authorization: Bearer k1\r\n").status, 200);
  check(ask(post("/v1/messages", "{", key)), 400, "invalid_request_error");
  check(ask(post("/v1/messages", R"({"model":"other","max_tokens":1,"messages":[]})", key)), 404, "not_found_error");
  check(ask(post("/v1/messages/nothing", "{}", key)), 404, "not_found_error");
  check(ask(get("/v1/messages", key)), 405, "invalid_request_error");
  check(ask(post("/v1/messages", std::string(5000, ' '), key)), 413, "request_too_large");
  check(ask("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + key + "Content-Length: 2\r\n\r\n{}"),
        415, "invalid_request_error");
  const RawResponse named = message(R"(,"temperature":9)", key);
  check(named, 400, "invalid_request_error");
  EXPECT_NE(named.error("message").find("temperature"), std::string::npos);
  const RawResponse image = ask(post("/v1/messages",
      R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"x"}}]}]})", key));
  check(image, 400, "invalid_request_error");
  EXPECT_NE(image.error("message").find("messages.0.content.0"), std::string::npos) << image.body;
}

TEST_F(MessagesApi, ATooLongPromptSaysTheNumbers) {
  start();
  const std::string long_one = R"({"max_tokens":9,"messages":[{"role":"user","content":")" + std::string(1500, 'a') + "\"}]}";
  const RawResponse r = ask(post("/v1/messages", long_one));
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(envelope(r), "invalid_request_error");
  EXPECT_TRUE(r.error("message").starts_with("prompt is too long: ")) << "agents look for it; " << r.body;
  EXPECT_NE(r.error("message").find("1024"), std::string::npos) << r.body;
  const RawResponse counted = ask(post("/v1/messages/count_tokens", long_one));
  EXPECT_EQ(counted.status, 200) << "counting has no limit but the body's";
  EXPECT_GT(counted.json().find("input_tokens")->as_int(), 1500);
}

TEST_F(MessagesApi, RefusedAdmissionIsALimitAndFullIsOverload) {
  start();
  engine_->set_admission(fail(ErrorCode::kRateLimited, "the queue is full"));
  const RawResponse limited = message();
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(envelope(limited), "rate_limit_error");
  EXPECT_TRUE(limited.headers.contains("retry-after"));
  engine_->set_admission(fail(ErrorCode::kUnavailable, "loading"));
  const RawResponse full = message();
  EXPECT_EQ(full.status, 529);
  EXPECT_EQ(envelope(full), "overloaded_error");
  EXPECT_TRUE(full.headers.contains("retry-after"));
}

TEST_F(MessagesApi, ADyingServerSaysSoInTheStream) {  // api.md 7, item 59
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/messages", body(R"(,"stream":true)")));
  ASSERT_TRUE(client.wait_for("message_start"));
  server_->cut();
  const std::jthread waiting([this] { server_->wait(); });
  ASSERT_TRUE(client.wait_for("event: error\n"));
  ASSERT_TRUE(client.wait_for("overloaded_error"));
  EXPECT_TRUE(client.wait_for("\"message\":\"the server is shutting down\""));
  EXPECT_EQ(client.buffered().find("[DONE]"), std::string::npos);
}

TEST_F(MessagesApi, AClientThatLeavesFreesItsGeneration) {  // api.md 7, item 45
  engine_->hold(true);
  start();
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto cancelled = engine_->cancelled();
    {
      RawClient client(port());
      client.send(post("/v1/messages", body(more)));
      ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
    }
    ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
    EXPECT_EQ(engine_->cancelled(), cancelled + 1);
  }
}

TEST_F(MessagesApi, CountingAsksNoEngine) {
  start();
  const RawResponse counted = ask(post("/v1/messages/count_tokens", R"({"model":"fake","messages":[{"role":"user","content":"hi"}],"odd":1})"));
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json().size(), 1U);
  EXPECT_EQ(engine_->submitted(), 0);
  EXPECT_EQ(counted.headers.at("x-barg-ignored"), "odd");
  message();
  EXPECT_EQ(counted.json().find("input_tokens")->as_int(),
            static_cast<std::int64_t>(engine_->last_request()->prompt.size()));
  EXPECT_EQ(envelope(ask(post("/v1/messages/count_tokens", R"({"messages":[]})"))), "invalid_request_error");
  EXPECT_EQ(envelope(ask(post("/v1/messages/count_tokens", "x"))), "invalid_request_error");
}

TEST_F(MessagesApi, ModelsInTheFormThatTheHeaderAsksFor) {
  start();
  const std::string version = "anthropic-version: 2023-06-01\r\n";
  const Json list = ask(get("/v1/models", version)).json();
  EXPECT_EQ(list.find("data")->size(), 2U);
  const Json& one = list.find("data")->as_array()[0];
  EXPECT_EQ(dump_json(one), R"({"type":"model","id":"fake","display_name":"fake","created_at":"1970-01-01T00:20:34Z",)"
                            R"("lifecycle":"active","max_input_tokens":1024,"max_tokens":1024})");
  EXPECT_EQ(*list.find("has_more"), Json(false));
  EXPECT_EQ(*list.find("first_id"), Json("fake"));
  EXPECT_EQ(*list.find("last_id"), Json("org/fake-alias"));
  const Json first = ask(get("/v1/models?limit=1", version)).json();
  EXPECT_EQ(first.find("data")->size(), 1U);
  EXPECT_EQ(*first.find("has_more"), Json(true));
  const Json second = ask(get("/v1/models?limit=1&after_id=fake", version)).json();
  EXPECT_EQ(*second.find("first_id"), Json("org/fake-alias"));
  EXPECT_EQ(*second.find("has_more"), Json(false));
  const Json before = ask(get("/v1/models?before_id=org%2Ffake-alias", version)).json();
  EXPECT_EQ(*before.find("last_id"), Json("fake"));
  EXPECT_EQ(envelope(ask(get("/v1/models?limit=0", version))), "invalid_request_error");
  EXPECT_EQ(ask(get("/v1/models/org%2Ffake-alias", version)).json().find("type")->as_string(), "model");
  const RawResponse none = ask(get("/v1/models/none", version));
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(envelope(none), "not_found_error");
  EXPECT_EQ(ask(get("/v1/models")).json().find("object")->as_string(), "list");
}

}  // namespace
}  // namespace barg::test::messages_api_test
