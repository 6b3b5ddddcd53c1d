// The load of serve_loop.h offered to an engine in this process instead of a server: the same samples come
// out, so the same report is made of them. Prompts must be token ids.
//
// Blocks the caller; the engine's thread only stamps. A closed loop keeps N requests going; a trace starts
// its requests at their times whether or not the engine keeps up, and latency counts from the planned time.
#pragma once

#include "barg/engine.h"
#include "bench/serve_loop.h"

namespace barg::bench {

/// Kinds kClosed and kTrace of `load`. What the engine refuses or fails is in the samples.
RunSamples run_engine_load(Engine& engine, const ServeOptions& options, const ServeLoad& load,
                           const Workload& workload, const ServeHooks& hooks);

/// "1,2,3" as ids; what is no number ends it.
std::vector<TokenId> parse_ids(std::string_view text);

}  // namespace barg::bench
