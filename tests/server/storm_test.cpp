// Hostile traffic: thousands of malformed requests and disconnects at every moment. Afterwards the server
// still answers, and requests, descriptors and log lines are where they should be.
#include "base/env.h"
#include "test_server.h"

namespace barg::test::storm_test {
namespace {

class StormTest : public ServerTest {
 protected:
  /// Every connection of the storm is gone when only the probe's own is open.
  void expect_baseline(int fds_before) {
    EXPECT_TRUE(engine_->wait_active([](std::int64_t n) { return n == 0; }));
    std::string text;
    do {
      text = RawClient(port()).ask(get("/metrics")).body;
    } while (text.find("barg_conn_open 1\n") == std::string::npos && --patience_ > 0);
    EXPECT_GT(patience_, 0) << "connections were left open";
    EXPECT_NE(text.find("barg_requests_active 1\n"), std::string::npos) << "the probe itself";
    EXPECT_LE(open_fds(), fds_before + 2);
    EXPECT_EQ(RawClient(port()).ask(post("/v1/chat/completions", chat())).status, 200) << "the canary";
  }
  int patience_ = 20'000;
};

std::vector<std::string> bad_bodies() {
  const std::string deep(100'000, '[');
  std::string keys = "{", biases, stops;
  for (int i = 0; i < 100'000; ++i) keys += "\"k" + std::to_string(i) + "\":0,";
  for (int i = 0; i < 2000; ++i) biases += (i ? ",\"" : "\"") + std::to_string(i % 262) + "x\":1";
  for (int i = 0; i < 10'000; ++i) stops += i ? ",\"s\"" : "\"s\"";
  const std::string m = R"("messages":[{"role":"user","content":"x"}])";
  return {"",
          "null",
          "[]",
          "\"x\"",
          "{",
          "{}{}",
          "{} x",
          deep,
          "{\"a\":" + deep,
          "\xEF\xBB\xBF{}",
          "{\"a\":\"\xC0\x80\"}",
          "{\"a\":\"\\ud800\"}",
          std::string("{\"a\":\"\0\"}", 9),
          "{\"model\":\"a\",\"model\":\"b\"}",
          "{\"a\":1e999}",
          "{\"a\":NaN}",
          keys + "\"z\":0}",
          "{" + m + ",\"temperature\":\"x\"}",
          "{" + m + ",\"n\":1000000}",
          "{" + m + ",\"n\":9223372036854775808}",
          "{" + m + ",\"max_tokens\":-1}",
          "{" + m + ",\"stop\":[" + stops + "]}",
          "{" + m + ",\"logit_bias\":{" + biases + "}}",
          "{" + m + ",\"top_logprobs\":1000000,\"logprobs\":true}",
          "{\"messages\":null}",
          "{\"messages\":[]}",
          "{\"messages\":[{}]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
          "{" + m + ",\"model\":\"" + std::string(1 << 20, 'm') + "\"}",
          "{" + m + ",\"model\":\"\\u0000\"}",
          "{" + m + ",\"tools\":[1]}"};
}

std::vector<std::string> bad_wire() {
  const std::string h = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
  return {"\r\n\r\n\r\nGARBAGE\r\n\r\n",
          "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
          "GET /\r\n",
          std::string("\x16\x03\x01\x02\x00\x01", 6),
          h + "Content-Length: -1\r\n\r\n",
          h + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          h + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
          h + "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
          h + "A: b\r\n c\r\n\r\n",
          h + "Content-Length: 99999999999\r\n\r\n",
          "GET /" + std::string(64 * 1024, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
          h + "X: " + std::string(20'000, 'a') + "\r\n\r\n",
          h + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
          "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
          "GET /version HTTP/1.1\r\nHost: evil.example\r\n\r\n",
          "GET /version HTTP/1.1\r\n\r\n",
          h + "Expect: nonsense\r\nContent-Length: 2\r\n\r\n{}",
          "BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
          "get /version HTTP/1.1\r\nHost: localhost\r\n\r\n"};
}

TEST_F(StormTest, TwoThousandMalformedRequests) {
  start();
  ASSERT_EQ(ask(get("/livez")).status, 200);
  const int fds = open_fds();
  const auto bodies = bad_bodies();
  const auto wire = bad_wire();
  Rng rng(1);
  std::size_t sent = 0;
  for (int i = 0; i < 2000; ++i) {
    // Large bodies rarely: they cost most of the time.
    const std::string& body = bodies[static_cast<std::size_t>(rng.below(bodies.size()))];
    const bool skip = body.size() > 100'000 && i % 8 != 0;
    const bool use_wire = i % 2 == 0 || skip;
    const std::string bytes = use_wire ? wire[static_cast<std::size_t>(rng.below(wire.size()))]
                                       : post(i % 4 == 1 ? "/v1/chat/completions" : "/v1/completions", body);
    RawClient client(port());
    client.send(bytes);
    const RawResponse r = client.read();
    ++sent;
    EXPECT_GE(r.status, 400) << bytes.substr(0, 200);
    EXPECT_TRUE(r.status < 500 || r.status == 501 || r.status == 505)
        << r.status << " " << bytes.substr(0, 200);
    EXPECT_NE(r.json().find("error"), nullptr) << bytes.substr(0, 200);
  }
  EXPECT_EQ(book_->wait(sent + 1).size(), sent + 1) << "one line each";
  expect_baseline(fds);
}

TEST_F(StormTest, DisconnectsAtEveryMoment) {
  engine_->set_script([](const Request&, std::int32_t) { return std::vector<TokenId>(900, 'a'); });
  options_.io_threads = 2;
  start();
  ASSERT_EQ(ask(get("/livez")).status, 200);
  const int fds = open_fds();
  Rng rng(2);
  const std::string streamed = post("/v1/chat/completions", chat(R"(,"stream":true,"n":2)")),
                    plain = post("/v1/chat/completions", chat(R"(,"n":3)"));
  for (int i = 0; i < 600; ++i) {
    RawClient client(port());
    const std::string& bytes = i % 2 == 0 ? streamed : plain;
    const std::size_t cut = rng.below(4) == 0 ? rng.below(bytes.size()) : bytes.size();
    client.send(std::string_view(bytes).substr(0, cut));
    if (cut == bytes.size() && i % 2 == 0 && rng.below(2) == 0) client.wait_for("assistant");
    switch (rng.below(3)) {
      case 0:
        client.reset();
        break;
      case 1:
        client.shutdown_send();
        break;
      default:
        client.close();
    }
  }
  expect_baseline(fds);
  const auto records = book_->wait(1);
  for (const auto& r : records) EXPECT_NE(r.status, 0);
}

}  // namespace
}  // namespace barg::test::storm_test
