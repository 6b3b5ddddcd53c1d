#include "bench/serve_bench.h"

#include <sys/resource.h>

#include <algorithm>

#include "bench/serve_energy.h"

namespace barg::bench {
namespace {

// Room between the conversations of two runs, so that no prompt is sent twice.
constexpr std::uint64_t kRunStride = 1ULL << 32;
constexpr std::uint64_t kWarmup = 1ULL << 31;

// One descriptor a connection: as many as the system lets this process have.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Requests like those of the run, but with prompts of their own. Files have no prompts to spare: they get
// synthetic ones.
Result<RunSamples> warm_up(const ServeOptions& options, const ServeAddress& address, const ServeLoad& load,
                           std::uint64_t first, const ServeHooks& hooks) {
  ServeWorkload synthetic = options.workload;
  synthetic.trace_file.clear();
  synthetic.prompts_file.clear();
  const Result<std::unique_ptr<Workload>> workload = make_workload(synthetic);
  if (!workload) return std::unexpected(workload.error());
  const int at_once = load.kind == ServeLoad::Kind::kClosed ? load.concurrency : options.warmup;
  const ServeLoad warm{.concurrency = std::clamp(at_once, 1, std::max(1, options.warmup)),
                       .requests = options.warmup,
                       .duration_s = {}};
  return run_load(options, address, warm, **workload, first, hooks);
}

}  // namespace

bool ServeBenchResult::all_answered() const {
  return std::all_of(reports.begin(), reports.end(), [](const RunReport& r) { return r.all_answered(); });
}

Result<ServeBenchResult> run_serve_bench(const ServeOptions& options, const ServeBenchHooks& hooks) {
  raise_descriptor_limit();
  const Result<std::unique_ptr<Workload>> workload = make_workload(options.workload);
  if (!workload) return std::unexpected(workload.error());
  const Result<ServeAddress> address = find_server(options.target);
  if (!address) return std::unexpected(address.error());
  EnergyMeter meter;
  ServeBenchResult result;
  for (std::size_t i = 0; i < options.loads.size(); ++i) {
    const ServeLoad& load = options.loads[i];
    const std::string name = describe(load, options.workload);
    const std::uint64_t first = (*workload)->size() ? 0 : i * kRunStride;
    if (options.warmup > 0) {
      if (hooks.begin) hooks.begin(name, true);
      const Result<RunSamples> warm = warm_up(options, *address, load, i * kRunStride + kWarmup, hooks.loop);
      if (!warm) return std::unexpected(warm.error());
      if (warm->interrupted && !warm->server_gone) break;
    }
    if (hooks.begin) hooks.begin(name, false);
    meter.start();
    Result<RunSamples> samples = run_load(options, *address, load, **workload, first, hooks.loop);
    EnergyReading energy = meter.stop();
    if (!samples) return std::unexpected(samples.error());
    if (!address->local) energy = {.joules = {}, .source = "the server is on another machine"};
    result.reports.push_back(summarise(options, load, *samples, energy));
    result.samples.push_back(std::move(*samples));
    if (hooks.end) hooks.end(result.reports.back());
    if (result.samples.back().interrupted) break;
  }
  return result;
}

}  // namespace barg::bench
