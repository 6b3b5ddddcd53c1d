#include "server/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "engine/metrics.h"

namespace barg::server {
namespace {

std::string number(double v) {
  if (!std::isfinite(v)) return std::isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf";
  char text[40];
  const auto [end, ec] = std::to_chars(text, text + sizeof text, v);
  return {text, end};
}

struct Model {
  std::string labels;  ///< model_name="...",engine="0"
  EngineMetrics m;
  EngineInfo info;
};

class Writer {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    out += "# HELP " + std::string(name) + " " + std::string(help) + "\n# TYPE " + std::string(name) + " " +
           std::string(type) + "\n";
  }
  void sample(std::string_view name, std::string_view labels, double value) {
    out += name;
    if (!labels.empty()) out += "{" + std::string(labels) + "}";
    out += " " + number(value) + "\n";
  }
  void buckets(const std::string& name, const std::string& labels, std::span<const double> bounds,
               std::span<const std::uint64_t> counts, double sum) {
    std::uint64_t below = 0;
    const std::string comma = labels.empty() ? "" : labels + ",";
    for (std::size_t i = 0; i < counts.size(); ++i) {
      below += counts[i];
      const std::string le = i < bounds.size() ? number(bounds[i]) : "+Inf";
      sample(name + "_bucket",
             comma + "le=\"" + le + (le.find_first_of(".eI") == std::string::npos ? ".0\"" : "\""),
             static_cast<double>(below));
    }
    sample(name + "_sum", labels, sum);
    sample(name + "_count", labels, static_cast<double>(below));
  }
  std::string out;
};

template <class Value>
void scalar(Writer& w, const std::vector<Model>& models, std::string_view name, std::string_view type,
            std::string_view help, Value value) {
  w.family(name, type, help);
  for (const Model& m : models) w.sample(name, m.labels, static_cast<double>(value(m.m)));
}

void histogram(Writer& w, const std::vector<Model>& models, const std::string& name, std::string_view help,
               Histogram EngineMetrics::*member) {
  w.family(name, "histogram", help);
  for (const Model& m : models)
    w.buckets(name, m.labels, (m.m.*member).bounds(), (m.m.*member).counts(), (m.m.*member).sum());
}

void write_gauges(Writer& w, const std::vector<Model>& models) {
  using M = const EngineMetrics&;
  scalar(w, models, "vllm:num_requests_running", "gauge", "Sequences in the batch.",
         [](M m) { return m.num_requests_running; });
  scalar(w, models, "vllm:num_requests_waiting", "gauge", "Sequences that wait for admission.",
         [](M m) { return m.num_requests_waiting; });
  scalar(w, models, "barg:num_requests_paused", "gauge", "Sequences whose readers are behind.",
         [](M m) { return m.num_requests_paused; });
  w.family("vllm:num_requests_waiting_by_reason", "gauge", "Waiting sequences by reason.");
  for (const Model& m : models) {
    w.sample("vllm:num_requests_waiting_by_reason", m.labels + ",reason=\"capacity\"",
             static_cast<double>(m.m.waiting_capacity));
    w.sample("vllm:num_requests_waiting_by_reason", m.labels + ",reason=\"deferred\"",
             static_cast<double>(m.m.waiting_deferred));
  }
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}) {
    scalar(w, models, name, "gauge", "Share of the KV pool that running sequences hold, 0 to 1.",
           [](M m) { return m.kv.usage; });
  }
  w.family("vllm:cache_config_info", "gauge", "Block size and number of blocks.");
  for (const Model& m : models) {
    w.sample("vllm:cache_config_info",
             m.labels + ",block_size=\"" + std::to_string(m.info.block_size) + "\",num_gpu_blocks=\"" +
                 std::to_string(m.info.num_blocks) + "\"",
             1);
  }
  w.family("barg_kv_blocks", "gauge", "KV blocks by state.");
  for (const Model& m : models) {
    const auto put = [&](const char* state, std::int64_t n) {
      w.sample("barg_kv_blocks", m.labels + ",tier=\"device\",state=\"" + state + "\"",
               static_cast<double>(n));
    };
    put("free", m.m.kv.free_blocks);
    put("cached", m.m.kv.cached_blocks);
    put("active", m.m.kv.active_blocks);
    put("fenced", m.m.kv.fenced_blocks);
  }
  w.family("barg_kv_waste_ratio", "gauge", "Share of allocated KV bytes that hold nothing, by cause.");
  for (const Model& m : models) {
    w.sample("barg_kv_waste_ratio", m.labels + ",cause=\"tail\"", m.m.kv.waste_tail);
    w.sample("barg_kv_waste_ratio", m.labels + ",cause=\"reserved\"", m.m.kv.waste_reserved);
    w.sample("barg_kv_waste_ratio", m.labels + ",cause=\"fenced\"", m.m.kv.waste_fenced);
  }
  scalar(w, models, "barg_device_tokens_per_second", "gauge", "Measured speed in rows per second, smoothed.",
         [](M m) { return m.tokens_per_second; });
}

void write_counters(Writer& w, const std::vector<Model>& models) {
  using M = const EngineMetrics&;
  const auto count = [&](std::string_view name, std::string_view help, auto value) {
    scalar(w, models, name, "counter", help, value);
  };
  count("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
        [](M m) { return m.prefix_cache_queries; });
  count("vllm:prefix_cache_hits_total", "Prompt tokens found there.",
        [](M m) { return m.prefix_cache_hits; });
  count("vllm:num_preemptions_total", "Sequences preempted.", [](M m) { return m.num_preemptions; });
  count("vllm:prompt_tokens_total", "Prompt tokens processed.", [](M m) { return m.prompt_tokens; });
  count("vllm:prompt_tokens_cached_total", "Prompt tokens served from the cache.",
        [](M m) { return m.prompt_tokens_cached; });
  count("vllm:prompt_tokens_recomputed_total", "Tokens computed again after a preemption.",
        [](M m) { return m.prompt_tokens_recomputed; });
  count("vllm:generation_tokens_total", "Tokens generated.", [](M m) { return m.generation_tokens; });
  w.family("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by where they came from.");
  for (const Model& m : models) {
    w.sample("vllm:prompt_tokens_by_source_total", m.labels + ",source=\"local_compute\"",
             static_cast<double>(m.m.prompt_tokens_computed));
    w.sample("vllm:prompt_tokens_by_source_total", m.labels + ",source=\"local_cache_hit\"",
             static_cast<double>(m.m.prompt_tokens_cached));
  }
  w.family("vllm:request_success_total", "counter", "Choices finished, by reason.");
  for (const Model& m : models) {
    for (const FinishReason r :
         {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError}) {
      w.sample("vllm:request_success_total", m.labels + ",finished_reason=\"" + finish_reason_name(r) + "\"",
               static_cast<double>(m.m.finished[static_cast<std::size_t>(r)]));
    }
  }
  count("vllm:corrupted_requests_total", "Choices that failed by NaN logits.",
        [](M m) { return m.corrupted_requests; });
  w.family("vllm:admission_rejections_total", "counter",
           "Requests refused before they were queued, by reason.");
  for (const Model& m : models) {
    for (std::size_t r = 0; r < kNumRejections; ++r) {
      w.sample("vllm:admission_rejections_total",
               m.labels + ",reason=\"" + rejection_name(static_cast<Rejection>(r)) + "\"",
               static_cast<double>(m.m.rejections[r]));
    }
  }
  count("barg_queue_timeouts_total", "Requests that waited too long.", [](M m) { return m.queue_timeouts; });
  count("barg_steps_total", "Engine steps.", [](M m) { return m.steps; });
  count("barg_mixed_steps_total", "Steps with prefill and decode.", [](M m) { return m.mixed_steps; });
  count("barg_device_seconds_total", "Seconds the device worked.", [](M m) { return m.device_seconds; });
}

/// DRAM is the stack's own and no named tier; a remote tier says no capacity.
bool has_kind(const store::StackStats& stack, store::TierKind kind) {
  return stack.kinds[static_cast<std::size_t>(kind)].capacity_bytes > 0 ||
         std::any_of(stack.tiers.begin(), stack.tiers.end(), [&](const auto& t) { return t.kind == kind; });
}

/// One sample per model and kind of tier that it has.
template <class Value>
void per_tier(Writer& w, const std::vector<Model>& models, std::string_view name, std::string_view type,
              std::string_view help, Value value) {
  w.family(name, type, help);
  for (const Model& m : models) {
    for (std::size_t k = 0; k < m.m.tiers.stack.kinds.size(); ++k) {
      const auto& kind = m.m.tiers.stack.kinds[k];
      if (!m.m.tiers.on || !has_kind(m.m.tiers.stack, static_cast<store::TierKind>(k))) continue;
      w.sample(name, m.labels + ",tier=\"" + tier_name(static_cast<store::TierKind>(k)) + "\"",
               static_cast<double>(value(kind)));
    }
  }
}

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void write_tier_kinds(Writer& w, const std::vector<Model>& models) {
  using K = const store::StackStats::PerKind&;
  const auto count = [&](std::string_view name, std::string_view help, auto value) {
    per_tier(w, models, name, "counter", help, value);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    per_tier(w, models, name, "gauge", help, value);
  };
  count("barg_kv_tier_queries_total", "Parts of KV blocks looked up.", [](K k) { return k.queries; });
  count("barg_kv_tier_hits_total", "Of these, found here and in no nearer tier.", [](K k) { return k.hits; });
  count("barg_kv_tier_bytes_read_total", "Bytes read, verified.", [](K k) { return k.bytes_read; });
  count("barg_kv_tier_bytes_written_total", "Bytes written.", [](K k) { return k.bytes_written; });
  count("barg_kv_tier_evictions_total", "Parts dropped to make room, or by their age.",
        [](K k) { return k.evictions; });
  count("barg_kv_tier_rereads_total", "Of these, asked for again soon after.", [](K k) { return k.rereads; });
  count("barg_kv_tier_writes_total", "Parts written.", [](K k) { return k.writes; });
  count("barg_kv_tier_useful_writes_total", "Of these, read at least once before they were dropped.",
        [](K k) { return k.useful_writes; });
  gauge("barg_kv_reread_ratio", "Evicted parts that were asked for again, share of the evicted.",
        [](K k) { return ratio(k.rereads, k.evictions); });
  gauge("barg_kv_useful_write_ratio", "Written parts that were read, share of the written.",
        [](K k) { return ratio(k.useful_writes, k.writes); });
  gauge("barg_kv_tier_used_bytes", "Bytes held.", [](K k) { return k.used_bytes; });
  gauge("barg_kv_tier_capacity_bytes", "Bytes that fit; 0 where the tier does not say.",
        [](K k) { return k.capacity_bytes; });
  gauge("barg_kv_tier_entries", "Parts held.", [](K k) { return k.entries; });
  gauge("barg_kv_tier_up", "1 while the tier answers, 0 while it is down and probed.",
        [](K k) { return k.speed.up ? 1 : 0; });
  gauge("barg_kv_tier_latency_seconds", "Of a small read, smoothed.", [](K k) { return k.speed.latency_s; });
  gauge("barg_kv_tier_bandwidth_bytes", "Bytes a second of large reads, smoothed.",
        [](K k) { return k.speed.bytes_per_s; });
  gauge("barg_kv_waste_bytes", "Bytes that a nearer tier holds as well.", [](K k) { return k.duplicate_bytes; });
}

void write_restores(Writer& w, const std::vector<Model>& models) {
  using T = const TierMetrics&;
  const auto each = [&](const std::string& name, std::string_view type, std::string_view help, auto write) {
    w.family(name, type, help);
    for (const Model& m : models) {
      if (m.m.tiers.on) write(name, m.labels, m.m.tiers);
    }
  };
  const auto count = [&](const std::string& name, std::string_view help, auto value) {
    each(name, "counter", help, [&](const std::string& n, const std::string& labels, T t) {
      w.sample(n, labels, static_cast<double>(value(t)));
    });
  };
  each("barg_kv_restore_plans_total", "counter", "Prefixes found in a tier, by what was chosen.",
       [&](const std::string& name, const std::string& labels, T t) {
         for (std::size_t c = 0; c < t.restore.plans.size(); ++c) {
           w.sample(name,
                    labels + ",choice=\"" + restore_choice_name(static_cast<sched::RestoreChoice>(c)) + "\"",
                    static_cast<double>(t.restore.plans[c]));
         }
       });
  count("barg_kv_restore_predicted_seconds_total", "Forecast of the restores that came to their end.",
        [](T t) { return t.restore.predicted_s; });
  count("barg_kv_restore_actual_seconds_total", "What they took.", [](T t) { return t.restore.actual_s; });
  count("barg_kv_restore_regret_seconds_total", "What they took beyond the best forecast of the three choices.",
        [](T t) { return t.restore.regret_s; });
  each("barg_kv_restore_regret_ratio", "histogram", "What a restore took over the best forecast.",
       [&](const std::string& name, const std::string& labels, T t) {
         w.buckets(name, labels, sched::kRegretBounds, t.restore.regret,
                   t.restore.predicted_s > 0 ? t.restore.actual_s / t.restore.predicted_s *
                                                   static_cast<double>(t.restore.measured)
                                             : 0);
       });
  count("barg_kv_restore_deadlines_total", "Reads given up because they took too long.",
        [](T t) { return t.restore.deadlines; });
  count("barg_kv_recompute_avoided_tokens_total", "Tokens read back instead of computed.",
        [](T t) { return t.restore.tokens_restored; });
  count("barg_kv_late_completions_total", "Reads and answers that came when nobody waited any more.",
        [](T t) { return t.stack.late + t.restore.late_events; });
  each("barg_kv_verify_total", "counter", "Parts checked against their checksums and keys, by outcome.",
       [&](const std::string& name, const std::string& labels, T t) {
         w.sample(name, labels + ",result=\"ok\"", static_cast<double>(t.stack.verify_ok));
         w.sample(name, labels + ",result=\"fail\"", static_cast<double>(t.stack.verify_failed));
       });
  each("barg_kv_store_dropped_total", "counter", "Blocks that were not kept, by reason.",
       [&](const std::string& name, const std::string& labels, T t) {
         for (std::size_t r = 0; r < t.stack.dropped.size(); ++r) {
           w.sample(name, labels + ",reason=\"" + store::drop_reason_name(static_cast<store::DropReason>(r)) + "\"",
                    static_cast<double>(t.stack.dropped[r]));
         }
       });
  each("barg_prompt_tokens_cached_total", "counter", "Prompt tokens that were not computed, by where they lay.",
       [&](const std::string& name, const std::string& labels, T t) {
         for (std::size_t p = 0; p < t.cached_tokens.size(); ++p) {
           w.sample(name, labels + ",tier=\"" + place_name(static_cast<sched::Place>(p)) + "\"",
                    static_cast<double>(t.cached_tokens[p]));
         }
       });
}

/// Per tier of the configuration: a kind may have several.
void write_tier_members(Writer& w, const std::vector<Model>& models) {
  using N = const store::StackStats::Named&;
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help, auto value) {
    w.family(name, type, help);
    for (const Model& m : models) {
      if (!m.m.tiers.on) continue;
      for (N tier : m.m.tiers.stack.tiers) {
        w.sample(name, m.labels + ",name=\"" + escape_label(tier.name) + "\"", static_cast<double>(value(tier)));
      }
    }
  };
  each("barg_kv_store_up", "gauge", "1 while the store answers.", [](N t) { return t.stats.up ? 1 : 0; });
  each("barg_kv_store_used_bytes", "gauge", "Bytes held, headers and padding included.",
       [](N t) { return t.stats.bytes_used; });
  each("barg_kv_store_moved_bytes_total", "counter", "Bytes rewritten by cleaning, headers and padding.",
       [](N t) { return t.stats.bytes_moved; });
  each("barg_kv_store_io_errors_total", "counter", "Refusals of the system or the server.",
       [](N t) { return t.stats.io_errors; });
  each("barg_kv_store_no_space_total", "counter", "Writes that found no room.",
       [](N t) { return t.stats.no_space; });
}

void write_tiers(Writer& w, const std::vector<Model>& models) {
  const bool any = std::any_of(models.begin(), models.end(), [](const Model& m) { return m.m.tiers.on; });
  if (!any) return;
  write_tier_kinds(w, models);
  write_restores(w, models);
  write_tier_members(w, models);
}

void write_histograms(Writer& w, const std::vector<Model>& models) {
  using E = EngineMetrics;
  struct Row {
    const char* name;
    const char* help;
    Histogram E::*member;
  };
  static constexpr Row kRows[] = {
      {"vllm:request_prompt_tokens", "Prompt tokens per request.", &E::request_prompt_tokens},
      {"vllm:request_generation_tokens", "Generated tokens per choice.", &E::request_generation_tokens},
      {"vllm:request_max_num_generation_tokens", "Longest choice of a request.",
       &E::request_max_num_generation_tokens},
      {"vllm:request_params_max_tokens", "max_tokens per request.", &E::request_params_max_tokens},
      {"vllm:request_params_n", "n per request.", &E::request_params_n},
      {"vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed per request.",
       &E::request_prefill_kv_computed_tokens},
      {"vllm:iteration_tokens_total", "Tokens per step.", &E::iteration_tokens_total},
      {"vllm:time_to_first_token_seconds", "Arrival to first token.", &E::time_to_first_token},
      {"vllm:inter_token_latency_seconds", "Between two tokens.", &E::inter_token_latency},
      {"vllm:request_time_per_output_token_seconds", "Mean time per token of a choice.",
       &E::time_per_output_token},
      {"vllm:e2e_request_latency_seconds", "Arrival to last token.", &E::e2e_request_latency},
      {"vllm:request_queue_time_seconds", "Waiting for the first step.", &E::request_queue_time},
      {"vllm:request_inference_time_seconds", "First step to last token.", &E::request_inference_time},
      {"vllm:request_prefill_time_seconds", "First step to first token.", &E::request_prefill_time},
      {"vllm:request_decode_time_seconds", "First token to last token.", &E::request_decode_time},
      {"barg_step_seconds", "Duration of a step.", &E::step_seconds},
      {"barg_plan_seconds", "Deciding what a step computes.", &E::plan_seconds},
  };
  for (const Row& row : kRows) histogram(w, models, row.name, row.help, row.member);
}

void write_http(Writer& w, const ServerState& state) {
  const HttpMetrics::Snapshot http = state.http.snapshot();
  w.family("http_requests_total", "counter", "HTTP requests by method, status and handler.");
  for (const auto& [key, n] : http.requests) {
    const auto& [method, status, handler] = key;
    w.sample("http_requests_total",
             "method=\"" + method + "\",status=\"" + std::to_string(status) + "\",handler=\"" +
                 escape_label(handler) + "\"",
             static_cast<double>(n));
  }
  w.family("http_request_duration_seconds", "histogram", "First byte received to last byte sent.");
  for (const auto& [key, d] : http.durations) {
    w.buckets("http_request_duration_seconds",
              "method=\"" + key.first + "\",handler=\"" + escape_label(key.second) + "\"", kHttpSeconds,
              d.counts, d.sum);
  }
  w.family("barg_cancel_total", "counter", "Requests cut short, by cause.");
  for (const auto& [cause, n] : http.cancels)
    w.sample("barg_cancel_total", "cause=\"" + escape_label(cause) + "\"", static_cast<double>(n));
  w.family("barg_http_bytes_total", "counter", "Bytes of requests and answers.");
  w.sample("barg_http_bytes_total", "direction=\"in\"", static_cast<double>(http.bytes_in));
  w.sample("barg_http_bytes_total", "direction=\"out\"", static_cast<double>(http.bytes_out));
  const HttpServer* listener = state.listener;
  const HttpGauges g = listener ? listener->gauges() : HttpGauges{};
  const auto one = [&](const char* name, const char* type, const char* help, double v) {
    w.family(name, type, help);
    w.sample(name, "", v);
  };
  one("barg_conn_open", "gauge", "Open connections.", static_cast<double>(g.open_connections));
  one("barg_requests_active", "gauge", "HTTP requests being answered.",
      static_cast<double>(g.active_requests));
  one("barg_conn_accepted_total", "counter", "Connections accepted.", static_cast<double>(g.accepted));
  one("barg_conn_refused_total", "counter", "Connections beyond max_connections.",
      static_cast<double>(g.refused_connections));
  one("barg_write_stall_total", "counter", "Readers that took nothing for too long.",
      static_cast<double>(g.write_stalls));
  one("barg_disconnects_total", "counter", "Clients gone while their request was being answered.",
      static_cast<double>(g.disconnects));
  const Constraints::Counts asked = state.constraints->counts();
  w.family("barg_structured_outputs_total", "counter", "Requests with a structured output, by what became of it.");
  w.sample("barg_structured_outputs_total", "result=\"cached\"", static_cast<double>(asked.found));
  w.sample("barg_structured_outputs_total", "result=\"compiled\"", static_cast<double>(asked.compiled));
  w.sample("barg_structured_outputs_total", "result=\"refused\"", static_cast<double>(asked.refused));
  const ResponseStore::Held held = state.responses->held();
  one("barg_responses_stored", "gauge", "Answers of /v1/responses that are kept, running ones included.",
      static_cast<double>(held.count));
  one("barg_responses_stored_bytes", "gauge", "Bytes charged for them; at most server.responses_store_bytes.",
      static_cast<double>(held.bytes));
}

}  // namespace

std::string escape_label(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string metrics_text(const ServerState& state) {
  std::vector<Model> models;
  for (const ServedModel& model : state.models) {
    models.push_back({.labels = "model_name=\"" + escape_label(model.names.front()) + "\",engine=\"0\"",
                      .m = model.engine->metrics(),
                      .info = model.engine->info()});
  }
  Writer w;
  write_gauges(w, models);
  write_counters(w, models);
  write_histograms(w, models);
  write_tiers(w, models);
  write_http(w, state);
  w.family("barg_build_info", "gauge", "Version of the server and numerics of each model.");
  for (const Model& m : models) {
    w.sample("barg_build_info",
             m.labels + ",version=\"" + escape_label(state.build.version) + "\",git=\"" +
                 escape_label(state.build.git) + "\",numerics=\"" + escape_label(m.info.numerics_id) +
                 "\",weights=\"" + escape_label(m.info.model_digest.substr(0, 16)) + "\"",
             1);
  }
  w.family("process_start_time_seconds", "gauge", "Unix time of the start.");
  w.sample("process_start_time_seconds", "", state.started_unix_s);
  return std::move(w.out);
}

}  // namespace barg::server
