#include "bench/serve_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/check.h"

namespace barg::bench {
namespace {

double ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Counts of the answered requests and their times, and what was offered.
void add_answer(RunReport& report, const RequestSample& sample) {
  const std::int64_t tokens = sample.output_tokens();
  report.output_tokens += tokens;
  report.output_tokens_asked += sample.output_asked;
  report.input_tokens_asked += sample.input_asked;
  report.input_tokens += std::max<std::int64_t>(sample.prompt_tokens, 0);
  if (sample.cached_tokens >= 0) report.cached_tokens = report.cached_tokens.value_or(0) + sample.cached_tokens;
  report.pieces += static_cast<std::int64_t>(sample.stamps.size());
  if (sample.completion_tokens < 0) ++report.without_usage;
  if (tokens != static_cast<std::int64_t>(sample.stamps.size())) ++report.count_mismatches;
}

void finish_rates(RunReport& report, const ServeOptions& options, std::int64_t good) {
  const double seconds = report.duration_s;
  if (seconds <= 0) return;
  report.output_tokens_per_s = static_cast<double>(report.output_tokens) / seconds;
  report.input_tokens_per_s = static_cast<double>(report.input_tokens) / seconds;
  report.requests_per_s = static_cast<double>(report.ok) / seconds;
  if (options.slo.any()) {
    report.goodput_requests_per_s = static_cast<double>(good) / seconds;
    report.goodput_share = report.sent > 0 ? static_cast<double>(good) / static_cast<double>(report.sent) : 0;
  }
  if (options.price_per_hour)
    report.tokens_per_dollar = report.output_tokens_per_s * 3600 / *options.price_per_hour;
  if (report.energy.joules && report.output_tokens > 0)
    report.joules_per_token = *report.energy.joules / static_cast<double>(report.output_tokens);
}

}  // namespace

double percentile(const std::vector<double>& ascending, double p) {
  CHECK(!ascending.empty());
  const double rank = p / 100 * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  if (below + 1 >= ascending.size()) return ascending.back();
  return ascending[below] + (rank - static_cast<double>(below)) * (ascending[below + 1] - ascending[below]);
}

Distribution distribution(std::vector<double>& values) {
  Distribution out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out.count = values.size();
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  out.p50 = percentile(values, 50);
  out.p90 = percentile(values, 90);
  out.p95 = percentile(values, 95);
  out.p99 = percentile(values, 99);
  out.min = values.front();
  out.max = values.back();
  return out;
}

RequestTimes times_of(const RequestSample& sample) {
  CHECK(sample.ok() && !sample.stamps.empty());
  const std::vector<std::int64_t>& stamps = sample.stamps;
  RequestTimes out;
  out.ttft_ms = ms(stamps.front() - sample.intended);
  out.e2e_ms = ms(sample.done - sample.intended);
  const std::int64_t tokens = sample.output_tokens();
  if (tokens > 1) out.tpot_ms = ms(stamps.back() - stamps.front()) / static_cast<double>(tokens - 1);
  const bool counted = sample.counted.size() == stamps.size();
  // Without a count a piece: the same number of tokens in each. Fewer tokens than pieces divide nothing.
  const double average = std::max(1.0, static_cast<double>(tokens) / static_cast<double>(stamps.size()));
  out.gaps_ms.reserve(static_cast<std::size_t>(std::max<std::int64_t>(tokens, 1)));
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    const double gap = ms(stamps[i] - stamps[i - 1]);
    const std::uint32_t n = counted ? sample.counted[i] - std::min(sample.counted[i], sample.counted[i - 1]) : 1;
    if (counted && n > 1 && n < 1024) {
      out.gaps_ms.insert(out.gaps_ms.end(), n, gap / n);
    } else {
      out.gaps_ms.push_back(counted ? gap : gap / average);
    }
  }
  return out;
}

bool meets(const ServeSlo& slo, const RequestTimes& times) {
  if (slo.ttft_ms && times.ttft_ms > *slo.ttft_ms) return false;
  if (slo.e2e_ms && times.e2e_ms > *slo.e2e_ms) return false;
  if (slo.tpot_ms && times.tpot_ms && *times.tpot_ms > *slo.tpot_ms) return false;
  if (slo.itl_ms && !times.gaps_ms.empty()) {
    std::vector<double> gaps = times.gaps_ms;
    std::sort(gaps.begin(), gaps.end());
    if (percentile(gaps, 95) > *slo.itl_ms) return false;
  }
  return true;
}

RunReport summarise(const ServeOptions& options, const ServeLoad& load, const RunSamples& samples,
                    const EnergyReading& energy) {
  RunReport report;
  report.name = describe(load, options.workload);
  report.load = load;
  report.energy = energy;
  std::vector<double> ttft, itl, tpot, e2e, lag;
  std::int64_t first = samples.requests.empty() ? 0 : INT64_MAX, last = 0, good = 0;
  for (const RequestSample& sample : samples.requests) {
    first = std::min(first, sample.intended);
    last = std::max(last, sample.done);
    lag.push_back(ms(sample.sent - sample.intended));
    report.retries += sample.retries;
    if (!sample.ok()) {
      ++report.failed;
      ++report.errors[sample.error];
      report.error_examples.emplace(sample.error, sample.detail);
      continue;
    }
    ++report.ok;
    add_answer(report, sample);
    const RequestTimes times = times_of(sample);
    ttft.push_back(times.ttft_ms);
    e2e.push_back(times.e2e_ms);
    if (times.tpot_ms) tpot.push_back(*times.tpot_ms);
    itl.insert(itl.end(), times.gaps_ms.begin(), times.gaps_ms.end());
    good += meets(options.slo, times) ? 1 : 0;
  }
  report.cancelled = samples.cancelled;
  report.sent = report.ok + report.failed + report.cancelled;
  report.interrupted = samples.interrupted;
  report.server_gone = samples.server_gone;
  report.duration_s = static_cast<double>(last - first) * 1e-9;
  report.ttft_ms = distribution(ttft);
  report.itl_ms = distribution(itl);
  report.tpot_ms = distribution(tpot);
  report.e2e_ms = distribution(e2e);
  report.send_lag_ms = distribution(lag);
  report.rate_limited = samples.rate_limited;
  report.reconnects = samples.reconnects;
  report.connections = samples.connections;
  report.client_cpu_s = samples.cpu_s;
  if (samples.pieces > 0) report.client_cpu_us_per_piece = samples.cpu_s * 1e6 / static_cast<double>(samples.pieces);
  if (samples.wall_s > 0) report.client_cpu_share = samples.cpu_s / samples.wall_s;
  if (report.ok > 0) report.pieces_per_answer = static_cast<double>(report.pieces) / static_cast<double>(report.ok);
  if (report.pieces > 0)
    report.tokens_per_piece = static_cast<double>(report.output_tokens) / static_cast<double>(report.pieces);
  finish_rates(report, options, good);
  return report;
}

std::string describe(const ServeLoad& load, const ServeWorkload& workload) {
  switch (load.kind) {
    case ServeLoad::Kind::kClosed:
      return "closed, " + std::to_string(load.concurrency) + " at once";
    case ServeLoad::Kind::kOpen:
      return "open, " + number(load.rate) + " requests/s" +
             (load.burstiness == 1 ? "" : ", burstiness " + number(load.burstiness));
    case ServeLoad::Kind::kTrace:
      return "trace at " + number(workload.trace_speed) + "x";
  }
  return {};
}

}  // namespace barg::bench
