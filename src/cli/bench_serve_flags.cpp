// Reads the flags of `barg bench serve`.
#include <algorithm>

#include "base/json.h"
#include "cli/bench_serve.h"
#include "cli/http_client.h"
#include "cli/values.h"

namespace barg::cli {
namespace {

using bench::ServeLoad;
using bench::ServeOptions;

void read_body(BenchFlags& flags, ServeOptions& out) {
  const std::string api = flags.has("--endpoint") ? flags.text("--endpoint") : "completions";
  if (api != "completions" && api != "chat") flags.refuse("--endpoint must be completions or chat, got '" + api + "'.");
  out.body.api = api == "chat" ? bench::ServeApi::kChat : bench::ServeApi::kCompletions;
  out.body.model = flags.text("--model");
  flags.number("--temperature", out.body.temperature, 0, 10);
  out.body.ignore_eos = !flags.has("--no-ignore-eos");
  if (flags.has("--sampling-seed")) flags.number("--sampling-seed", out.body.seed.emplace(), 0, 9.2e18);
  if (!flags.has("--extra-json")) return;
  const Result<Json> extra = parse_json(flags.text("--extra-json"));
  if (!extra || !extra->is_object())
    return flags.refuse("--extra-json must be a JSON object" + (extra ? "." : ": " + extra.error().message));
  for (const auto& [key, value] : extra->as_object()) {
    for (const char* ours : {"model", "prompt", "messages", "stream", "max_tokens"}) {
      if (key == ours) flags.refuse("--extra-json cannot set \"" + key + "\".");
    }
    out.body.extra_keys.push_back(key);
  }
  const std::string text = dump_json(*extra);
  out.body.extra_members = text.substr(1, text.size() - 2);
}

void read_workload(BenchFlags& flags, ServeOptions& out) {
  bench::ServeWorkload& w = out.workload;
  flags.number("--input-len", w.input_length, 1, 10'000'000);
  flags.number("--output-len", w.output_length, 1, 10'000'000);
  flags.number("--len-spread", w.length_spread, 0, 1);
  flags.number("--shared-prefix-len", w.shared_prefix_length, 0, 10'000'000);
  flags.number("--prefixes", w.prefixes, 1, 1e9);
  flags.number("--turns", w.turns, 1, 10'000);
  flags.number("--vocab", w.vocabulary, 2, 1e9);
  flags.number("--seed", w.seed, 0, 1.8e19);
  flags.number("--trace-speed", w.trace_speed, 1e-6, 1e9);
  flags.number("--trace-scale", w.trace_scale, 1e-6, 1e3);
  w.token_ids = flags.has("--prompt-ids");
  w.trace_file = flags.text("--trace");
  w.prompts_file = flags.text("--prompts");
  const bool file = flags.has("--trace") || flags.has("--prompts");
  if (flags.has("--trace") && flags.has("--prompts")) flags.refuse("--trace and --prompts exclude each other.");
  if (file && (w.turns > 1 || w.shared_prefix_length > 0))
    flags.refuse("--turns and --shared-prefix-len are for synthetic prompts, not for --trace or --prompts.");
  if (w.token_ids && (w.turns > 1 || flags.has("--prompts")))
    flags.refuse("--prompt-ids: answers and files are text, so neither --turns nor --prompts goes with it.");
  if (w.token_ids && out.body.api == bench::ServeApi::kChat)
    flags.refuse("--prompt-ids needs --endpoint completions.");
}

void read_loads(BenchFlags& flags, ServeOptions& out) {
  const std::vector<int> concurrency = flags.numbers<int>("--concurrency", 1, 65'536);
  const std::vector<double> rates = flags.numbers<double>("--rate", 1e-6, 1e6);
  if (!concurrency.empty() && !rates.empty())
    flags.refuse("--concurrency is a closed loop and --rate an open one: give one of them.");
  ServeLoad load;
  flags.number("--burstiness", load.burstiness, 1e-3, 1e3);
  if (flags.has("--requests")) flags.number("--requests", load.requests.emplace(), 1, 1e9);
  if (flags.has("--duration")) load.duration_s = flags.seconds("--duration", flags.text("--duration"));
  const bool bounded = load.requests || load.duration_s || flags.has("--trace") || flags.has("--prompts");
  for (const double rate : rates) {
    load.kind = ServeLoad::Kind::kOpen;
    load.rate = rate;
    if (!bounded) load.duration_s = 60;
    out.loads.push_back(load);
  }
  if (rates.empty() && concurrency.empty() && flags.has("--trace")) {
    load.kind = ServeLoad::Kind::kTrace;
    out.loads.push_back(load);
    return;
  }
  for (const int n : rates.empty() && concurrency.empty() ? std::vector<int>{1} : concurrency) {
    load.kind = ServeLoad::Kind::kClosed;
    load.concurrency = n;
    if (!bounded) load.requests = std::max(16, 4 * n);
    out.loads.push_back(load);
  }
}

void read_slo(BenchFlags& flags, bench::ServeSlo& slo) {
  if (!flags.has("--slo")) return;
  for (const std::string& item : split_list(flags.text("--slo"))) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    std::optional<double>* field = name == "ttft"   ? &slo.ttft_ms
                                   : name == "itl"  ? &slo.itl_ms
                                   : name == "tpot" ? &slo.tpot_ms
                                   : name == "e2e"  ? &slo.e2e_ms
                                                    : nullptr;
    if (field == nullptr || equals == item.size())
      return flags.refuse("--slo: expected ttft=, itl=, tpot= or e2e= and a time, got '" + item + "'.");
    if (const auto s = flags.seconds("--slo", item.substr(equals + 1))) *field = *s * 1000;
  }
}

}  // namespace

void read_bench_target(BenchFlags& flags, ServeOptions& out) {
  out.url = flags.has("--url") ? flags.text("--url") : "http://127.0.0.1:8000";
  if (out.url.starts_with("https://")) {
    return flags.refuse("--url: HTTPS is not supported; measure the server behind its TLS proxy (http://...).");
  }
  const Result<Url> url = parse_url(out.url);
  if (!url) return flags.refuse("--url: " + url.error().message);
  out.target.host = url->host;
  out.target.port = url->port;
  std::string path = url->path;
  while (path.ends_with('/')) path.pop_back();
  if (path.ends_with("/v1")) path.resize(path.size() - 3);
  out.target.base_path = path;
  out.target.api_key = flags.text("--api-key");
  if (out.target.api_key.find_first_of("\r\n") != std::string::npos)
    flags.refuse("--api-key holds a line break.");
}

Result<ServeOptions> serve_bench_options(const Invocation& invocation) {
  BenchFlags flags(invocation);
  ServeOptions out;
  read_bench_target(flags, out);
  read_body(flags, out);
  read_workload(flags, out);
  read_loads(flags, out);
  read_slo(flags, out.slo);
  flags.number("--warmup", out.warmup, 0, 1e6);
  flags.number("--retry", out.retries, 0, 1000);
  if (flags.has("--timeout")) out.timeout_s = flags.seconds("--timeout", flags.text("--timeout")).value_or(600);
  if (flags.has("--price-per-hour")) flags.number("--price-per-hour", out.price_per_hour.emplace(), 1e-9, 1e9);
  if (flags.failed()) return fail(ErrorCode::kInvalidValue, flags.problem());
  return out;
}

}  // namespace barg::cli
