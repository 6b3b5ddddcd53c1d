// The whole of `barg bench serve` behind its flags: each load with its warm-up, and what came of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "barg/result.h"
#include "bench/serve_loop.h"
#include "bench/serve_report.h"

namespace barg::bench {

struct ServeBenchResult {
  std::vector<RunReport> reports;  ///< one a load that was begun
  std::vector<RunSamples> samples;
  /// Every request of every run was answered, and every run ended by itself.
  bool all_answered() const;
};

struct ServeBenchHooks {
  ServeHooks loop;
  std::function<void(const std::string& name, bool warmup)> begin;  ///< a run or its warm-up starts
  std::function<void(const RunReport&)> end;
};

/// Runs options.loads one after another on the caller's thread. kUnavailable when nobody answers at the start;
/// errors of files; what happens to requests is in the reports.
Result<ServeBenchResult> run_serve_bench(const ServeOptions& options, const ServeBenchHooks& hooks);

}  // namespace barg::bench
