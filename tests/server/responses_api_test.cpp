// The Responses endpoints end to end: answers, what is kept of them, background work, cancel, replay, keys.
#include <set>
#include <thread>

#include "base/hash.h"
#include "server/responses_store.h"
#include "test_server.h"

namespace barg::test::responses_api_test {
namespace {

class ResponsesApiTest : public ServerTest {
 protected:
  void say(const std::string& text) {
    engine_->set_script([text](const Request&, std::int32_t) {
      auto ids = bytes_of(text);
      ids.push_back(kEnd);
      return ids;
    });
  }
  RawResponse create(std::string_view body, std::string_view headers = "") {
    return ask(post("/v1/responses", body, headers));
  }
  RawResponse read(const std::string& id, std::string_view headers = "") {
    return ask(get("/v1/responses/" + id, headers));
  }
  static std::string member(const Json& json, const char* name) {
    const Json* v = json.find(name);
    return v && v->is_string() ? v->as_string() : "";
  }
  static std::string text_of(const Json& response) {
    std::string out;
    for (const Json& item : response.find("output")->as_array()) {
      if (member(item, "type") != "message") continue;
      for (const Json& part : item.find("content")->as_array()) out += part.find("text")->as_string();
    }
    return out;
  }
  /// Polls until the response has the status.
  Json wait_for(const std::string& id, std::string_view status, std::string_view headers = "") {
    for (int i = 0; i < 2000; ++i) {
      const Json now = read(id, headers).json();
      if (member(now, "status") == status) return now;
      std::this_thread::yield();
    }
    ADD_FAILURE() << id << " never became " << status;
    return Json::object();
  }
  static std::string sent(std::string_view method, const std::string& path, std::string_view headers = "") {
    return std::string(method) + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" +
           std::string(headers) + "\r\n";
  }
  std::string prompt() { return tokenizer_->decode(engine_->last_request()->prompt, false); }
};

TEST_F(ResponsesApiTest, AnAnswerIsKeptUnderItsId) {
  say("Hello!");
  start();
  const RawResponse r = create(R"({"model":"fake","input":"hi","unknown":1})");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json answer = r.json();
  EXPECT_EQ(member(answer, "object"), "response");
  EXPECT_EQ(member(answer, "status"), "completed");
  EXPECT_EQ(text_of(answer), "Hello!");
  EXPECT_TRUE(answer.find("store")->as_bool());
  EXPECT_EQ(answer.find("usage")->find("output_tokens")->as_int(), 7);
  EXPECT_EQ(r.headers.at("x-barg-ignored"), "unknown");
  EXPECT_EQ(create(R"({"input":"hi","tools":[{"type":"web_search"}]})").headers.at("x-barg-ignored"),
            "tools[0].web_search");
  const std::string id = member(answer, "id");
  EXPECT_TRUE(id.starts_with("resp_"));
  EXPECT_EQ(read(id).body, r.body);
  EXPECT_EQ(ask(get("/responses/" + id)).body, r.body) << "without the prefix, too";
  const RawResponse gone = ask(sent("DELETE", "/v1/responses/" + id));
  EXPECT_EQ(gone.body, R"({"id":")" + id + R"(","object":"response","deleted":true})");
  EXPECT_EQ(read(id).status, 404);
  EXPECT_EQ(read(id).error("code"), "response_not_found");
  EXPECT_EQ(ask(sent("DELETE", "/v1/responses/" + id)).status, 404);
}

TEST_F(ResponsesApiTest, EveryMemberThatOpenResponsesWantsIsThere) {
  start();
  const Json answer = create(R"({"input":"hi"})").json();
  for (const char* key : {"id",
                          "object",
                          "created_at",
                          "completed_at",
                          "status",
                          "incomplete_details",
                          "model",
                          "previous_response_id",
                          "instructions",
                          "output",
                          "error",
                          "tools",
                          "tool_choice",
                          "truncation",
                          "parallel_tool_calls",
                          "text",
                          "top_p",
                          "presence_penalty",
                          "frequency_penalty",
                          "top_logprobs",
                          "temperature",
                          "reasoning",
                          "usage",
                          "max_output_tokens",
                          "max_tool_calls",
                          "store",
                          "background",
                          "service_tier",
                          "metadata",
                          "safety_identifier",
                          "prompt_cache_key"})
    EXPECT_NE(answer.find(key), nullptr) << key;
}

TEST_F(ResponsesApiTest, StoreFalseKeepsNothing) {
  start();
  const Json answer = create(R"({"input":"hi","store":false})").json();
  EXPECT_FALSE(answer.find("store")->as_bool());
  EXPECT_EQ(read(member(answer, "id")).status, 404);
}

TEST_F(ResponsesApiTest, AServerThatStoresNothingSaysSo) {
  options_.responses_store_bytes = 0;
  start();
  const Json answer = create(R"({"input":"hi","store":true})").json();
  EXPECT_EQ(member(answer, "status"), "completed");
  EXPECT_FALSE(answer.find("store")->as_bool());
  EXPECT_NE(read(member(answer, "id")).error("message").find("stores no responses"), std::string::npos);
}

TEST_F(ResponsesApiTest, AConversationContinues) {
  say("two");
  start();
  const std::string id = member(create(R"({"instructions":"Old.","input":"one"})").json(), "id");
  const Json next =
      create(R"({"instructions":"New.","input":"three","previous_response_id":")" + id + "\"}").json();
  EXPECT_EQ(prompt(),
            "<|start|>system\nNew.<|end|>\n<|start|>user\none<|end|>\n<|start|>assistant\ntwo<|end|>\n"
            "<|start|>user\nthree<|end|>\n<|start|>assistant\n");
  EXPECT_EQ(member(next, "previous_response_id"), id);
  ask(sent("DELETE", "/v1/responses/" + id));
  create(R"({"input":"four","previous_response_id":")" + member(next, "id") + "\"}");
  EXPECT_NE(prompt().find("user\none"), std::string::npos)
      << "what a later turn stands on outlives its own id";
  const RawResponse lost = create(R"({"input":"x","previous_response_id":")" + id + "\"}");
  EXPECT_EQ(lost.status, 400);
  EXPECT_EQ(lost.error("code"), "previous_response_not_found");
  EXPECT_EQ(lost.error("param"), "previous_response_id");
}

TEST_F(ResponsesApiTest, KeysDoNotSeeEachOthersAnswers) {
  options_.api_key = {"alice", "bob"};
  start();
  const std::string alice = "Authorization: Bearer alice\r\n", bob = "x-api-key: bob\r\n";
  const std::string id = member(create(R"({"input":"hi"})", alice).json(), "id");
  EXPECT_EQ(read(id, alice).status, 200);
  EXPECT_EQ(read(id, bob).status, 404);
  EXPECT_EQ(ask(sent("DELETE", "/v1/responses/" + id, bob)).status, 404);
  EXPECT_EQ(ask(sent("POST", "/v1/responses/" + id + "/cancel", bob)).status, 404);
  EXPECT_EQ(ask(get("/v1/responses/" + id + "/input_items", bob)).status, 404);
  EXPECT_EQ(create(R"({"input":"x","previous_response_id":")" + id + "\"}", bob).error("code"),
            "previous_response_not_found");
  EXPECT_EQ(read(id).status, 401);
}

/// The data of each event of a stream.
std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> out;
  for (std::size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at + 1)) {
    auto json = parse_json(body.substr(at + 6, body.find('\n', at) - at - 6));
    EXPECT_TRUE(json);
    if (json) out.push_back(std::move(*json));
  }
  return out;
}

TEST_F(ResponsesApiTest, AStreamCanBeReadAgain) {
  say("Hello!");
  start();
  const RawResponse r = create(R"({"input":"hi","stream":true})");
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto events = events_of(r.body);
  ASSERT_GE(events.size(), 9U);
  EXPECT_EQ(member(events.front(), "type"), "response.created");
  EXPECT_EQ(member(events.back(), "type"), "response.completed");
  const Json& last = *events.back().find("response");
  const std::string id = member(last, "id");
  EXPECT_EQ(read(id).body, dump_json(last));
  EXPECT_EQ(ask(get("/v1/responses/" + id + "?stream=true")).body, r.body);
  const RawResponse rest = ask(get("/v1/responses/" + id + "?stream=true&starting_after=3"));
  EXPECT_EQ(events_of(rest.body).front().find("sequence_number")->as_int(), 4);
  EXPECT_TRUE(r.body.ends_with(rest.body));
  EXPECT_EQ(ask(get("/v1/responses/" + id + "?stream=true&starting_after=999")).body, "");
  EXPECT_EQ(ask(get("/v1/responses/" + id + "?stream=true&starting_after=x")).status, 400);
  const std::string whole = member(create(R"({"input":"hi"})").json(), "id");
  EXPECT_EQ(ask(get("/v1/responses/" + whole + "?stream=true")).status, 400);
}

TEST_F(ResponsesApiTest, HeadOfAStreamHasNoBody) {
  start();
  const RawResponse r = create(R"({"input":"hi","stream":true})");
  const std::string id = member(*events_of(r.body).back().find("response"), "id");
  RawClient client(port());
  client.send("HEAD /v1/responses/" + id + "?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read(true).status, 200);
  EXPECT_EQ(client.ask(get("/livez")).status, 200) << "no byte of a stream lies before it";
}

TEST_F(ResponsesApiTest, AReplayReachesASlowReaderWhole) {
  say(std::string(900, 'x'));
  start();
  const RawResponse r = create(R"({"input":"hi","stream":true})");
  ASSERT_GT(r.body.size(), 100'000U);
  const Json last = *events_of(r.body).back().find("response");
  RawClient slow(port(), 2048);
  slow.send(get("/v1/responses/" + member(last, "id") + "?stream=true"));
  for (int i = 0; i < 200; ++i) read(member(last, "id"));  // time passes, and nothing is read
  EXPECT_EQ(slow.read().body, r.body);
}

TEST_F(ResponsesApiTest, BackgroundWorkNeedsNoClient) {
  say("done");
  engine_->hold(true);
  start();
  const Json queued = create(R"({"input":"hi","background":true})").json();
  EXPECT_EQ(member(queued, "status"), "queued");
  EXPECT_TRUE(queued.find("background")->as_bool());
  const std::string id = member(queued, "id");
  EXPECT_EQ(member(read(id).json(), "status"), "queued");
  EXPECT_EQ(create(R"({"input":"x","previous_response_id":")" + id + "\"}").status, 400) << "it runs";
  engine_->hold(false);
  EXPECT_EQ(text_of(wait_for(id, "completed")), "done");
}

TEST_F(ResponsesApiTest, ABackgroundStreamGoesOnWithoutItsReader) {
  say("Hello, reader!");
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"hi","background":true,"stream":true})"));
  ASSERT_TRUE(client.wait_for("event: response.queued"));
  const std::string& seen = client.buffered();
  const std::size_t at = seen.find("\"id\":\"resp_");
  const std::string id = seen.substr(at + 6, 29);
  client.reset();
  // A second reader begins before there is more, and gets it as it comes.
  RawClient second(port());
  second.send(get("/v1/responses/" + id + "?stream=true&starting_after=1"));
  ASSERT_TRUE(second.wait_for("\r\n\r\n"));
  engine_->hold(false);
  EXPECT_EQ(text_of(wait_for(id, "completed")), "Hello, reader!");
  ASSERT_TRUE(second.wait_for("event: response.completed"));
  EXPECT_EQ(engine_->cancelled(), 0);
  const auto all = events_of(ask(get("/v1/responses/" + id + "?stream=true")).body);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].find("sequence_number")->as_int(), static_cast<std::int64_t>(i));
  EXPECT_EQ(member(all[1], "type"), "response.queued");
  EXPECT_EQ(member(all[2], "type"), "response.in_progress");
}

/// The id in the first event of a stream.
std::string id_in(const std::string& seen) { return seen.substr(seen.find("\"id\":\"resp_") + 6, 29); }

TEST_F(ResponsesApiTest, AReaderAheadOfTheStreamWaitsForItsEvent) {
  say("Hello!");
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"hi","background":true,"stream":true})"));
  ASSERT_TRUE(client.wait_for("event: response.queued"));
  const std::string path = "/v1/responses/" + id_in(client.buffered()) + "?stream=true&starting_after=";
  RawClient ahead(port()), beyond(port());
  ahead.send(get(path + "5"));
  beyond.send(get(path + "5000"));
  ASSERT_TRUE(ahead.wait_for("\r\n\r\n") && beyond.wait_for("\r\n\r\n"));
  engine_->hold(false);
  EXPECT_EQ(events_of(ahead.read().body).front().find("sequence_number")->as_int(), 6);
  const RawResponse none = beyond.read();
  EXPECT_TRUE(none.complete) << "it ends with the answer";
  EXPECT_EQ(none.body, "");
}

TEST_F(ResponsesApiTest, AReaderThatLeavesMakesRoomForAnother) {
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"hi","background":true,"stream":true})"));
  ASSERT_TRUE(client.wait_for("event: response.queued"));
  const std::string read = get("/v1/responses/" + id_in(client.buffered()) + "?stream=true");
  std::vector<std::unique_ptr<RawClient>> readers;
  for (std::size_t i = 1; i < server::kMaxFollowers; ++i) {
    readers.push_back(std::make_unique<RawClient>(port()));
    readers.back()->send(read);
    ASSERT_TRUE(readers.back()->wait_for("event: response.queued"));
  }
  EXPECT_EQ(ask(read).status, 429);
  readers.back()->reset();
  // Nothing of the answer comes in the meantime: that it left is all that can free its place.
  bool admitted = false;
  for (int i = 0; i < 2000 && !admitted; ++i) {
    RawClient next(port());
    next.send(read);
    admitted = next.wait_for("\r\n\r\n") && next.buffered().starts_with("HTTP/1.1 200");
  }
  EXPECT_TRUE(admitted);
}

TEST_F(ResponsesApiTest, MetricsSayWhatIsStored) {
  start();
  const auto has = [&](const std::string& line) {
    return ask(get("/metrics")).body.find("\n" + line) != std::string::npos;
  };
  EXPECT_TRUE(has("barg_responses_stored 0\n"));
  EXPECT_TRUE(has("barg_responses_stored_bytes 0\n"));
  const std::string id = member(create(R"({"input":"hi"})").json(), "id");
  EXPECT_TRUE(has("barg_responses_stored 1\n"));
  EXPECT_FALSE(has("barg_responses_stored_bytes 0\n"));
  ask(sent("DELETE", "/v1/responses/" + id));
  EXPECT_TRUE(has("barg_responses_stored 0\n"));
}

TEST_F(ResponsesApiTest, CancelFreesTheEngine) {
  engine_->hold(true);
  start();
  const std::string id = member(create(R"({"input":"hi","background":true})").json(), "id");
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  const RawResponse r = ask(sent("POST", "/v1/responses/" + id + "/cancel"));
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(member(r.json(), "status"), "cancelled");
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  EXPECT_EQ(member(ask(sent("POST", "/responses/" + id + "/cancel")).json(), "status"), "cancelled")
      << "twice is once";
  EXPECT_EQ(member(read(id).json(), "status"), "cancelled");
}

TEST_F(ResponsesApiTest, CancelEndsAStreamForItsReader) {
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"hi","stream":true})"));
  ASSERT_TRUE(client.wait_for("event: response.in_progress"));
  const std::string& seen = client.buffered();
  const std::string id = seen.substr(seen.find("\"id\":\"resp_") + 6, 29);
  EXPECT_EQ(member(ask(sent("POST", "/v1/responses/" + id + "/cancel")).json(), "status"), "cancelled");
  ASSERT_TRUE(client.wait_for("0\r\n\r\n")) << "the stream ends";
  EXPECT_NE(client.buffered().find("\"status\":\"cancelled\""), std::string::npos);
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
}

TEST_F(ResponsesApiTest, AReaderThatLeavesEndsItsAnswer) {
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/responses", R"({"input":"hi","stream":true})"));
  ASSERT_TRUE(client.wait_for("event: response.in_progress"));
  const std::string& seen = client.buffered();
  const std::string id = seen.substr(seen.find("\"id\":\"resp_") + 6, 29);
  client.reset();
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  wait_for(id, "cancelled");
}

TEST_F(ResponsesApiTest, DeletingRunningWorkEndsIt) {
  engine_->hold(true);
  start();
  const std::string id = member(create(R"({"input":"hi","background":true})").json(), "id");
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  EXPECT_EQ(ask(sent("DELETE", "/v1/responses/" + id)).status, 200);
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  EXPECT_EQ(read(id).status, 404);
}

TEST_F(ResponsesApiTest, AStoreFullOfRunningWorkRefusesMore) {
  options_.responses_store_bytes = 4'000;
  engine_->hold(true);
  start();
  EXPECT_EQ(create(R"({"input":"hi","background":true})").status, 200);
  RawResponse refused;
  for (int i = 0; i < 4 && refused.status != 429; ++i)
    refused = create(R"({"input":"hi","background":true})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_FALSE(refused.headers["retry-after"].empty());
  engine_->hold(false);
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
}

TEST_F(ResponsesApiTest, InputItemsAreListedInPages) {
  start();
  const std::string id = member(create(R"({"input":[{"role":"user","content":"one"},
      {"type":"message","role":"assistant","id":"msg_mine","status":"completed","content":[{"type":"output_text","text":"two","annotations":[]}]},
      {"role":"user","content":"three"}]})")
                                    .json(),
                                "id");
  const std::string path = "/v1/responses/" + id + "/input_items";
  const Json all = ask(get(path)).json();
  ASSERT_EQ(all.find("data")->size(), 3U);
  EXPECT_FALSE(all.find("has_more")->as_bool());
  EXPECT_EQ(dump_json(*all.find("data")->as_array()[0].find("content")),
            R"([{"type":"input_text","text":"three"}])");
  EXPECT_EQ(member(all.find("data")->as_array()[1], "id"), "msg_mine");
  EXPECT_EQ(member(all, "first_id"), member(all.find("data")->as_array()[0], "id"));
  const Json page = ask(get(path + "?order=asc&limit=1&after=msg_mine")).json();
  ASSERT_EQ(page.find("data")->size(), 1U);
  EXPECT_EQ(page.find("data")->as_array()[0], all.find("data")->as_array()[0]);
  EXPECT_TRUE(ask(get(path + "?limit=1")).json().find("has_more")->as_bool());
  EXPECT_EQ(ask(get(path + "?limit=0")).error("param"), "limit");
  EXPECT_EQ(ask(get(path + "?order=up")).error("param"), "order");
}

TEST_F(ResponsesApiTest, TokensAreCountedWithoutAnAnswer) {
  start();
  const RawResponse r =
      ask(post("/v1/responses/input_tokens", R"({"input":"hi","instructions":"Be brief."})"));
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.body, R"({"object":"response.input_tokens","input_tokens":)" +
                        std::to_string(create(R"({"input":"hi","instructions":"Be brief."})")
                                           .json()
                                           .find("usage")
                                           ->find("input_tokens")
                                           ->as_int()) +
                        "}");
  EXPECT_EQ(engine_->submitted(), 1);
  EXPECT_EQ(ask(post("/responses/input_tokens", "{}")).error("param"), "input");
}

TEST_F(ResponsesApiTest, MistakesAreAnswered400) {
  start();
  for (const char* body :
       {"", "{", "[]", "{}", R"({"input":7})", R"({"input":"x","background":true,"store":false})",
        R"({"input":[{"role":"user","content":[{"type":"input_file"}]}]})",
        R"({"input":"x","text":{"format":{"type":"json_schema","name":"a","schema":{"type":"strnig"}}}})"}) {
    const RawResponse r = create(body);
    EXPECT_EQ(r.status, 400) << body << r.body;
    EXPECT_FALSE(r.error("message").empty());
    EXPECT_EQ(r.error("type"), "invalid_request_error");
  }
  EXPECT_EQ(create(R"({"model":"none","input":"x"})").status, 404);
  EXPECT_EQ(create(R"({"input":")" + std::string(2000, 'x') + "\"}").error("code"),
            "context_length_exceeded");
  EXPECT_EQ(ask(get("/v1/responses")).status, 405);
  EXPECT_EQ(ask(get("/v1/responses/a/b/c")).status, 404);
}

TEST_F(ResponsesApiTest, BackgroundWorkThatIsRefusedIsToldSo) {
  engine_->set_admission({});
  engine_->drain();  // the engine refuses what was admitted
  start();
  const RawResponse refused = create(R"({"input":"hi","background":true})");
  EXPECT_EQ(refused.status, 503) << "refused at once it is told so, and nothing is kept";
}

TEST_F(ResponsesApiTest, NothingKeepsAGenerationThatHasAnswered) {
  start();
  const auto none = engine_.use_count();
  const std::string id = member(create(R"({"input":"hi","background":true})").json(), "id");
  create(R"({"input":"hi"})");
  create(R"({"input":"hi","stream":true})");
  create(R"({"input":"hi","store":false})");
  wait_for(id, "completed");
  for (int i = 0; i < 2000 && engine_.use_count() > none; ++i) read(id);
  EXPECT_EQ(engine_.use_count(), none);
}

TEST_F(ResponsesApiTest, TheServerStopsWithWorkInTheBackground) {
  engine_->hold(true);
  start();
  create(R"({"input":"hi","background":true})");
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  server_->cut();
  server_->wait();
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
}

}  // namespace
}  // namespace barg::test::responses_api_test
