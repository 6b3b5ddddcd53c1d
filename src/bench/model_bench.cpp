#include "bench/model_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "base/env.h"
#include "bench/model_driver.h"
#include "cpu/cpu.h"
#include "runtime/factory.h"

namespace barg::bench {
namespace {

std::int32_t largest(const std::vector<std::int32_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : (v[half - 1] + v[half]) / 2;
}

double deviation_of(const std::vector<double>& v) {
  if (v.size() < 2) return 0;
  double mean = 0, sum = 0;
  for (const double x : v) mean += x / static_cast<double>(v.size());
  for (const double x : v) sum += (x - mean) * (x - mean);
  return std::sqrt(sum / static_cast<double>(v.size() - 1));
}

ops::Limits measure_limits(const std::string& table, int threads, double seconds) {
  for (const ops::Isa isa : {ops::Isa::kAvx512, ops::Isa::kAvx2, ops::Isa::kScalar}) {
    if (table != std::string("cpu-") + ops::isa_name(isa)) continue;
    ops::CpuDevice device({.threads = threads, .isa = isa});
    return ops::measure_limits(device, seconds);
  }
  return {};
}

/// Takes the better figures of both into `limits`; returns the worst ratio between the two.
double merge_limits(ops::Limits& limits, const ops::Limits& again) {
  double worst = 1;
  for (double ops::Limits::*figure :
       {&ops::Limits::read_gbytes, &ops::Limits::f32_gflops, &ops::Limits::int8_gops, &ops::Limits::int4_gops,
        &ops::Limits::bf16_gflops}) {
    const double most = std::max(limits.*figure, again.*figure);
    if (most > 0) worst = std::min(worst, std::min(limits.*figure, again.*figure) / most);
    limits.*figure = most;
  }
  return worst;
}

std::vector<ModelBenchRow> planned_rows(const ModelBenchOptions& o) {
  std::vector<ModelBenchRow> rows;
  for (const std::int32_t depth : o.depths) {
    const std::string at = depth > 0 ? "@d" + std::to_string(depth) : "";
    for (const std::int32_t p : o.prompts) {
      if (p > 0)
        rows.push_back({.test = "pp" + std::to_string(p) + at, .prefill = true, .tokens = p, .depth = depth});
    }
    for (const std::int32_t n : o.generated) {
      for (const std::int32_t b : o.batches) {
        if (n == 0) continue;
        const std::string name = "tg" + std::to_string(n) + at + (b > 1 ? " x" + std::to_string(b) : "");
        rows.push_back({.test = name, .tokens = n, .batch = b, .depth = depth});
      }
    }
  }
  return rows;
}

/// The configuration with context and pool as large as the rows need.
Result<Config> fitted(const ModelBenchOptions& o, const model::ModelFiles& files,
                      const std::vector<ModelBenchRow>& rows) {
  if (rows.empty())
    return fail(ErrorCode::kInvalidValue, "there is nothing to measure: -p and -n are both 0", "-p");
  const auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  if (!spec->generates()) {
    return fail(ErrorCode::kUnsupported,
                files.path() + " computes embeddings and generates nothing, which is what would be measured");
  }
  const std::int64_t context =
      std::int64_t{largest(o.depths)} + std::max(largest(o.prompts), largest(o.generated)) + 1;
  if (context > spec->max_positions) {
    return fail(ErrorCode::kInvalidValue,
                "depth and tokens need a context of " + std::to_string(context) +
                    " tokens, the model's holds " + std::to_string(spec->max_positions),
                "--depth");
  }
  Config config = o.config;
  config.model.max_model_len = static_cast<std::int32_t>(context);
  config.scheduler.max_num_seqs = std::max(largest(o.batches), 1);
  config.scheduler.max_num_batched_tokens =
      std::max(config.scheduler.max_num_batched_tokens, config.scheduler.max_num_seqs);
  return config;
}

/// One row: a run that does not count, then the repetitions.
Result<void> measure(ModelBenchRow& row, const ModelBenchOptions& o, ModelDriver& driver,
                     const ModelWork& work, const ModelBenchHooks& hooks) {
  const SteadyClock clock;
  for (std::int32_t i = -1; i < o.repetitions; ++i) {
    const double begin = clock.now();
    const auto done =
        row.prefill ? driver.prefill(row.depth, row.tokens)
                    : driver.decode(row.depth, i < 0 ? std::min(row.tokens, 16) : row.tokens, row.batch);
    const double seconds = clock.now() - begin;
    if (!done) return std::unexpected(done.error());
    if (i >= 0) row.tokens_per_second.push_back(static_cast<double>(row.tokens) * row.batch / seconds);
    if (hooks.repeated) hooks.repeated(i + 1, o.repetitions);
  }
  row.median = median_of(row.tokens_per_second);
  row.deviation = deviation_of(row.tokens_per_second);
  for (std::int32_t at = 0; at < row.tokens;) {
    const std::int32_t count = row.prefill ? std::min(driver.max_rows(), row.tokens - at) : 1;
    const std::int32_t logits = row.prefill ? (at + count == row.tokens ? 1 : 0) : row.batch;
    row.work += work.step(row.depth + at, count, row.batch, logits);
    at += count;
  }
  return {};
}

ModelBenchReport head_of(const model::ModelFiles& files, const runtime::LoadedRunner& loaded) {
  const runtime::RunnerInfo& info = loaded.runner->info();
  ModelBenchReport report;
  report.model = files.display_name();
  report.architecture = files.architecture();
  report.stored = files.quantisation_summary();
  report.digest = info.model_digest;
  report.numerics = info.numerics_id;
  report.isa = loaded.device;
  report.recipe = recipe_name(loaded.plan.recipe);
  report.kv_dtype = dtype_name(loaded.plan.kv_dtype);
  report.weight_bytes = loaded.plan.weight_bytes;
  report.threads = loaded.threads;
  return report;
}

}  // namespace

Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& options, const ModelBenchHooks& hooks) {
  auto rows = planned_rows(options);
  const auto files = model::ModelFiles::open(options.config.model.path);
  if (!files) return std::unexpected(files.error());
  const auto config = fitted(options, **files, rows);
  if (!config) return std::unexpected(config.error());
  auto loaded =
      runtime::load_runner(*config, *files, {.progress = hooks.loading, .vocab_size = 0, .end_ids = {}});
  if (!loaded) return std::unexpected(loaded.error());
  ModelBenchReport report = head_of(**files, *loaded);
  const ModelWork work(**files, (*files)->spec().value(), loaded->plan);
  report.parameters = work.parameters();
  ModelDriver driver(*loaded->runner, config->model.max_model_len);
  if (auto ok = driver.check_room(std::max(largest(options.batches), 1)); !ok)
    return std::unexpected(ok.error());

  if (hooks.begin) hooks.begin("limits");
  report.limits = measure_limits(loaded->device, loaded->threads, options.limits_seconds);
  for (ModelBenchRow& row : rows) {
    if (hooks.begin) hooks.begin(row.test);
    if (auto ok = driver.fill(row.depth, row.batch); !ok) return std::unexpected(ok.error());
    if (auto ok = measure(row, options, driver, work, hooks); !ok) return std::unexpected(ok.error());
    report.rows.push_back(std::move(row));
  }
  if (hooks.begin) hooks.begin("limits");
  report.limits_agreement =
      merge_limits(report.limits, measure_limits(loaded->device, loaded->threads, options.limits_seconds));
  for (ModelBenchRow& row : report.rows) {
    const double seconds = static_cast<double>(row.tokens) * row.batch / row.median;
    row.bandwidth = bandwidth_share(row.work, report.limits, seconds);
    row.arithmetic = arithmetic_share(row.work, report.limits, seconds);
  }
  return report;
}

}  // namespace barg::bench
