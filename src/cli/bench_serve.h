// The flags of `barg bench serve` as the options of a run. Pure; no server is asked.
#pragma once

#include "barg/result.h"
#include "bench/serve_options.h"
#include "cli/command.h"

namespace barg::cli {

/// kInvalidValue with one sentence that names the flag. The model stays empty when no --model is given.
Result<bench::ServeOptions> serve_bench_options(const Invocation& invocation);

}  // namespace barg::cli
