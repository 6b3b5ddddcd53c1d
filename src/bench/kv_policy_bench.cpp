#include "bench/kv_policy_bench.h"

#include <numeric>

namespace barg::bench {
namespace {

double rate(std::uint64_t hits, const KvTrace& trace) {
  return trace.nodes.empty() ? 0 : static_cast<double>(hits) / static_cast<double>(trace.nodes.size());
}

// Every replay is one of `runs` equal parts of the work.
class Work {
 public:
  Work(const KvTrace& trace, const KvPolicyHooks& hooks, std::size_t runs)
      : trace_(trace), hooks_(hooks), runs_(runs) {}

  KvPolicyResult replay(const KvPolicyOptions& options) {
    const double begun = static_cast<double>(done_++);
    KvPolicyResult out = run_kv_policy(trace_, options,
                                       {.progress =
                                            [&](double share) {
                                              if (hooks_.progress)
                                                hooks_.progress((begun + share) / static_cast<double>(runs_));
                                            },
                                        .stop = hooks_.stop});
    stopped_ = stopped_ || out.stopped;
    return out;
  }

  KvBaseline baseline(std::int64_t capacity) {
    KvBaseline out{.capacity = capacity};
    out.lru = replay({.blocks = {capacity, 0, 0, 0}, .lru = true}).hit_rate();
    out.s3fifo = replay({.blocks = {capacity, 0, 0, 0}}).hit_rate();
    out.optimum = rate(optimum_hits(trace_, static_cast<std::uint64_t>(capacity)), trace_);
    return out;
  }

  bool stopped() const { return stopped_; }

 private:
  const KvTrace& trace_;
  const KvPolicyHooks& hooks_;
  std::size_t runs_, done_ = 0;
  bool stopped_ = false;
};

std::optional<double> quotient(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::size_t compared_tier(const KvPolicyOptions& options) {
  return options.blocks[2] > 0 ? 2 : options.blocks[3] > 0 ? 3 : 0;
}

std::optional<double> useful_share(const KvTierCount& tier) {
  return quotient(tier.useful_writes, tier.writes);
}
std::optional<double> reread_share(const KvTierCount& tier) { return quotient(tier.rereads, tier.evictions); }

KvPolicyReport run_kv_policy_bench(const KvTrace& trace, const KvPolicyOptions& options,
                                   const std::vector<std::int64_t>& sweep, const KvPolicyHooks& hooks) {
  KvPolicyReport out;
  out.requests = trace.size();
  out.blocks = trace.nodes.size();
  out.distinct = static_cast<std::uint64_t>(trace.distinct);
  out.unbounded = rate(out.blocks - out.distinct, trace);
  const double slots = static_cast<double>(out.blocks) * kTraceBlock;
  out.tail_waste = slots > 0 ? 1 - static_cast<double>(trace.tokens) / slots : 0;
  const bool compare = compared_tier(options) != 0 && options.write != KvWrite::kThrough;
  const std::int64_t device = options.blocks[0];
  const std::int64_t all = std::accumulate(options.blocks.begin(), options.blocks.end(), std::int64_t{0});
  Work work(trace, hooks, 1 + (compare ? 1 : 0) + (all > device ? 4 : 2) + 3 * sweep.size());
  out.result = work.replay(options);
  if (compare && !work.stopped()) {
    KvPolicyOptions through = options;
    through.write = KvWrite::kThrough;
    out.through = work.replay(through);
  }
  if (!work.stopped()) out.device = work.baseline(device);
  if (!work.stopped()) out.total = all > device ? work.baseline(all) : out.device;
  for (const std::int64_t capacity : sweep) {
    if (work.stopped()) break;
    KvPolicyOptions tiers = options;
    tiers.blocks = {std::min(device, capacity), std::max<std::int64_t>(capacity - device, 0), 0, 0};
    KvSweepPoint point{.pool = work.baseline(capacity)};
    point.tiers = work.replay(tiers).hit_rate();
    out.sweep.push_back(point);
  }
  out.stopped = work.stopped();
  return out;
}

}  // namespace barg::bench
