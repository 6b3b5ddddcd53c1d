// Chat and completions end to end: bytes in, engine requests out, answers back; and the way down.
#include <future>
#include <memory>
#include <thread>

#include "test_server.h"

namespace barg::test::api_test {
namespace {

class ApiTest : public ServerTest {
 protected:
  void say(const std::string& text) {
    engine_->set_script([text](const Request&, std::int32_t) {
      auto ids = bytes_of(text);
      ids.push_back(kEnd);
      return ids;
    });
  }
  RawResponse ask_chat(std::string_view more) { return ask(post("/v1/chat/completions", chat(more))); }
  RawResponse ask_completion(std::string_view body) { return ask(post("/v1/completions", body)); }
};

TEST_F(ApiTest, ChatRendersTokenisesAndAnswers) {
  say("Hello!");
  start();
  const RawResponse r = ask_chat(R"(,"seed":5,"unknown_thing":1)");
  EXPECT_EQ(r.status, 200);
  const Json j = r.json();
  EXPECT_EQ(j.find("object")->as_string(), "chat.completion");
  EXPECT_EQ(j.find("model")->as_string(), "fake");
  const Json& choice = j.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("message")->find("content")->as_string(), "Hello!");
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "stop");
  EXPECT_EQ(j.find("usage")->find("prompt_tokens_details")->find("cached_tokens")->as_int(), 3);
  EXPECT_EQ(r.headers.at("x-barg-ignored"), "unknown_thing");
  const Request sent = *engine_->last_request();
  FakeTokenizer t;
  EXPECT_EQ(t.decode(sent.prompt, false), "<|start|>user\nhi<|end|>\n<|start|>assistant\n");
  EXPECT_EQ(sent.sampling.max_tokens, 1024 - static_cast<std::int32_t>(sent.prompt.size()));
  const auto record = book_->wait(1)[0];
  EXPECT_EQ(record.route, "/v1/chat/completions");
  EXPECT_EQ(record.note.output_tokens, 7);
  EXPECT_EQ(record.note.finish_reason, "stop");
  EXPECT_DOUBLE_EQ(record.note.queue_ms, 500);
}

class ChatToolsTest : public ApiTest {
 protected:
  void SetUp() override {
    dialect_ = text::bind_dialect({.dialect = text::find_dialect("hermes"),
                                   .reasoning = {.open = "<think>", .close = "</think>"},
                                   .evidence = ""},
                                  *tokenizer_);
  }
  void say_ids(std::vector<TokenId> ids) {
    ids.push_back(kEnd);
    engine_->set_script([ids](const Request&, std::int32_t) { return ids; });
  }
  std::string prompt() { return tokenizer_->decode(engine_->last_request()->prompt, false); }
  static std::vector<TokenId> call_ids() {
    auto ids = bytes_of(R"({"name":"f","arguments":{"a":1}})");
    ids.insert(ids.begin(), kCall);
    ids.push_back(kCallEnd);
    return ids;
  }
  const std::string tools_ = R"(,"tools":[{"type":"function","function":{"name":"f","description":"does f"}}])";
};

TEST_F(ChatToolsTest, ToolsAreRenderedAndCallsAnswered) {
  say_ids(call_ids());
  start();
  const Json choice = ask_chat(tools_).json().find("choices")->as_array()[0];
  EXPECT_NE(prompt().find("\"description\":\"does f\""), std::string::npos);
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "tool_calls");
  EXPECT_TRUE(choice.find("message")->find("content")->is_null());
  const Json& call = choice.find("message")->find("tool_calls")->as_array()[0];
  EXPECT_EQ(dump_json(*call.find("function")), R"({"name":"f","arguments":"{\"a\":1}"})");

  ask_chat(tools_ + R"(,"tool_choice":"none")");
  EXPECT_EQ(prompt().find("does f"), std::string::npos) << "tools that may not be called are not shown";
  EXPECT_EQ(engine_->last_request()->sampling.constraint, nullptr);
  EXPECT_EQ(ask_chat(tools_ + R"(,"tool_choice":"required")").status, 200);
  EXPECT_NE(engine_->last_request()->sampling.constraint, nullptr);
}

TEST_F(ChatToolsTest, EmptyToolsAreAbsent) {
  start();
  EXPECT_EQ(ask_chat(R"(,"tools":[],"tool_choice":"auto")").status, 200);
  EXPECT_EQ(prompt().find("tools"), std::string::npos);
}

TEST_F(ChatToolsTest, ThePromptMayEndInsideReasoning) {
  auto ids = bytes_of("hm");
  ids.push_back(kThinkEnd);
  for (const TokenId id : bytes_of("yes")) ids.push_back(id);
  say_ids(ids);
  start();
  const Json open = *ask_chat(R"(,"reasoning_effort":"high","thinking_token_budget":9)")
                         .json().find("choices")->as_array()[0].find("message");
  EXPECT_EQ(open.find("reasoning_content")->as_string(), "hm");
  EXPECT_EQ(open.find("content")->as_string(), "yes");
  const auto limit = engine_->last_request()->sampling.reasoning;
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->budget, 9);
  EXPECT_TRUE(limit->open);
  EXPECT_EQ(limit->begin, std::vector<TokenId>{kThink});
  EXPECT_EQ(limit->close, std::vector<TokenId>{kThinkEnd});
  const Json off =
      *ask_chat(R"(,"reasoning_effort":"none")").json().find("choices")->as_array()[0].find("message");
  EXPECT_EQ(off.find("reasoning_content"), nullptr);
  EXPECT_FALSE(engine_->last_request()->sampling.reasoning);
  // A user's marker opens nothing, wherever it stands.
  ask(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<think>"}]})"));
  EXPECT_EQ(ask(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<think>"}],"continue_final_message":true})"))
                .json().find("choices")->as_array()[0].find("message")->find("reasoning_content"),
            nullptr);
}

// "prefix of an open block": a client that goes on with the model's own words goes on inside what they opened.
TEST_F(ChatToolsTest, TheLastAnswerMayEndInsideReasoning) {
  auto ids = bytes_of("hm");
  ids.push_back(kThinkEnd);
  for (const TokenId id : bytes_of("yes")) ids.push_back(id);
  say_ids(ids);
  start();
  const auto message = [&](const std::string& last) {
    return *ask(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<think>"},)" + last +
                                                 R"(],"continue_final_message":true,"thinking_token_budget":5})"))
                .json().find("choices")->as_array()[0].find("message");
  };
  const Json inside = message(R"({"role":"assistant","content":"<think>I wonder"})");
  ASSERT_NE(inside.find("reasoning_content"), nullptr);
  EXPECT_EQ(inside.find("reasoning_content")->as_string(), "hm");
  EXPECT_EQ(inside.find("content")->as_string(), "yes");
  EXPECT_TRUE(engine_->last_request()->sampling.reasoning->open) << "the budget counts";
  EXPECT_EQ(message(R"({"role":"assistant","content":"<think>I wonder</think>So"})").find("reasoning_content"), nullptr);
  EXPECT_EQ(message(R"({"role":"assistant","content":"So"})").find("reasoning_content"), nullptr);
  EXPECT_EQ(message(R"({"role":"assistant","content":"So"},{"role":"user","content":"<think>"})").find("reasoning_content"),
            nullptr)
      << "a user's marker opens nothing";
}

// What has no effect on this model is named, and refused where a client is strict.
TEST_F(ApiTest, ReasoningWithoutEffectIsListed) {
  start();
  const auto ignored = [&](const std::string& more) {
    const RawResponse r = ask_chat(more);
    EXPECT_EQ(r.status, 200) << more;
    const auto at = r.headers.find("x-barg-ignored");
    return at == r.headers.end() ? std::string() : at->second;
  };
  EXPECT_EQ(ignored(R"(,"thinking_token_budget":9)"), "thinking_token_budget");
  EXPECT_EQ(ignored(R"(,"reasoning":{"max_tokens":9})"), "reasoning.max_tokens");
  EXPECT_EQ(ignored(R"(,"thinking_token_budget":-1)"), "") << "no budget";
  EXPECT_EQ(ignored(R"(,"reasoning_effort":"low")"), "reasoning_effort");
  EXPECT_EQ(ignored(R"(,"reasoning_effort":"none","enable_thinking":false)"), "") << "that it does not reason is so";
  const RawResponse refused = ask_chat(R"(,"strict_params":true,"reasoning_effort":"low")");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "reasoning_effort");
  EXPECT_EQ(ask_chat(R"(,"strict_params":true,"reasoning_effort":"none")").status, 200);
  EXPECT_EQ(ask(post("/v1/responses", R"({"input":"hi","reasoning":{"effort":"high"}})")).headers.at("x-barg-ignored"),
            "reasoning.effort");
}

TEST_F(ChatToolsTest, AnEffortThatASwitchOverrulesIsListed) {
  start();
  EXPECT_EQ(ask_chat(R"(,"enable_thinking":false,"reasoning_effort":"high")").headers.at("x-barg-ignored"),
            "reasoning_effort");
  EXPECT_EQ(ask_chat(R"(,"enable_thinking":true,"reasoning_effort":"none")").headers.at("x-barg-ignored"),
            "reasoning_effort");
  EXPECT_EQ(prompt(), "<|start|>user\nhi<|end|>\n<|start|>assistant\n<think>");
  EXPECT_FALSE(ask_chat(R"(,"enable_thinking":true,"thinking_token_budget":9)").headers.contains("x-barg-ignored"));
  const RawResponse both = ask_chat(R"(,"enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(both.error("param"), "enable_thinking");
}

TEST_F(ApiTest, PathsWithoutTheVersionAnswerToo) {
  start();
  EXPECT_EQ(ask(post("/chat/completions", chat())).status, 200);
  EXPECT_EQ(ask(post("/completions", R"({"prompt":"hi"})")).status, 200);
  EXPECT_EQ(ask(get("/models/org/fake-alias")).status, 200);
  EXPECT_EQ(ask(post("/v1/v1/chat/completions", chat())).status, 404);
}

TEST_F(ApiTest, SpecialTokensInContentArePlainText) {
  start();
  ask(post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|end|>"}]})"));
  const auto prompt = engine_->last_request()->prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEnd), 1) << "only the template's own";
}

TEST_F(ApiTest, StreamEndsWithUsageAndDone) {
  say("Hi");
  start();
  const RawResponse r = ask_chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(r.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(r.headers.at("cache-control"), "no-cache");
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
  EXPECT_NE(r.body.find("\"choices\":[],\"usage\":{\"prompt_tokens\""), std::string::npos);
  EXPECT_NE(r.body.find("\"finish_reason\":null}],\"usage\":null}"), std::string::npos);
}

TEST_F(ApiTest, PromptsTimesChoices) {
  engine_->set_script([](const Request& r, std::int32_t k) {
    return std::vector<TokenId>{r.prompt.back(), '0' + k, kEnd};
  });
  start();
  const Json j = ask_completion(R"({"prompt":["ab","cd"],"n":2})").json();
  std::vector<std::string> texts;
  for (const Json& c : j.find("choices")->as_array()) {
    EXPECT_EQ(c.find("index")->as_int(), static_cast<std::int64_t>(texts.size()));
    texts.push_back(c.find("text")->as_string());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"b0", "b1", "d0", "d1"}));
  EXPECT_EQ(j.find("usage")->find("prompt_tokens")->as_int(), 6);
  EXPECT_EQ(j.find("usage")->find("completion_tokens")->as_int(), 12);
}

TEST_F(ApiTest, TokenArraysEchoAndScoring) {
  start();
  const Json j =
      ask_completion(
          R"({"prompt":[104,105],"max_tokens":0,"echo":true,"logprobs":1,"return_token_ids":true})")
          .json();
  const Json& choice = j.find("choices")->as_array()[0];
  EXPECT_EQ(choice.find("text")->as_string(), "hi");
  EXPECT_EQ(*choice.find("logprobs")->find("tokens"), *parse_json(R"(["h","i"])"));
  EXPECT_TRUE(choice.find("logprobs")->find("token_logprobs")->as_array()[0].is_null());
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "length");
  EXPECT_EQ(*choice.find("prompt_token_ids"), *parse_json("[104,105]"));
  EXPECT_EQ(engine_->last_request()->sampling.max_tokens, 0);
  const Json text = ask_completion(R"({"prompt":"hi","max_tokens":0,"echo":true,"logprobs":1})").json();
  const Json& lp = *text.find("choices")->as_array()[0].find("logprobs");
  EXPECT_EQ(*lp.find("tokens"), *parse_json(R"(["","h","i"])")) << "BOS is there and invisible";
  EXPECT_EQ(*lp.find("text_offset"), *parse_json("[0,0,1]"));
}

TEST_F(ApiTest, PromptScoresAreBounded) {
  start();
  const std::string prompt = R"({"prompt":")" + std::string(1000, 'a') + "\",\"max_tokens\":1";
  const RawResponse many = ask_completion(prompt + R"(,"echo":true,"logprobs":20,"n":128})");
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(many.error("code"), "invalid_value");
  EXPECT_EQ(many.error("param"), "n");
  EXPECT_EQ(engine_->submitted(), 0);
  EXPECT_EQ(ask_completion(prompt + R"(,"echo":true,"logprobs":20,"n":4})").status, 200);
  EXPECT_EQ(ask_completion(prompt + R"(,"logprobs":20,"n":128})").status, 200) << "nothing of the prompt";
}

TEST_F(ApiTest, PromptsOfOneRequestEnterTogether) {
  std::vector<bool> follows;
  engine_->set_script([&](const Request& r, std::int32_t) {
    follows.push_back(r.follows);
    return std::vector<TokenId>{kEnd};
  });
  start();
  ASSERT_EQ(ask_completion(R"({"prompt":["a","b","c"]})").status, 200);
  EXPECT_EQ(follows, (std::vector<bool>{false, true, true}));
}

TEST_F(ApiTest, TokenizeHoldsNoGenerationUp) {
  std::promise<void> release;
  tokenizer_->on_encode = [gate = release.get_future().share()](std::string_view text) {
    if (text == "long") gate.wait();
  };
  start();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->send(post("/tokenize", R"({"prompt":"long"})"));
  }
  RawClient other(port());
  other.send(post("/v1/completions", R"({"prompt":"short"})"));
  EXPECT_TRUE(other.wait_for("text_completion"));
  release.set_value();
  for (auto& client : slow) EXPECT_TRUE(client->wait_for("max_model_len"));
}

TEST_F(ApiTest, StopStringFinishesTheEngine) {
  say("one two three");
  start();
  const Json j = ask_chat(R"(,"stop":"two","max_tokens":100)").json();
  EXPECT_EQ(j.find("choices")->as_array()[0].find("message")->find("content")->as_string(), "one ");
  EXPECT_EQ(engine_->finished_at(), std::vector<std::int32_t>{7});
}

TEST_F(ApiTest, LengthsAreCheckedAndClamped) {
  start();
  const RawResponse clamped = ask_chat(R"(,"max_tokens":65535)");
  EXPECT_EQ(clamped.status, 200);
  EXPECT_EQ(clamped.headers.at("x-barg-max-tokens"),
            std::to_string(engine_->last_request()->sampling.max_tokens));
  const auto submitted = engine_->submitted();
  const RawResponse exact = ask_completion("{\"prompt\":\"" + std::string(1024, 'a') + "\"}");
  EXPECT_EQ(exact.status, 400);
  EXPECT_EQ(exact.error("code"), "context_length_exceeded");
  EXPECT_EQ(exact.error("param"), "prompt");
  EXPECT_NE(exact.error("message").find(
                "maximum context length is 1024 tokens. However, your prompt resulted in 1025 tokens"),
            std::string::npos);
  const RawResponse huge = ask_completion("{\"prompt\":\"" + std::string(7 << 20, 'a') + "\"}");
  EXPECT_EQ(huge.error("code"), "context_length_exceeded");
  EXPECT_NE(huge.error("message").find("at least"), std::string::npos);
  EXPECT_EQ(ask_completion("{\"prompt\":\"" + std::string(1022, 'a') + "\",\"max_tokens\":9}").status, 200)
      << "one token of room";
  EXPECT_EQ(ask_completion("{\"prompt\":\"" + std::string(1023, 'a') + "\"}").error("code"),
            "context_length_exceeded")
      << "the prompt fits, not a single token beside it";
  EXPECT_EQ(engine_->submitted(), submitted + 1);
}

// What is refused before the text becomes tokens is too long for certain: not where a token may stand for any text,
// nor for what a template may leave out.
TEST_F(ApiTest, OnlyWhatIsTooLongForCertainIsRefusedEarly) {
  const auto encoded = std::make_shared<std::atomic<int>>(0);
  tokenizer_->on_encode = [encoded](std::string_view) { ++*encoded; };
  start();
  const std::string many(20'000, 'a'), spaces = std::string(20'000, ' ') + "\u3000";
  const auto chat_of = [&](const char* role, const std::string& content) {
    return ask(post("/v1/chat/completions", R"({"model":"fake","messages":[{"role":")" + std::string(role) +
                                                R"(","content":")" + content +
                                                R"("},{"role":"user","content":"hi"}]})"));
  };
  EXPECT_NE(chat_of("user", many).error("message").find("at least"), std::string::npos);
  EXPECT_EQ(chat_of("assistant", many).error("message").find("at least"), std::string::npos) << "reasoning goes";
  EXPECT_EQ(chat_of("user", spaces).error("message").find("at least"), std::string::npos) << "it may be trimmed";
  EXPECT_NE(chat_of("user", "a" + spaces + "b").error("message").find("at least"), std::string::npos);
  const int before = *encoded;
  EXPECT_NE(ask_completion("{\"prompt\":\"" + many + "\"}").error("message").find("at least"), std::string::npos);
  EXPECT_EQ(*encoded, before);
  tokenizer_->bounded = false;
  const std::string exact = ask_completion("{\"prompt\":\"" + many + "\"}").error("message");
  EXPECT_NE(exact.find("resulted in 20001 tokens"), std::string::npos) << exact;
  EXPECT_EQ(*encoded, before + 1);
}

// Other ids than the model's would be a wrong answer.
TEST_F(ApiTest, TextThatTheTokenizerGivesUpOnIsRefused) {
  tokenizer_->gives_up_on = "aaaa";
  start();
  const auto refused = [](const RawResponse& response, const char* param) {
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.error("message"), "gives up");
    EXPECT_EQ(response.error("param"), param);
  };
  refused(ask(post("/v1/chat/completions", R"({"model":"fake","messages":[{"role":"user","content":"aaaa"}]})")), "messages");
  refused(ask_completion(R"({"prompt":"aaaa"})"), "prompt");
  refused(ask(post("/v1/responses", R"({"model":"fake","input":"aaaa"})")), "input");
  refused(ask(post("/tokenize", R"({"model":"fake","prompt":"aaaa"})")), "prompt");
  EXPECT_EQ(ask_completion(R"({"prompt":"aaa","max_tokens":4})").status, 200);
}

TEST_F(ApiTest, ErrorsNameModelAndField) {
  start();
  const RawResponse model = ask(post(
      "/v1/chat/completions", R"({"model":"../../etc/passwd","messages":[{"role":"user","content":"x"}]})"));
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(model.error("code"), "model_not_found");
  EXPECT_EQ(model.error("param"), "model");
  const RawResponse field = ask_chat(R"(,"temperature":9)");
  EXPECT_EQ(field.status, 400);
  EXPECT_EQ(field.error("param"), "temperature");
  EXPECT_EQ(field.json().find("error")->size(), 4U);
  EXPECT_EQ(ask_chat(R"(,"tools":[{"type":"web_search"}])").error("code"), "unsupported_parameter");
  const RawResponse thrown =
      ask(post("/v1/chat/completions", R"({"messages":[{"role":"developer","content":"x"}]})"));
  EXPECT_EQ(thrown.status, 400);
  EXPECT_EQ(thrown.error("message"), "no developers here");
}

TEST_F(ApiTest, AdmissionIsAskedBeforeTokenising) {
  start();
  engine_->set_admission(std::unexpected(Error{ErrorCode::kRateLimited, "the queue is full", "", 2.5}));
  const RawResponse r = ask_chat("");
  EXPECT_EQ(r.status, 429);
  EXPECT_EQ(r.error("type"), "rate_limit_error");
  EXPECT_EQ(r.headers.at("retry-after"), "3");
  EXPECT_EQ(r.headers.at("retry-after-ms"), "2500");
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ApiTest, ProbesTellThatTheDeviceIsLost) {
  start();
  engine_->set_failed();
  for (const char* path : {"/health", "/readyz", "/livez"}) {
    const RawResponse r = ask(get(path));
    EXPECT_EQ(r.status, 503) << path;
    EXPECT_EQ(r.body, R"({"status":"failed"})") << path;
  }
}

TEST_F(ApiTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  engine_->set_script([](const Request&, std::int32_t) { return bytes_of("finished"); });
  start();
  engine_->hold(true);
  RawClient running(port()), idle(port()), probe(port());
  EXPECT_EQ(idle.ask(get("/livez")).status, 200);
  running.send(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  EXPECT_TRUE(running.wait_for("assistant"));
  server_->shutdown();
  std::jthread waiter([&] { server_->wait(); });
  EXPECT_TRUE(idle.at_end()) << "idle connections are closed";
  EXPECT_EQ(ask(get("/livez")).status, 200);
  EXPECT_EQ(ask(get("/readyz")).status, 503);
  const RawResponse refused = ask(post("/v1/chat/completions", chat()));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  engine_->hold(false);
  EXPECT_TRUE(running.wait_for("[DONE]"));
  EXPECT_NE(running.buffered().find("\"length\""), std::string::npos);
  waiter.join();
  EXPECT_FALSE(RawClient(port()).connected());
}

TEST_F(ApiTest, CutTellsStreamsAndOthers) {
  options_.shutdown_timeout_s = 0.05;
  start();
  engine_->hold(true);
  RawClient stream(port()), plain(port());
  stream.send(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  plain.send(post("/v1/chat/completions", chat()));
  EXPECT_TRUE(stream.wait_for("assistant"));
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 2; }));
  server_->shutdown();
  std::jthread waiter([&] { server_->wait(); });
  EXPECT_TRUE(stream.wait_for("server_shutdown"));
  EXPECT_TRUE(stream.wait_for("data: [DONE]\n\n"));
  const RawResponse r = plain.read();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.error("code"), "server_shutdown");
  waiter.join();
  EXPECT_EQ(engine_->active(), 0);
  EXPECT_EQ(book_->wait(2).size(), 2U);
}

TEST(ServerStart, RefusesDuplicateNamesAndBusyPorts) {
  server::ServedModel model;
  model.names = {"a"};
  model.engine = std::make_shared<FakeEngine>();
  model.tokenizer = std::make_shared<FakeTokenizer>();
  ServerOptions options;
  options.port = 0;
  EXPECT_FALSE(server::Server::start(options, {model, model}, {}));
  EXPECT_FALSE(server::Server::start(options, {}, {}));
  auto first = server::Server::start(options, {model}, {});
  ASSERT_TRUE(first);
  options.port = (*first)->port();
  const auto second = server::Server::start(options, {model}, {});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("Address already in use"), std::string::npos);
  options.port = 0;
  options.host = "not a host";
  EXPECT_FALSE(server::Server::start(options, {model}, {}));
}

TEST(ServerStart, TwoModelsInOneProcess) {
  server::ServedModel a, b;
  a.names = {"a"};
  b.names = {"b"};
  const auto engine_b = std::make_shared<FakeEngine>(77);
  a.engine = std::make_shared<FakeEngine>();
  b.engine = engine_b;
  a.tokenizer = b.tokenizer = std::make_shared<FakeTokenizer>();
  ServerOptions options;
  options.port = 0;
  auto server = server::Server::start(options, {a, b}, {},
                                      {.access = [](const server::AccessRecord&) {}, .progress = {}});
  ASSERT_TRUE(server);
  const auto ask = [&](const std::string& body) {
    return RawClient((*server)->port()).ask(post("/v1/completions", body));
  };
  EXPECT_EQ(ask(R"({"model":"b","prompt":"x"})").json().find("model")->as_string(), "b");
  EXPECT_EQ(engine_b->submitted(), 1);
  EXPECT_EQ(ask(R"({"prompt":"x"})").json().find("model")->as_string(), "a");
  EXPECT_EQ(ask(R"({"model":"c","prompt":"x"})").status, 404);
}

}  // namespace
}  // namespace barg::test::api_test
