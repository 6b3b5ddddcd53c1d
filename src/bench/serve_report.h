// From samples to figures. Every percentile is exact: computed from all stored samples, never from buckets or a
// sample of them. Pure functions, any thread.
//
// Definitions. TTFT: first piece of text minus the intended send time. A gap: the time between two pieces of one
// answer; where a piece holds several tokens (the server's count says so) the gap is divided among them. TPOT:
// (last piece - first piece) / (output tokens - 1), one figure a request. End to end: end of the answer minus
// the intended send time. Only answered requests enter; failed ones are counted beside them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/serve_loop.h"
#include "bench/serve_options.h"

namespace barg::bench {

/// The p-th percentile (0..100) of ascending values: linear between the two nearest ranks, rank p/100 * (n - 1)
/// counted from 0 (the default of NumPy, "type 7"). REQUIRES at least one value.
double percentile(const std::vector<double>& ascending, double p);

struct Distribution {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, min = 0, max = 0;
};
/// Sorts `values`. All zero for none.
Distribution distribution(std::vector<double>& values);

/// Times of one request in milliseconds.
struct RequestTimes {
  double ttft_ms = 0;
  double e2e_ms = 0;
  std::optional<double> tpot_ms;  ///< needs two tokens
  std::vector<double> gaps_ms;    ///< one a token after the first piece (or a piece, where tokens are not known)
};
/// REQUIRES an answered request.
RequestTimes times_of(const RequestSample& sample);
bool meets(const ServeSlo& slo, const RequestTimes& times);

struct EnergyReading {
  std::optional<double> joules;
  std::string source;  ///< "RAPL package-0", ...; or why there is none
};

/// The figures of one run.
struct RunReport {
  std::string name;
  ServeLoad load;
  std::int64_t sent = 0, ok = 0, failed = 0, cancelled = 0;
  std::map<std::string, std::int64_t> errors;
  std::map<std::string, std::string> error_examples;
  bool interrupted = false;
  bool server_gone = false;
  double duration_s = 0;  ///< from the first intended send to the end of the last answer
  std::int64_t input_tokens = 0;
  std::int64_t input_tokens_asked = 0;
  std::int64_t output_tokens = 0;
  std::int64_t output_tokens_asked = 0;
  std::optional<std::int64_t> cached_tokens;
  double output_tokens_per_s = 0, input_tokens_per_s = 0, requests_per_s = 0;
  Distribution ttft_ms, itl_ms, tpot_ms, e2e_ms;
  std::optional<double> goodput_requests_per_s;
  double goodput_share = 0;
  std::optional<double> tokens_per_dollar;
  EnergyReading energy;
  std::optional<double> joules_per_token;
  std::int64_t without_usage = 0;       ///< answers whose server did not count
  std::int64_t count_mismatches = 0;    ///< answers with another number of pieces than tokens
  double pieces_per_answer = 0;
  double tokens_per_piece = 0;
  std::int64_t pieces = 0;
  std::int64_t retries = 0, rate_limited = 0, reconnects = 0;
  int connections = 0;
  double client_cpu_s = 0;
  double client_cpu_us_per_piece = 0;
  double client_cpu_share = 0;          ///< of one core, over the run
  Distribution send_lag_ms;             ///< sent minus intended

  bool all_answered() const { return failed == 0 && !interrupted && ok > 0; }
};

RunReport summarise(const ServeOptions& options, const ServeLoad& load, const RunSamples& samples,
                    const EnergyReading& energy);

/// "closed, 32 at once", "open, 2.5 requests/s", "trace at 2x".
std::string describe(const ServeLoad& load, const ServeWorkload& workload);

}  // namespace barg::bench
