#include "cli/http_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

namespace barg::cli {
namespace {

constexpr std::size_t kMaxHeaderBytes = 64 << 10;
constexpr std::size_t kMaxBodyBytes = 64 << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  Result<void> wait(short events, double seconds) const {
    pollfd entry{.fd = fd_, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(seconds * 1000));
    if (ready == 0) return fail(ErrorCode::kTimeout, "the server did not answer in time.");
    if (ready < 0)
      return fail(ErrorCode::kIo,
                  std::string("waiting for the server failed: ") + std::strerror(errno) + ".");
    return {};
  }

 private:
  int fd_;
};

Result<Socket> connect_to(const Url& url, double timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found); code != 0) {
    return fail(ErrorCode::kUnavailable, "cannot find " + url.host + ": " + gai_strerror(code) + ".");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  int last_error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol));
    if (socket.fd() < 0) continue;
    if (connect(socket.fd(), a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
      last_error = errno;
      continue;
    }
    if (!socket.wait(POLLOUT, timeout_s)) {
      last_error = ETIMEDOUT;
      continue;
    }
    socklen_t size = sizeof last_error;
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &last_error, &size) == 0 && last_error == 0)
      return socket;
  }
  return fail(ErrorCode::kUnavailable,
              "nobody answers at " + url.host + ":" + url.port + ": " + std::strerror(last_error) + ".");
}

Result<void> send_all(const Socket& socket, std::string_view bytes, double timeout_s) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (const Result<void> ready = socket.wait(POLLOUT, timeout_s); !ready) return ready;
    } else {
      return fail(ErrorCode::kUnavailable,
                  std::string("sending the request failed: ") + std::strerror(errno) + ".");
    }
  }
  return {};
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// What arrives on one connection, as a buffer that is refilled on demand.
class Reader {
 public:
  Reader(const Socket& socket, double timeout_s) : socket_(socket), timeout_s_(timeout_s) {}

  /// More bytes; false at the end of the stream.
  Result<bool> fill() {
    char chunk[16 << 10];
    while (true) {
      const ssize_t got = recv(socket_.fd(), chunk, sizeof chunk, 0);
      if (got > 0) {
        buffer_.append(chunk, static_cast<std::size_t>(got));
        return true;
      }
      if (got == 0) return false;
      if (errno != EAGAIN && errno != EINTR) {
        return fail(ErrorCode::kUnavailable,
                    std::string("the connection broke: ") + std::strerror(errno) + ".");
      }
      if (const Result<void> ready = socket_.wait(POLLIN, timeout_s_); !ready)
        return std::unexpected(ready.error());
    }
  }

  /// Up to and without CR LF.
  Result<std::string> line() {
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (buffer_.size() > kMaxHeaderBytes)
        return fail(ErrorCode::kBadFile, "the server's answer has an endless line.");
      const Result<bool> more = fill();
      if (!more) return std::unexpected(more.error());
      if (!*more) return fail(ErrorCode::kBadFile, "the server's answer ended too early.");
    }
    std::string text = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    return text;
  }

  std::string& buffer() { return buffer_; }

 private:
  const Socket& socket_;
  double timeout_s_;
  std::string buffer_;
};

class Exchange {
 public:
  Exchange(const Socket& socket, double timeout_s, const BodySink& sink)
      : reader_(socket, timeout_s), sink_(sink) {}

  Result<ClientResponse> run() {
    if (const Result<void> head = read_head(); !head) return std::unexpected(head.error());
    const Result<bool> body = chunked_ ? read_chunks() : read_plain(length_);
    if (!body) return std::unexpected(body.error());
    return std::move(response_);
  }

 private:
  Result<void> read_head() {
    Result<std::string> status = reader_.line();
    if (!status) return std::unexpected(status.error());
    const char* code = status->c_str() + std::min<std::size_t>(9, status->size());
    if (!status->starts_with("HTTP/1.") ||
        std::from_chars(code, status->c_str() + status->size(), response_.status).ec != std::errc{}) {
      return fail(ErrorCode::kBadFile, "what answers there does not speak HTTP.");
    }
    for (int fields = 0; fields < 200; ++fields) {
      Result<std::string> line = reader_.line();
      if (!line) return std::unexpected(line.error());
      if (line->empty()) return {};
      read_field(*line);
    }
    return fail(ErrorCode::kBadFile, "the server's answer has too many header fields.");
  }

  void read_field(std::string_view line) {
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon);
    std::string_view value = line.substr(std::min(colon + 1, line.size()));
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    if (equals_ignoring_case(name, "transfer-encoding")) chunked_ = equals_ignoring_case(value, "chunked");
    std::size_t length = 0;
    if (equals_ignoring_case(name, "content-length") &&
        std::from_chars(value.data(), value.data() + value.size(), length).ec == std::errc{}) {
      length_ = length;
    }
  }

  // False when the sink has had enough.
  Result<bool> deliver(std::string_view piece) {
    if (sink_ && response_.status < 300) return sink_(piece);
    if (response_.body.size() + piece.size() > kMaxBodyBytes)
      return fail(ErrorCode::kTooLarge, "the server's answer is too large.");
    response_.body += piece;
    return true;
  }

  // `length` bytes, or all until the connection closes.
  Result<bool> read_plain(std::optional<std::size_t> length) {
    while (!length || *length > 0) {
      std::string& buffer = reader_.buffer();
      if (buffer.empty()) {
        const Result<bool> more = reader_.fill();
        if (!more) return more;
        if (!*more && length) return fail(ErrorCode::kBadFile, "the server's answer ended too early.");
        if (!*more) return true;
      }
      const std::size_t take = length ? std::min(*length, buffer.size()) : buffer.size();
      const Result<bool> go_on = deliver(std::string_view(buffer).substr(0, take));
      if (!go_on || !*go_on) return go_on;
      buffer.erase(0, take);
      if (length) *length -= take;
    }
    return true;
  }

  Result<bool> read_chunks() {
    while (true) {
      const Result<std::string> head = reader_.line();
      if (!head) return std::unexpected(head.error());
      std::size_t size = 0;
      if (std::from_chars(head->data(), head->data() + head->size(), size, 16).ec != std::errc{}) {
        return fail(ErrorCode::kBadFile, "the server's answer has a broken chunk.");
      }
      if (size == 0) return true;
      const Result<bool> go_on = read_plain(size);
      if (!go_on || !*go_on) return go_on;
      if (const Result<std::string> end = reader_.line(); !end) return std::unexpected(end.error());
    }
  }

  Reader reader_;
  const BodySink& sink_;
  ClientResponse response_;
  bool chunked_ = false;
  std::optional<std::size_t> length_;
};

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto bad = [&] {
    return fail(ErrorCode::kInvalidValue,
                "'" + std::string(text.substr(0, 100)) + "' is not a URL of the form http://HOST:PORT/PATH.");
  };
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) return bad();
  std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  Url url;
  if (slash < rest.size()) url.path = rest.substr(slash);
  const std::size_t bracket = authority.find(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    url.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
    if (url.port.empty() || url.port.size() > 5 ||
        url.port.find_first_not_of("0123456789") != std::string::npos)
      return bad();
  }
  if (authority.starts_with('[')) {
    if (!authority.ends_with(']')) return bad();
    authority = authority.substr(1, authority.size() - 2);
  }
  if (authority.empty() || authority.find_first_of(" \r\n\t") != std::string_view::npos) return bad();
  if (url.path.find_first_of(" \r\n\t") != std::string::npos) return bad();
  url.host = authority;
  return url;
}

Result<ClientResponse> http_request(const Url& url, const ClientRequest& request, const BodySink& sink) {
  const Result<Socket> socket = connect_to(url, request.timeout_s);
  if (!socket) return std::unexpected(socket.error());
  const bool ipv6 = url.host.find(':') != std::string::npos;
  std::string text = request.method + " " + request.path +
                     " HTTP/1.1\r\nHost: " + (ipv6 ? "[" + url.host + "]" : url.host) + ":" + url.port +
                     "\r\nConnection: close\r\nUser-Agent: barg\r\n";
  if (!request.api_key.empty()) text += "Authorization: Bearer " + request.api_key + "\r\n";
  if (!request.body.empty()) {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  text += "\r\n" + request.body;
  if (const Result<void> sent = send_all(*socket, text, request.timeout_s); !sent)
    return std::unexpected(sent.error());
  return Exchange(*socket, request.timeout_s, sink).run();
}

}  // namespace barg::cli
