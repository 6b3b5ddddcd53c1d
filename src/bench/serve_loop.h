// Offers a load to a server and stamps what comes back: one thread, one epoll, many keep-alive connections.
//
// Stamps are nanoseconds of the steady clock since the start of the run, taken right after the read that brought
// the bytes returns. A closed loop keeps N conversations going; an open loop and a trace start theirs at planned
// times whether or not the server keeps up, and latency counts from the planned time (no coordinated omission).
// A request whose kept-alive connection turns out to be closed before any byte of the answer is sent once more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "barg/result.h"
#include "bench/serve_options.h"
#include "bench/serve_workload.h"

namespace barg::bench {

/// One request and its answer.
struct RequestSample {
  std::uint64_t conversation = 0;
  int turn = 0;
  int input_asked = 0;   ///< tokens; 0 where unknown
  int output_asked = 0;
  std::int64_t intended = 0;  ///< when it should have gone out: all latencies count from here
  std::int64_t sent = 0;      ///< when it did
  std::int64_t done = 0;      ///< end of the answer
  std::vector<std::int64_t> stamps;    ///< of the pieces of text
  std::vector<std::uint32_t> counted;  ///< tokens so far at each piece, if the server says so
  int status = 0;
  std::int64_t prompt_tokens = -1;  ///< as the server counts; -1 = it did not say
  std::int64_t completion_tokens = -1;
  std::int64_t cached_tokens = -1;
  int retries = 0;
  std::string error;   ///< "" = answered; else a short key: "http_429", "timeout", ...
  std::string detail;  ///< one sentence

  bool ok() const { return error.empty(); }
  /// The server's count, else the number of pieces.
  std::int64_t output_tokens() const {
    return completion_tokens >= 0 ? completion_tokens : static_cast<std::int64_t>(stamps.size());
  }
};

struct RunSamples {
  std::vector<RequestSample> requests;  ///< in the order they ended
  std::int64_t cancelled = 0;           ///< in flight when the run was interrupted
  bool interrupted = false;             ///< by a person, or because the server is gone
  bool server_gone = false;
  std::uint64_t pieces = 0;             ///< stamped events, of failed requests too
  double cpu_s = 0;                     ///< of this thread
  double wall_s = 0;
  std::int64_t started = 0;             ///< the steady clock at stamp 0, nanoseconds
  std::int64_t reconnects = 0;          ///< requests that were sent again on a fresh connection
  std::int64_t rate_limited = 0;        ///< answers 429 and 503, retried or not
  int connections = 0;                  ///< opened in all
};

struct ServeProgress {
  double elapsed_s = 0;
  std::int64_t answered = 0;
  std::int64_t failed = 0;
  std::int64_t in_flight = 0;
  std::uint64_t pieces = 0;
  std::optional<std::int64_t> total;      ///< requests, if known
  std::optional<double> duration_s;
};

struct ServeHooks {
  std::function<void(const ServeProgress&)> progress;  ///< a few times a second, on the caller's thread
  const std::atomic<bool>* stop = nullptr;             ///< set from anywhere: the run ends within 0.2 s
};

/// Processor time of the calling thread.
double thread_cpu_s();

/// A server's address after the lookup: the first one that accepts a connection.
struct ServeAddress {
  std::vector<unsigned char> bytes;  ///< a sockaddr
  int family = 0;
  bool local = false;                ///< the server is on this machine (loopback)
};
/// kUnavailable when nobody answers. Blocks, at most a few seconds an address.
Result<ServeAddress> find_server(const ServeTarget& target);

/// Blocks until the load is served. Conversations count from `first_conversation`. kIo when the process has no
/// file descriptors left.
Result<RunSamples> run_load(const ServeOptions& options, const ServeAddress& address, const ServeLoad& load,
                            const Workload& workload, std::uint64_t first_conversation, const ServeHooks& hooks);

}  // namespace barg::bench
