// X-Capture and replay: an answer is computed again, byte for byte.
#include "server/capture.h"

#include "server/replay.h"
#include "test_server.h"

namespace barg::test {
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

TEST(CaptureRing, ForgetsTheOldestAndKeepsToItsBytes) {
  server::CaptureRing ring(100);
  ring.put("a", "me", std::string(40, 'a'));
  ring.put("b", "me", std::string(40, 'b'));
  ring.put("c", "me", std::string(40, 'c'));
  EXPECT_FALSE(ring.find("a", "me"));
  EXPECT_TRUE(ring.find("b", "me"));
  ring.put("d", "me", std::string(101, 'd'));
  EXPECT_FALSE(ring.find("d", "me"));
  EXPECT_TRUE(ring.find("c", "me")) << "what never fits costs nobody else anything";
}

TEST(Replay, RefusesWhatIsNoCapsule) {
  for (const char* text : {"{}", R"({"object":"barg.capture","version":2})", R"({"object":"barg.capture","version":1})", "[]"}) {
    const auto report = server::replay({}, *parse_json(text), "");
    ASSERT_FALSE(report) << text;
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidValue);
  }
}

}  // namespace
}  // namespace barg::test
