#include "cli/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "cli/sse_reader.h"

namespace barg::cli::http_client_test {
namespace {

// Accepts one connection, reads the request's head, answers with fixed bytes and closes.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer)
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~OneAnswer() {
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  Url url() const { return {.host = "127.0.0.1", .port = std::to_string(port_), .path = "/"}; }
  /// After the exchange.
  const std::string& request() {
    if (thread_.joinable()) thread_.join();
    return request_;
  }

 private:
  void serve() {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    char buffer[4096];
    while (request_.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      request_.append(buffer, static_cast<std::size_t>(got));
    }
    send(connection, answer_.data(), answer_.size(), MSG_NOSIGNAL);
    close(connection);
  }

  std::string answer_, request_;
  int listener_;
  int port_ = 0;
  std::jthread thread_;
};

TEST(HttpClient, ReadsTheThreeKindsOfBodies) {
  for (const char* answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\nhello"}) {
    OneAnswer server(answer);
    const auto response =
        http_request(server.url(), {.method = "GET", .path = "/x", .api_key = "k", .body = {}});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, "hello");
    EXPECT_TRUE(server.request().starts_with("GET /x HTTP/1.1\r\n"));
    EXPECT_NE(server.request().find("Authorization: Bearer k\r\n"), std::string::npos);
  }
}

TEST(HttpClient, BrokenAnswersAreErrors) {
  for (const char* answer :
       {"", "nonsense\r\n\r\n", "HTTP/1.1 \r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"}) {
    OneAnswer server(answer);
    EXPECT_FALSE(http_request(server.url(), {})) << answer;
  }
}

TEST(HttpClient, ASinkSeesGoodBodiesAndMayEndThem) {
  OneAnswer server("HTTP/1.1 200 OK\r\n\r\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\ndata: 3\n\n");
  std::string seen;
  SseReader reader([&](std::string_view data) { seen += data; });
  const auto response =
      http_request(server.url(), {}, [&](std::string_view bytes) { return reader.push(bytes); });
  ASSERT_TRUE(response);
  EXPECT_EQ(seen, "12");
  OneAnswer refusing("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}");
  const auto refused = http_request(refusing.url(), {}, [&](std::string_view) -> bool {
    ADD_FAILURE();
    return true;
  });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->body, "{}");
}

TEST(SseReader, AnySplitGivesTheSameEvents) {
  const std::string stream = ": ping\r\n\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\n\ndata: [DONE]\n\n";
  for (std::size_t split = 0; split <= stream.size(); ++split) {
    std::vector<std::string> seen;
    SseReader reader([&](std::string_view data) { seen.emplace_back(data); });
    if (reader.push(std::string_view(stream).substr(0, split)))
      reader.push(std::string_view(stream).substr(split));
    EXPECT_EQ(seen, (std::vector<std::string>{"{\"a\":1}", "two"})) << split;
  }
}

TEST(HttpClient, Urls) {
  const auto url = parse_url("http://[::1]:8000/v1/x");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, "8000");
  EXPECT_EQ(url->path, "/v1/x");
  EXPECT_EQ(parse_url("http://host")->port, "80");
  for (const char* bad :
       {"", "host", "https://host", "http://", "http://:80", "http://host:", "http://host:x",
        "http://host:999999", "http://[::1", "http://ho st", "http://host/a b", "http://host/\r\nX: y"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
}

}  // namespace
}  // namespace barg::cli::http_client_test
