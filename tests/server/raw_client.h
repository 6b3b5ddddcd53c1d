// RawClient: a blocking TCP connection that sends exactly the bytes it is told, and reads HTTP answers from
// it. For tests of wire rules, where a well-behaved client would hide what is tested.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace barg::test {

struct RawResponse {
  int status = 0;                              // 0: the connection ended before a complete head
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;
  bool complete = false;
  Json json() const {
    auto j = parse_json(body);
    return j ? *j : Json();
  }
  std::string error(const char* key) const {
    const Json j = json();
    const Json* e = j.find("error");
    const Json* v = e ? e->find(key) : nullptr;
    return v && v->is_string() ? v->as_string() : "";
  }
};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval timeout{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  /// False when the peer does not take it any more.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  void shutdown_send() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// Closes with RST.
  void reset() {
    const linger abort{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close();
  }
  /// One more piece of what arrives; false at the end or on error (errno_ tells).
  bool fill() {
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) {
      error_ = n < 0;
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  bool read_error() const { return error_; }
  std::string& buffered() { return in_; }
  bool wait_for(std::string_view text) {
    while (in_.find(text) == std::string::npos) {
      if (!fill()) return false;
    }
    return true;
  }
  /// True when the server ends the connection without sending more.
  bool at_end() {
    while (in_.empty() && fill()) {
    }
    return in_.empty() && !error_;
  }

  RawResponse read(bool head_only = false) {
    RawResponse r;
    if (!wait_for("\r\n\r\n")) return r;
    const std::size_t head_end = in_.find("\r\n\r\n") + 4;
    std::string head = in_.substr(0, head_end);
    in_.erase(0, head_end);
    r.status = std::atoi(head.substr(9, 3).c_str());
    for (std::size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const std::size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      r.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (head_only || r.status == 204 || r.status == 100) {
      r.complete = true;
    } else if (r.headers.contains("content-length")) {
      const auto n = static_cast<std::size_t>(std::stoull(r.headers["content-length"]));
      while (in_.size() < n && fill()) {
      }
      r.complete = in_.size() >= n;
      r.body = in_.substr(0, n);
      in_.erase(0, n);
    } else if (r.headers.contains("transfer-encoding")) {
      r.complete = read_chunks(r.body);
    } else {
      while (fill()) {
      }
      r.body = std::exchange(in_, {});
      r.complete = true;
    }
    return r;
  }
  RawResponse ask(std::string_view bytes) {
    send(bytes);
    return read();
  }

 private:
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!wait_for("\r\n")) return false;
      const std::size_t end = in_.find("\r\n");
      const auto n = static_cast<std::size_t>(std::stoull(in_.substr(0, end), nullptr, 16));
      while (in_.size() < end + 2 + n + 2) {
        if (!fill()) return false;
      }
      body += in_.substr(end + 2, n);
      in_.erase(0, end + 2 + n + 2);
      if (n == 0) return true;
    }
  }
  int fd_;
  bool connected_ = false, error_ = false;
  std::string in_;
};

inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}
inline std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

}  // namespace barg::test
