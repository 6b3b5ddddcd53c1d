// metrics_text: GET /metrics, the Prometheus text format (0.0.4). Engine metrics under vLLM's names, labels
// and buckets (model_name, engine="0"), so that its dashboards and gateways work unmodified; what vLLM lacks
// as barg_*; HTTP counters as FastAPI's instrumentator names them.
//
// Each family is written once with HELP and TYPE, then one sample per model. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/server_state.h"

namespace barg::server {

std::string metrics_text(const ServerState& state);

/// Backslash, quote and newline escaped as a label value needs it.
std::string escape_label(std::string_view value);

}  // namespace barg::server
