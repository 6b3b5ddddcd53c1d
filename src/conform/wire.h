// Wire: HTTP/1.1 over a plain socket, kept as it was seen: head, body without framing, when each read brought how
// much, and how the answer ended. A well-behaved client library would hide what the rules ask about.
//
// One thread; every call blocks, at most for the time it is given. What a server sends is bounded and checked; nothing
// a server does is an error here: it is a fact of the Exchange.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "barg/result.h"

namespace barg::conform {

inline constexpr std::size_t kMaxHeadBytes = 64 << 10;
inline constexpr std::size_t kMaxBodyBytes = 32 << 20;

struct Target {
  std::string host;
  std::string port = "80";
  std::string prefix;   ///< of every path, "" or "/something"; without /v1
  std::string api_key;  ///< sent as a bearer token unless empty
};

/// kInvalidValue for anything but http://HOST[:PORT][/PATH]; IPv6 hosts in brackets. A trailing "/v1" of the path is
/// dropped: the paths of the rules have it.
Result<Target> parse_target(std::string_view url);

using Header = std::pair<std::string, std::string>;  ///< names of answers in lower case

struct WireRequest {
  std::string method = "GET";
  std::string path = "/";  ///< behind the target's prefix
  std::string body;        ///< sent, with its length, unless empty
  std::vector<Header> headers;
  bool bearer = true;            ///< the API key as Authorization
  std::size_t piece = 0;         ///< send so many bytes at a time, each in a packet of its own; 0 = all at once
  bool expect_continue = false;  ///< hold the body back until the server says 100, or for two seconds
};

/// What one read of the socket brought.
struct Packet {
  double at = 0;             ///< seconds since the request began to be sent
  std::size_t body_end = 0;  ///< bytes of the body that were there after it
};

struct Exchange {
  enum class End {
    kComplete,     ///< by its length, its last chunk, or a close where neither is given
    kCutShort,     ///< closed before that
    kTimeout,      ///< not complete in time
    kBroken,       ///< not HTTP, or over a limit; `problem` says it
    kLeft,         ///< we had seen enough and closed
    kUnreachable,  ///< no connection
  };

  std::string request;  ///< "POST /v1/completions {...", for a person
  int status = 0;       ///< 0: no complete head came
  std::string head;     ///< the final one, as sent
  std::vector<Header> headers;
  std::string body;
  std::vector<Packet> packets;
  End end = End::kUnreachable;
  std::string problem;  ///< one sentence unless kComplete or kLeft
  bool chunked = false;
  std::optional<std::size_t> length;
  std::string extra;     ///< bytes behind the end of the answer, bounded
  bool interim = false;  ///< a 1xx head came first
  double seconds = 0;    ///< until the end

  /// First header of this lower-case name, nullptr if none.
  const std::string* header(std::string_view name) const;
  bool complete() const { return end == End::kComplete || end == End::kLeft; }
};

/// Says after each read whether to leave.
using Leave = std::function<bool(const Exchange&)>;

class Connection {
 public:
  /// kUnavailable when nobody answers.
  static Result<Connection> open(const Target& target, double timeout_s);
  Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), target_(std::move(other.target_)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() { close(); }

  /// Sends and reads one answer. With `leave` the connection is closed as soon as it says so.
  Exchange exchange(const WireRequest& request, double timeout_s, const Leave& leave = {});
  /// Sends without reading: for requests that are abandoned.
  bool send(const WireRequest& request, double timeout_s);
  void close();
  bool peer_closed() const;
  /// What came without having been asked for; reads at most 256 bytes, and waits for none.
  std::string unasked();

 private:
  explicit Connection(int fd, Target target) : fd_(fd), target_(std::move(target)) {}

  int fd_;
  Target target_;
};

/// One request on a connection of its own.
Exchange exchange_once(const Target& target, const WireRequest& request, double timeout_s, const Leave& leave = {});

/// Monotonic seconds.
double now_s();
/// Waits without using the processor.
void pause_s(double seconds);

}  // namespace barg::conform
