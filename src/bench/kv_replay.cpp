#include "bench/kv_replay.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>

#include "bench/kv_engine_loop.h"
#include "bench/serve_energy.h"

namespace barg::bench {
namespace {

constexpr auto kEvery = std::chrono::seconds(1);
constexpr std::size_t kMostPoints = 20'000;  // five hours; then no more

// Reads the metrics from its construction until end().
class Watch {
 public:
  explicit Watch(const KvMetricsFn& metrics) : metrics_(metrics), begun_(std::chrono::steady_clock::now()) {
    first_ = last_ = read();
    if (first_) thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }

  void end(KvReplay& out) {
    if (!first_) return;
    thread_.request_stop();
    thread_.join();
    note();
    out.figures = kv_figures_between(*first_, *last_);
    for (const auto figure : {&KvFigures::waste_tail, &KvFigures::waste_reserved, &KvFigures::waste_fenced}) {
      (*out.figures).*figure = mean(figure);  // at the end nothing runs any more
    }
    out.over_time = std::move(points_);
  }

 private:
  std::optional<KvFigures> read() const {
    const std::optional<std::string> text = metrics_ ? metrics_() : std::nullopt;
    return text ? std::optional(parse_kv_metrics(*text)) : std::nullopt;
  }

  /// Over the readings during the run: without the last one, unless there is no other.
  KvFigure mean(KvFigure KvFigures::*figure) const {
    const std::size_t most = points_.size() > 1 ? points_.size() - 1 : points_.size();
    double sum = 0, count = 0;
    for (const KvReplay::Point& p : std::span(points_).first(most)) {
      sum += (p.figures.*figure).value_or(0);
      count += p.figures.*figure ? 1 : 0;
    }
    return count == 0 ? KvFigure() : sum / count;
  }

  void watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, kEvery, [&] { return stop.stop_requested(); })) note();
  }

  void note() {
    std::optional<KvFigures> now = read();
    if (!now) return;
    const std::chrono::duration<double> at = std::chrono::steady_clock::now() - begun_;
    if (points_.size() < kMostPoints) points_.push_back({at.count(), kv_figures_between(*last_, *now)});
    last_ = std::move(now);
  }

  const KvMetricsFn& metrics_;
  const std::chrono::steady_clock::time_point begun_;
  std::optional<KvFigures> first_, last_;
  std::vector<KvReplay::Point> points_;  // the thread's, until it is joined
  std::jthread thread_;
};

}  // namespace

Result<KvReplay> replay_on_server(const ServeOptions& options, const ServeHooks& hooks,
                                  const KvMetricsFn& metrics) {
  KvReplay out{.mode = "server",
               .where = options.url,
               .options = options,
               .report = {},
               .samples = {},
               .figures = {},
               .over_time = {}};
  Watch watch(metrics);
  Result<ServeBenchResult> result = run_serve_bench(options, {.loop = hooks, .begin = {}, .end = {}});
  if (!result) return std::unexpected(result.error());
  watch.end(out);
  if (result->reports.empty()) return out;  // interrupted before the run began
  out.report = std::move(result->reports.front());
  out.samples = std::move(result->samples.front());
  return out;
}

Result<KvReplay> replay_on_engine(Engine& engine, const ServeOptions& options, const ServeHooks& hooks,
                                  const KvMetricsFn& metrics) {
  KvReplay out{.mode = "engine",
               .where = {},
               .options = options,
               .report = {},
               .samples = {},
               .figures = {},
               .over_time = {}};
  const Result<std::unique_ptr<Workload>> workload = make_workload(options.workload);
  if (!workload) return std::unexpected(workload.error());
  EnergyMeter meter;
  Watch watch(metrics);
  meter.start();
  out.samples = run_engine_load(engine, options, options.loads.front(), **workload, hooks);
  const EnergyReading energy = meter.stop();
  watch.end(out);
  out.report = summarise(options, options.loads.front(), out.samples, energy);
  return out;
}

}  // namespace barg::bench
