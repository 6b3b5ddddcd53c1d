// Tiers from text, as kv.tiers has them, nearest first:
//
//   dram:size=256MiB[,ttl=1h]
//   disk:path=DIR,size=2GiB[,ttl=1h][,budget=100GiB/day][,admit=reuse|all]        any number of directories
//   redis:url=redis://[[user]:password@]host[:port][/db][,ttl=1h][,password_file=FILE][,ca_file=FILE]
//         [,cert_file=FILE][,key_file=FILE][,tls_verify=yes|no][,connections=4][,op_timeout=2s]
//   disk and redis also: throttle=8MiB/s, latency=1ms                             (store/throttle.h; for
//   benchmarks)
//
// A new kind of tier is a file with its Tier and a row of the table in tier_spec.cpp. What is malformed is an
// error that names kv.tiers[i] and the field; a tier that is well described but cannot be opened now is a
// warning, and Barg runs without it. Messages never repeat a URL or a password.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "base/env.h"
#include "store/disk_tier.h"
#include "store/redis_tier.h"
#include "store/stack.h"
#include "store/throttle.h"

namespace barg::store {

struct TierSpec {
  TierKind kind = TierKind::kDram;
  std::string name;  ///< of the kind: "dram"
  std::uint64_t size_bytes = 0;
  double ttl_s = 0;
  std::uint64_t bytes_per_day = 0;  ///< write budget; 0 = none
  bool admit_all = false;
  DiskOptions disk;  ///< directory only; the rest when it is opened
  RedisOptions redis;
  std::string password_file;
  bool throttle = false;
  double throttle_bytes_per_s = 0, throttle_latency_s = 0;
};

/// Text only: opens nothing. Errors: kInvalidValue with param "kv.tiers[i]".
Result<std::vector<TierSpec>> parse_tiers(std::span<const std::string> specs);

struct OpenedStack {
  std::unique_ptr<TierStack> stack;   ///< nullptr: no tier could be opened, or none was asked for
  std::vector<std::string> warnings;  ///< one sentence each
  /// Of each spec; nullptr where it has neither throttle nor latency.
  std::vector<std::shared_ptr<ThrottleControl>> throttles;
};

/// REQUIRES that clock outlives the stack.
Result<OpenedStack> open_stack(std::span<const std::string> specs, const Domain& domain, const Clock& clock);

}  // namespace barg::store
