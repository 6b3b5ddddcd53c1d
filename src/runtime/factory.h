// make_runner: from configuration and open model files to a loaded Runner. Decides recipe, KV dtype, numerics id
// and the root of all KV keys; everything else is in memory_plan.h (sizes) and cpu_runner.h (execution).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "barg/config.h"
#include "barg/result.h"
#include "model/model_files.h"
#include "runtime/memory_plan.h"
#include "runtime/runner.h"

namespace barg::runtime {

/// Loading progress, 0..1; called from the loading thread.
using ProgressFn = std::function<void(double)>;

/// A loaded runner with the plan it was built from.
struct LoadedRunner {
  std::unique_ptr<Runner> runner;
  MemoryPlan plan;
  std::string isa;  ///< name of the op table in use, e.g. "cpu-avx2"
};

/// Loads weights (packed for the machine) and allocates the KV pool lazily. Fails with kInvalidValue (param names
/// the config key), kBadFile, kUnsupported, kOutOfMemory.
Result<LoadedRunner> load_runner(const Config& config, std::shared_ptr<const model::ModelFiles> files,
                                 const ProgressFn& progress = {});

/// The same without the plan.
Result<std::unique_ptr<Runner>> make_runner(const Config& config, std::shared_ptr<const model::ModelFiles> files,
                                            const ProgressFn& progress = {});

}  // namespace barg::runtime
