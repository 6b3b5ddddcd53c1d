// make_runner: from configuration and open model files to a loaded Runner. Decides recipe, KV dtype, numerics
// id and the root of all KV keys; everything else is in memory_plan.h (sizes) and cpu_runner.h (execution).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "barg/config.h"
#include "barg/result.h"
#include "cuda/gemm_lt.h"
#include "model/model_files.h"
#include "runtime/memory_plan.h"
#include "runtime/open_cuda.h"
#include "runtime/runner.h"

namespace barg::runtime {

/// Loading progress, 0..1; called from the loading thread.
using ProgressFn = std::function<void(double)>;

struct LoadOptions {
  ProgressFn progress;
  /// What will be used, before the weights are read; called from the loading thread.
  std::function<void(const MemoryPlan&)> planned{};
  /// Ids the tokenizer knows; rows of the embedding beyond it are padding and never sampled. 0 = not known:
  /// GGUF files say it, for a Hugging Face directory every row then counts.
  std::int32_t vocab_size = 0;
  /// Ids that end a generation by the tokenizer (Tokenizer::end_ids): beside those of the model's files.
  std::vector<TokenId> end_ids;
  OpenDevice open_device = open_cuda;
  /// Names under which cuBLASLt is looked for (runtime.invariant = false).
  std::vector<std::string> cublaslt = cuda::GemmLt::default_names();
  std::chrono::milliseconds step_limit{60'000};  ///< after which a step of a CUDA device counts as hung
  std::size_t cuda_batch_bytes = std::size_t{4} << 20;  ///< of a step's arrays at first; more when a step needs more
  bool cuda_graphs = true;  ///< decode steps are captured and replayed; the same tokens either way
};

/// A loaded runner with the plan it was built from.
struct LoadedRunner {
  std::unique_ptr<Runner> runner;
  MemoryPlan plan;
  std::string device;  ///< for people: "cpu-avx2" (the table in use), "NVIDIA H200"
  int threads = 0;
};

/// Chooses a device (open_cuda.h), loads weights (packed for it) and allocates the KV pool, on the CPU lazily. With
/// runtime.device "auto" a model that the CUDA device there cannot serve runs on the CPU, and a note of the plan says why.
/// Fails with kUnavailable too where "cuda" was asked for and is not there. Fails with kInvalidValue (param
/// names the config key), kBadFile, kUnsupported, kOutOfMemory. `files` may be let go afterwards.
Result<LoadedRunner> load_runner(const Config& config, std::shared_ptr<const model::ModelFiles> files,
                                 const LoadOptions& options = {});

/// The same without the plan.
Result<std::unique_ptr<Runner>> make_runner(const Config& config,
                                            std::shared_ptr<const model::ModelFiles> files,
                                            const ProgressFn& progress = {});

/// Names the arithmetic (a recipe, or the activations' type), tile and split, kernel epoch, KV dtype and device class:
/// "int8-t32-s256-k1-kvf16-cpu". Equal ids and equal weights mean equal bits. Not in it: ISA, threads, block size.
std::string numerics_id(const std::string& arithmetic, DType kv_dtype, const std::string& device_class);

}  // namespace barg::runtime
