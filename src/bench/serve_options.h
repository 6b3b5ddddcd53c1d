// What one `barg bench serve` is asked to do, as plain data. Filled by the command line, read by everything in
// this folder that starts with serve_; never changes while a run is on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace barg::bench {

struct ServeTarget {
  std::string host;
  std::string port = "80";
  std::string base_path;  ///< before /v1, without a final slash: "" or "/proxy"
  std::string api_key;    ///< a bearer token unless empty
};

enum class ServeApi { kCompletions, kChat };

/// What a request asks for beside its prompt.
struct ServeBody {
  ServeApi api = ServeApi::kCompletions;
  std::string model;
  double temperature = 0;
  bool ignore_eos = true;
  std::optional<std::int64_t> seed;  ///< the sampling seed, sent only when given
  std::string extra_members;         ///< `"a":1,"b":2`: members of the JSON object, already checked
  std::vector<std::string> extra_keys;  ///< their names: they replace ours
};

struct ServeWorkload {
  int input_length = 256;         ///< tokens, as words of about one token each
  int output_length = 128;
  double length_spread = 0;       ///< 0.2: lengths are uniform in +-20 %
  int shared_prefix_length = 0;   ///< tokens in front of the prompt's own
  int prefixes = 1;               ///< how many different ones
  int turns = 1;                  ///< requests of one conversation
  bool token_ids = false;         ///< prompts as arrays of ids
  int vocabulary = 8192;          ///< ids are drawn below this
  std::string trace_file;         ///< Mooncake format
  double trace_scale = 1;         ///< on the lengths of a trace
  double trace_speed = 1;         ///< 2: twice as fast
  std::string prompts_file;       ///< JSONL {"prompt", "max_tokens"}
  std::uint64_t seed = 1;
};

/// One run: how requests are offered.
struct ServeLoad {
  enum class Kind { kClosed, kOpen, kTrace };
  Kind kind = Kind::kClosed;
  int concurrency = 1;               ///< kClosed: requests (or conversations) in flight
  double rate = 1;                   ///< kOpen: requests per second
  double burstiness = 1;             ///< shape of the gamma distribution of gaps: 1 is Poisson
  std::optional<std::int64_t> requests;  ///< at most
  std::optional<double> duration_s;      ///< no request is started later
};

/// A request meets the objective when it was answered within all that are given.
struct ServeSlo {
  std::optional<double> ttft_ms;
  std::optional<double> itl_ms;   ///< on the 95th percentile of the request's own gaps
  std::optional<double> tpot_ms;  ///< on their mean
  std::optional<double> e2e_ms;
  bool any() const { return ttft_ms || itl_ms || tpot_ms || e2e_ms; }
};

struct ServeOptions {
  std::string url;  ///< as given, for the report
  ServeTarget target;
  ServeBody body;
  ServeWorkload workload;
  std::vector<ServeLoad> loads;  ///< one run each, in this order
  int warmup = 0;                ///< requests before each run, not counted
  int retries = 0;               ///< of a 429 or 503, after Retry-After
  double timeout_s = 600;        ///< without a byte
  ServeSlo slo;
  std::optional<double> price_per_hour;
};

}  // namespace barg::bench
