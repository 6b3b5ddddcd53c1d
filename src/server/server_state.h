// ServerState: what all handlers share. Constant after Server::start() but for the members that say
// otherwise. Requests in flight keep it alive, so it may outlive the Server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/config.h"
#include "server/capture.h"
#include "server/constraints.h"
#include "server/cpu_pool.h"
#include "server/http_metrics.h"
#include "server/http_server.h"
#include "server/idempotency.h"
#include "server/responses_store.h"
#include "server/served_model.h"
#include "server/server.h"

namespace barg::server {

/// How many of something are alive; anyone may wait for none. Thread-safe.
class LiveCount {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void remove() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  /// True when there is none, at the latest after `seconds`.
  bool wait_none(double seconds) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::int64_t count_ = 0;  // guarded by mutex_
};

struct ServerState {
  ServerOptions options;
  BuildInfo build;
  std::vector<ServedModel> models;
  std::map<std::string, const ServedModel*, std::less<>> by_name;
  bool loopback = false;      ///< bound to loopback only: the Host allow-list applies
  double started_unix_s = 0;  ///< process start, for metrics
  std::optional<std::int64_t> utc_offset;  ///< seconds: the local time that templates show; absent: the process's own

  std::unique_ptr<CpuPool> pool;       ///< for generations; thread-safe
  std::unique_ptr<CpuPool> text_pool;  ///< for /tokenize and /detokenize: megabytes there delay no generation
  std::unique_ptr<CpuPool> compile_pool;  ///< for generations whose constraint must be compiled
  std::unique_ptr<Constraints> constraints = std::make_unique<Constraints>();  ///< thread-safe
  SteadyClock clock;
  /// Thread-safe; always there, whether it stores or not.
  std::unique_ptr<ResponseStore> responses = std::make_unique<ResponseStore>(ResponseStoreLimits{}, clock);
  std::unique_ptr<Idempotency> retries;      ///< thread-safe
  std::unique_ptr<CaptureRing> captures;     ///< thread-safe
  HttpMetrics http;                          ///< thread-safe
  std::atomic<bool> draining{false};
  LiveCount generations;                             ///< API requests whose engine work is not over
  std::atomic<const HttpServer*> listener{nullptr};  ///< for its gauges; null before start and after stop

  /// The model of a name, nullptr if there is none; an absent name is the first model.
  const ServedModel* find(std::string_view name) const {
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : it->second;
  }
};

}  // namespace barg::server
