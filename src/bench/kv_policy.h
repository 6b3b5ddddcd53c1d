// What the tiers would do with a trace, without a model and without bytes: the decisions are those of the
// server, because they are made by the server's own code. kv::KvManager is the device's pool (a block is one
// token, its node in the trace), store::StackPolicy the tiers below; only copying, time and failure are left
// out, so a write is there at once, and one request is over before the next begins.
//
// One thread. A whole trace of 300,000 blocks takes a fraction of a second.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/kv_trace.h"

namespace barg::bench {

/// Nearest first, as sched::Place.
inline constexpr std::size_t kKvPlaces = 4;
inline constexpr const char* kKvPlaceNames[kKvPlaces] = {"device", "dram", "disk", "remote"};

enum class KvWrite : std::uint8_t {
  kBack,       ///< as the server: evicted to DRAM, below only what was read or came back
  kAll,        ///< the same, but DRAM evicts everything to disk (admit=all)
  kThrough,    ///< every block to every tier as soon as it is computed
  kSecondUse,  ///< nothing anywhere before its second use
};
inline constexpr const char* kKvWriteNames[] = {"back", "all", "through", "second-use"};

struct KvPolicyOptions {
  std::array<std::int64_t, kKvPlaces> blocks{1760, 0, 0,
                                             0};  ///< 0 = no such tier; the device has at least one
  bool lru = false;                               ///< in the device's pool; else S3-FIFO
  KvWrite write = KvWrite::kBack;
};

struct KvTierCount {
  std::uint64_t hits = 0;  ///< blocks that were served from here
  std::uint64_t evictions = 0;
  std::uint64_t rereads = 0;  ///< evicted blocks that were asked for again
  std::uint64_t writes = 0;
  std::uint64_t useful_writes = 0;  ///< of these, read at least once before they were evicted
  double duplicates = 0;  ///< share of the tier that a nearer tier below the device holds too, over the run
};

struct KvPolicyResult {
  KvPolicyOptions options;
  std::uint64_t requests = 0;
  std::uint64_t asked = 0;  ///< blocks
  std::array<KvTierCount, kKvPlaces> tiers{};
  std::uint64_t refused = 0;  ///< evicted from DRAM and not found worth a write
  double seconds = 0;         ///< that the replay took
  bool stopped = false;
  /// Over equal stretches of the trace: blocks asked for, and served by each tier.
  struct Bin {
    double end_s = 0;
    std::uint64_t asked = 0;
    std::array<std::uint64_t, kKvPlaces> hits{};
  };
  std::vector<Bin> bins;

  std::uint64_t hits() const;
  double hit_rate() const;
};

struct KvPolicyHooks {
  std::function<void(double share)> progress;  ///< about a hundred times
  const std::atomic<bool>* stop = nullptr;
};

/// REQUIRES a device that holds the trace's longest request and one block more, tiers of at most 2^31 blocks.
KvPolicyResult run_kv_policy(const KvTrace& trace, const KvPolicyOptions& options,
                             const KvPolicyHooks& hooks = {});

}  // namespace barg::bench
