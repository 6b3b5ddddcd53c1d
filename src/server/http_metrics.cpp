#include "server/http_metrics.h"

#include <algorithm>

namespace barg::server {
namespace {

std::string known_method(const std::string& method) {
  static constexpr std::array<std::string_view, 7> kKnown = {"GET",    "HEAD",    "POST", "PUT",
                                                             "DELETE", "OPTIONS", "PATCH"};
  return std::find(kKnown.begin(), kKnown.end(), method) == kKnown.end() ? "other" : method;
}

}  // namespace

void HttpMetrics::add(const AccessRecord& record) {
  const std::string method = known_method(record.method);
  const std::size_t bucket = static_cast<std::size_t>(
      std::lower_bound(kHttpSeconds.begin(), kHttpSeconds.end(), record.duration_s) - kHttpSeconds.begin());
  const std::lock_guard lock(mutex_);
  ++data_.requests[{method, record.status, record.route}];
  Duration& d = data_.durations[{method, record.route}];
  ++d.counts[bucket];
  ++d.count;
  d.sum += record.duration_s;
  if (!record.cancel_cause.empty()) ++data_.cancels[record.cancel_cause];
  data_.bytes_in += record.bytes_in;
  data_.bytes_out += record.bytes_out;
}

HttpMetrics::Snapshot HttpMetrics::snapshot() const {
  const std::lock_guard lock(mutex_);
  return data_;
}

}  // namespace barg::server
