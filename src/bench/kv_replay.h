// `barg bench kv` with a model: a trace replayed against a running server or against an engine in this
// process, and what the tiers did meanwhile, from the metrics before, during and after.
//
// The metrics come as text from a function of the caller's, so that both ways are read alike; it is called on
// a thread of its own about once a second, and may fail. Everything else runs on the caller's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "barg/engine.h"
#include "bench/kv_metrics.h"
#include "bench/serve_bench.h"

namespace barg::bench {

struct KvReplay {
  std::string mode;   ///< "server" or "engine"
  std::string where;  ///< URL or model file
  ServeOptions options;
  RunReport report;
  RunSamples samples;
  std::optional<KvFigures> figures;  ///< of the run; nothing: there are no metrics
  /// Between two readings of the metrics.
  struct Point {
    double at_s = 0;  ///< end, from the start of the run
    KvFigures figures;
  };
  std::vector<Point> over_time;

  bool all_answered() const { return report.all_answered(); }
};

/// GET /metrics or its like; nothing if there is no answer.
using KvMetricsFn = std::function<std::optional<std::string>()>;

/// REQUIRES one load. Errors as run_serve_bench().
Result<KvReplay> replay_on_server(const ServeOptions& options, const ServeHooks& hooks,
                                  const KvMetricsFn& metrics);
/// Kinds kClosed and kTrace, prompts as token ids. Errors of the trace.
Result<KvReplay> replay_on_engine(Engine& engine, const ServeOptions& options, const ServeHooks& hooks,
                                  const KvMetricsFn& metrics);

}  // namespace barg::bench
