// `barg bench model` behind its flags: loads a model, measures the machine's ceilings, then prefill and
// greedy decode at batch sizes and depths, straight on the runner: no scheduler, no HTTP. Then the ceilings
// again: the better of the two count, and how far they are apart tells whether the machine was quiet.
//
// A row is measured `repetitions` times after one run that does not count. Prompts are random ids of a fixed
// seed: speed does not depend on them. A depth is filled once; sequences of a batch get copies of its blocks,
// so each reads its own memory. Steps are launched one ahead, as the engine may.
//
// Blocks the caller's thread; the runner's threads are its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "barg/config.h"
#include "barg/result.h"
#include "bench/model_work.h"

namespace barg::bench {

struct ModelBenchOptions {
  Config
      config;  ///< model, numerics, KV dtype, threads, isa, tokens of a step; context and pool are set here
  std::vector<std::int32_t> prompts{512};    ///< tokens of prefill rows; 0 in it means none
  std::vector<std::int32_t> generated{128};  ///< tokens of decode rows, likewise
  std::vector<std::int32_t> batches{1};      ///< sequences of decode rows
  std::vector<std::int32_t> depths{0};       ///< tokens before those that are measured
  std::int32_t repetitions = 5;
  double limits_seconds = 1.0;  ///< each time
};

struct ModelBenchRow {
  std::string test;  ///< "pp512", "tg128", "tg128@d4096", "tg128 x8"
  bool prefill = false;
  std::int32_t tokens = 0;  ///< of one sequence
  std::int32_t batch = 1;
  std::int32_t depth = 0;
  std::vector<double> tokens_per_second{};  ///< of all sequences together, one a repetition
  double median = 0, deviation = 0;         ///< deviation: of the sample
  Work work{};                              ///< of one repetition
  double bandwidth = 0, arithmetic = 0;     ///< shares of the ceilings at the median
};

struct ModelBenchReport {
  std::string model, architecture, stored;  ///< stored: "Q4_1 (96.0%), ..."
  std::string digest, numerics, isa;
  std::string recipe, kv_dtype;
  std::uint64_t weight_bytes = 0, parameters = 0;
  int threads = 0;
  ops::Limits limits;
  double limits_agreement = 1;  ///< the worst ratio of a ceiling before the rows and after, below 1
  std::vector<ModelBenchRow> rows;
};

/// Below this the shares of a report mean little, and the tables say so.
inline constexpr double kQuietAgreement = 0.85;

struct ModelBenchHooks {
  std::function<void(double)> loading;                                ///< share of the weights
  std::function<void(const std::string& what)> begin;                 ///< "limits", each row's name, "limits"
  std::function<void(std::int32_t done, std::int32_t all)> repeated;  ///< of the present row
};

/// kInvalidValue with the flag's name as `param` when the values do not fit the model; the errors of loading;
/// kOutOfMemory when the sequences do not fit.
Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& options, const ModelBenchHooks& hooks = {});

}  // namespace barg::bench
