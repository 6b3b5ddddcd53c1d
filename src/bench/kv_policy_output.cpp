// The report of the policy-only mode as text, JSON and plots.
#include <cmath>

#include "base/json.h"
#include "bench/format.h"
#include "bench/kv_policy_bench.h"
#include "bench/svg_chart.h"

namespace barg::bench {
namespace {

Json rounded(double value) { return Json(std::round(value * 1e6) / 1e6); }
Json rounded(std::optional<double> value) { return value ? rounded(*value) : Json(); }

double rate_of(const KvPolicyResult& r, std::size_t place) {
  return r.asked == 0 ? 0 : static_cast<double>(r.tiers[place].hits) / static_cast<double>(r.asked);
}

std::string tier_rows(const KvPolicyResult& r) {
  std::string out = "  " + left("tier", 8) + right("blocks", 9) + right("hit rate", 10) +
                    right("evicted", 10) + right("re-read", 9) + right("written", 10) + right("useful", 9) +
                    right("doubled", 9) + "\n";
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    const KvTierCount& t = r.tiers[p];
    if (r.options.blocks[p] == 0) continue;
    out += "  " + left(kKvPlaceNames[p], 8) + right(std::to_string(r.options.blocks[p]), 9) +
           right(fixed(rate_of(r, p), 4), 10) + right(std::to_string(t.evictions), 10) +
           right(percent(reread_share(t)), 9) + right(std::to_string(t.writes), 10) +
           right(percent(useful_share(t)), 9) + right(p == 0 ? "-" : percent(t.duplicates), 9) + "\n";
  }
  return out;
}

std::string baseline_row(const std::string& name, const KvBaseline& b) {
  return "  " + left(name, 24) + right(std::to_string(b.capacity), 9) + right(fixed(b.lru, 4), 10) +
         right(fixed(b.s3fifo, 4), 10) + right(fixed(b.optimum, 4), 10) + "\n";
}

std::string through_row(const KvPolicyReport& report) {
  const std::size_t place = compared_tier(report.result.options);
  const std::optional<double> ours = useful_share(report.result.tiers[place]);
  const std::optional<double> theirs = useful_share(report.through->tiers[place]);
  std::string out = std::string("  written through: hit rate ") + fixed(report.through->hit_rate(), 4) +
                    ", " + kKvPlaceNames[place] + " writes " +
                    std::to_string(report.through->tiers[place].writes) + ", useful " + percent(theirs) +
                    "\n";
  if (!ours || !theirs || *theirs <= 0 || report.through->hits() == 0) return out;
  const double hits = static_cast<double>(report.result.hits()) / static_cast<double>(report.through->hits());
  return out + "  against that: useful share of writes " + fixed(*ours / *theirs, 2) + "x, hits " +
         fixed((hits - 1) * 100, 1) + " %\n";
}

Json baseline_json(const KvBaseline& b) {
  return Json::object({{"capacity_blocks", b.capacity},
                       {"lru", rounded(b.lru)},
                       {"s3fifo", rounded(b.s3fifo)},
                       {"optimum", rounded(b.optimum)}});
}

Json result_json(const KvPolicyResult& r) {
  Json tiers = Json::array();
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    const KvTierCount& t = r.tiers[p];
    if (r.options.blocks[p] == 0) continue;
    tiers.push(Json::object({{"name", kKvPlaceNames[p]},
                             {"capacity_blocks", r.options.blocks[p]},
                             {"hits", t.hits},
                             {"hit_rate", rounded(rate_of(r, p))},
                             {"evictions", t.evictions},
                             {"rereads", t.rereads},
                             {"reread_ratio", rounded(reread_share(t))},
                             {"writes", t.writes},
                             {"useful_writes", t.useful_writes},
                             {"useful_write_ratio", rounded(useful_share(t))},
                             {"duplicate_share", p == 0 ? Json() : rounded(t.duplicates)}}));
  }
  return Json::object({{"write", kKvWriteNames[static_cast<std::size_t>(r.options.write)]},
                       {"eviction", r.options.lru ? "lru" : "s3fifo"},
                       {"hit_rate", rounded(r.hit_rate())},
                       {"tiers", tiers},
                       {"refused_admission", r.refused},
                       {"seconds", rounded(r.seconds)}});
}

Json over_time_json(const KvPolicyResult& r) {
  Json out = Json::array();
  for (const KvPolicyResult::Bin& bin : r.bins) {
    Json hits = Json::object();
    for (std::size_t p = 0; p < kKvPlaces; ++p) {
      if (r.options.blocks[p] > 0) hits.set(kKvPlaceNames[p], bin.hits[p]);
    }
    out.push(Json::object({{"end_s", rounded(bin.end_s)}, {"blocks", bin.asked}, {"hits", hits}}));
  }
  return out;
}

Chart sweep_chart(const KvPolicyReport& report) {
  Chart chart{.title = "Hit rate over capacity",
              .subtitle = "share of all blocks of the trace; tiers: device of " +
                          std::to_string(report.result.options.blocks[0]) + " blocks, the rest DRAM",
              .x_label = "capacity (blocks, logarithmic)",
              .y_label = "hit rate (%)",
              .log_x = true};
  const auto series = [&](const char* name, auto value) {
    ChartSeries out{.name = name, .points = {}, .markers = true};
    for (const KvSweepPoint& p : report.sweep)
      out.points.push_back({.x = static_cast<double>(p.pool.capacity), .y = 100 * value(p)});
    chart.series.push_back(std::move(out));
  };
  series("optimum", [](const KvSweepPoint& p) { return p.pool.optimum; });
  series("device and DRAM", [](const KvSweepPoint& p) { return p.tiers; });
  series("LRU", [](const KvSweepPoint& p) { return p.pool.lru; });
  series("S3-FIFO", [](const KvSweepPoint& p) { return p.pool.s3fifo; });
  return chart;
}

Chart time_chart(const KvPolicyReport& report) {
  Chart chart{.title = "Hit rate over the trace",
              .subtitle = "each line includes the tiers before it",
              .x_label = "time of the trace (s)",
              .y_label = "blocks served (%)"};
  for (std::size_t p = 0; p < kKvPlaces; ++p) {
    if (report.result.options.blocks[p] == 0) continue;
    ChartSeries series{.name = (p == 0 ? "" : "+ ") + std::string(kKvPlaceNames[p]), .points = {}};
    for (const KvPolicyResult::Bin& bin : report.result.bins) {
      double hits = 0;
      for (std::size_t q = 0; q <= p; ++q) hits += static_cast<double>(bin.hits[q]);
      if (bin.asked > 0)
        series.points.push_back({.x = bin.end_s, .y = 100 * hits / static_cast<double>(bin.asked)});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string kv_policy_table(const KvPolicyReport& report) {
  const KvPolicyResult& r = report.result;
  std::string out = report.trace + ": " + std::to_string(report.requests) + " requests, " +
                    std::to_string(report.blocks) + " blocks, " + std::to_string(report.distinct) +
                    " of them different\n";
  out += "  hit rate " + fixed(r.hit_rate(), 4);
  if (report.total.capacity > 0)
    out += ", " + fixed(report.of_optimum() * 100, 1) + " % of the optimum of " +
           std::to_string(report.total.capacity) + " blocks";
  out += "; without a limit " + fixed(report.unbounded, 4) + " (" + fixed(r.seconds, 2) + " s)\n\n" +
         tier_rows(r);
  if (report.through) out += "\n" + through_row(report);
  out += "\n  " + left("one pool of", 24) + right("blocks", 9) + right("LRU", 10) + right("S3-FIFO", 10) +
         right("optimum", 10) + "\n";
  if (report.device.capacity > 0) out += baseline_row("the device", report.device);
  if (report.total.capacity > report.device.capacity) out += baseline_row("all tiers", report.total);
  out += "\n  waste: " + percent(report.tail_waste) + " of the slots of blocks hold no token of a prompt\n";
  if (report.sweep.empty()) return out;
  out += "\n  " + right("blocks", 9) + right("tiers", 10) + right("LRU", 10) + right("S3-FIFO", 10) +
         right("optimum", 10) + right("of it", 9) + "\n";
  for (const KvSweepPoint& p : report.sweep) {
    out += "  " + right(std::to_string(p.pool.capacity), 9) + right(fixed(p.tiers, 4), 10) +
           right(fixed(p.pool.lru, 4), 10) + right(fixed(p.pool.s3fifo, 4), 10) +
           right(fixed(p.pool.optimum, 4), 10) +
           right(p.pool.optimum > 0 ? percent(p.tiers / p.pool.optimum) : "-", 9) + "\n";
  }
  return out;
}

std::string kv_policy_json(const KvPolicyReport& report) {
  Json sweep = Json::array();
  for (const KvSweepPoint& p : report.sweep) {
    Json point = baseline_json(p.pool);
    point.set("tiers", rounded(p.tiers));
    sweep.push(point);
  }
  Json document = Json::object({{"version", 1}, {"mode", "policy"}, {"trace", report.trace}});
  document.set("requests", report.requests);
  document.set("blocks", report.blocks);
  document.set("distinct_blocks", report.distinct);
  document.set("unbounded_hit_rate", rounded(report.unbounded));
  const Json result = result_json(report.result);
  for (const auto& [key, value] : result.as_object()) document.set(key, value);
  document.set("of_optimum", report.total.optimum > 0 ? rounded(report.of_optimum()) : Json());
  document.set("baselines", Json::object({{"device", baseline_json(report.device)},
                                          {"total", baseline_json(report.total)}}));
  document.set("write_through", report.through ? result_json(*report.through) : Json());
  document.set("waste", Json::object({{"tail", rounded(report.tail_waste)}}));
  document.set("over_time", over_time_json(report.result));
  document.set("sweep", sweep);
  document.set("interrupted", report.stopped);
  return dump_json(document, {.indent = 2}) + "\n";
}

std::vector<std::pair<std::string, std::string>> kv_policy_plots(const KvPolicyReport& report) {
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("kv_hits.svg", draw_chart(time_chart(report)));
  if (!report.sweep.empty()) out.emplace_back("kv_capacity.svg", draw_chart(sweep_chart(report)));
  return out;
}

}  // namespace barg::bench
