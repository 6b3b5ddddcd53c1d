// HttpServer: sockets, HTTP/1.x framing and time limits. Owns the io threads and all connections.
//
// Invariants:
//  1. A connection belongs to one io thread for its whole life; nothing of it is locked.
//  2. At most one request of a connection is being answered; answers leave in order; at most
//     kMaxBufferedInput bytes of later requests wait.
//  3. A read is always pending while a request is being answered, so a client's disconnect is seen at once.
//  Only
//     when the input buffer is full the socket is polled instead.
//  4. Every request that sent at least one byte ends in exactly one HttpHandler::on_access.
//  5. An early refusal is followed by shutdown of the sending side and a bounded drain of what the client
//  still
//     sends: the answer arrives, no reset.
//  6. A stream's handler is told when its reader falls behind and when it has caught up; whoever goes on
//  writing
//     all the same is cut off at kMaxBacklogBytes, and a reader that takes nothing at all after
//     write_stall_timeout.
//
// It knows no route, no JSON and no key. start/drain/interrupt/stop may be called from any thread but a
// handler's.
#pragma once

#include <cstdint>
#include <memory>

#include "barg/config.h"
#include "barg/result.h"
#include "server/http.h"

namespace barg::server {

inline constexpr std::size_t kMaxHeaderBytes = 16 * 1024;
inline constexpr std::size_t kMaxHeaderFields = 100;
inline constexpr std::size_t kMaxTargetBytes = 8 * 1024;
inline constexpr std::size_t kMaxBufferedInput = 64 * 1024;
/// What a stream's reader may leave unread here before its handler is told to wait, and when it may go on;
/// beyond what the two kernels hold, of which kUnsentBytes have not left this machine.
inline constexpr std::size_t kBehindBytes = 32 * 1024, kCaughtUpBytes = 8 * 1024;
inline constexpr int kUnsentBytes = 32 * 1024;
/// Of a stream, beside its largest event: with more unread the reader counts as slow.
inline constexpr std::size_t kMaxBacklogBytes = std::size_t{4} << 20;
inline constexpr int kMaxRequestsPerConnection = 1000;

struct HttpGauges {
  std::int64_t open_connections = 0;
  std::int64_t active_requests = 0;
  std::uint64_t accepted = 0;
  std::uint64_t refused_connections = 0;  ///< over max_connections
  std::uint64_t write_stalls = 0;
  std::uint64_t disconnects = 0;  ///< clients gone while their request was being answered
};

class HttpServer {
 public:
  /// Binds and serves. `handler` outlives the object. Fails with kIo (address in use, ...), kInvalidValue
  /// (host).
  static Result<std::unique_ptr<HttpServer>> start(const ServerOptions& options, HttpHandler& handler);
  virtual ~HttpServer() = default;  ///< stop()

  virtual std::uint16_t port() const = 0;  ///< the real one when 0 was asked for
  virtual HttpGauges gauges() const = 0;
  /// From now on connections close after the answer they are giving; idle ones close at once.
  virtual void drain() = 0;
  /// Interrupt::kShutdown to everything that is being answered.
  virtual void interrupt() = 0;
  /// Waits until nothing is being answered, at most `seconds`. True if so.
  virtual bool wait_idle(double seconds) = 0;
  /// Closes everything and joins the threads. Idempotent.
  virtual void stop() = 0;
};

}  // namespace barg::server
