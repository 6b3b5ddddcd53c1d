// An engine on the emulated CUDA device, over a random model in a file.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "cuda/device_emulated.h"
#include "emulated/random_model.h"
#include "engine/engine_impl.h"
#include "model/model_files.h"
#include "runtime/cuda_runner.h"
#include "runtime/factory.h"
#include "runtime/tier_service.h"
#include "store/tier_spec.h"
#include "support/temp_dir.h"

namespace barg::test {

inline const SteadyClock kEmulatedClock;

/// A model of so many tokens of context and pool.
inline Config emulated_config(const std::string& path, std::int64_t tokens, std::int64_t token_bytes) {
  Config c;
  c.model.path = path;
  c.model.max_model_len = 512;
  c.runtime.device = "cuda";
  c.server.queue_timeout_s = 0;  // the emulated device is slow
  c.kv.memory_bytes = static_cast<std::uint64_t>(tokens * token_bytes);
  c.scheduler.max_num_batched_tokens = 128;
  return c;
}

struct EmulatedEngine {
  std::shared_ptr<store::TierStack> tiers;
  std::unique_ptr<Engine> engine;
  runtime::CudaRunner* runner = nullptr;   ///< the engine's
  cuda::EmulatedDevice* device = nullptr;  ///< the runner's
};

/// REQUIRES a model that loads: a failure ends the test with the reason.
inline EmulatedEngine emulated_engine(const Config& config, bool graphs = true, const cuda::EmulatedOptions& options = {},
                                      const std::vector<std::string>& tiers = {}) {
  auto files = model::ModelFiles::open(config.model.path);
  if (!files) {
    ADD_FAILURE() << files.error().message;
    std::abort();
  }
  EmulatedEngine out;
  runtime::LoadOptions how;
  how.cuda_graphs = graphs;
  how.cuda_batch_bytes = 64;  // it grows, from too little for a first step on
  how.open_device = [&](std::unique_ptr<cuda::Device>& to) {
    auto device = cuda::EmulatedDevice::create(options);
    out.device = device.get();
    to = std::move(device);
    return cuda::Status{};
  };
  auto loaded = runtime::load_runner(config, *files, how);
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    std::abort();
  }
  out.runner = static_cast<runtime::CudaRunner*>(loaded->runner.get());
  if (!tiers.empty()) {
    auto opened = store::open_stack(tiers, runtime::domain_of(loaded->runner->info(), "test"), kEmulatedClock);
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      std::abort();
    }
    out.tiers = std::move(opened->stack);
  }
  auto engine = engine::make_engine(config, std::move(loaded->runner), kEmulatedClock, {.tiers = out.tiers});
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    std::abort();
  }
  out.engine = std::move(*engine);
  return out;
}

}  // namespace barg::test
