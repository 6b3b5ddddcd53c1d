// A server that does what a test tells it: each request goes to a handler that writes bytes when it likes, and
// the server remembers when. One thread a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace barg::bench::testing {

inline std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct ScriptedRequest {
  int number = 0;         // over all connections, from 0
  int on_connection = 0;  // from 0
  std::string head;
  std::string body;
  std::int64_t arrived = 0;
};

/// The server's end of a connection, for a handler.
class Peer {
 public:
  Peer(int fd, const std::atomic<bool>& stopping) : fd_(fd), stopping_(stopping) {}

  /// Returns when: just before the bytes left.
  std::int64_t send(std::string_view bytes) const {
    const std::int64_t at = steady_ns();
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return at;
  }
  void pause(double ms) const {
    const std::int64_t until = steady_ns() + static_cast<std::int64_t>(ms * 1e6);
    while (!stopping_ && steady_ns() < until) {
      const double left = static_cast<double>(until - steady_ns()) * 1e-6;
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(std::min(left, 20.0)));
    }
  }
  /// True once the client has closed its side.
  bool client_left() const {
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  bool stopping() const { return stopping_; }

 private:
  int fd_;
  const std::atomic<bool>& stopping_;
};

class ScriptedServer {
 public:
  /// False closes the connection.
  using Handler = std::function<bool(const Peer&, const ScriptedRequest&)>;

  explicit ScriptedServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 512) != 0) std::abort();
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::jthread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    }
    threads_.clear();
    for (const int fd : fds_) close(fd);
    close(listener_);
  }

  std::string port() const { return std::to_string(port_); }
  std::string url() const { return "http://127.0.0.1:" + port(); }
  int requests() const { return requests_; }
  /// From now on nobody is accepted, and everybody is cut off.
  void die() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
  }

 private:
  void accept_all() {
    while (!stopping_) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    std::string buffer;
    for (int n = 0;; ++n) {
      ScriptedRequest request;
      if (!read_request(fd, buffer, request)) break;
      request.number = requests_++;
      request.on_connection = n;
      if (!handler_(Peer(fd, stopping_), request)) break;
    }
    shutdown(fd, SHUT_RDWR);
  }

  static bool read_request(int fd, std::string& buffer, ScriptedRequest& request) {
    std::size_t end = 0, length = 0;
    while (true) {
      if (end == 0 && (end = buffer.find("\r\n\r\n")) != std::string::npos) {
        const std::size_t field = buffer.find("Content-Length: ");
        if (field < end) length = std::stoul(buffer.substr(field + 16));
        end += 4;
      } else if (end == std::string::npos) {
        end = 0;
      }
      if (end != 0 && buffer.size() >= end + length) break;
      char chunk[64 << 10];
      const ssize_t n = recv(fd, chunk, sizeof chunk, 0);
      if (n <= 0) return false;
      buffer.append(chunk, static_cast<std::size_t>(n));
    }
    request.arrived = steady_ns();
    request.head = buffer.substr(0, end);
    request.body = buffer.substr(end, length);
    buffer.erase(0, end + length);
    return true;
  }

  Handler handler_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> requests_ = 0;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<int> fds_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

inline std::string chunk(std::string_view text) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + std::string(text) + "\r\n";
}
inline constexpr const char* kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
inline std::string token_event(std::string_view text = " word") {
  return "data: {\"id\":\"c\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"" + std::string(text) +
         "\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";
}
inline std::string last_events(int prompt, int completion) {
  return "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}],\"usage\":null}\n\n"
         "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":" +
         std::to_string(prompt) + ",\"completion_tokens\":" + std::to_string(completion) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n";
}
/// A whole good answer at once.
inline std::string good_answer(int tokens) {
  std::string out = kStreamHead;
  for (int i = 0; i < tokens; ++i) out += chunk(token_event());
  return out + chunk(last_events(7, tokens)) + "0\r\n\r\n";
}

}  // namespace barg::bench::testing
