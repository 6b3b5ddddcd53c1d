// HttpMetrics: counters and latency of HTTP requests by method, status and route. Thread-safe (one mutex,
// held for a map look-up). The number of series is bounded: methods and routes come from fixed lists.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "server/http.h"

namespace barg::server {

inline constexpr std::array<double, 14> kHttpSeconds = {.005, .01, .025, .05, .1, .25, .5,
                                                        1,    2.5, 5,    10,  30, 60,  300};

class HttpMetrics {
 public:
  struct Duration {
    std::array<std::uint64_t, kHttpSeconds.size() + 1> counts{};  ///< not cumulative
    std::uint64_t count = 0;
    double sum = 0;
  };
  struct Snapshot {
    std::map<std::tuple<std::string, int, std::string>, std::uint64_t> requests;  ///< method, status, handler
    std::map<std::pair<std::string, std::string>, Duration> durations;            ///< method, handler
    std::map<std::string, std::uint64_t> cancels;                                 ///< cause
    std::uint64_t bytes_in = 0, bytes_out = 0;
  };

  void add(const AccessRecord& record);
  Snapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  Snapshot data_;  // guarded by mutex_
};

}  // namespace barg::server
