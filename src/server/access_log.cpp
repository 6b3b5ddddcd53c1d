#include "server/access_log.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace barg::server {
namespace {

double milliseconds(double ms) { return std::round(ms * 100) / 100; }

}  // namespace

void log_access(const AccessRecord& r) {
  if (!log::enabled(log::Level::kInfo)) return;
  std::vector<log::Field> fields = {{"request_id", r.request_id}, {"peer", r.peer},
                                    {"method", r.method},         {"route", r.route},
                                    {"status", r.status},         {"ms", milliseconds(r.duration_s * 1e3)},
                                    {"bytes_in", r.bytes_in},     {"bytes_out", r.bytes_out}};
  if (!r.cancel_cause.empty()) fields.emplace_back("cancel_cause", r.cancel_cause);
  const AccessNote& n = r.note;
  if (!n.error_code.empty()) fields.emplace_back("error", n.error_code);
  if (!n.model.empty()) {
    fields.emplace_back("model", n.model);
    fields.emplace_back("finish", n.finish_reason);
    fields.emplace_back("prompt_tokens", n.prompt_tokens);
    fields.emplace_back("cached_tokens", n.cached_tokens);
    fields.emplace_back("output_tokens", n.output_tokens);
    fields.emplace_back("preemptions", n.preemptions);
    if (n.queue_ms >= 0) fields.emplace_back("queue_ms", milliseconds(n.queue_ms));
    if (n.ttft_ms >= 0) fields.emplace_back("ttft_ms", milliseconds(n.ttft_ms));
  }
  log::write(log::Level::kInfo, "request", fields);
}

}  // namespace barg::server
