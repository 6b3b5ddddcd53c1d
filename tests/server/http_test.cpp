// Wire rules over real loopback sockets, with raw bytes.
#include "test_server.h"

namespace barg::test::http_test {
namespace {

class HttpTest : public ServerTest {};

TEST_F(HttpTest, KeepsAliveAndAnswersInOrder) {
  start();
  RawClient client(port());
  client.send(get("/health") + get("/version") + get("/v1/models"));
  EXPECT_EQ(client.read().json(), *parse_json(R"({"status":"ok"})"));
  EXPECT_EQ(client.read().json(), *parse_json(R"({"version":"9.9.9","git":"abcdef"})"));
  const RawResponse models = client.read();
  EXPECT_EQ(models.json().find("data")->size(), 2U);
  EXPECT_FALSE(models.headers.contains("connection"));
  EXPECT_EQ(client.ask(get("/livez")).status, 200);
  EXPECT_EQ(book_->wait(4).size(), 4U);
}

TEST_F(HttpTest, HeadIsGetWithoutBody) {
  start();
  RawClient client(port());
  client.send("HEAD /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const RawResponse head = client.read(true);
  EXPECT_EQ(head.status, 200);
  const RawResponse whole = client.ask(get("/version"));
  EXPECT_EQ(whole.status, 200) << "no byte of the first answer's body lies before it";
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(whole.body.size()));
}

TEST_F(HttpTest, Http10ClosesAndDoesNotChunk) {
  start();
  RawClient client(port());
  client.send("GET /version HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read().headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());

  RawClient kept(port());
  kept.send("GET /version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.read().headers.at("connection"), "keep-alive");
  EXPECT_EQ(kept.ask(get("/livez")).status, 200);

  RawClient stream(port());
  const std::string body = chat(R"(,"stream":true)");
  stream.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const RawResponse r = stream.read();
  EXPECT_EQ(r.status, 200);
  EXPECT_FALSE(r.headers.contains("transfer-encoding"));
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpTest, ChunkedBodyInAnyFragmentation) {
  start();
  const std::string body = chat();
  std::string chunked =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t i = 0; i < body.size(); i += 7) {
    const std::string part = body.substr(i, 7);
    chunked += std::to_string(part.size()) + ";ext=\"x\"\r\n" + part + "\r\n";
  }
  chunked += "0\r\nX-Trailer: 1\r\n\r\n";
  RawClient client(port());
  for (const char c : chunked) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.ask(get("/livez")).status, 200);
}

TEST_F(HttpTest, ContinueIsSentOnlyWhenTheBodyIsWanted) {
  start();
  const std::string body = chat();
  RawClient client(port());
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read().status, 100);
  EXPECT_EQ(client.ask(body).status, 200);

  RawClient refused(port());
  refused.send(
      "POST /nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(refused.read().status, 404);
}

TEST_F(HttpTest, RefusalReachesAClientThatIsStillSending) {
  options_.max_body_bytes = 1 << 20;
  start();
  const std::string big(12 << 20, 'x');
  for (const bool chunked : {false, true}) {
    RawClient client(port());
    std::string head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    head += chunked ? "Transfer-Encoding: chunked\r\n\r\n" + std::string("C00000\r\n")
                    : "Content-Length: " + std::to_string(big.size()) + "\r\n\r\n";
    client.send(head);
    EXPECT_TRUE(client.send(big)) << "the server must go on reading";
    const RawResponse r = client.read();
    EXPECT_EQ(r.status, 413) << chunked;
    EXPECT_EQ(r.error("code"), "request_too_large");
    EXPECT_EQ(r.headers.at("connection"), "close");
    EXPECT_FALSE(client.read_error());
  }
  RawClient wrong(port());
  wrong.send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12582912\r\n\r\n");
  EXPECT_TRUE(wrong.send(big));
  EXPECT_EQ(wrong.read().status, 404);
}

TEST_F(HttpTest, SmallRefusedBodiesKeepTheConnection) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.ask(post("/nowhere", "{}")).status, 404);
  EXPECT_EQ(client.ask(post("/v1/chat/completions", "{}")).status, 400);
  EXPECT_EQ(client.ask(get("/livez")).status, 200);
}

TEST_F(HttpTest, BodyLimitHoldsForSmallChunks) {
  options_.max_body_bytes = 1000;
  start();
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  for (int i = 0; i < 2000; ++i) client.send("1\r\nx\r\n");
  EXPECT_EQ(client.read().status, 413);
}

TEST_F(HttpTest, SlowHeadersAndBodiesTimeOut) {
  options_.header_timeout_s = 0.1;
  options_.body_timeout_s = 0.1;
  start();
  RawClient head(port());
  head.send("GET /health HTTP/1.1\r\nHo");
  EXPECT_EQ(head.read().status, 408);
  RawClient body(port());
  body.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{");
  EXPECT_EQ(body.read().status, 408);
  RawClient silent(port());
  EXPECT_TRUE(silent.at_end());
  EXPECT_EQ(book_->wait(2).size(), 2U);
}

TEST_F(HttpTest, PipelineIsOrderedAndBounded) {
  start();
  RawClient client(port());
  std::string many;
  for (int i = 0; i < 3000; ++i) many += get(i % 2 == 0 ? "/livez" : "/version");
  client.send(many);
  int answered = 0;
  for (;;) {
    const RawResponse r = client.read();
    if (r.status == 0) break;
    EXPECT_EQ(r.json().find(answered % 2 == 0 ? "status" : "version") != nullptr, true);
    ++answered;
    if (r.headers.contains("connection")) break;
  }
  EXPECT_EQ(answered, 1000);
}

TEST_F(HttpTest, RequestIdIsEchoedOrMinted) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.ask(get("/health", "X-Request-Id: a.b_C-9\r\n")).headers.at("x-request-id"), "a.b_C-9");
  for (const char* bad :
       {"a b", "\x1b[31m", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    const std::string id =
        ask(get("/nowhere", "X-Request-Id: " + std::string(bad) + "\r\n")).headers.at("x-request-id");
    EXPECT_TRUE(id.starts_with("req-")) << bad;
  }
  EXPECT_TRUE(ask("BAD\r\n\r\n").headers.at("x-request-id").starts_with("req-"));
}

TEST_F(HttpTest, DisconnectCancelsStreamedAndUnstreamed) {
  start();
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(1000, 'a'); });
  engine_->hold(true);
  std::size_t lines = 0;
  for (const char* more : {"", R"(,"stream":true)"}) {
    for (const bool reset : {false, true}) {
      RawClient client(port());
      client.send(post("/v1/chat/completions", chat(more)));
      ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
      EXPECT_TRUE(*more == 0 || client.wait_for("assistant"));
      reset ? client.reset() : client.close();
      EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
      const auto records = book_->wait(++lines);
      ASSERT_EQ(records.size(), lines);
      EXPECT_EQ(records.back().cancel_cause, "disconnected");
      EXPECT_EQ(records.back().note.finish_reason, "abort");
      EXPECT_EQ(records.back().status, *more != 0 ? 200 : 499);
    }
  }
  EXPECT_EQ(engine_->cancelled(), 4);
}

TEST_F(HttpTest, DisconnectIsSeenBehindAFullPipeline) {
  start();
  engine_->hold(true);
  RawClient client(port());
  client.send(post("/v1/chat/completions", chat()));
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  std::string more;
  while (more.size() < 90'000) more += get("/livez");
  client.send(more);
  client.close();
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
}

TEST_F(HttpTest, SlowReaderIsCancelled) {
  options_.write_stall_timeout_s = 0.2;
  engine_ = std::make_shared<FakeEngine>(2'000'000);
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(1'000'000, 'a'); });
  start();
  RawClient client(port(), 4096);
  client.send(post("/v1/chat/completions", chat(R"(,"stream":true,"logprobs":true,"top_logprobs":20)")));
  ASSERT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 1; }));
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  EXPECT_EQ(book_->wait(1).back().cancel_cause, "slow_client");
}

TEST_F(HttpTest, StalledReaderIsCutOffBelowTheBacklogLimit) {
  options_.write_stall_timeout_s = 0.2;
  engine_ = std::make_shared<FakeEngine>(20'000);
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(12'000, 'a'); });
  start();
  RawClient client(port(), 4096);
  client.send(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  const auto records = book_->wait(1);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].cancel_cause, "slow_client");
  EXPECT_LT(records[0].bytes_out, 4U << 20);
}

TEST_F(HttpTest, ReaderThatIsBehindPausesItsRequest) {
  engine_ = std::make_shared<FakeEngine>(200'000);
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(20'000, 'a'); });
  start();
  RawClient client(port(), 4096);
  client.send(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  EXPECT_TRUE(engine_->wait_paused());
  EXPECT_EQ(engine_->active(), 1) << "not cancelled";
  const RawResponse r = client.read();  // reads on: the request goes on, to its end
  EXPECT_TRUE(r.complete);
  std::size_t tokens = 0;
  for (std::size_t at = r.body.find("\"a\""); at != std::string::npos; at = r.body.find("\"a\"", at + 1)) ++tokens;
  EXPECT_EQ(tokens, 20'000U);
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpTest, APausedRequestEndsWithItsClient) {
  engine_ = std::make_shared<FakeEngine>(200'000);
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(20'000, 'a'); });
  start();
  {
    RawClient client(port(), 4096);
    client.send(post("/v1/chat/completions", chat(R"(,"stream":true,"n":2)")));
    EXPECT_TRUE(engine_->wait_paused());
  }
  EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
  EXPECT_EQ(engine_->cancelled(), 1);
  EXPECT_EQ(book_->wait(1).back().cancel_cause, "disconnected");
}

TEST_F(HttpTest, LargeEventsAreNotASlowReader) {
  start();
  const std::string body = R"({"prompt":")" + std::string(1000, 'a') +
                           R"(","max_tokens":2,"n":12,"echo":true,"logprobs":20,"stream":true})";
  const RawResponse r = ask(post("/v1/completions", body));
  EXPECT_TRUE(r.complete);
  EXPECT_GT(r.body.size(), 5U << 20) << "larger than the backlog limit";
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpTest, SilentStreamIsPinged) {
  options_.sse_ping_s = 0.05;
  start();
  engine_->hold(true);
  RawClient client(port());
  client.send(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  EXPECT_TRUE(client.wait_for(": ping\n\n"));
  engine_->hold(false);
  EXPECT_TRUE(client.wait_for("[DONE]"));
}

TEST_F(HttpTest, TooManyConnectionsAreTold) {
  options_.max_connections = 2;
  start();
  RawClient a(port()), b(port());
  EXPECT_EQ(a.ask(get("/livez")).status, 200);
  EXPECT_EQ(b.ask(get("/livez")).status, 200);
  RawClient c(port());
  const RawResponse r = c.read();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers.at("retry-after"), "1");
}

TEST_F(HttpTest, OptionsAndMethods) {
  options_.api_key = {"k"};
  start();
  const RawResponse o = ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(o.status, 204);
  EXPECT_EQ(o.headers.at("allow"), "POST, OPTIONS");
  EXPECT_FALSE(o.headers.contains("access-control-allow-origin"));
  const RawResponse wrong = ask(get("/v1/completions", "x-api-key: k\r\n"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(wrong.error("type"), "invalid_request_error");
  EXPECT_EQ(ask("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
  EXPECT_EQ(ask("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
  EXPECT_EQ(ask("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 501);
}

}  // namespace
}  // namespace barg::test::http_test
