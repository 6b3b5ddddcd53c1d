#include "bench/serve_plots.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/svg_chart.h"

namespace barg::bench {
namespace {

constexpr std::size_t kCurvePoints = 400;

// What tells runs apart, short: "32 at once", "2.5 requests/s".
std::string short_name(const RunReport& report) {
  const std::size_t comma = report.name.find(", ");
  return comma == std::string::npos ? report.name : report.name.substr(comma + 2);
}

std::string load_value(const RunReport& report) {
  char text[32];
  if (report.load.kind == ServeLoad::Kind::kClosed) return std::to_string(report.load.concurrency);
  std::snprintf(text, sizeof text, "%.4g", report.load.rate);
  return text;
}

// The share of values up to each: at evenly spaced shares, and the largest.
ChartSeries cumulative(std::string name, std::vector<double> values) {
  ChartSeries out{.name = std::move(name), .points = {}};
  std::sort(values.begin(), values.end());
  if (values.empty()) return out;
  const std::size_t count = std::min(kCurvePoints, std::max<std::size_t>(values.size(), 2));
  for (std::size_t i = 0; i < count; ++i) {
    const double share = 100.0 * static_cast<double>(i) / static_cast<double>(count - 1);
    out.points.push_back({.x = percentile(values, share), .y = share});
  }
  return out;
}

Chart cumulative_chart(const char* title, const char* what, const std::vector<RunReport>& reports,
                       const std::vector<RunSamples>& samples, bool gaps) {
  Chart chart{.title = title, .y_label = gaps ? "gaps at most this long (%)" : "requests at most this late (%)"};
  chart.subtitle = std::string("cumulative distribution over all ") + (gaps ? "gaps between tokens" : "answered requests");
  double middle = INFINITY, high = 0;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    std::vector<double> values;
    for (const RequestSample& sample : samples[i].requests) {
      if (!sample.ok()) continue;
      const RequestTimes times = times_of(sample);
      if (gaps) values.insert(values.end(), times.gaps_ms.begin(), times.gaps_ms.end());
      else values.push_back(times.ttft_ms);
    }
    chart.series.push_back(cumulative(short_name(reports[i]), std::move(values)));
    const std::vector<ChartPoint>& points = chart.series.back().points;
    if (points.empty()) continue;
    middle = std::min(middle, points[points.size() / 2].x);
    high = std::max(high, points.back().x);
  }
  chart.log_x = high > 20 * middle;
  if (chart.log_x) {  // tokens that come together have gaps of nothing: they lie at the left edge
    const double edge = std::max(middle / 20, high / 5000);
    for (ChartSeries& series : chart.series) {
      for (ChartPoint& point : series.points) point.x = std::max(point.x, edge);
    }
  }
  chart.x_label = std::string(what) + (chart.log_x ? " (ms, logarithmic)" : " (ms)");
  chart.y_max = 100;
  return chart;
}

Chart tokens_over_time(const std::vector<RunReport>& reports, const std::vector<RunSamples>& samples) {
  Chart chart{.title = "Output over time", .x_label = "time since the run began (s)", .y_label = "output tokens/s"};
  double longest = 0;
  for (const RunSamples& run : samples) longest = std::max(longest, run.wall_s);
  const std::vector<double> nice = linear_ticks(0, std::max(longest, 0.01), 60);
  const double bin = nice.size() > 1 ? nice[1] : 0.1;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    std::vector<double> bins(static_cast<std::size_t>(samples[i].wall_s / bin) + 1, 0);
    for (const RequestSample& sample : samples[i].requests) {
      const double tokens = sample.stamps.empty() ? 0
                                                  : static_cast<double>(sample.output_tokens()) /
                                                        static_cast<double>(sample.stamps.size());
      for (const std::int64_t stamp : sample.stamps) {
        const auto at = static_cast<std::size_t>(static_cast<double>(stamp) * 1e-9 / bin);
        if (at < bins.size()) bins[at] += tokens;
      }
    }
    ChartSeries series{.name = short_name(reports[i]), .points = {}};
    for (std::size_t b = 0; b < bins.size(); ++b) {
      const double begin = static_cast<double>(b) * bin;
      const double width = std::min(bin, samples[i].wall_s - begin);  // the last bin may be a part of one
      if (width < bin / 4 && b > 0) break;
      series.points.push_back({.x = begin + width / 2, .y = bins[b] / width});
    }
    chart.series.push_back(std::move(series));
  }
  char text[64];
  std::snprintf(text, sizeof text, "averages over %g s", bin);
  chart.subtitle = text;
  return chart;
}

Chart sweep_chart(const std::vector<RunReport>& reports, bool gaps) {
  Chart chart{.title = gaps ? "Gap between tokens against throughput" : "Time to first token against throughput",
              .x_label = "output tokens/s"};
  const bool closed = reports.front().load.kind == ServeLoad::Kind::kClosed;
  chart.subtitle = closed ? "each point is a run; its number is how many requests were in flight"
                          : "each point is a run; its number is the rate in requests/s";
  ChartSeries middle{.name = "p50", .points = {}, .markers = true};
  ChartSeries tail{.name = gaps ? "p99" : "p95", .points = {}, .markers = true};
  double low = INFINITY, high = 0;
  for (const RunReport& report : reports) {
    const Distribution& d = gaps ? report.itl_ms : report.ttft_ms;
    if (d.count == 0) continue;
    const double at = report.output_tokens_per_s;
    const double extreme = gaps ? d.p99 : d.p95;
    middle.points.push_back({.x = at, .y = d.p50, .label = load_value(report)});
    tail.points.push_back({.x = at, .y = extreme, .label = load_value(report)});
    low = std::min(low, d.p50);
    high = std::max(high, extreme);
  }
  chart.log_y = low > 0 && high > 20 * low;
  chart.y_label = std::string(gaps ? "ITL" : "TTFT") + (chart.log_y ? " (ms, logarithmic)" : " (ms)");
  chart.series = {std::move(middle), std::move(tail)};
  return chart;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> report_plots(const std::vector<RunReport>& reports,
                                                              const std::vector<RunSamples>& samples) {
  std::vector<std::pair<std::string, std::string>> out;
  if (reports.empty()) return out;
  out.emplace_back("ttft.svg", draw_chart(cumulative_chart("Time to first token", "TTFT", reports, samples, false)));
  out.emplace_back("itl.svg", draw_chart(cumulative_chart("Gap between tokens", "ITL", reports, samples, true)));
  out.emplace_back("tokens.svg", draw_chart(tokens_over_time(reports, samples)));
  if (reports.size() > 1) {
    out.emplace_back("sweep_ttft.svg", draw_chart(sweep_chart(reports, false)));
    out.emplace_back("sweep_itl.svg", draw_chart(sweep_chart(reports, true)));
  }
  return out;
}

}  // namespace barg::bench
