// POST /v1/explain: what a request would become.
#include "test_server.h"

namespace barg::test::explain_test {
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
  engine_->set_admission({});
  const std::string text(2000, 'x');
  const RawResponse r = explain("/v1/explain?endpoint=/v1/completions", R"({"model":"fake","prompt":")" + text + "\"}");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json j = r.json();
  EXPECT_EQ(j.find("refused")->find("code")->as_string(), "context_length_exceeded");
  EXPECT_EQ(j.find("prompts")->as_array()[0].find("tokens")->as_int(), 2001);
  EXPECT_TRUE(j.find("queue")->is_null());
}

// Whatever refuses a request refuses it in the explanation, in the same words: first the queue and the size of the body,
// then what is found when its prompts are made, then the engine.
TEST_F(ExplainTest, ARefusalIsThatOfTheRequest) {
  start();
  const auto same = [&](std::string_view path, const std::string& body) {
    const RawResponse refused = ask(post(path, body));
    EXPECT_GE(refused.status, 400) << refused.body;
    const RawResponse r = explain("/v1/explain?endpoint=" + std::string(path), body);
    EXPECT_EQ(r.status, 200) << r.body;
    if (r.status != 200) return Json::object();
    const Json explained = r.json(), error = *refused.json().find("error");
    for (const char* key : {"message", "param", "code", "type"})
      EXPECT_EQ(dump_json(*explained.find("refused")->find(key)), dump_json(*error.find(key))) << body.substr(0, 80);
    return explained;
  };
  const auto prompt = [](std::size_t size, std::string_view more = "") {
    return R"({"model":"fake","prompt":")" + std::string(size, 'x') + "\"" + std::string(more) + "}";
  };
  const Json endless = same("/v1/completions", prompt(50'000));
  EXPECT_EQ(endless.find("prompts")->size(), 0U) << "it is not even read";
  const Json long_one = same("/v1/completions", prompt(2'000));
  const Json& shown = long_one.find("prompts")->as_array()[0];
  EXPECT_EQ(shown.find("tokens")->as_int(), 2'001);
  EXPECT_TRUE(shown.find("text")->is_null() && shown.find("token_ids")->is_null()) << "nobody will read it";
  const Json scores = same("/v1/completions", prompt(500, R"(,"echo":true,"logprobs":20,"n":128)"));
  EXPECT_EQ(scores.find("refused")->find("param")->as_string(), "n");
  engine_->set_verdict(fail(ErrorCode::kContextLengthExceeded, "more than the pool", "prompt"));
  same("/v1/chat/completions", chat());
  engine_->set_verdict({});
  engine_->set_admission(fail(ErrorCode::kRateLimited, "the queue is full"));
  const Json full = same("/v1/chat/completions", chat());
  EXPECT_EQ(full.find("prompts")->size(), 1U) << "what it would be is shown all the same";
  same("/v1/completions", prompt(2'000));
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
}  // namespace barg::test::explain_test
