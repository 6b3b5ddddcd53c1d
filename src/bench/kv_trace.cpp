#include "bench/kv_trace.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace barg::bench {
namespace {

struct Place {
  std::int32_t parent;
  std::uint64_t id;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  std::size_t operator()(const Place& p) const {
    std::uint64_t h =
        (p.id + 1) * 0x9E3779B97F4A7C15ULL ^ static_cast<std::uint64_t>(p.parent + 1) * 0xD1B54A32D192ED03ULL;
    h ^= h >> 29;
    return static_cast<std::size_t>(h * 0xBF58476D1CE4E5B9ULL ^ h >> 32);
  }
};

constexpr std::size_t kNever = SIZE_MAX;

// When each reference of the trace is made again: the request's number.
std::vector<std::size_t> next_uses(const KvTrace& trace) {
  std::vector<std::size_t> next(trace.nodes.size(), kNever);
  std::vector<std::size_t> last(static_cast<std::size_t>(trace.distinct), kNever);
  for (std::size_t i = trace.size(); i-- > 0;) {
    for (std::size_t at = trace.begin[i]; at < trace.begin[i + 1]; ++at) {
      std::size_t& use = last[static_cast<std::size_t>(trace.nodes[at])];
      next[at] = use;
      use = i;
    }
  }
  return next;
}

}  // namespace

KvTrace make_kv_trace(std::span<const TraceRow> rows, std::size_t most) {
  KvTrace out;
  std::unordered_map<Place, std::int32_t, PlaceHash> known;
  for (const TraceRow& row : rows) {
    if (row.blocks.empty()) continue;
    if (out.size() >= most) break;
    out.at_s.push_back(row.at_s);
    out.begin.push_back(out.nodes.size());
    std::int32_t parent = -1;
    for (const std::uint64_t id : row.blocks) {
      const auto [it, fresh] = known.emplace(Place{parent, id}, out.distinct);
      out.distinct += fresh ? 1 : 0;
      out.nodes.push_back(parent = it->second);
    }
    out.longest = std::max(out.longest, row.blocks.size());
    out.tokens += std::min(static_cast<std::uint64_t>(row.input_length),
                           row.blocks.size() * std::uint64_t{kTraceBlock});
  }
  out.begin.push_back(out.nodes.size());
  for (std::size_t i = out.size(); i-- > 0;) out.at_s[i] -= out.at_s[0];
  return out;
}

std::uint64_t optimum_hits(const KvTrace& trace, std::uint64_t capacity) {
  const std::vector<std::size_t> next = next_uses(trace);
  std::vector<std::size_t> kept(static_cast<std::size_t>(trace.distinct),
                                kNever);  // its next use; kNever = not kept
  // The one that goes first: latest use, then deepest. Entries whose block has been asked for since are
  // stale.
  using Entry = std::tuple<std::size_t, std::size_t, std::int32_t>;
  std::priority_queue<Entry> order;
  std::uint64_t hits = 0, count = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    bool unbroken = true;
    for (std::size_t at = trace.begin[i]; at < trace.begin[i + 1]; ++at) {
      std::size_t& use = kept[static_cast<std::size_t>(trace.nodes[at])];
      unbroken = unbroken && use != kNever;
      hits += unbroken ? 1 : 0;
      count += static_cast<std::uint64_t>(next[at] != kNever) - static_cast<std::uint64_t>(use != kNever);
      use = next[at];
      if (use != kNever) order.emplace(use, at - trace.begin[i], trace.nodes[at]);
    }
    while (count > capacity) {
      const auto [use, depth, node] = order.top();
      order.pop();
      if (kept[static_cast<std::size_t>(node)] != use) continue;
      kept[static_cast<std::size_t>(node)] = kNever;
      --count;
    }
  }
  return hits;
}

}  // namespace barg::bench
