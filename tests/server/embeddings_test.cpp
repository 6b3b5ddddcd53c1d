// POST /v1/embeddings end to end: bodies right and wrong, both formats, cuts, and models of the other kind.
#include <cmath>
#include <cstring>

#include "server/embeddings_answer.h"
#include "server/embeddings_request.h"
#include "test_server.h"

namespace barg::test::embeddings_test {
namespace {

constexpr std::int32_t kSize = 4;

/// [number of tokens, last token, 0.1, first token]
std::vector<float> embed(const Request& r) {
  return {static_cast<float>(r.prompt.size()), static_cast<float>(r.prompt.back()), 0.1F, static_cast<float>(r.prompt[0])};
}

class EmbeddingsTest : public ServerTest {
 protected:
  void SetUp() override { engine_->set_embedding({.size = kSize, .normalise = false}, embed); }
  RawResponse ask_embeddings(const std::string& body) { return ask(post("/v1/embeddings", body)); }
  static std::vector<float> vector_of(const RawResponse& r, std::size_t index = 0) {
    std::vector<float> out;
    const Json json = r.json();
    for (const Json& x : json.find("data")->as_array()[index].find("embedding")->as_array())
      out.push_back(static_cast<float>(x.as_double()));
    return out;
  }
};

TEST_F(EmbeddingsTest, AnswersInTheOrderOfItsInputs) {
  start();
  const RawResponse r = ask_embeddings(R"({"model":"fake","input":["ab","c"],"user":"u","nonsense":1})");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json json = r.json();
  EXPECT_EQ(json.find("object")->as_string(), "list");
  EXPECT_EQ(json.find("model")->as_string(), "fake");
  EXPECT_EQ(dump_json(*json.find("usage")), R"({"prompt_tokens":5,"total_tokens":5})");
  ASSERT_EQ(json.find("data")->size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(json.find("data")->as_array()[i].find("index")->as_int(), static_cast<std::int64_t>(i));
    EXPECT_EQ(json.find("data")->as_array()[i].find("object")->as_string(), "embedding");
  }
  EXPECT_EQ(vector_of(r, 0), (std::vector<float>{3, 'b', 0.1F, kStart}));
  EXPECT_EQ(vector_of(r, 1), (std::vector<float>{2, 'c', 0.1F, kStart}));
  EXPECT_EQ(r.headers.at("x-barg-ignored"), "user, nonsense");
  const auto record = book_->wait(1)[0];
  EXPECT_EQ(record.route, "/v1/embeddings");
  EXPECT_EQ(record.note.model, "fake");
  EXPECT_EQ(record.note.prompt_tokens, 5);
  EXPECT_EQ(record.note.cached_tokens, 6) << "3 of each";
  EXPECT_EQ(record.note.finish_reason, "stop");
}

TEST_F(EmbeddingsTest, FourFormsOfInput) {
  start();
  EXPECT_EQ(vector_of(ask_embeddings(R"({"input":"hi"})")), (std::vector<float>{3, 'i', 0.1F, kStart}));
  EXPECT_EQ(vector_of(ask_embeddings(R"({"input":"hi","add_special_tokens":false})")), (std::vector<float>{2, 'i', 0.1F, 'h'}));
  EXPECT_EQ(vector_of(ask_embeddings(R"({"input":[104,105]})")), (std::vector<float>{2, 'i', 0.1F, 'h'})) << "ids are as given";
  EXPECT_EQ(vector_of(ask_embeddings(R"({"input":[[7],[104,105]]})"), 1), (std::vector<float>{2, 'i', 0.1F, 'h'}));
  EXPECT_EQ(ask(post("/embeddings", R"({"input":"hi"})")).status, 200) << "without the version";
}

TEST_F(EmbeddingsTest, WhatIsWrongIsNamed) {
  start();
  const auto param = [&](const std::string& body) {
    const RawResponse r = ask_embeddings(body);
    EXPECT_EQ(r.status, 400) << body << r.body;
    return r.error("param");
  };
  EXPECT_EQ(param("{}"), "input");
  EXPECT_EQ(ask_embeddings("{}").error("code"), "missing_required_parameter");
  for (const char* input : {"null", "\"\"", "[]", "3", "true", "{}", "[\"a\",1]", "[1.5]", "[[],\"a\"]"})
    EXPECT_TRUE(param(R"({"input":)" + std::string(input) + "}").starts_with("input")) << input;
  EXPECT_EQ(param(R"({"input":["a",""]})"), "input[1]");
  EXPECT_EQ(param(R"({"input":[[1],[]]})"), "input[1]");
  EXPECT_EQ(param(R"({"input":[[1],[2,267]]})"), "input[1][1]");
  EXPECT_EQ(param(R"({"input":[-1]})"), "input[0]");
  EXPECT_EQ(param(R"({"input":"a","encoding_format":"int8"})"), "encoding_format");
  EXPECT_EQ(param(R"({"input":"a","dimensions":0})"), "dimensions");
  EXPECT_EQ(param(R"({"input":"a","dimensions":3})"), "dimensions") << "the model cannot be cut";
  EXPECT_EQ(param(R"({"input":"a","truncate_prompt_tokens":0})"), "truncate_prompt_tokens");
  EXPECT_EQ(param(R"({"input":"a","truncate_prompt_tokens":-2})"), "truncate_prompt_tokens");
  EXPECT_EQ(param(R"({"input":"a","normalize":1})"), "normalize");
  EXPECT_EQ(param(R"({"input":"a","cache_salt":"a@b"})"), "cache_salt");
  EXPECT_EQ(param(R"({"input":"a","strict_params":true,"nonsense":1})"), "nonsense");
  EXPECT_EQ(ask_embeddings(R"({"input":"a","model":"nope"})").status, 404);
  EXPECT_EQ(ask_embeddings("{").status, 400);
  std::string many = R"({"input":[)";
  for (std::size_t i = 0; i < server::kMaxInputs; ++i) many += "\"a\",";
  EXPECT_EQ(ask_embeddings(many.substr(0, many.size() - 1) + "]}").status, 200) << "as many as are allowed";
  EXPECT_EQ(param(many + "\"a\"]}"), "input");
}

TEST_F(EmbeddingsTest, ALongInputIsRefusedOrCut) {
  start();
  const std::string thousand(1023, 'x');
  EXPECT_EQ(ask_embeddings(R"({"input":")" + thousand + "\"}").status, 200) << "1,024 tokens fit";
  for (const std::string& input : {"\"" + thousand + "y\"", "\"" + std::string(1 << 20, 'x') + "\""}) {
    const RawResponse r = ask_embeddings(R"({"input":["a",)" + input + "]}");
    EXPECT_EQ(r.status, 400);
    EXPECT_EQ(r.error("code"), "context_length_exceeded");
    EXPECT_EQ(r.error("param"), "input[1]");
  }
  const auto cut = [&](const std::string& more) { return vector_of(ask_embeddings(R"({"input":"abcdef")" + more + "}")); };
  EXPECT_EQ(cut(R"(,"truncate_prompt_tokens":3)"), (std::vector<float>{3, 'b', 0.1F, kStart})) << "what was added stays";
  EXPECT_EQ(cut(R"(,"truncate_prompt_tokens":100)"), (std::vector<float>{7, 'f', 0.1F, kStart}));
  EXPECT_EQ(cut(R"(,"truncate_prompt_tokens":2,"add_special_tokens":false)"), (std::vector<float>{2, 'b', 0.1F, 'a'}));
  EXPECT_EQ(vector_of(ask_embeddings(R"({"input":[1,2,3],"truncate_prompt_tokens":2})")), (std::vector<float>{2, 2, 0.1F, 1}));
  const RawResponse longest = ask_embeddings(R"({"input":")" + thousand + R"(yz","truncate_prompt_tokens":-1})");
  EXPECT_EQ(vector_of(longest), (std::vector<float>{1024, 'x', 0.1F, kStart}));
  EXPECT_EQ(ask_embeddings(R"({"input":"abc","truncate_prompt_tokens":1})").error("param"), "truncate_prompt_tokens");
}

/// The usual alphabet, with its padding.
std::string decode_base64(const std::string& text) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kAlphabet.find(c));
    have += 6;
    if (have >= 8) out += static_cast<char>(bits >> (have -= 8) & 0xFF);
  }
  return out;
}

TEST_F(EmbeddingsTest, Base64IsTheSameNumbers) {
  start();
  const RawResponse plain = ask_embeddings(R"({"input":"hi"})");
  const RawResponse coded = ask_embeddings(R"({"input":"hi","encoding_format":"base64"})");
  const std::string text = coded.json().find("data")->as_array()[0].find("embedding")->as_string();
  EXPECT_EQ(text.size() % 4, 0U);
  EXPECT_TRUE(text.ends_with("==")) << "16 bytes";
  const std::string bytes = decode_base64(text);
  const std::vector<float> want = vector_of(plain);
  ASSERT_EQ(bytes.size(), want.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data(), want.data(), bytes.size()), 0);
  // Read as doubles, which is what Python's json does, they are the floats too.
  EXPECT_EQ(plain.json().find("data")->as_array()[0].find("embedding")->as_array()[2].as_double(), static_cast<double>(0.1F));
}

TEST_F(EmbeddingsTest, LengthsAndSizes) {
  engine_->set_embedding({.size = kSize, .normalise = true, .matryoshka = true, .sizes = {1, 2}}, [](const Request&) {
    return std::vector<float>{3, 4, 12, 84};
  });
  start();
  const auto near = [](const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_FLOAT_EQ(got[i], want[i]);
  };
  near(vector_of(ask_embeddings(R"({"input":"a"})")), {3.0F / 85, 4.0F / 85, 12.0F / 85, 84.0F / 85});
  near(vector_of(ask_embeddings(R"({"input":"a","normalize":false})")), {3, 4, 12, 84});
  near(vector_of(ask_embeddings(R"({"input":"a","dimensions":2})")), {0.6F, 0.8F});
  near(vector_of(ask_embeddings(R"({"input":"a","dimensions":2,"normalize":false})")), {3, 4});
  near(vector_of(ask_embeddings(R"({"input":"a","dimensions":4,"normalize":false})")), {3, 4, 12, 84});
  for (const char* size : {"3", "5", "1000000"}) {
    const RawResponse r = ask_embeddings(R"({"input":"a","dimensions":)" + std::string(size) + "}");
    EXPECT_EQ(r.error("param"), "dimensions") << size;
    EXPECT_NE(r.error("message").find("4, 1, 2"), std::string::npos) << r.body;
  }
}

TEST(EmbeddingsAnswer, ZerosStayZeros) {
  std::vector<float> v = {0, 0, 0};
  server::finish_vector(v, 2, true);
  EXPECT_EQ(v, (std::vector<float>{0, 0}));
  EXPECT_EQ(server::embeddings_body({}, false, "a\"b", 7),
            R"({"object":"list","data":[],"model":"a\"b","usage":{"prompt_tokens":7,"total_tokens":7}})");
}

TEST_F(EmbeddingsTest, WhatTheEngineIsAskedFor) {
  start();
  ask_embeddings(R"({"input":["a","b"],"priority":"batch","cache_salt":"s","cache_pin_s":9})");
  const Request sent = *engine_->last_request();
  EXPECT_TRUE(sent.embeds);
  EXPECT_TRUE(sent.follows) << "the second of its batch";
  EXPECT_EQ(sent.sampling.max_tokens, 0);
  EXPECT_EQ(sent.priority, Priority::kBatch);
  EXPECT_EQ(sent.cache_salt, "s");
  EXPECT_EQ(sent.cache_pin_s, 9);
}

TEST_F(EmbeddingsTest, NumbersThatAreNoneAreTold) {
  engine_->set_embedding({.size = kSize}, [](const Request& r) { return r.prompt[1] == 'n' ? std::vector<float>() : embed(r); });
  start();
  const RawResponse r = ask_embeddings(R"({"input":["a","n","b"]})");
  EXPECT_EQ(r.status, 500);
  EXPECT_EQ(r.error("code"), "invalid_numbers");
  EXPECT_NE(r.error("message").find("invalid numbers"), std::string::npos);
  EXPECT_EQ(r.headers.at("x-should-retry"), "false");
}

TEST_F(EmbeddingsTest, AFullQueueAndADisconnect) {
  start();
  engine_->set_admission(fail(ErrorCode::kRateLimited, "full", ""));
  EXPECT_EQ(ask_embeddings(R"({"input":"a"})").status, 429);
  engine_->set_admission({});
  engine_->set_verdict(fail(ErrorCode::kContextLengthExceeded, "The KV cache is small.", "prompt"));
  EXPECT_EQ(ask_embeddings(R"({"input":["a","b"]})").error("param"), "input[0]");
  engine_->set_verdict({});
  engine_->hold(true);
  {
    RawClient client(port());
    client.send(post("/v1/embeddings", R"({"input":["a","b"]})"));
    EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 2; }));
  }
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  EXPECT_EQ(engine_->cancelled(), 2);
}

TEST_F(EmbeddingsTest, AModelThatEmbedsGeneratesNothing) {
  start();
  for (const auto& [path, body] : {std::pair<const char*, std::string>{"/v1/chat/completions", chat()},
                                   {"/v1/completions", R"({"prompt":"hi"})"},
                                   {"/v1/responses", R"({"input":"hi"})"},
                                   {"/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})"}}) {
    const RawResponse r = ask(post(path, body));
    EXPECT_EQ(r.status, 400) << path;
    EXPECT_NE(r.body.find("computes embeddings and generates nothing"), std::string::npos) << r.body;
  }
  EXPECT_EQ(engine_->submitted(), 0);
}

class NoEmbeddingsTest : public ServerTest {};

TEST_F(NoEmbeddingsTest, AModelThatGeneratesEmbedsNothing) {
  start();
  const RawResponse r = ask(post("/v1/embeddings", R"({"input":"hi"})"));
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.error("param"), "model");
  EXPECT_NE(r.error("message").find("computes no embeddings"), std::string::npos);
  EXPECT_EQ(engine_->submitted(), 0);
}

}  // namespace
}  // namespace barg::test::embeddings_test
