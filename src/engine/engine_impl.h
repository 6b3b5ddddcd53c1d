// make_engine: the public Engine over inbox, step loop and runner. The class itself is hidden in the .cpp.
//
// Threads: one engine thread owns scheduler and KV bookkeeping without locks; callers reach it through the
// inbox (one mutex, held for a push). The runner's device thread computes. admissible() and active() read
// atomics only. Destruction cancels what still runs (every choice gets its final event), joins, and waits until the
// tiers have written what they accepted, at most shutdown_timeout after drain().
#pragma once

#include <functional>
#include <memory>

#include "barg/config.h"
#include "barg/engine.h"
#include "base/env.h"
#include "engine/journal.h"
#include "engine/metrics.h"
#include "runtime/runner.h"
#include "store/stack.h"

namespace barg::engine {

/// What make_engine needs beside Config; tests set it, production takes the defaults.
struct EngineExtras {
  Journal* journal = nullptr;  ///< borrowed, outlives the engine; nullptr = keep none
  /// Where blocks go that leave the device's pool; its domain is the runner's. nullptr = nowhere.
  std::shared_ptr<store::TierStack> tiers = nullptr;
  /// Called once on the engine's thread, with what happened, when the device is lost and every request has had its last
  /// event; returns at once.
  std::function<void(const Error&)> lost{};
};

/// Takes the runner; reads config.scheduler, config.kv.enable_prefix_caching, config.kv.restore,
/// config.server.queue_timeout_s and config.server.shutdown_timeout_s. `clock` outlives the engine and may be called
/// from any thread. Fails with kInvalidValue (param names the key) if a value is out of range, kUnsupported if the
/// runner gives no access to its blocks and there are tiers.
Result<std::unique_ptr<Engine>> make_engine(const Config& config, std::unique_ptr<runtime::Runner> runner,
                                            const Clock& clock, const EngineExtras& extras = {});

}  // namespace barg::engine
