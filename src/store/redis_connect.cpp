// The part of RedisLink that gets a connection: resolve, connect, TLS, login.
#include <netdb.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <thread>
#include <utility>

#include "store/redis_commands.h"
#include "store/redis_hub.h"
#include "store/redis_link.h"

namespace barg::store {
namespace {

namespace asio = boost::asio;
using Endpoint = asio::generic::stream_protocol::endpoint;

struct Resolved {
  std::string error;
  std::vector<Endpoint> endpoints;
};

/// May take as long as the resolver likes.
Resolved resolve(const std::string& host, std::uint16_t port) {
  Resolved out;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    out.error = "cannot resolve " + host + ": " + ::gai_strerror(code);
    return out;
  }
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    out.endpoints.emplace_back(a->ai_addr, a->ai_addrlen, a->ai_protocol);
  }
  ::freeaddrinfo(found);
  if (out.endpoints.empty()) out.error = host + " has no address";
  return out;
}

double connect_timeout(const RedisOptions& o, const RedisUrl& url) {
  if (o.connect_timeout_s > 0) return o.connect_timeout_s;
  return url.local() && !url.tls ? 0.1 : 1.0;
}

/// The server's words for a person. An answer to AUTH might repeat the password: of it only the code.
std::string said(std::string_view text, bool secret) {
  if (secret) text = text.substr(0, text.find(' '));
  std::string out(text.substr(0, 120));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

}  // namespace

void RedisLink::connect() {
  ++generation_;
  state_ = State::kConnecting;
  retry_at_ = -1;
  answered_ = false;
  connect_by_ = hub_.now() + connect_timeout(hub_.options(), hub_.url());
  arm(connect_by_);
  const RedisUrl& url = hub_.url();
  if (!url.socket_path.empty())
    return resolved({}, {asio::local::stream_protocol::endpoint(url.socket_path)});
  boost::system::error_code ec;
  const auto address = asio::ip::make_address(url.host, ec);
  if (!ec) return resolved({}, {asio::ip::tcp::endpoint(address, url.port)});
  // The system's resolver cannot be stopped: a thread of its own, which nobody waits for and which owns all
  // it uses. Its answer goes to an io context that may have ended, and then to nobody.
  std::jthread([io = io_, self = weak_from_this(), generation = generation_, host = url.host,
                port = url.port] {
    Resolved r = resolve(host, port);
    asio::post(*io, [self, generation, r = std::move(r)]() mutable {
      const auto link = self.lock();
      if (link != nullptr && link->generation_ == generation) link->resolved(r.error, std::move(r.endpoints));
    });
  }).detach();
}

void RedisLink::resolved(const std::string& error, std::vector<Endpoint> endpoints) {
  if (!error.empty()) return fail(error, Status::kUnavailable);
  endpoints_ = std::move(endpoints);
  try_endpoint(0, {});
}

void RedisLink::try_endpoint(std::size_t i, const std::string& last_error) {
  if (i >= endpoints_.size()) return fail("cannot connect: " + last_error, Status::kUnavailable);
  stream_.close();
  stream_.socket().async_connect(
      endpoints_[i], guarded([i](RedisLink& link, const boost::system::error_code& ec) {
        if (ec) return link.try_endpoint(i + 1, ec.message());
        const RedisOptions& o = link.hub_.options();
        if (!link.stream_.prepare(link.hub_.tls(), o.tls_verify, link.hub_.url().host)) {
          return link.fail(std::string(link.stream_.error()), Status::kIoError);
        }
        link.state_ = State::kTls;
        link.step_tls();
      }));
}

void RedisLink::step_tls() {
  if (stream_result(stream_.handshake())) hello();
}

void RedisLink::hello() {
  state_ = State::kHello;
  const RedisUrl& url = hub_.url();
  if (!url.password.empty()) {
    ask({nullptr, 0, Hello::kAuth},
        url.user.empty() ? resp_command({"AUTH", url.password})
                         : resp_command({"AUTH", url.user, url.password}),
        {}, {});
  }
  if (url.db != 0)
    ask({nullptr, 0, Hello::kSelect}, resp_command({"SELECT", std::to_string(url.db)}), {}, {});
  ask({nullptr, 0, Hello::kPing}, resp_command({"PING"}), {}, {});
  const std::uint64_t generation = generation_;
  write_all();
  if (generation == generation_) wait(false);
}

bool RedisLink::hello_reply(Hello what, const ServerReply& reply) {
  const bool error = reply.kind == ServerReply::Kind::kError;
  // Whoever may read and write need not be allowed to PING.
  if (error && !(what == Hello::kPing && reply.text.starts_with("NOPERM"))) {
    const char* doing = what == Hello::kAuth     ? "the server refuses the login: "
                        : what == Hello::kSelect ? "the server refuses the database: "
                                                 : "the server is not ready: ";
    fail(doing + said(reply.text, what == Hello::kAuth), Status::kUnavailable);
    return false;
  }
  if (!error && reply.kind != ServerReply::Kind::kSimple) {
    fail("the server answered out of step", Status::kIoError);
    return false;
  }
  if (what != Hello::kPing) return true;
  state_ = State::kReady;
  connected_at_ = hub_.now();
  hub_.ready(index_);
  return true;
}

}  // namespace barg::store
