// Idempotency: one generation for all requests that carry the same Idempotency-Key, whatever their protocol.
//
//   client A --request--> admit() --Recorder--> generation          what the generation answers goes into a log;
//   client A <--write-- log <--write-- Recorder                     each client is sent the log from its beginning,
//   client B --the same--> admit(): nullptr    B <--write-- log     and then what comes
//
// A key is good for one API key and one endpoint, with or without /v1. The same body again attaches to the generation
// that runs, or to what it has answered, until `ttl_s` after its end; another body is 409. Only answers are kept:
// a refusal or a failure goes to those who wait, and the key is free again.
//
// When the process ends, the generation says so to all of its clients: whoever is interrupted first wakes it, and the
// connections of the others stay for its last words.
//
// A client that leaves costs nothing while another is attached. When the last one has left, the generation goes on
// for `grace_s`, then it is cancelled. It pauses when every client is behind, not when one is: the connection that a
// retry replaces is often a dead one.
//
// Memory: logs and what is known of each key count; over `memory_bytes` the oldest finished answers go first. If that
// is not enough, the longest logs of those still running are cut behind their slowest reader, and a further retry of
// such a key is 409 until it has ended.
//
// Threads: one mutex guards everything; it is never held while a client or a generation is called. admit() on the
// client's io thread. A recorder belongs to the io thread of its first client. One thread of ours wakes for graces
// and ends of life.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/hash.h"
#include "server/http.h"

namespace barg::server {

class Idempotency {
 public:
  struct Options {
    std::uint64_t memory_bytes = 64ULL << 20;  ///< 0: keys mean nothing
    double ttl_s = 600;
    double grace_s = 30;
  };
  struct Gauges {
    std::int64_t keys = 0;
    std::uint64_t bytes = 0;
    std::uint64_t attached = 0;  ///< requests that found their generation, so far
  };

  explicit Idempotency(Options options);
  ~Idempotency();  ///< stop()
  Idempotency(const Idempotency&) = delete;
  Idempotency& operator=(const Idempotency&) = delete;

  /// Whom a generation for `request` shall answer: `client` itself where there is no key, a recorder where the key is
  /// new; nullptr: `client` is answered already, or will be, and nothing is to be generated.
  /// `api_key`: who asks, empty where no key is asked for. `body`: the digest of the request's body, where somebody has
  /// made it elsewhere; it takes about half a millisecond per MiB.
  std::shared_ptr<Responder> admit(const HttpRequest& request, std::string_view api_key,
                                   std::shared_ptr<Responder> client, const std::optional<Digest>& body = {});
  /// Does it carry a key, so that admit() needs the digest of its body?
  static bool keyed(const HttpRequest& request);

  /// Ends what runs without a client, forgets everything, and passes later requests through. Idempotent.
  void stop();
  Gauges gauges() const;

  struct Impl;

 private:
  const std::shared_ptr<Impl> impl_;
};

}  // namespace barg::server
