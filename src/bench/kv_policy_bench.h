// The policy-only mode of `barg bench kv`: one replay through the server's own policies, beside what LRU,
// S3-FIFO and an oracle would have had from the same capacity, and beside the same tiers written through. The
// caller's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/kv_policy.h"

namespace barg::bench {

/// Hit rates of one device pool of `capacity` blocks.
struct KvBaseline {
  std::int64_t capacity = 0;
  double lru = 0, s3fifo = 0, optimum = 0;
};

struct KvSweepPoint {
  KvBaseline pool;
  double tiers = 0;  ///< the device as it was asked for, and DRAM up to the capacity
};

struct KvPolicyReport {
  std::string trace;
  std::uint64_t requests = 0, blocks = 0, distinct = 0;
  double unbounded = 0;   ///< hit rate of a cache that forgets nothing
  double tail_waste = 0;  ///< share of the blocks' slots that no token of a prompt fills
  KvPolicyResult result;
  KvBaseline device, total;
  std::optional<KvPolicyResult> through;  ///< the same tiers, written through; with a disk or a remote pool
  std::vector<KvSweepPoint> sweep;
  bool stopped = false;

  double of_optimum() const { return total.optimum > 0 ? result.hit_rate() / total.optimum : 0; }
};

/// Nearest tier behind DRAM that the options have: where writes are compared. 0 = none.
std::size_t compared_tier(const KvPolicyOptions& options);
/// Share of a tier's writes that were read before they were lost; nothing without writes.
std::optional<double> useful_share(const KvTierCount& tier);
std::optional<double> reread_share(const KvTierCount& tier);

/// REQUIRES as run_kv_policy(), of every capacity in `sweep` too.
KvPolicyReport run_kv_policy_bench(const KvTrace& trace, const KvPolicyOptions& options,
                                   const std::vector<std::int64_t>& sweep, const KvPolicyHooks& hooks);

/// The table for people, the document of docs/bench.md, and file names with SVG documents.
std::string kv_policy_table(const KvPolicyReport& report);
std::string kv_policy_json(const KvPolicyReport& report);
std::vector<std::pair<std::string, std::string>> kv_policy_plots(const KvPolicyReport& report);

}  // namespace barg::bench
