// The plots of a report: distribution of TTFT and of gaps, tokens over time, and for a sweep latency over
// throughput. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/serve_report.h"

namespace barg::bench {

/// File name and SVG document of each plot. `samples` belong to `reports`, one each.
std::vector<std::pair<std::string, std::string>> report_plots(const std::vector<RunReport>& reports,
                                                              const std::vector<RunSamples>& samples);

}  // namespace barg::bench
