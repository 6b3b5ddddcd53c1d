#include "conform/wire.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/env.h"
#include "conform/answer_reader.h"

namespace barg::conform {
namespace {

constexpr double kContinueWait = 2;
constexpr std::size_t kShownRequest = 200;

// True when the socket is ready for `events` before `deadline`.
bool wait(int fd, short events, double deadline) {
  while (true) {
    const double left = deadline - now_s();
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::ceil(std::clamp(left, 0.0, 3600.0) * 1000)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool send_bytes(int fd, std::string_view bytes, double deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait(fd, POLLOUT, deadline)) return false;
    } else {
      return false;
    }
  }
  return true;
}

std::string head_of(const Target& target, const WireRequest& request) {
  const bool ipv6 = target.host.find(':') != std::string::npos;
  std::string out = request.method + " " + target.prefix + request.path +
                    " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + target.host + "]" : target.host) + ":" + target.port +
                    "\r\nUser-Agent: barg-conform\r\nAccept: */*\r\n";
  if (request.bearer && !target.api_key.empty()) out += "Authorization: Bearer " + target.api_key + "\r\n";
  for (const auto& [name, value] : request.headers) out += name + ": " + value + "\r\n";
  if (!request.body.empty())
    out += "Content-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) + "\r\n";
  if (request.expect_continue) out += "Expect: 100-continue\r\n";
  return out + "\r\n";
}

// Connects one address; the errno of the failure, or 0 and the socket in `fd`.
int connect_one(const addrinfo& address, double deadline, int& fd) {
  fd = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol);
  if (fd < 0) return errno;
  int error = 0;
  if (connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!wait(fd, POLLOUT, deadline)) {
        error = ETIMEDOUT;
      } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
      }
    }
  }
  if (error == 0) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return 0;
  }
  ::close(fd);
  fd = -1;
  return error;
}

}  // namespace

Result<Target> parse_target(std::string_view url) {
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidValue,
                "'" + std::string(url.substr(0, 100)) + "' is not a URL of the form http://HOST:PORT.");
  };
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme) || url.find_first_of(" \r\n\t?#") != std::string_view::npos) return bad();
  const std::string_view rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  Target target;
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  target.prefix = path;
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    target.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
    if (target.port.empty() || target.port.size() > 5 ||
        target.port.find_first_not_of("0123456789") != std::string::npos)
      return bad();
  }
  if (authority.starts_with('[')) {
    if (!authority.ends_with(']')) return bad();
    authority = authority.substr(1, authority.size() - 2);
  }
  if (authority.empty()) return bad();
  target.host = authority;
  return target;
}

const std::string* Exchange::header(std::string_view name) const {
  const auto it = std::ranges::find_if(headers, [&](const Header& h) { return h.first == name; });
  return it == headers.end() ? nullptr : &it->second;
}

Result<Connection> Connection::open(const Target& target, double timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found); code != 0)
    return fail(ErrorCode::kUnavailable, "cannot find " + target.host + ": " + gai_strerror(code) + ".");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const double deadline = now_s() + timeout_s;
  int error = EHOSTUNREACH;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    int fd = -1;
    error = connect_one(*a, deadline, fd);
    if (error == 0) return Connection(fd, target);
  }
  return fail(ErrorCode::kUnavailable,
              "nobody answers at " + target.host + ":" + target.port + ": " + std::strerror(error) + ".");
}

bool Connection::send(const WireRequest& request, double timeout_s) {
  const double deadline = now_s() + timeout_s;
  std::string bytes = head_of(target_, request);
  if (!request.expect_continue) bytes += request.body;
  if (request.piece == 0) return send_bytes(fd_, bytes, deadline);
  for (std::size_t i = 0; i < bytes.size(); i += request.piece) {
    if (!send_bytes(fd_, std::string_view(bytes).substr(i, request.piece), deadline)) return false;
    pause_s(0.002);  // so that the pieces are not joined on the way
  }
  return true;
}

Exchange Connection::exchange(const WireRequest& request, double timeout_s, const Leave& leave) {
  Exchange out;
  out.request = request.method + " " + request.path + " " + request.body.substr(0, kShownRequest);
  AnswerReader reader(out, request.method == "HEAD");
  const double start = now_s();
  const double deadline = start + timeout_s;
  // A server may answer, and close, before it has read everything: what it said counts.
  const bool sent = send(request, timeout_s);
  bool body_held = request.expect_continue;
  const double continue_at = start + kContinueWait;
  char chunk[64 << 10];
  while (!reader.done()) {
    if (body_held && (out.interim || now_s() >= continue_at)) {
      body_held = false;
      send_bytes(fd_, request.body, deadline);
    }
    if (!wait(fd_, POLLIN, body_held ? std::min(deadline, continue_at) : deadline)) {
      if (body_held) continue;
      out.end = Exchange::End::kTimeout;
      out.problem = "the answer was not complete after " + std::to_string(static_cast<int>(timeout_s)) + " s.";
      break;
    }
    const ssize_t got = recv(fd_, chunk, sizeof chunk, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      reader.close();
      if (!sent && out.status == 0) out.problem = "the connection was closed while the request was sent.";
      break;
    }
    reader.feed({chunk, static_cast<std::size_t>(got)}, now_s() - start);
    if (leave && !reader.done() && leave(out)) {
      out.end = Exchange::End::kLeft;
      break;
    }
  }
  out.seconds = now_s() - start;
  if (out.end != Exchange::End::kComplete) close();
  return out;
}

void Connection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Connection::peer_closed() const {
  if (fd_ < 0) return true;
  char byte = 0;
  const ssize_t got = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

std::string Connection::unasked() {
  char bytes[256];
  const ssize_t got = fd_ < 0 ? 0 : recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

Exchange exchange_once(const Target& target, const WireRequest& request, double timeout_s, const Leave& leave) {
  Result<Connection> connection = Connection::open(target, timeout_s);
  if (!connection) {
    Exchange out;
    out.request = request.method + " " + request.path;
    out.problem = connection.error().message;
    return out;
  }
  return connection->exchange(request, timeout_s, leave);
}

double now_s() { return SteadyClock().now(); }

void pause_s(double seconds) { poll(nullptr, 0, static_cast<int>(std::ceil(seconds * 1000))); }

}  // namespace barg::conform
