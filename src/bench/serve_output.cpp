#include "bench/serve_output.h"

#include <cmath>

#include "base/json.h"
#include "bench/format.h"

namespace barg::bench {
namespace {

// Three or four significant digits: 0.123, 12.3, 1234.
std::string figure(double value) {
  const double size = std::fabs(value);
  return fixed(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3);
}

std::string distribution_row(const char* name, const Distribution& d) {
  std::string out = "  " + left(name, 16);
  if (d.count == 0) return out + right("-", 9) + "\n";
  for (const double value : {d.mean, d.p50, d.p90, d.p95, d.p99, d.max}) out += right(figure(value), 9);
  return out + "\n";
}

Json rounded(double value) {
  return Json(std::isfinite(value) ? std::round(value * 1e6) / 1e6 : 0.0);
}

Json distribution_json(const Distribution& d) {
  if (d.count == 0) return Json();
  return Json::object({{"count", d.count},
                       {"mean", rounded(d.mean)},
                       {"p50", rounded(d.p50)},
                       {"p90", rounded(d.p90)},
                       {"p95", rounded(d.p95)},
                       {"p99", rounded(d.p99)},
                       {"min", rounded(d.min)},
                       {"max", rounded(d.max)}});
}

template <class T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json load_json(const ServeLoad& load, const ServeWorkload& workload) {
  Json out = Json::object();
  switch (load.kind) {
    case ServeLoad::Kind::kClosed:
      out = Json::object({{"kind", "closed"}, {"concurrency", load.concurrency}});
      break;
    case ServeLoad::Kind::kOpen:
      out = Json::object({{"kind", "open"}, {"rate", load.rate}, {"burstiness", load.burstiness}});
      break;
    case ServeLoad::Kind::kTrace:
      out = Json::object({{"kind", "trace"}, {"speed", workload.trace_speed}});
      break;
  }
  out.set("requests", optional_json(load.requests));
  out.set("duration_s", optional_json(load.duration_s));
  return out;
}

Json slo_json(const ServeSlo& slo) {
  Json out = Json::object();
  if (slo.ttft_ms) out.set("ttft_ms", *slo.ttft_ms);
  if (slo.itl_ms) out.set("itl_ms", *slo.itl_ms);
  if (slo.tpot_ms) out.set("tpot_ms", *slo.tpot_ms);
  if (slo.e2e_ms) out.set("e2e_ms", *slo.e2e_ms);
  return out;
}

Json requests_json(const RunReport& r) {
  Json errors = Json::object();
  for (const auto& [key, count] : r.errors) errors.set(key, count);
  Json examples = Json::object();
  for (const auto& [key, sentence] : r.error_examples) examples.set(key, sentence);
  return Json::object({{"sent", r.sent},
                       {"ok", r.ok},
                       {"failed", r.failed},
                       {"cancelled", r.cancelled},
                       {"errors", errors},
                       {"error_examples", examples},
                       {"retries", r.retries},
                       {"rate_limited", r.rate_limited}});
}

}  // namespace

Json run_json(const ServeOptions& options, const RunReport& r) {
  Json goodput;
  if (r.goodput_requests_per_s) {
    goodput = Json::object({{"slo", slo_json(options.slo)},
                            {"requests_per_s", rounded(*r.goodput_requests_per_s)},
                            {"share", rounded(r.goodput_share)}});
  }
  Json out = Json::object({{"name", r.name},
                           {"load", load_json(r.load, options.workload)},
                           {"requests", requests_json(r)},
                           {"interrupted", r.interrupted},
                           {"duration_s", rounded(r.duration_s)},
                           {"input_tokens", r.input_tokens},
                           {"output_tokens", r.output_tokens},
                           {"input_tokens_asked", r.input_tokens_asked},
                           {"output_tokens_asked", r.output_tokens_asked},
                           {"cached_tokens", optional_json(r.cached_tokens)},
                           {"output_tokens_per_s", rounded(r.output_tokens_per_s)},
                           {"input_tokens_per_s", rounded(r.input_tokens_per_s)},
                           {"requests_per_s", rounded(r.requests_per_s)},
                           {"ttft_ms", distribution_json(r.ttft_ms)},
                           {"itl_ms", distribution_json(r.itl_ms)},
                           {"tpot_ms", distribution_json(r.tpot_ms)},
                           {"e2e_ms", distribution_json(r.e2e_ms)},
                           {"goodput", goodput}});
  out.set("tokens_per_dollar", r.tokens_per_dollar ? rounded(*r.tokens_per_dollar) : Json());
  out.set("joules", r.energy.joules ? rounded(*r.energy.joules) : Json());
  out.set("joules_per_token", r.joules_per_token ? rounded(*r.joules_per_token) : Json());
  out.set("energy_source", r.energy.source);
  out.set("chunks", r.pieces);
  out.set("tokens_per_chunk", rounded(r.tokens_per_piece));
  out.set("answers_without_usage", r.without_usage);
  out.set("answers_with_other_chunk_count", r.count_mismatches);
  out.set("client", Json::object({{"cpu_s", rounded(r.client_cpu_s)},
                                  {"cpu_us_per_chunk", rounded(r.client_cpu_us_per_piece)},
                                  {"cpu_share", rounded(r.client_cpu_share)},
                                  {"send_lag_ms", distribution_json(r.send_lag_ms)},
                                  {"connections", r.connections},
                                  {"reconnects", r.reconnects}}));
  return out;
}

namespace {

Json workload_json(const ServeOptions& options) {
  const ServeWorkload& w = options.workload;
  Json out = Json::object();
  if (!w.trace_file.empty()) {
    out = Json::object({{"kind", "trace"}, {"file", w.trace_file}, {"scale", w.trace_scale}});
  } else if (!w.prompts_file.empty()) {
    out = Json::object({{"kind", "prompts"}, {"file", w.prompts_file}});
  } else {
    out = Json::object({{"kind", "synthetic"},
                        {"input_length", w.input_length},
                        {"output_length", w.output_length},
                        {"length_spread", w.length_spread},
                        {"shared_prefix_length", w.shared_prefix_length},
                        {"prefixes", w.prefixes},
                        {"turns", w.turns},
                        {"token_ids", w.token_ids}});
  }
  out.set("seed", w.seed);
  return out;
}

// The sentences below the figures: what a reader must know to believe them.
std::string notes(const ServeOptions& options, const RunReport& r) {
  std::string out;
  const auto note = [&](const std::string& text) { out += "  note: " + text + "\n"; };
  for (const auto& [key, count] : r.errors)
    out += "  failed: " + key + " " + std::to_string(count) + "x: " + r.error_examples.at(key) + "\n";
  if (r.server_gone) note("the server no longer accepts connections: the run was given up.");
  else if (r.interrupted) note("interrupted: " + std::to_string(r.cancelled) + " requests in flight are not in the figures.");
  if (r.without_usage > 0)
    note(std::to_string(r.without_usage) + " answers came without usage: their tokens are counted as chunks.");
  if (r.count_mismatches > 0) {
    note(std::to_string(r.count_mismatches) + " answers had another number of chunks than tokens (" +
         figure(r.tokens_per_piece) + " tokens a chunk): gaps are divided by the tokens of the answer's chunks.");
  }
  const ServeWorkload& w = options.workload;
  const bool unique = w.turns == 1 && w.shared_prefix_length == 0 && w.trace_file.empty() && w.prompts_file.empty();
  if (unique && r.cached_tokens.value_or(0) * 20 > r.input_tokens) {
    note(std::to_string(*r.cached_tokens) + " prompt tokens came from the server's cache: it has seen these prompts "
         "before. Another --seed makes new ones.");
  }
  if (r.client_cpu_share > 0.5)
    note("the load generator used " + fixed(r.client_cpu_share * 100, 0) + " % of a core: it may limit the figures.");
  if (r.send_lag_ms.count > 0 && r.send_lag_ms.p99 > 5)
    note("requests left up to " + figure(r.send_lag_ms.max) + " ms after their planned time (latencies include it).");
  return out;
}

}  // namespace

std::string report_table(const ServeOptions& options, const RunReport& r) {
  std::string out = r.name + "\n";
  out += "  requests        " + std::to_string(r.ok) + " answered, " + std::to_string(r.failed) + " failed" +
         (r.cancelled > 0 ? ", " + std::to_string(r.cancelled) + " cut off" : "") + " in " + fixed(r.duration_s, 2) +
         " s (" + figure(r.requests_per_s) + " requests/s)\n";
  out += "  output          " + figure(r.output_tokens_per_s) + " tokens/s (" + std::to_string(r.output_tokens) +
         " tokens; " + std::to_string(r.output_tokens_asked) + " asked for)\n";
  out += "  input           " + figure(r.input_tokens_per_s) + " tokens/s (" + std::to_string(r.input_tokens) +
         " tokens by the server's count";
  if (r.input_tokens_asked > 0) out += "; " + std::to_string(r.input_tokens_asked) + " words or ids sent";
  if (r.cached_tokens) out += "; " + std::to_string(*r.cached_tokens) + " from its cache";
  out += ")\n\n  " + left("", 16);
  for (const char* name : {"mean", "p50", "p90", "p95", "p99", "max"}) out += right(name, 9);
  out += "\n" + distribution_row("TTFT        ms", r.ttft_ms) + distribution_row("ITL         ms", r.itl_ms) +
         distribution_row("TPOT        ms", r.tpot_ms) + distribution_row("end to end  ms", r.e2e_ms) + "\n";
  if (r.goodput_requests_per_s) {
    out += "  goodput         " + figure(*r.goodput_requests_per_s) + " requests/s (" +
           fixed(r.goodput_share * 100, 1) + " % of the requests meet " + dump_json(slo_json(options.slo)) + ")\n";
  }
  if (r.tokens_per_dollar) {
    out += "  price           " + figure(*r.tokens_per_dollar) + " output tokens per dollar at " +
           figure(*options.price_per_hour) + " an hour\n";
  }
  out += "  energy          ";
  out += r.joules_per_token ? figure(*r.joules_per_token) + " J per output token (" + r.energy.source + ")"
                            : "not readable: " + r.energy.source;
  out += "\n  load generator  " + figure(r.client_cpu_us_per_piece) + " us of CPU a chunk, " +
         fixed(r.client_cpu_share * 100, 1) + " % of a core\n";
  return out + notes(options, r);
}

std::string sweep_table(const std::vector<RunReport>& reports) {
  std::string out = left("run", 32) + right("answered", 9) + right("failed", 8) + right("tokens/s", 10) +
                    right("TTFT p50", 10) + right("p95", 9) + right("ITL p50", 10) + right("p99", 9) + "\n";
  for (const RunReport& r : reports) {
    out += left(r.name, 32) + right(std::to_string(r.ok), 9) + right(std::to_string(r.failed), 8) +
           right(figure(r.output_tokens_per_s), 10) + right(figure(r.ttft_ms.p50), 10) +
           right(figure(r.ttft_ms.p95), 9) + right(figure(r.itl_ms.p50), 10) + right(figure(r.itl_ms.p99), 9) + "\n";
  }
  return out;
}

std::string report_json(const ServeOptions& options, const std::vector<RunReport>& reports) {
  Json runs = Json::array();
  for (const RunReport& report : reports) runs.push(run_json(options, report));
  const ServeBody& body = options.body;
  Json sampling = Json::object({{"temperature", body.temperature},
                                {"ignore_eos", body.ignore_eos},
                                {"seed", optional_json(body.seed)},
                                {"extra", body.extra_members.empty() ? Json() : Json("{" + body.extra_members + "}")}});
  const Json document = Json::object({{"version", 1},
                                      {"url", options.url},
                                      {"model", body.model},
                                      {"api", body.api == ServeApi::kChat ? "chat" : "completions"},
                                      {"sampling", sampling},
                                      {"workload", workload_json(options)},
                                      {"warmup", options.warmup},
                                      {"runs", runs}});
  return dump_json(document, {.indent = 2}) + "\n";
}

std::string report_csv(const std::vector<RunSamples>& runs) {
  std::string out =
      "run,conversation,turn,status,error,intended_s,sent_s,ttft_ms,e2e_ms,tpot_ms,itl_p50_ms,itl_max_ms,"
      "input_tokens,output_tokens,cached_tokens,chunks,input_asked,output_asked,retries\n";
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (const RequestSample& s : runs[run].requests) {
      out += std::to_string(run) + "," + std::to_string(s.conversation) + "," + std::to_string(s.turn) + "," +
             std::to_string(s.status) + "," + s.error + "," + fixed(static_cast<double>(s.intended) * 1e-9, 6) + "," +
             fixed(static_cast<double>(s.sent) * 1e-9, 6) + ",";
      if (s.ok()) {
        const RequestTimes times = times_of(s);
        std::vector<double> gaps = times.gaps_ms;
        const Distribution d = distribution(gaps);
        out += fixed(times.ttft_ms, 3) + "," + fixed(times.e2e_ms, 3) + "," +
               (times.tpot_ms ? fixed(*times.tpot_ms, 3) : "") + "," + (d.count > 0 ? fixed(d.p50, 3) : "") + "," +
               (d.count > 0 ? fixed(d.max, 3) : "") + ",";
      } else {
        out += ",,,,,";
      }
      const auto count = [](std::int64_t n) { return n >= 0 ? std::to_string(n) : std::string(); };
      out += count(s.prompt_tokens) + "," + count(s.completion_tokens) + "," + count(s.cached_tokens) + "," +
             std::to_string(s.stamps.size()) + "," + std::to_string(s.input_asked) + "," +
             std::to_string(s.output_asked) + "," + std::to_string(s.retries) + "\n";
    }
  }
  return out;
}

}  // namespace barg::bench
