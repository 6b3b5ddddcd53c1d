// POST /v1/explain: what a request would become.
#include "test_server.h"

namespace barg::test {
namespace {

class ExplainTest : public ServerTest {
 protected:
  RawResponse explain(std::string_view target, std::string_view body) { return ask(post(target, body)); }
};

TEST_F(ExplainTest, ShowsPromptValuesAndQueueAndAsksForNothing) {
  start();
  const RawResponse r = explain("/v1/explain", chat(R"(,"top_p":0.5,"max_tokens":9000,"unknown_thing":1)"));
  ASSERT_EQ(r.status, 200) << r.body;
  const Json j = r.json();
  EXPECT_EQ(j.find("endpoint")->as_string(), "/v1/chat/completions");
  EXPECT_TRUE(j.find("refused")->is_null());
  const Json& prompt = j.find("prompts")->as_array()[0];
  EXPECT_EQ(prompt.find("text")->as_string(), "<|start|>user\nhi<|end|>\n<|start|>assistant\n");
  EXPECT_EQ(prompt.find("tokens")->as_int(), static_cast<std::int64_t>(prompt.find("token_ids")->size()));
  EXPECT_EQ(j.find("max_tokens")->find("asked")->as_int(), 9000);
  EXPECT_EQ(j.find("max_tokens")->find("effective")->as_int(), 1024 - prompt.find("tokens")->as_int());
  const Json& settings = *j.find("settings");
  EXPECT_EQ(settings.find("top_p")->find("value")->as_double(), 0.5);
  EXPECT_EQ(settings.find("top_p")->find("from")->as_string(), "request");
  EXPECT_EQ(settings.find("temperature")->find("from")->as_string(), "default");
  EXPECT_EQ(j.find("ignored")->as_array()[0].as_string(), "unknown_thing");
  EXPECT_EQ(j.find("cached_tokens")->as_int(), prompt.find("tokens")->as_int() / 2);
  EXPECT_EQ(j.find("queue")->find("waiting")->as_int(), 3);
  EXPECT_EQ(j.find("queue")->find("predicted_ttft_s")->as_double(), 0.5);
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ExplainTest, TakesTheBodyOfEveryEndpoint) {
  start();
  const RawResponse completion =
      explain("/v1/explain?endpoint=/v1/completions", R"({"model":"fake","prompt":["ab","cde"]})");
  ASSERT_EQ(completion.status, 200) << completion.body;
  EXPECT_EQ(completion.json().find("prompts")->size(), 2U);
  const RawResponse messages = explain("/v1/explain?x=1&endpoint=%2Fmessages",
                                       R"({"model":"fake","max_tokens":5,"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(messages.status, 200) << messages.body;
  EXPECT_EQ(messages.json().find("max_tokens")->find("effective")->as_int(), 5);
  EXPECT_EQ(explain("/v1/explain?endpoint=/v1/responses", R"({"model":"fake","input":"hi"})").status, 200);
}

TEST_F(ExplainTest, ARefusalIsPartOfTheExplanation) {
  engine_->set_admission(fail(ErrorCode::kRateLimited, "the queue is full"));
  start();
  const Json full = explain("/v1/explain", chat()).json();
  EXPECT_EQ(full.find("refused")->find("code")->as_string(), "rate_limit_exceeded");
  const std::string text(2000, 'x');
  const RawResponse r = explain("/v1/explain?endpoint=/v1/completions", R"({"model":"fake","prompt":")" + text + "\"}");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json j = r.json();
  EXPECT_EQ(j.find("refused")->find("code")->as_string(), "context_length_exceeded");
  EXPECT_EQ(j.find("prompts")->as_array()[0].find("tokens")->as_int(), 2001);
  EXPECT_TRUE(j.find("queue")->is_null());
}

TEST_F(ExplainTest, MistakesAreThoseOfTheEndpoint) {
  start();
  const RawResponse body = explain("/v1/explain", R"({"model":"fake","messages":[]})");
  EXPECT_EQ(body.status, 400);
  EXPECT_EQ(body.error("param"), "messages");
  const RawResponse endpoint = explain("/v1/explain?endpoint=/v1/models", chat());
  EXPECT_EQ(endpoint.status, 400);
  EXPECT_EQ(endpoint.error("param"), "endpoint");
  EXPECT_EQ(explain("/v1/explain?endpoint=%zz", chat()).status, 400);
}

}  // namespace
}  // namespace barg::test
