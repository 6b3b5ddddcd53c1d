// Reads the flags of `barg bench kv`.
#include <algorithm>

#include "cli/bench_flags.h"
#include "cli/bench_kv.h"
#include "cli/bench_serve.h"

namespace barg::cli {
namespace {

using bench::ServeLoad;
using Mode = KvBenchOptions::Mode;

constexpr const char* kPolicyFlags[] = {"--device-blocks", "--dram-blocks", "--disk-blocks",
                                        "--remote-blocks", "--eviction",    "--write",
                                        "--sweep"};
constexpr const char* kReplayFlags[] = {"--scale-lengths", "--speed", "--concurrency", "--duration",
                                        "--vocab",         "--seed",  "--csv"};
constexpr const char* kServerFlags[] = {"--api-key", "--timeout"};

constexpr double kMostDeviceBlocks = 4e6;  // each takes memory
constexpr double kMostBlocks = 1e8;

template <std::size_t N>
void refuse_all(BenchFlags& flags, const char* const (&list)[N], const char* why) {
  for (const char* flag : list) {
    if (flags.has(flag)) flags.refuse(std::string(flag) + " " + why);
  }
}

/// Options of an engine that were typed, without the model's.
std::string engine_option(const Settings& settings) {
  for (const std::string& origin : settings.origins) {
    if (origin.starts_with("--") && origin != "--model") return origin;
  }
  return {};
}

void read_mode(BenchFlags& flags, const Invocation& invocation, KvBenchOptions& out) {
  const Settings& settings = invocation.settings;
  const bool policy = flags.has("--policy"), url = flags.has("--url");
  if (policy && url) return flags.refuse("--policy and --url exclude each other.");
  if (!policy && !url && settings.config.model.path.empty())
    return flags.refuse("what should be measured? Give --policy, --url URL of a server or --model FILE.");
  out.mode = policy ? Mode::kPolicy : url ? Mode::kServer : Mode::kEngine;
  if (!flags.has("--trace")) flags.refuse("--trace FILE is missing: what should be replayed?");
  if (policy) {
    refuse_all(flags, kReplayFlags, "is for a replay with a model, not for --policy.");
    refuse_all(flags, kServerFlags, "is for a server, not for --policy.");
  } else {
    refuse_all(flags, kPolicyFlags, "goes with --policy only.");
  }
  if (out.mode == Mode::kEngine) refuse_all(flags, kServerFlags, "goes with --url only.");
  if (const std::string option = engine_option(settings); !option.empty() && out.mode != Mode::kEngine)
    flags.refuse(option + " is for an engine in this process (--model), not for " +
                 (policy ? "--policy." : "--url."));
}

void read_policy(BenchFlags& flags, KvBenchOptions& out) {
  auto& blocks = out.policy.blocks;
  flags.number("--device-blocks", blocks[0], 2, kMostDeviceBlocks);
  flags.number("--dram-blocks", blocks[1], 0, kMostBlocks);
  flags.number("--disk-blocks", blocks[2], 0, kMostBlocks);
  flags.number("--remote-blocks", blocks[3], 0, kMostBlocks);
  out.sweep = flags.numbers<std::int64_t>("--sweep", 2, kMostDeviceBlocks);
  flags.number("--requests", out.requests, 1, 1e9);
  if (flags.has("--eviction")) {
    const std::string name = flags.text("--eviction");
    out.policy.lru = name == "lru";
    if (name != "lru" && name != "s3fifo")
      flags.refuse("--eviction must be s3fifo or lru, got '" + name + "'.");
  }
  if (!flags.has("--write")) return;
  const std::string name = flags.text("--write");
  const auto* const at = std::find(std::begin(bench::kKvWriteNames), std::end(bench::kKvWriteNames), name);
  if (at == std::end(bench::kKvWriteNames))
    return flags.refuse("--write must be back, all, through or second-use, got '" + name + "'.");
  out.policy.write = static_cast<bench::KvWrite>(at - std::begin(bench::kKvWriteNames));
}

/// "0.0625" or "1/16".
void read_scale(BenchFlags& flags, double& out) {
  if (!flags.has("--scale-lengths")) return;
  const std::string text = flags.text("--scale-lengths");
  const std::size_t slash = text.find('/');
  const auto part = [](const std::string& s) {
    double value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    return error == std::errc{} && end == s.data() + s.size() && value > 0 ? value : -1;
  };
  const double above = part(text.substr(0, slash));
  const double below = slash == std::string::npos ? 1 : part(text.substr(slash + 1));
  const double scale = above / below;
  if (above > 0 && below > 0 && scale >= 1e-6 && scale <= 1e3) {
    out = scale;
  } else {
    flags.refuse("--scale-lengths: expected a number as 0.0625 or 1/16, got '" + text.substr(0, 64) + "'.");
  }
}

void read_replay(BenchFlags& flags, const Invocation& invocation, KvBenchOptions& out) {
  bench::ServeOptions& serve = out.serve;
  if (out.mode == Mode::kServer) {
    read_bench_target(flags, serve);
    serve.body.model = invocation.settings.config.model.path;
    if (flags.has("--timeout"))
      serve.timeout_s = flags.seconds("--timeout", flags.text("--timeout")).value_or(600);
  }
  bench::ServeWorkload& w = serve.workload;
  w.token_ids = true;
  w.trace_file = flags.text("--trace");
  read_scale(flags, w.trace_scale);
  flags.number("--speed", w.trace_speed, 1e-6, 1e9);
  flags.number("--vocab", w.vocabulary, 2, 1e9);
  flags.number("--seed", w.seed, 0, 1.8e19);
  ServeLoad load{.kind = ServeLoad::Kind::kTrace, .requests = {}, .duration_s = {}};
  if (flags.has("--concurrency")) {
    load.kind = ServeLoad::Kind::kClosed;
    flags.number("--concurrency", load.concurrency, 1, 65'536);
    if (flags.has("--speed")) flags.refuse("--concurrency is a closed loop: it has no --speed.");
  }
  if (flags.has("--requests")) flags.number("--requests", load.requests.emplace(), 1, 1e9);
  if (flags.has("--duration")) load.duration_s = flags.seconds("--duration", flags.text("--duration"));
  serve.loads = {load};
}

}  // namespace

Result<KvBenchOptions> kv_bench_options(const Invocation& invocation) {
  BenchFlags flags(invocation);
  KvBenchOptions out;
  read_mode(flags, invocation, out);
  if (out.mode == Mode::kPolicy) {
    read_policy(flags, out);
  } else {
    read_replay(flags, invocation, out);
  }
  if (flags.failed()) return fail(ErrorCode::kInvalidValue, flags.problem());
  return out;
}

}  // namespace barg::cli
