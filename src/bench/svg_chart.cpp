#include "bench/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace barg::bench {
namespace {

constexpr double kWidth = 820, kHeight = 480;
constexpr double kLeft = 78, kTop = 64, kBottom = 64;
constexpr double kLegendWidth = 170, kNoLegend = 28;
// Okabe and Ito: told apart by people who see few colours, too.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#444444", "#8c6d31"};

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// A tick as people write it: 0.5, 20, 1,500.
std::string tick_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  std::string out = text;
  if (out.find_first_of(".e") == std::string::npos) {
    for (std::size_t at = out.size(); at > 3 + (value < 0 ? 1U : 0U); at -= 3) out.insert(at - 3, ",");
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

// Values to pixels along one axis.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double from = 0, to = 1;  // pixels
  std::vector<double> ticks;

  double at(double value) const {
    const double share = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + share * (to - from);
  }
};

void fit(Axis& axis, double low, double high, bool from_zero) {
  if (axis.log) {
    axis.low = low > 0 ? low : 1e-3;
    axis.high = std::max(high, axis.low * 1.5);
    axis.low *= 0.95;
    axis.high *= 1.05;
    axis.ticks = log_ticks(axis.low, axis.high);
    return;
  }
  axis.low = from_zero ? std::min(0.0, low) : low;
  axis.high = high > axis.low ? high : axis.low + 1;
  axis.ticks = linear_ticks(axis.low, axis.high, 7);
  // The axis ends at a mark, so that nothing is drawn at its very edge.
  const double step = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : 1;
  while (axis.ticks.back() < axis.high - step * 1e-6) axis.ticks.push_back(axis.ticks.back() + step);
  axis.high = axis.ticks.back();
}

bool drawable(const Chart& chart, const ChartPoint& p) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!chart.log_x || p.x > 0) && (!chart.log_y || p.y > 0);
}

std::string text(double x, double y, const std::string& anchor, int size, const std::string& colour,
                 const std::string& content, const std::string& extra = {}) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor +
         "\" font-size=\"" + std::to_string(size) + "\" fill=\"" + colour + "\"" + extra + ">" + escaped(content) +
         "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& colour, double width) {
  return "<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" + coordinate(x2) + "\" y2=\"" +
         coordinate(y2) + "\" stroke=\"" + colour + "\" stroke-width=\"" + coordinate(width) + "\"/>\n";
}

std::string axes(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : x.ticks) {
    out += line(x.at(tick), y.from, x.at(tick), y.to, "#e6e6e6", 1);
    out += text(x.at(tick), y.from + 18, "middle", 12, "#444444", tick_text(tick));
  }
  for (const double tick : y.ticks) {
    out += line(x.from, y.at(tick), x.to, y.at(tick), "#e6e6e6", 1);
    out += text(x.from - 8, y.at(tick) + 4, "end", 12, "#444444", tick_text(tick));
  }
  out += line(x.from, y.from, x.to, y.from, "#555555", 1.2) + line(x.from, y.from, x.from, y.to, "#555555", 1.2);
  out += text((x.from + x.to) / 2, y.from + 42, "middle", 13, "#222222", chart.x_label);
  const double middle = (y.from + y.to) / 2;
  out += text(20, middle, "middle", 13, "#222222", chart.y_label,
              " transform=\"rotate(-90 20 " + coordinate(middle) + ")\"");
  return out;
}

std::string curve(const Chart& chart, const ChartSeries& series, const std::string& colour, const Axis& x,
                  const Axis& y) {
  std::string path, marks;
  for (const ChartPoint& p : series.points) {
    if (!drawable(chart, p)) continue;
    const double px = x.at(p.x), py = std::clamp(y.at(p.y), y.to, y.from);
    path += (path.empty() ? "M" : "L") + coordinate(px) + " " + coordinate(py);
    if (series.markers) {
      marks += "<circle cx=\"" + coordinate(px) + "\" cy=\"" + coordinate(py) + "\" r=\"4\" fill=\"" + colour +
               "\" stroke=\"#ffffff\" stroke-width=\"1.2\"/>\n";
    }
    if (!p.label.empty()) marks += text(px, py - 9, "middle", 11, colour, p.label);
  }
  if (path.empty()) return {};
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour +
         "\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n" + marks;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int about) {
  const double rough = (high - low) / std::max(1, about);
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double share = rough / power;
  const double step = power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    out.push_back(i * step + 0.0);  // no "-0"
  return out.empty() ? std::vector<double>{low} : out;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> out;
  const double decades = std::log10(high / low);
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = step * std::pow(10, power);
      if (value >= low && value <= high && (step == 1 || decades < 3.5)) out.push_back(value);
    }
  }
  if (out.size() >= 3 || decades > 1) return out;
  return linear_ticks(low, high, 6);  // a short range: evenly spaced values read better
}

std::string draw_chart(const Chart& chart) {
  const bool legend = chart.series.size() > 1;
  Axis x{.log = chart.log_x, .from = kLeft, .to = kWidth - (legend ? kLegendWidth : kNoLegend), .ticks = {}};
  Axis y{.log = chart.log_y, .from = kHeight - kBottom, .to = kTop, .ticks = {}};
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& p : series.points) {
      if (!drawable(chart, p)) continue;
      x_low = std::min(x_low, p.x), x_high = std::max(x_high, p.x);
      y_low = std::min(y_low, p.y), y_high = std::max(y_high, p.y);
    }
  }
  const bool empty = !(x_high >= x_low);
  fit(x, empty ? 1 : x_low, empty ? 10 : x_high, chart.x_from_zero);
  fit(y, empty ? 1 : y_low, chart.y_max > 0 ? chart.y_max : empty ? 10 : y_high, true);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + coordinate(kWidth) + " " +
                    coordinate(kHeight) + "\" width=\"" + coordinate(kWidth) + "\" height=\"" + coordinate(kHeight) +
                    "\" font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  out += text(kLeft, 26, "start", 17, "#111111", chart.title, " font-weight=\"600\"");
  out += text(kLeft, 46, "start", 12, "#666666", chart.subtitle);
  out += axes(chart, x, y);
  if (empty) out += text((x.from + x.to) / 2, (y.from + y.to) / 2, "middle", 14, "#666666", "no data");
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string colour = kColours[i % std::size(kColours)];
    out += curve(chart, chart.series[i], colour, x, y);
    if (!legend) continue;
    const double row = kTop + 10 + 20 * static_cast<double>(i);
    out += line(x.to + 14, row, x.to + 36, row, colour, 3);
    out += text(x.to + 42, row + 4, "start", 12, "#222222", chart.series[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace barg::bench
