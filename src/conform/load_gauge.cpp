#include "conform/load_gauge.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "conform/look.h"

namespace barg::conform {
namespace {

constexpr double kReadTimeout = 5;

constexpr std::string_view kRequestGauges[] = {
    "vllm:num_requests_running",  "vllm:num_requests_waiting", "barg:num_requests_paused",
    "sglang:num_running_reqs",    "sglang:num_queue_reqs",     "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
};
// One of them is enough: vLLM, and Barg after it, has the same share under two names.
constexpr std::string_view kUsageGauges[] = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                                             "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// "name{labels} value [time]"
std::optional<double> value_of(std::string_view line) {
  const std::size_t labels = line.rfind('}');
  std::size_t i = labels == std::string_view::npos ? line.find(' ') : labels + 1;
  while (i < line.size() && line[i] == ' ') ++i;
  if (i >= line.size()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(line.data() + i, line.data() + line.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<Load> read_slots(std::string_view body) {
  const std::optional<Json> json = read_json(body);
  if (!json || !json->is_array() || json->size() == 0) return std::nullopt;
  Load out;
  for (const Json& slot : json->as_array()) {
    const Json* busy = at(slot, "is_processing");
    if (busy == nullptr || !busy->is_bool()) return std::nullopt;
    out.requests += busy->as_bool() ? 1 : 0;
  }
  return out;
}

}  // namespace

std::optional<Load> read_prometheus(std::string_view text) {
  Load out;
  bool found = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = line.substr(0, line.find_first_of("{ "));
    const bool requests = is_one_of(name, kRequestGauges);
    if (!requests && !is_one_of(name, kUsageGauges)) continue;
    const std::optional<double> value = value_of(line);
    if (!value) continue;
    if (requests) {
      out.requests += *value;
      found = true;
    } else {
      out.kv_usage = std::max(out.kv_usage.value_or(0), *value);
    }
  }
  return found ? std::optional(out) : std::nullopt;
}

std::optional<LoadGauge> LoadGauge::find(Session& session) {
  LoadGauge gauge(session);
  if (gauge.read()) return gauge;
  gauge.slots_ = true;
  if (gauge.read()) return gauge;
  return std::nullopt;
}

std::optional<Load> LoadGauge::read() const {
  const Options& options = session_->options();
  if (slots_) {
    const Exchange e = exchange_once(options.target, {.path = "/slots", .body = {}, .headers = {}}, kReadTimeout);
    return e.status == 200 ? read_slots(e.body) : std::nullopt;
  }
  Target target = options.metrics.value_or(options.target);
  // The key is the server's, not that of whoever serves its gauges.
  if (target.host == options.target.host && target.port == options.target.port) target.api_key = options.target.api_key;
  const std::string path = options.metrics ? "" : "/metrics";
  const Exchange e = exchange_once(target, {.path = path, .body = {}, .headers = {}}, kReadTimeout);
  return e.status == 200 ? read_prometheus(e.body) : std::nullopt;
}

}  // namespace barg::conform
