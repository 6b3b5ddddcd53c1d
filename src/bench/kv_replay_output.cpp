#include "bench/kv_replay_output.h"

#include <cmath>

#include "base/json.h"
#include "bench/format.h"
#include "bench/serve_output.h"
#include "bench/serve_plots.h"
#include "bench/svg_chart.h"

namespace barg::bench {
namespace {

KvFigure quotient(const KvFigure& part, const KvFigure& whole) {
  if (!part || !whole || !(*whole > 0)) return std::nullopt;
  return *part / *whole;
}

std::string size(const KvFigure& bytes) {
  if (!bytes) return "-";
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = *bytes;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fixed(value, unit == 0 ? 0 : 1) + " " + units[unit];
}

Json figure_json(const KvFigure& value) {
  if (!value || !std::isfinite(*value)) return {};
  if (*value == std::floor(*value) && std::fabs(*value) < 9e15)
    return Json(static_cast<std::int64_t>(*value));
  return Json(std::round(*value * 1e6) / 1e6);
}

/// Does the server have such a tier, as far as it says?
bool known(const KvFigures& f, std::size_t place) {
  const KvTierFigures& t = f.tiers[place];
  return t.queries || t.writes || t.capacity_bytes || (place == 0 && t.cached_tokens);
}

std::string tier_table(const KvFigures& f) {
  std::string out = "  " + left("tier", 8) + right("prompt tokens", 15) + right("parts hit", 11) +
                    right("read", 11) + right("written", 11) + right("re-read", 9) + right("useful", 9) +
                    right("doubled", 11) + "\n";
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    const KvTierFigures& t = f.tiers[p];
    if (!known(f, p)) continue;
    out += "  " + left(kKvPlaceNames[p], 8) + right(percent(quotient(t.cached_tokens, f.prompt_tokens)), 15) +
           right(percent(quotient(t.hits, t.queries)), 11) + right(size(t.bytes_read), 11) +
           right(size(t.bytes_written), 11) + right(percent(quotient(t.rereads, t.evictions)), 9) +
           right(percent(quotient(t.useful_writes, t.writes)), 9) + right(size(t.duplicate_bytes), 11) + "\n";
  }
  return out;
}

std::string restore_lines(const KvFigures& f) {
  if (!f.reloads) return {};
  const auto count = [](const KvFigure& v) { return fixed(v.value_or(0), 0); };
  std::string out = "  restores        " + count(f.reloads) + " reloaded, " + count(f.both) +
                    " from both ends, " + count(f.recomputes) + " computed again; " +
                    count(f.tokens_restored) + " tokens not computed\n";
  if (f.actual_s && f.predicted_s && *f.actual_s > 0)
    out += "  they took       " + fixed(*f.actual_s, 2) + " s, forecast " + fixed(*f.predicted_s, 2) +
           " s, regret " + percent(quotient(f.regret_s, f.actual_s)) + "\n";
  if (f.verify_failed.value_or(0) + f.late.value_or(0) + f.deadlines.value_or(0) > 0)
    out += "  trouble         " + count(f.verify_failed) + " parts refused, " + count(f.late) +
           " too late, " + count(f.deadlines) + " reads given up\n";
  for (const auto& [reason, n] : f.dropped)
    out += "  not kept        " + fixed(n, 0) + " blocks: " + reason + "\n";
  return out;
}

Json tier_json(const KvFigures& f, std::size_t place) {
  const KvTierFigures& t = f.tiers[place];
  Json out = Json::object({{"name", kKvPlaceNames[place]}});
  out.set("cached_tokens", figure_json(t.cached_tokens));
  out.set("hit_rate", figure_json(quotient(t.cached_tokens, f.prompt_tokens)));
  out.set("queries", figure_json(t.queries));
  out.set("hits", figure_json(t.hits));
  out.set("bytes_read", figure_json(t.bytes_read));
  out.set("bytes_written", figure_json(t.bytes_written));
  out.set("evictions", figure_json(t.evictions));
  out.set("rereads", figure_json(t.rereads));
  out.set("reread_ratio", figure_json(quotient(t.rereads, t.evictions)));
  out.set("writes", figure_json(t.writes));
  out.set("useful_writes", figure_json(t.useful_writes));
  out.set("useful_write_ratio", figure_json(quotient(t.useful_writes, t.writes)));
  out.set("used_bytes", figure_json(t.used_bytes));
  out.set("capacity_bytes", figure_json(t.capacity_bytes));
  out.set("duplicate_bytes", figure_json(t.duplicate_bytes));
  return out;
}

Json restore_json(const KvFigures& f) {
  Json dropped = Json::object();
  for (const auto& [reason, n] : f.dropped) dropped.set(reason, figure_json(n));
  return Json::object({{"recompute", figure_json(f.recomputes)},
                       {"reload", figure_json(f.reloads)},
                       {"both", figure_json(f.both)},
                       {"predicted_s", figure_json(f.predicted_s)},
                       {"actual_s", figure_json(f.actual_s)},
                       {"regret_s", figure_json(f.regret_s)},
                       {"regret_ratio", figure_json(quotient(f.regret_s, f.actual_s))},
                       {"tokens_restored", figure_json(f.tokens_restored)},
                       {"deadlines", figure_json(f.deadlines)},
                       {"late", figure_json(f.late)},
                       {"verified", figure_json(f.verified)},
                       {"verify_failed", figure_json(f.verify_failed)},
                       {"dropped", dropped}});
}

Json over_time_json(const KvReplay& replay) {
  Json out = Json::array();
  for (const KvReplay::Point& point : replay.over_time) {
    Json cached = Json::object();
    for (std::size_t p = 0; p < kKvPlaces; ++p)
      cached.set(kKvPlaceNames[p], figure_json(point.figures.tiers[p].cached_tokens));
    out.push(Json::object({{"end_s", figure_json(point.at_s)},
                           {"prompt_tokens", figure_json(point.figures.prompt_tokens)},
                           {"cached_tokens", cached}}));
  }
  return out;
}

constexpr double kPlotPoints = 60;

Chart time_chart(const KvReplay& replay) {
  Chart chart{.title = "Hit rate over time",
              .subtitle = "each line includes the tiers before it",
              .x_label = "time since the run began (s)",
              .y_label = "prompt tokens found (%)"};
  if (replay.over_time.empty()) return chart;
  const double width = replay.over_time.back().at_s / kPlotPoints;
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    if (!replay.figures || !known(*replay.figures, p)) continue;
    ChartSeries series{.name = (p == 0 ? "" : "+ ") + std::string(kKvPlaceNames[p]), .points = {}};
    double asked = 0, cached = 0, begin = 0;
    for (const KvReplay::Point& point : replay.over_time) {
      asked += point.figures.prompt_tokens.value_or(0);
      for (std::size_t q = 0; q <= p; ++q) cached += point.figures.tiers[q].cached_tokens.value_or(0);
      if (!(asked > 0) || point.at_s - begin < width) continue;
      series.points.push_back({.x = point.at_s, .y = 100 * cached / asked});
      asked = cached = 0;
      begin = point.at_s;
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string kv_replay_table(const KvReplay& replay) {
  std::string out = report_table(replay.options, replay.report) + "\n";
  if (!replay.figures) return out + "  tiers           not known: there are no metrics\n";
  const KvFigures& f = *replay.figures;
  if (!f.prompt_tokens)
    return out + "  tiers           not known: the metrics are of another kind of server\n";
  out += tier_table(f) + restore_lines(f);
  if (f.waste_tail)
    out += "  waste           " + percent(f.waste_tail) + " behind the last tokens, " +
           percent(f.waste_reserved) + " reserved, " + percent(f.waste_fenced) + " fenced (mean over the run)\n";
  return out;
}

std::string kv_replay_json(const KvReplay& replay) {
  const KvFigures f = replay.figures.value_or(KvFigures{});
  Json tiers = Json::array();
  for (std::size_t p = 0; p < kKvPlaces; ++p) tiers.push(tier_json(f, p));
  const ServeWorkload& w = replay.options.workload;
  Json document = Json::object({{"version", 1},
                                {"mode", replay.mode},
                                {"where", replay.where},
                                {"model", replay.options.body.model},
                                {"trace", w.trace_file},
                                {"scale_lengths", w.trace_scale},
                                {"speed", w.trace_speed},
                                {"seed", w.seed}});
  document.set("run", run_json(replay.options, replay.report));
  document.set("prompt_tokens", figure_json(f.prompt_tokens));
  document.set("hit_rate", figure_json(quotient(f.cached_tokens, f.prompt_tokens)));
  document.set("tiers", tiers);
  document.set("restores", restore_json(f));
  document.set("waste", Json::object({{"tail", figure_json(f.waste_tail)},
                                      {"reserved", figure_json(f.waste_reserved)},
                                      {"fenced", figure_json(f.waste_fenced)}}));
  document.set("over_time", over_time_json(replay));
  return dump_json(document, {.indent = 2}) + "\n";
}

std::vector<std::pair<std::string, std::string>> kv_replay_plots(const KvReplay& replay) {
  std::vector<std::pair<std::string, std::string>> out = report_plots({replay.report}, {replay.samples});
  out.emplace_back("kv_hits.svg", draw_chart(time_chart(replay)));
  return out;
}

}  // namespace barg::bench
