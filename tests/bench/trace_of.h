// A trace as a test writes it down: the ids of each request, one second apart.
#pragma once

#include <vector>

#include "bench/kv_trace.h"

namespace barg::bench::testing {

inline KvTrace trace_of(const std::vector<std::vector<std::uint64_t>>& requests) {
  std::vector<TraceRow> rows;
  for (const auto& ids : requests)
    rows.push_back({static_cast<double>(rows.size()), static_cast<int>(ids.size()) * kTraceBlock, 1, ids});
  return make_kv_trace(rows);
}

}  // namespace barg::bench::testing
