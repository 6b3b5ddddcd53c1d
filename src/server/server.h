// Server: the OpenAI-compatible front end over one or more engines. What the command line starts and stops.
//
// It installs no signal handlers. The command line blocks SIGINT and SIGTERM, waits for them on a thread of
// its own and calls shutdown() on the first and cut() on the second; main sits in wait().
//
//   drain: /readyz 503, new work is refused with 503 + Retry-After + Connection: close
//   finish: running requests go on until shutdown_timeout_s
//   cut:   the rest is cancelled and told so (SSE error event or 503, code server_shutdown)
//
// Threads: all methods from any thread; wait() from one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "barg/config.h"
#include "barg/result.h"
#include "server/http.h"
#include "server/served_model.h"

namespace barg::server {

struct BuildInfo {
  std::string version;  ///< "0.1.0"
  std::string git;      ///< short hash
};

struct ServerExtras {
  /// Replaces the log as the receiver of access records (tests).
  std::function<void(const AccessRecord&)> access;
  /// Ends of phases: "draining", "cut", "stopped" (for the command line's messages). May be empty.
  std::function<void(const std::string& phase)> progress;
};

class Server {
 public:
  /// Binds and serves at once. REQUIRES at least one model with engine and tokenizer; names must be unique
  /// (kInvalidValue). kIo when the address cannot be bound. The engines must outlive the Server or be shared.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, std::vector<ServedModel> models,
                                               BuildInfo build, ServerExtras extras = {});
  virtual ~Server() = default;  ///< cut() and wait()

  virtual std::uint16_t port() const = 0;
  virtual void shutdown() = 0;  ///< graceful; returns at once
  virtual void cut() = 0;       ///< now; returns at once
  virtual void wait() = 0;      ///< until the server has stopped after shutdown() or cut()
};

}  // namespace barg::server
