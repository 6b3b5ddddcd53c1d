#include "store/redis_url.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace barg::store {
namespace {

constexpr const char* kForms =
    "redis://[user:password@]host[:port][/db], rediss://... or unix:///path[?db=n]";

std::unexpected<Error> wrong(const std::string& what) {
  return fail(ErrorCode::kInvalidValue, "the URL of the Redis server " + what + "; it must be " + kForms);
}

template <class T>
std::optional<T> number(std::string_view s, T max) {
  T value{};
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || ec != std::errc{} || end != s.data() + s.size() || value < T{0} || value > max) return {};
  return value;
}

/// %41 -> A. Nothing for a malformed escape, or a zero byte.
std::optional<std::string> unescape(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(s[i]);
    if (c == '%') {
      if (i + 2 >= s.size()) return {};
      const auto [end, ec] = std::from_chars(s.data() + i + 1, s.data() + i + 3, c, 16);
      if (ec != std::errc{} || end != s.data() + i + 3) return {};
      i += 2;
    }
    if (c == 0) return {};
    out.push_back(static_cast<char>(c));
  }
  return out;
}

Result<RedisUrl> parse_socket(std::string_view rest) {
  RedisUrl url;
  const auto query = rest.find('?');
  if (query != std::string_view::npos) {
    const std::string_view q = rest.substr(query + 1);
    const auto db = q.starts_with("db=") ? number<std::int32_t>(q.substr(3), 1 << 20) : std::nullopt;
    if (!db) return wrong("has a malformed database number");
    url.db = *db;
    rest = rest.substr(0, query);
  }
  const auto path = unescape(rest);
  if (!path || path->empty() || path->front() != '/') return wrong("names no absolute path");
  if (path->size() > 107) return wrong("names a socket whose path is longer than 107 bytes");
  url.socket_path = *path;
  return url;
}

Result<void> parse_login(std::string_view login, RedisUrl& url) {
  const auto colon = login.find(':');
  const auto user = unescape(login.substr(0, colon));
  const auto password = colon == std::string_view::npos ? std::nullopt : unescape(login.substr(colon + 1));
  if (!user || !password) return wrong("has a malformed user or password");
  if (!user->empty() && password->empty()) return wrong("has a user without a password");
  url.user = *user;
  url.password = *password;
  return {};
}

}  // namespace

std::string RedisUrl::name() const {
  if (!socket_path.empty()) return "redis:" + socket_path;
  const std::string shown = host.contains(':') ? "[" + host + "]" : host;
  return (tls ? "rediss:" : "redis:") + shown + ":" + std::to_string(port);
}

bool RedisUrl::local() const {
  return !socket_path.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

Result<RedisUrl> parse_redis_url(std::string_view text) {
  if (text.size() > 4096) return wrong("is longer than 4096 bytes");
  if (text.starts_with("unix://")) return parse_socket(text.substr(7));
  RedisUrl url;
  url.tls = text.starts_with("rediss://");
  if (!url.tls && !text.starts_with("redis://")) return wrong("begins with no known scheme");
  std::string_view rest = text.substr(url.tls ? 9 : 8);

  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    if (auto ok = parse_login(rest.substr(0, at), url); !ok) return std::unexpected(ok.error());
    rest = rest.substr(at + 1);
  }
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view digits = rest.substr(slash + 1);
    const auto db = digits.empty() ? std::optional<std::int32_t>(0) : number<std::int32_t>(digits, 1 << 20);
    if (!db) return wrong("has a malformed database number");
    url.db = *db;
    rest = rest.substr(0, slash);
  }
  std::string_view host = rest;
  std::string_view port;
  bool has_port = false;
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == std::string_view::npos) return wrong("has an unclosed bracket");
    host = rest.substr(1, close - 1);
    port = rest.substr(close + 1);
    has_port = !port.empty();
    if (has_port && port[0] != ':') return wrong("has a malformed port");
    if (has_port) port.remove_prefix(1);
  } else if (const auto colon = rest.find(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    has_port = true;
  }
  if (has_port) {
    const auto p = number<std::uint16_t>(port, 65535);
    if (!p || *p == 0) return wrong("has a malformed port");
    url.port = *p;
  }
  const bool printable = std::all_of(host.begin(), host.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (host.empty() || host.size() > 255 || !printable) return wrong("names no host");
  url.host = host;
  return url;
}

}  // namespace barg::store
