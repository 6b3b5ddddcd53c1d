// RedisTier: a pool of parts on a Redis or Valkey server, shared by several processes.
//
// A part is one value (or, above 1 MiB, a small head and its chunks) under "barg:1:<domain>:<block>.<part>";
// it describes itself (redis_record.h), and what does not fit its name, domain, version or checksums is never
// used: it is removed and counted. Commands are pipelined on several connections; a server that is lost,
// slow, full or wrong makes parts missing, nothing worse: every wait ends at a deadline, repeated failures
// take the tier down at once, and one connection then asks with growing pauses whether the server is back.
//
// Threads: all methods from any. Owns its io threads and connections; reports are made on the io threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "barg/result.h"
#include "base/env.h"
#include "store/tier.h"

namespace barg::store {

struct RedisOptions {
  /// redis://[[user]:password@]host[:port][/db], rediss://... (TLS), unix:///path/of/socket[?db=n].
  std::string url;
  std::string ca_file;    ///< PEM; empty: the system's
  std::string cert_file;  ///< PEM, with key_file: shown to a server that asks for one
  std::string key_file;
  bool tls_verify = true;

  std::int32_t connections = 4;
  std::int32_t threads = 2;      ///< at most one a connection
  double connect_timeout_s = 0;  ///< resolve, connect, TLS and login together; 0: 0.1 on this machine, else 1
  double op_timeout_s = 2;  ///< from sending a command to its whole answer; then the connection is dropped
  double ttl_s = 0;         ///< the server forgets a part not used for so long; 0: its own policy decides
  std::uint64_t max_inflight_bytes = 64ULL << 20;  ///< writes queued beyond this are refused, not queued

  double present_ttl_s = 10;  ///< find() believes what was seen for so long
  double absent_ttl_s = 3;
  std::int32_t max_failures = 3;  ///< in a row, then down
  double min_pause_s = 0.1;       ///< before the first question whether the server is back; doubles
  double max_pause_s = 5;
  double write_pause_s = 5;  ///< after the server had no room or took no writes

  const Clock* clock = nullptr;  ///< outlives the tier; required
};

/// Starts to connect and returns at once: a server that is not there yet is a tier that is down.
Result<std::unique_ptr<Tier>> make_redis_tier(const RedisOptions& options, const Domain& domain);

}  // namespace barg::store
