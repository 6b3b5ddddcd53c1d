// ServerState: what all handlers share. Constant after Server::start() but for the members that say otherwise.
// Requests in flight keep it alive, so it may outlive the Server.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "barg/config.h"
#include "server/cpu_pool.h"
#include "server/http_metrics.h"
#include "server/http_server.h"
#include "server/served_model.h"
#include "server/server.h"

namespace barg::server {

struct ServerState {
  ServerOptions options;
  BuildInfo build;
  std::vector<ServedModel> models;
  std::map<std::string, const ServedModel*, std::less<>> by_name;
  bool loopback = false;               ///< bound to loopback only: the Host allow-list applies
  double started_unix_s = 0;           ///< process start, for metrics

  std::unique_ptr<CpuPool> pool;       ///< thread-safe
  HttpMetrics http;                    ///< thread-safe
  std::atomic<bool> draining{false};
  std::atomic<std::int64_t> generations{0};  ///< API requests whose engine work is not over
  std::atomic<const HttpServer*> listener{nullptr};  ///< for its gauges; null before start and after stop

  /// The model of a name, nullptr if there is none; an absent name is the first model.
  const ServedModel* find(std::string_view name) const {
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : it->second;
  }
};

}  // namespace barg::server
