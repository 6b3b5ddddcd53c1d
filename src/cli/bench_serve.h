// The flags of `barg bench serve` as the options of a run, and what other benchmarks of servers read the same way.
// Pure but for first_model().
#pragma once

#include "barg/result.h"
#include "bench/serve_options.h"
#include "cli/bench_flags.h"
#include "cli/command.h"

namespace barg::cli {

/// kInvalidValue with one sentence that names the flag. The model stays empty when no --model is given.
Result<bench::ServeOptions> serve_bench_options(const Invocation& invocation);

/// --url and --api-key.
void read_bench_target(BenchFlags& flags, bench::ServeOptions& out);
/// The first model the server lists. Asks it.
Result<std::string> first_model(const bench::ServeTarget& target);

}  // namespace barg::cli
