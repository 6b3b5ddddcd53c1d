// A trace as the caches see it: requests that ask for chains of blocks. A block is what it is by its id and
// all ids before it, so it is a node of a tree; nodes are numbered in the order in which they first appear.
//
// And the best that any cache could do with it. The rule of every hit rate here: a block counts only if all
// before it in its request hit. Immutable after creation; pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/trace_file.h"

namespace barg::bench {

struct KvTrace {
  std::vector<std::int32_t> nodes;  ///< of all requests, one after the other
  std::vector<std::size_t> begin;   ///< where each request's begin; one more at the end
  std::vector<double> at_s;         ///< from the first request
  std::int32_t distinct = 0;        ///< nodes are below it
  std::size_t longest = 0;          ///< blocks of one request
  std::uint64_t tokens = 0;         ///< that the prompts say they have, as far as their blocks hold them

  std::size_t size() const { return at_s.size(); }
  std::span<const std::int32_t> request(std::size_t i) const {
    return std::span(nodes).subspan(begin[i], begin[i + 1] - begin[i]);
  }
};

/// Rows without ids are left out; `most` rows at most.
KvTrace make_kv_trace(std::span<const TraceRow> rows, std::size_t most = SIZE_MAX);

/// Hits of a cache that knows the future: after each request it keeps, of what it had and what the request
/// brought, the `capacity` blocks that are asked for soonest. A parent is never asked for later than its
/// child, so what is kept has no gaps, and no policy of any kind has more hits.
std::uint64_t optimum_hits(const KvTrace& trace, std::uint64_t capacity);

}  // namespace barg::bench
