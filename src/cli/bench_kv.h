// The flags of `barg bench kv` as the options of one of its three modes. Pure; nothing is opened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "barg/result.h"
#include "bench/kv_policy.h"
#include "bench/serve_options.h"
#include "cli/command.h"

namespace barg::cli {

struct KvBenchOptions {
  enum class Mode : std::uint8_t { kPolicy, kServer, kEngine };
  Mode mode = Mode::kPolicy;
  bench::KvPolicyOptions policy;
  std::vector<std::int64_t> sweep;  ///< kPolicy: capacities in blocks
  std::size_t requests = SIZE_MAX;  ///< kPolicy: of the trace
  bench::ServeOptions serve;        ///< the others; one load. In kServer the model's name may be empty
};

/// kInvalidValue with one sentence that names the flag.
Result<KvBenchOptions> kv_bench_options(const Invocation& invocation);

}  // namespace barg::cli
