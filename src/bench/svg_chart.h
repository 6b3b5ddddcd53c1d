// A line chart as an SVG document: axes with units, grid, legend, light background. Enough for the plots of
// `barg bench`; no fonts or scripts are needed to show it. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace barg::bench {

struct ChartPoint {
  double x = 0;
  double y = 0;
  std::string label = {};  ///< written beside the point
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points = {};  ///< joined in this order; values that are not finite are left out
  bool markers = false;
};

struct Chart {
  std::string title = {};
  std::string subtitle = {};
  std::string x_label = {};  ///< with its unit: "time (s)"
  std::string y_label = {};
  bool log_x = false;   ///< needs positive x
  bool log_y = false;
  bool x_from_zero = true;   ///< of a linear axis
  double y_max = 0;          ///< 0 = from the data
  std::vector<ChartSeries> series = {};
};

std::string draw_chart(const Chart& chart);

/// Where a linear axis over [low, high] puts its marks: multiples of 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(double low, double high, int about);
/// The same on a logarithmic axis, low > 0.
std::vector<double> log_ticks(double low, double high);

}  // namespace barg::bench
