// X-Capture and replay: an answer is computed again, byte for byte.
#include "server/capture.h"

#include <malloc.h>

#include <ctime>
#include <set>

#include "server/replay.h"
#include "test_server.h"

namespace barg::test::capture_test {
namespace {

class CaptureTest : public ServerTest {
 protected:
  void SetUp() override {
    options_.capture_memory_bytes = 1 << 20;
    say("Hello there, how are you?");
  }
  void say(const std::string& text) {
    engine_->set_script([text](const Request&, std::int32_t choice) {
      auto ids = bytes_of(text);
      ids.push_back('0' + choice);
      ids.push_back(kEnd);
      return ids;
    });
  }
  RawResponse captured(std::string_view path, std::string_view body) {
    return ask(post(path, body, "X-Capture: 1\r\nX-API-Key: k\r\n"));
  }
  RawResponse fetch(const std::string& id, std::string_view key = "k") {
    return ask("GET /v1/captures/" + id + " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + std::string(key) + "\r\n\r\n");
  }
  server::ServedModel model() {
    server::ServedModel m;
    m.names = {"here"};
    m.engine = engine_;
    m.tokenizer = tokenizer_;
    m.chat_template = std::make_shared<FakeTemplate>();
    return m;
  }
  Json capsule_of(const RawResponse& answer) {
    const auto id = answer.headers.find("x-barg-capture");
    EXPECT_NE(id, answer.headers.end()) << answer.body;
    if (id == answer.headers.end()) return {};
    const RawResponse r = fetch(id->second);
    EXPECT_EQ(r.status, 200) << r.body;
    return r.json();
  }
};

TEST_F(CaptureTest, EveryKindOfAnswerIsComputedAgain) {
  start();
  const std::string completion = R"({"model":"fake","prompt":["ab","c"],"n":2,"max_tokens":40,"seed":7,)";
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/chat/completions", chat(R"(,"seed":7,"logprobs":true,"top_logprobs":2)")},
      {"/v1/chat/completions", chat(R"(,"seed":7,"stream":true,"n":3,"stream_options":{"include_usage":true})")},
      {"/v1/chat/completions", chat(R"(,"seed":7,"stream":true,"stop":["how"])")},
      {"/v1/chat/completions", chat(R"(,"seed":7,"max_tokens":5)")},
      {"/v1/completions", completion + R"("echo":true,"logprobs":1})"},
      {"/v1/completions", completion + R"("stream":true,"echo":true,"logprobs":1})"},
      {"/v1/messages", R"({"model":"fake","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/responses", R"({"model":"fake","input":"hi","stream":true})"},
  };
  for (const auto& [path, body] : requests) {
    const RawResponse answer = captured(path, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json capsule = capsule_of(answer);
    ASSERT_TRUE(capsule.is_object());
    EXPECT_EQ(capsule.find("answer")->as_string(), answer.body);
    const auto report = server::replay(model(), capsule, "9.9.9 abcdef");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same) << path << " " << body << "\n" << report->difference;
    EXPECT_EQ(report->answer, answer.body);
    EXPECT_EQ(report->note, "");
    EXPECT_EQ(engine_->last_request()->sampling.seed, 7U) << "the seed that was drawn then";
  }
}

TEST_F(CaptureTest, ADifferenceIsNamed) {
  start();
  const Json capsule = capsule_of(captured("/v1/chat/completions", chat(R"(,"seed":7)")));
  say("Hello thEre, how are you?");
  const auto report = server::replay(model(), capsule, "other");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->same);
  EXPECT_EQ(report->difference, "choice 0 of prompt 0: token 8 was 101 and is 69");
  EXPECT_EQ(report->note, "build 9.9.9 abcdef then, other now");
}

TEST_F(CaptureTest, BelongsToItsKeyAndIsOffUnlessAskedFor) {
  options_.api_key = {"k", "other"};
  start();
  const RawResponse answer = captured("/v1/chat/completions", chat());
  const std::string id = answer.headers.at("x-barg-capture");
  EXPECT_EQ(fetch(id, "other").status, 404);
  EXPECT_EQ(fetch(id).status, 200);
  EXPECT_EQ(fetch(id).body.find("\"k\""), std::string::npos) << "no key is kept";
  const RawResponse plain = ask(post("/v1/chat/completions", chat(), "X-API-Key: k\r\n"));
  EXPECT_FALSE(plain.headers.contains("x-barg-capture"));
}

TEST_F(CaptureTest, WithoutMemoryTheHeaderIsReportedAsIgnored) {
  options_.capture_memory_bytes = 0;
  start();
  const RawResponse answer = captured("/v1/chat/completions", chat());
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("x-barg-capture"));
  EXPECT_NE(answer.headers.at("x-barg-ignored").find("X-Capture"), std::string::npos);
}

// ---- what is refused, what fails

TEST_F(CaptureTest, ARefusalLeavesACapsuleToo) {
  start();
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/chat/completions", chat(R"(,"temperature":9)")},
      {"/v1/chat/completions", R"({"model":"nobody","messages":[{"role":"user","content":"hi"}]})"},
      {"/v1/chat/completions", R"({"model":)"},
      {"/v1/completions", R"({"model":"fake","prompt":")" + std::string(2000, 'x') + "\"}"},
      {"/v1/messages", R"({"model":"fake","messages":[]})"},
      {"/v1/responses", R"({"model":"fake","input":5})"},
  };
  for (const auto& [path, body] : requests) {
    const RawResponse answer = captured(path, body);
    ASSERT_GE(answer.status, 400) << body;
    ASSERT_LT(answer.status, 500) << body;
    const Json capsule = capsule_of(answer);
    ASSERT_TRUE(capsule.is_object()) << body;
    EXPECT_EQ(capsule.find("status")->as_int(), answer.status);
    std::string without_brace = capsule.find("answer")->as_string();
    without_brace.pop_back();  // Anthropic's errors get the id of the request behind it, another every time
    EXPECT_TRUE(answer.body.starts_with(without_brace)) << answer.body;
    EXPECT_EQ(capsule.find("body")->as_string(), body);
    EXPECT_EQ(capsule.find("error")->find("stage")->as_string(), "request");
    EXPECT_FALSE(capsule.find("error")->find("code")->as_string().empty());
    EXPECT_EQ(capsule.find("truncated")->size(), 0U);
    const auto report = server::replay(model(), capsule, "9.9.9 abcdef");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same) << body << "\n" << report->difference;
  }
}

TEST_F(CaptureTest, WhatIsAcceptedNowIsADifference) {
  start();
  engine_->set_admission(fail(ErrorCode::kRateLimited, "full"));
  const RawResponse answer = captured("/v1/chat/completions", chat());
  ASSERT_EQ(answer.status, 429);
  const Json capsule = capsule_of(answer);
  engine_->set_admission({});
  const auto report = server::replay(model(), capsule, "9.9.9 abcdef");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->same);
  EXPECT_NE(report->difference.find("is accepted now"), std::string::npos) << report->difference;
  EXPECT_NE(report->difference.find("full"), std::string::npos) << report->difference;
}

TEST_F(CaptureTest, AFailureInTheMiddleLeavesWhatCameBeforeIt) {
  say("Hello there, how are you?");
  engine_->hold(true);
  start();
  RawClient client(port());
  client.send(post("/v1/chat/completions", chat(R"(,"stream":true)"), "X-Capture: 1\r\nX-API-Key: k\r\n"));
  ASSERT_TRUE(client.wait_for("x-barg-capture: "));
  ASSERT_TRUE(client.wait_for("assistant"));
  const std::string& head = client.buffered();
  const std::size_t at = head.find("x-barg-capture: ") + 16;
  const std::string id = head.substr(at, head.find("\r\n", at) - at);
  EXPECT_EQ(fetch(id).status, 404) << "it runs";
  client.reset();
  book_->wait(2);
  RawResponse kept;
  for (int i = 0; i < 400 && kept.status != 200; ++i) kept = fetch(id);
  ASSERT_EQ(kept.status, 200);
  const Json capsule = kept.json();
  EXPECT_EQ(capsule.find("status")->as_int(), 499);
  EXPECT_EQ(capsule.find("error")->find("stage")->as_string(), "answer");
  EXPECT_EQ(capsule.find("error")->find("code")->as_string(), "disconnected");
  EXPECT_NE(capsule.find("answer")->as_string().find("assistant"), std::string::npos);
  const auto report = server::replay(model(), capsule, "");
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("disconnected"), std::string::npos) << report.error().message;
}

// ---- what decides an answer

TEST_F(CaptureTest, ToolCallsAndReasoningAreComputedAgain) {
  dialect_ = text::bind_dialect({.dialect = text::find_dialect("hermes"),
                                 .reasoning = {.open = "<think>", .close = "</think>"},
                                 .evidence = ""},
                                *tokenizer_);
  engine_->set_script([](const Request&, std::int32_t) {
    auto ids = bytes_of("hm, f it is");
    ids.push_back(kThinkEnd);
    ids.push_back(kCall);
    for (const TokenId id : bytes_of(R"({"name":"f","arguments":{"a":"é"}})")) ids.push_back(id);
    ids.push_back(kCallEnd);
    ids.push_back(kEnd);
    return ids;
  });
  start();
  const std::string function = R"({"name":"f","description":"does f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}})";
  const std::string tools = R"(,"reasoning_effort":"high","tools":[{"type":"function","function":)" + function + "}]";
  const std::string item = R"({"type":"function",)" + function.substr(1);
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/chat/completions", chat(tools)},
      {"/v1/chat/completions", chat(tools + R"(,"stream":true)")},
      {"/v1/responses", R"({"model":"fake","input":"hi","stream":true,"reasoning":{"effort":"high"},"tools":[)" + item + "]}"},
      {"/v1/responses", R"({"model":"fake","input":"hi","store":false,"include":["reasoning.encrypted_content"],)"
                        R"("reasoning":{"effort":"high"},"tools":[)" + item + "]}"},
      {"/v1/messages",
       R"({"model":"fake","max_tokens":2000,"stream":true,"thinking":{"type":"enabled","budget_tokens":1024},)"
       R"("messages":[{"role":"user","content":"hi"}],"tools":[{"name":"f","input_schema":{"type":"object"}}]})"},
  };
  server::ServedModel now = model();
  now.dialect = dialect_;
  now.salt_secret = "this process signs otherwise";
  int sealed = 0;
  for (const auto& [path, body] : requests) {
    const RawResponse answer = captured(path, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("\"f\""), std::string::npos) << answer.body;
    const bool seal = answer.body.find("barg1.") != std::string::npos;
    sealed += seal ? 1 : 0;
    EXPECT_EQ(answer.body.find("<tool_call>"), std::string::npos) << answer.body;
    const Json capsule = capsule_of(answer);
    ASSERT_TRUE(capsule.is_object());
    EXPECT_EQ(capsule.find("settings")->find("tool_dialect")->as_string(), "hermes");
    const auto report = server::replay(now, capsule, "9.9.9 abcdef");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->same) << path << " " << body << "\n" << report->difference;
    EXPECT_EQ(report->seals, seal) << path;
    EXPECT_EQ(report->answer == answer.body, !seal) << path;
    const auto other = server::replay(model(), capsule, "9.9.9 abcdef");
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_FALSE(other->same) << "everything is text without the dialect";
    EXPECT_NE(other->note.find("tool_dialect \"hermes\" then, null now"), std::string::npos) << other->note;
  }
  EXPECT_EQ(sealed, 2) << "thoughts that are signed, thoughts that are sealed";
}

TEST_F(CaptureTest, WhatWasSetOtherwiseIsNamed) {
  start();
  const Json capsule = capsule_of(captured("/v1/chat/completions", chat(R"(,"seed":7)")));
  server::ServedModel now = model();
  now.sampling.temperature = 0.5;
  now.sampling.top_k = 40;
  say("Another answer.");
  const auto report = server::replay(now, capsule, "9.9.9 abcdef");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->same);
  EXPECT_EQ(report->note, "temperature null then, 0.5 now; top_k null then, 40 now");
}

/// Shows the clock, as templates with a date do.
class ClockTemplate final : public text::ChatTemplate {
 public:
  Result<text::MarkedString> render(const text::ChatPrompt& prompt) const override {
    char text[64];
    const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &*prompt.now);
    return text::MarkedString{.text = std::string(text, n), .untrusted = {}};
  }
  bool has_template() const override { return true; }
  const std::string& source() const override { return source_; }

 private:
  std::string source_ = "clock";
};

TEST_F(CaptureTest, TheLocalTimeOfTheServerIsThatOfTheReplay) {
  start();
  Json capsule = capsule_of(captured("/v1/chat/completions", chat(R"(,"seed":7)")));
  ASSERT_NE(capsule.find("utc_offset"), nullptr);
  server::ServedModel now = model();
  now.chat_template = std::make_shared<ClockTemplate>();
  capsule.set("created", 1'800'000'000);
  for (const auto& [offset, text] : {std::pair{0, "2027-01-15 08:00:00"}, {5 * 3600 + 1800, "2027-01-15 13:30:00"},
                                     {-11 * 3600, "2027-01-14 21:00:00"}}) {
    capsule.set("utc_offset", offset);
    const auto report = server::replay(now, capsule, "");
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(tokenizer_->decode(engine_->last_request()->prompt, true), text);
  }
}

TEST_F(CaptureTest, OptionsOfTheServerAreTakenOver) {
  options_.strip_volatile_lines = false;
  options_.responses_store_bytes = 0;
  start();
  const std::string body =
      R"({"model":"fake","max_tokens":20,"system":"x-anthropic-billing-header: cc_version=1; cch=abc;\nBe kind.",)"
      R"("messages":[{"role":"user","content":"hi"}]})";
  const Json capsule = capsule_of(captured("/v1/messages", body));
  const auto prompt = engine_->last_request()->prompt;
  const auto report = server::replay(model(), capsule, "9.9.9 abcdef");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->same) << report->difference;
  EXPECT_EQ(engine_->last_request()->prompt, prompt) << "its volatile line too";
  const Json response = capsule_of(captured("/v1/responses", R"({"model":"fake","input":"hi"})"));
  const auto again = server::replay(model(), response, "9.9.9 abcdef");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->same) << again->difference;
}

TEST_F(CaptureTest, NoSecretIsInACapsule) {
  options_.api_key = {"k"};
  start();
  const RawResponse answer =
      ask(post("/v1/chat/completions", chat(), "X-Capture: 1\r\nAuthorization: Bearer k\r\nCookie: session=mine\r\n"));
  const std::string text = dump_json(capsule_of(answer));
  for (const char* word : {"Bearer", "session=mine", "salt"}) EXPECT_EQ(text.find(word), std::string::npos) << word;
}

// ---- memory

TokenEvent one_token(std::int32_t choice = 0) {
  TokenEvent e;
  e.choice = choice;
  e.tokens.push_back({.id = 7, .logprobs = std::nullopt});
  return e;
}

server::HttpRequest body_of(std::size_t bytes) {
  server::HttpRequest r;
  r.path = "/v1/chat/completions";
  r.body = std::string(bytes, 'b');
  return r;
}

std::set<std::string> truncated(const server::Capture& capture, std::uint64_t max_bytes) {
  const std::string text = capture.capsule(max_bytes);
  const auto json = parse_json(text, {.max_members = 0});
  EXPECT_TRUE(json) << text.substr(0, 200);
  std::set<std::string> out;
  if (json)
    for (const Json& name : json->find("truncated")->as_array()) out.insert(name.as_string());
  return out;
}

TEST(CaptureMemory, CountsWhatLiesThere) {
  server::CaptureRing ring(64 << 20);
  server::Capture capture("x", "me", ring);
  server::HttpRequest request = body_of(1 << 20);
  const void* bytes = request.body.data();
  capture.begin({}, request);
  EXPECT_TRUE(request.body.empty()) << "moved, not copied: " << bytes;
  EXPECT_GE(capture.bytes(), 1U << 20);
  const auto before = mallinfo2().uordblks + mallinfo2().hblkhd;
  const std::uint64_t counted = capture.bytes();
  for (int i = 0; i < 50'000; ++i) {
    capture.event(0, one_token(i % 64));
    capture.write("data: 0123456789\n\n");
  }
  const auto grown = mallinfo2().uordblks + mallinfo2().hblkhd - before;
  EXPECT_GE((capture.bytes() - counted) * 21 / 20, grown) << "a twentieth for the allocator";
  EXPECT_GE(capture.bytes() - counted, 50'000U * (48 + 4 + 18));
  EXPECT_EQ(ring.running_bytes(), capture.bytes());
  EXPECT_EQ(truncated(capture, 1 << 30), std::set<std::string>());
}

TEST(CaptureMemory, OneThatRunsHasABoundAndSaysWhatItLost) {
  server::CaptureRing ring(400'000);
  {
    server::Capture capture("x", "me", ring);
    server::HttpRequest request = body_of(1000);
    capture.begin({}, request);
    for (int i = 0; i < 100'000; ++i) capture.event(0, one_token());
    EXPECT_LE(capture.bytes(), ring.capture_bytes());
    EXPECT_EQ(truncated(capture, 1 << 30), (std::set<std::string>{"outputs", "events", "answer"}));
    capture.keep();
    const auto kept = ring.find("cap_x", "me");
    ASSERT_TRUE(kept);
    const auto error = server::check_capsule(*parse_json(*kept, {.max_members = 0}));
    ASSERT_FALSE(error);
  }
  EXPECT_EQ(ring.running_bytes(), 0U);
  server::Capture capture("y", "me", ring);
  server::HttpRequest large = body_of(200'000);
  capture.begin({}, large);
  capture.write("answer");
  EXPECT_EQ(truncated(capture, 1 << 30), std::set<std::string>{"body"});
  EXPECT_TRUE(large.body.empty()) << "it is not kept elsewhere";
}

TEST(CaptureMemory, AllThatRunHaveABoundTogether) {
  server::CaptureRing ring(400'000);
  std::vector<std::unique_ptr<server::Capture>> running;
  std::size_t cut = 0;
  for (int i = 0; i < 10; ++i) {
    running.push_back(std::make_unique<server::Capture>(std::to_string(i), "me", ring));
    server::HttpRequest request = body_of(50'000);
    running.back()->begin({}, request);
    EXPECT_LE(ring.running_bytes(), 200'000U);
    cut += truncated(*running.back(), 1 << 30).contains("body") ? 1 : 0;
  }
  EXPECT_EQ(cut, 7U);
  running.clear();
  EXPECT_EQ(ring.running_bytes(), 0U);
}

TEST(CaptureMemory, ACapsuleLargerThanTheRingLosesItsLargestParts) {
  server::CaptureRing ring(400'000);
  server::Capture capture("x", "me", ring);
  server::HttpRequest request = body_of(10'000);
  capture.begin({}, request);
  capture.write(std::string(30'000, '"'));  // twice as long in JSON
  EXPECT_EQ(truncated(capture, 200'000), std::set<std::string>());
  EXPECT_EQ(truncated(capture, 60'000), std::set<std::string>{"answer"});
  EXPECT_EQ(truncated(capture, 9'000), (std::set<std::string>{"answer", "body"}));
  EXPECT_LE(capture.capsule(9'000).size(), 9'000U);
}

TEST(CaptureMemory, ABodyThatIsNoTextIsNotWhole) {
  server::CaptureRing ring(400'000);
  server::Capture capture("x", "me", ring);
  server::HttpRequest request = body_of(0);
  request.body = "{\"a\":\"\xff\"}";
  capture.begin({}, request);
  EXPECT_EQ(truncated(capture, 1 << 20), std::set<std::string>{"body"}) << "JSON cannot hold its bytes";
}

TEST(CaptureRing, ForgetsTheOldestAndKeepsToItsBytes) {
  server::CaptureRing ring(20'000);
  ring.put("a", "me", std::string(4000, 'a'));
  ring.put("b", "me", std::string(4000, 'b'));
  ring.put("c", "me", std::string(4000, 'c'));
  EXPECT_FALSE(ring.find("a", "me"));
  EXPECT_TRUE(ring.find("b", "me"));
  ring.put("d", "me", std::string(10'001, 'd'));
  EXPECT_FALSE(ring.find("d", "me"));
  EXPECT_TRUE(ring.find("c", "me")) << "what never fits costs nobody else anything";
}

// ---- files that are no capsules

TEST(Replay, RefusesWhatIsNoCapsule) {
  for (const auto& [text, param] : {std::pair{"{}", "object"}, {R"({"object":"barg.capture"})", "version"},
                                    {R"({"object":"barg.capture","version":1})", "version"},
                                    {R"({"object":"barg.capture","version":2})", "id"},
                                    {R"({"object":"chat.completion","version":2})", "object"},
                                    {"[]", ""},
                                    {"5", ""}}) {
    const auto report = server::replay({}, *parse_json(text), "");
    ASSERT_FALSE(report) << text;
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidValue);
    EXPECT_EQ(report.error().param, param) << text;
  }
}

TEST_F(CaptureTest, EveryMemberOfACapsuleIsChecked) {
  start();
  const Json capsule = capsule_of(captured("/v1/chat/completions", chat(R"(,"seed":7)")));
  ASSERT_TRUE(server::check_capsule(capsule));
  const auto refused = [](const Json& json, const std::string& param) {
    const auto ok = server::check_capsule(json);
    ASSERT_FALSE(ok) << param;
    EXPECT_EQ(ok.error().param, param) << ok.error().message;
    EXPECT_EQ(ok.error().code, ErrorCode::kInvalidValue);
  };
  const auto each = [&](const Json& whole, const std::string& path, auto put) {
    for (const auto& [name, value] : whole.as_object()) {
      const std::string member = path + name;
      Json other = whole;
      other.set(name, value.is_bool() ? Json(5) : Json(true));
      refused(put(other), member);
      if (path == "headers.") continue;  // whatever was sent
      std::erase_if(other.as_object(), [&name](const Json::Member& m) { return m.first == name; });
      refused(put(other), member);
    }
    if (path == "headers.") return;
    Json more = whole;
    more.set("surprise", 1);
    refused(put(more), path + "surprise");
  };
  each(capsule, "", [](const Json& j) { return j; });
  for (const char* name : {"model", "settings", "headers"}) {
    each(*capsule.find(name), std::string(name) + ".", [&](const Json& j) {
      Json whole = capsule;
      return whole.set(name, j), whole;
    });
  }
  for (const char* name : {"outputs", "events"}) {
    each(capsule.find(name)->as_array()[0], std::string(name) + "[0].", [&](const Json& j) {
      Json whole = capsule;
      whole.find(name)->as_array()[0] = j;
      return whole;
    });
  }
}

TEST_F(CaptureTest, ACapsuleThatContradictsItsRequestIsRefused) {
  start();
  const Json capsule = capsule_of(captured("/v1/chat/completions", chat(R"(,"seed":7)")));
  const auto refused = [&](const char* list, const char* member, Json value, const char* param) {
    Json other = capsule;
    other.find(list)->as_array()[0].set(member, std::move(value));
    const auto report = server::replay(model(), other, "");
    ASSERT_FALSE(report) << list << "." << member;
    EXPECT_EQ(report.error().param, param) << report.error().message;
  };
  refused("outputs", "choice", 1, "outputs");
  refused("outputs", "prompt", 1, "outputs");
  refused("events", "choice", 5, "events");
  refused("events", "prompt", 900, "events");
  refused("events", "stop_token", kFakeVocab, "events");
  Json fewer = capsule;
  fewer.set("outputs", Json::array());
  EXPECT_EQ(server::replay(model(), fewer, "").error().param, "outputs");
  Json elsewhere = capsule;
  elsewhere.set("path", "/v1/models");
  EXPECT_EQ(server::replay(model(), elsewhere, "").error().param, "path");
}

}  // namespace
}  // namespace barg::test::capture_test
