// `barg bench kv`: what the KV tiers make of a trace: in the policies alone, on a running server, or in an
// engine of this process. The work is in src/bench; here are the flags, the progress line and the files.
#include "cli/bench_kv.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ostream>

#include "bench/kv_policy_bench.h"
#include "bench/kv_replay_output.h"
#include "bench/serve_output.h"
#include "cli/bench_serve.h"
#include "cli/bench_terminal.h"
#include "cli/bundle.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "cli/http_client.h"
#include "cli/signals.h"
#include "server/metrics_text.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"--trace", "FILE",
     "JSONL in the Mooncake format {timestamp (ms), input_length, output_length, hash_ids}; equal "
     "ids are equal blocks of 512 tokens."},
    {"--policy", "",
     "Only the policies, without a model: hit rates, re-reads and writes of each tier, in a second."},
    {"--url", "URL", "A running server: http://HOST:PORT, with or without /v1. --model is then a name."},
    {"--requests", "N", "The first N of the trace. [all]"},
    {"--device-blocks", "N", "--policy: blocks (of 512 tokens) in the device's pool. [1760]"},
    {"--dram-blocks", "N", "--policy: blocks in DRAM. [0: no such tier]"},
    {"--disk-blocks", "N", "--policy: blocks on disk. [0]"},
    {"--remote-blocks", "N", "--policy: blocks in the remote pool. [0]"},
    {"--eviction", "NAME", "--policy: s3fifo or lru, of the device's pool. [s3fifo]"},
    {"--write", "NAME",
     "--policy: back (as the server: to disk and remote what was read or came back), all (DRAM "
     "evicts everything to disk), through, second-use. [back]"},
    {"--sweep", "N,...",
     "--policy: the hit rate at each of these capacities, beside LRU, S3-FIFO and the optimum."},
    {"--scale-lengths", "X", "Multiplies all lengths of the trace: 1/16 or 0.0625. [1]"},
    {"--speed", "X", "2 replays the trace twice as fast. [1]"},
    {"--concurrency", "C",
     "So many requests in flight, as fast as they are answered, instead of the trace's times."},
    {"--duration", "TIME", "No request starts later than this; those in flight are waited for."},
    {"--vocab", "N", "Token ids of prompts are drawn below N. [8192]"},
    {"--seed", "N", "Which ids stand for a block. The same seed sends the same prompts. [1]"},
    {"--api-key", "KEY", "Sent as a bearer token."},
    {"--timeout", "TIME", "A request without a byte for this long has failed. [600s]"},
    {"--json", "FILE", "Write the report as JSON (docs/bench.md)."},
    {"--csv", "FILE", "Write one row a request (not with --policy)."},
    {"--svg", "DIR", "Draw plots into this folder."},
};

using Files = std::vector<std::pair<std::string, std::string>>;

void add_plots(const Invocation& invocation, Files plots, Files& files) {
  for (auto& [name, svg] : plots) files.emplace_back(invocation.get("--svg") + "/" + name, std::move(svg));
}

/// A pool must hold the longest request and the token behind it.
std::string too_small(const KvBenchOptions& options, const bench::KvTrace& trace) {
  const auto least = static_cast<std::int64_t>(trace.longest) + 1;
  const auto sentence = [&](const char* flag) {
    return std::string(flag) + ": the longest request has " + std::to_string(trace.longest) +
           " blocks; give at least " + std::to_string(least) + ".";
  };
  if (options.policy.blocks[0] < least) return sentence("--device-blocks");
  for (const std::int64_t capacity : options.sweep) {
    if (capacity < least) return sentence("--sweep");
  }
  return {};
}

int run_policy(const Invocation& invocation, const KvBenchOptions& options, const std::atomic<bool>& stop) {
  Io& io = invocation.io;
  const std::string path = invocation.get("--trace");
  const Result<std::vector<bench::TraceRow>> rows = bench::read_trace(path);
  if (!rows) return bench_failed(io, rows.error().message, kExitFailure);
  const bench::KvTrace trace = bench::make_kv_trace(*rows, options.requests);
  if (trace.size() == 0)
    return bench_failed(io, path + " has no hash_ids: no block is ever the same.", kExitFailure);
  if (const std::string problem = too_small(options, trace); !problem.empty())
    return bench_failed(io, problem, kExitUsage);
  ProgressLine line(io);
  bench::KvPolicyReport report = bench::run_kv_policy_bench(
      trace, options.policy, options.sweep,
      {.progress =
           [&](double share) {
             line.draw("policy", share, std::to_string(static_cast<int>(share * 100)) + " %");
           },
       .stop = &stop});
  line.clear();
  report.trace = path;
  io.out << bench::kv_policy_table(report) << std::flush;
  Files files;
  if (invocation.has("--json")) files.emplace_back(invocation.get("--json"), bench::kv_policy_json(report));
  if (invocation.has("--svg")) add_plots(invocation, bench::kv_policy_plots(report), files);
  const int written = write_bench_files(io, files);
  return written != kExitOk ? written : report.stopped ? kExitFailure : kExitOk;
}

Result<bench::KvReplay> run_server(KvBenchOptions& options, const bench::ServeHooks& hooks) {
  const bench::ServeTarget target = options.serve.target;
  if (options.serve.body.model.empty()) {
    Result<std::string> model = first_model(target);
    if (!model) return fail(ErrorCode::kUnavailable, model.error().message);
    options.serve.body.model = std::move(*model);
  }
  return bench::replay_on_server(options.serve, hooks, [target]() -> std::optional<std::string> {
    const Result<ClientResponse> answer =
        http_request({.host = target.host, .port = target.port},
                     {.path = target.base_path + "/metrics", .api_key = target.api_key, .body = {}});
    return answer && answer->status == 200 ? std::optional(answer->body) : std::nullopt;
  });
}

Result<bench::KvReplay> run_engine(Io& io, const Settings& settings, KvBenchOptions& options,
                                   const bench::ServeHooks& hooks) {
  LoadWatch watch = quiet_watch(io);
  watch.done = [&io](std::string_view phase, const std::string& detail) {
    if (phase == "note") io.err << "note: " << detail << "\n";
  };
  Result<Bundle> bundle = open_bundle(settings.config, watch, settings.state_directory);
  if (!bundle) return std::unexpected(bundle.error());
  options.serve.body.model = bundle->names.front();
  bench::ServeWorkload& workload = options.serve.workload;
  workload.vocabulary = std::min(workload.vocabulary, bundle->engine->info().vocab_size);
  server::ServerState state;  // what GET /metrics would say
  state.models = {served_model(*bundle)};
  Result<bench::KvReplay> replay =
      bench::replay_on_engine(*bundle->engine, options.serve, hooks,
                              [&]() -> std::optional<std::string> { return metrics_text(state); });
  if (replay) replay->where = settings.config.model.path;
  return replay;
}

int run_replay(const Invocation& invocation, KvBenchOptions& options, const std::atomic<bool>& stop) {
  Io& io = invocation.io;
  ServeProgressLine line(io);
  line.begin("trace");
  const bench::ServeHooks hooks{.progress = [&](const bench::ServeProgress& p) { line.draw(p); },
                                .stop = &stop};
  const bool server = options.mode == KvBenchOptions::Mode::kServer;
  const Result<bench::KvReplay> replay =
      server ? run_server(options, hooks) : run_engine(io, invocation.settings, options, hooks);
  line.clear();
  if (!replay) {
    const bool nobody = server && replay.error().code == ErrorCode::kUnavailable;
    return bench_failed(io, replay.error().message,
                        nobody   ? kExitUnavailable
                        : server ? kExitFailure
                                 : exit_code_of(replay.error()));
  }
  io.out << bench::kv_replay_table(*replay) << std::flush;
  Files files;
  if (invocation.has("--json")) files.emplace_back(invocation.get("--json"), bench::kv_replay_json(*replay));
  if (invocation.has("--csv"))
    files.emplace_back(invocation.get("--csv"), bench::report_csv({replay->samples}));
  if (invocation.has("--svg")) add_plots(invocation, bench::kv_replay_plots(*replay), files);
  const int written = write_bench_files(io, files);
  return written != kExitOk ? written : replay->all_answered() ? kExitOk : kExitFailure;
}

int run_bench_kv(Invocation& invocation) {
  Io& io = invocation.io;
  Result<KvBenchOptions> options = kv_bench_options(invocation);
  if (!options) return bench_failed(io, options.error().message, kExitUsage);
  if (const std::string path = unwritable(invocation); !path.empty())
    return bench_failed(io, "cannot write " + path + ".", kExitCannotCreate);
  std::atomic<bool> stop = false;
  SignalWatch signals;
  signals.arm([&] { stop = true; }, [] { std::_Exit(130); });
  return options->mode == KvBenchOptions::Mode::kPolicy ? run_policy(invocation, *options, stop)
                                                        : run_replay(invocation, *options, stop);
}

}  // namespace

const Command kBenchKvCommand{
    .name = "bench kv",
    .summary = "replay a trace through the KV tiers: their policies, a server, or an engine in this process",
    .sections = "model.path model.numerics model.max_model_len kv scheduler runtime",
    .flags = kFlags,
    .run = run_bench_kv,
    .details =
        "Examples:\n"
        "  barg bench kv --policy --trace mooncake_conversation.jsonl --dram-blocks 16000 --disk-blocks "
        "64000\n"
        "  barg bench kv --policy --trace mooncake_conversation.jsonl --sweep 500,1760,4000,16000 --svg "
        "plots\n"
        "  barg bench kv --url http://127.0.0.1:8000 --trace mooncake_conversation.jsonl --scale-lengths "
        "1/16 \\\n"
        "      --speed 4 --requests 300 --json kv.json\n"
        "  barg bench kv --model model.gguf --trace mooncake_conversation.jsonl --scale-lengths 1/16 "
        "--requests 300 \\\n"
        "      --kv-cache-memory-bytes 160MiB --kv-tier dram:size=1GiB --kv-tier disk:path=kv,size=8GiB\n"
        "\n"
        "A block counts as hit only if all before it in its prompt were. The optimum is what a cache that "
        "knows the\n"
        "future would have; \"useful\" writes were read at least once before they were lost, \"re-read\" "
        "blocks were\n"
        "asked for after they had been evicted. What a server does not tell is \"-\", and null in JSON.\n"
        "Exit code: 0 all was replayed, 1 a request failed, the run was interrupted or a file cannot be "
        "read, 2 a\n"
        "wrong flag, 69 nobody answers at the start, 73 a file cannot be written; of a model as `barg "
        "serve`."};

}  // namespace barg::cli
