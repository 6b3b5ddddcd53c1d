// FakeServer: a server that keeps every rule, on a port of its own, with one place where a test breaks an answer and a
// few knobs for what is no answer (disconnects, connections). A thread a connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "conform/fake_answers.h"
#include "conform/wire.h"

namespace barg::conform::testing {

struct Knobs {
  /// May change anything of an answer before it is sent.
  std::function<void(const Asked&, Reply&)> edit;
  std::set<std::string> absent;  ///< paths that are 404
  bool answers_continue = true;
  bool notices_disconnect = true;
  bool gauges = true;
  bool frees_memory = true;
  bool joins_packets = true;  ///< else what the first packet lacks is missed
  double cost_s = 0;          ///< that each running request adds to the others
  std::string api_key;        ///< demanded, unless empty
};

class FakeServer {
 public:
  explicit FakeServer(Knobs knobs = {}, int family = AF_INET) : knobs_(std::move(knobs)), family_(family) {
    listener_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      size = sizeof(sockaddr_in);
    } else {
      reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    }
    bound_ = bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(listener_, 128) == 0;
    if (!bound_) return;
    size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                    : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
    acceptor_ = std::jthread([this] { accept_all(); });
  }
  ~FakeServer() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    if (acceptor_.joinable()) acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    }
    threads_.clear();
    for (const int fd : fds_) ::close(fd);
    ::close(listener_);
  }

  bool bound() const { return bound_; }
  std::string url() const {
    return (family_ == AF_INET ? "http://127.0.0.1:" : "http://[::1]:") + std::to_string(port_);
  }
  int requests() const { return requests_; }

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
    while (!stopping_) {
      std::optional<Asked> asked = read_request(fd, buffer);
      if (!asked) break;
      asked->number = requests_++;
      if (asked->endless()) {
        run_endless(fd, *asked);
        break;
      }
      pause_s(knobs_.cost_s * running_);
      if (!send_reply(fd, answered(*asked))) break;
    }
    shutdown(fd, SHUT_RDWR);
  }

  Reply answered(const Asked& q) {
    Reply out;
    if (knobs_.absent.contains(q.path)) {
      out = refusal(404, "There is no such path.", "", "unknown_url");
    } else if (q.path == "/metrics") {
      if (!knobs_.gauges)
        out = refusal(404, "There is no such path.", "", "unknown_url");
      else
        out.pieces = {gauges()};
    } else if (!knobs_.api_key.empty() && !q.carries(knobs_.api_key)) {
      out = refusal(401, "Wrong key.", "", "invalid_api_key");
    } else {
      out = answer(q);
    }
    out.headers.emplace_back("X-Request-Id", "req-" + std::to_string(q.number));
    if (q.method == "HEAD") out.head_only = true;
    if (knobs_.edit) knobs_.edit(q, out);
    return out;
  }

  std::string gauges() const {
    return "# HELP vllm:num_requests_running Running.\nvllm:num_requests_running{model=\"a b\"} " +
           std::to_string(running_) +
           "\nvllm:num_requests_waiting{model=\"a b\"} 0\nvllm:kv_cache_usage_perc{model=\"a b\"} " +
           std::to_string(static_cast<double>(held_) / 16) + "\n";
  }

  // Until the client goes, if that is noticed.
  void run_endless(int fd, const Asked& q) {
    ++running_;
    ++held_;
    if (q.stream())
      send_all(fd, head_text(200, {{"Content-Type", "text/event-stream"}, {"Transfer-Encoding", "chunked"}}));
    for (int i = 0; !stopping_ && i < 3000; ++i) {
      if (q.stream()) send_all(fd, chunk_text(event(chat_chunk("chatcmpl-e", 0, R"({"content":" on"})", "null"))));
      if (knobs_.notices_disconnect && gone(fd)) break;
      pause_s(0.004);
    }
    --running_;
    if (knobs_.frees_memory) --held_;
  }

  static bool gone(int fd) {
    char byte = 0;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }

  static std::string head_text(int status, const std::vector<Header>& headers) {
    std::string out = "HTTP/1.1 " + std::to_string(status) + " Whatever\r\nServer: fake/1\r\n";
    for (const auto& [name, value] : headers) out += name + ": " + value + "\r\n";
    return out + "\r\n";
  }
  static std::string chunk_text(std::string_view piece) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
    return size + std::string(piece) + "\r\n";
  }

  bool send_reply(int fd, Reply reply) {
    if (!reply.raw.empty()) return send_all(fd, reply.raw) && !reply.close;
    std::string whole;
    for (const std::string& piece : reply.pieces) whole += piece;
    if (reply.stream) {
      reply.headers.emplace_back("Transfer-Encoding", "chunked");
    } else if (reply.status != 204) {
      reply.headers.emplace_back("Content-Length", std::to_string(whole.size()));
    }
    if (!send_all(fd, head_text(reply.status, reply.headers))) return false;
    if (reply.head_only) return !reply.close;
    if (!reply.stream) return send_all(fd, whole + reply.extra) && !reply.close;
    for (std::size_t i = 0; i < reply.pieces.size(); ++i) {
      if (reply.silence_s > 0 && (i == 1 || reply.pieces[i].starts_with(':'))) pause_s(reply.silence_s);
      if (i % 4 == 1) pause_s(0.003);  // so that the pieces are seen as several packets
      if (!send_all(fd, chunk_text(reply.pieces[i]))) return false;
    }
    return send_all(fd, "0\r\n\r\n" + reply.extra) && !reply.close;
  }

  static bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  std::optional<Asked> read_request(int fd, std::string& buffer) const {
    std::size_t end = 0, length = 0;
    while (true) {
      if (end == 0) {
        const std::size_t found = buffer.find("\r\n\r\n");
        if (found != std::string::npos) {
          end = found + 4;
          const std::size_t field = buffer.find("Content-Length: ");
          if (field < end) length = std::stoul(buffer.substr(field + 16, 12));
          if (buffer.find("Expect: 100-continue") < end && knobs_.answers_continue)
            send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n");
        }
      }
      if (end != 0 && buffer.size() >= end + length) break;
      char chunk[64 << 10];
      const ssize_t n = recv(fd, chunk, sizeof chunk, 0);
      if (n <= 0) return std::nullopt;
      buffer.append(chunk, static_cast<std::size_t>(n));
      if (!knobs_.joins_packets && buffer.find("\r\n\r\n") == std::string::npos) {
        send_all(fd, head_text(400, {{"Content-Length", "0"}}));
        return std::nullopt;
      }
    }
    Asked out;
    out.head = buffer.substr(0, end);
    out.method = out.head.substr(0, out.head.find(' '));
    const std::size_t path = out.method.size() + 1;
    out.path = out.head.substr(path, out.head.find(' ', path) - path);
    out.body = buffer.substr(end, length);
    auto json = parse_json(out.body);
    out.valid = json.has_value();
    if (json) out.json = std::move(*json);
    buffer.erase(0, end + length);
    return out;
  }

  Knobs knobs_;
  int family_;
  bool bound_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> requests_ = 0;
  std::atomic<int> running_ = 0, held_ = 0;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<int> fds_;               // guarded by mutex_
  std::vector<std::jthread> threads_;  // guarded by mutex_
  std::jthread acceptor_;
};

}  // namespace barg::conform::testing
