// A report as text: the table a person reads, the JSON and CSV a program reads. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/serve_report.h"

namespace barg::bench {

/// The table of one run.
std::string report_table(const ServeOptions& options, const RunReport& report);
/// One line a run, for a sweep.
std::string sweep_table(const std::vector<RunReport>& reports);
/// One run as in the document of docs/bench.md.
Json run_json(const ServeOptions& options, const RunReport& report);
/// The whole document, with a final newline.
std::string report_json(const ServeOptions& options, const std::vector<RunReport>& reports);
/// Header and one row a request: of all runs.
std::string report_csv(const std::vector<RunSamples>& runs);

}  // namespace barg::bench
