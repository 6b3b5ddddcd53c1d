// `barg bench serve`: loads any OpenAI-compatible server and reports latency and throughput. The work is in
// src/bench; here are the flags, the progress line and the files.
#include "cli/bench_serve.h"

#include <atomic>
#include <cstdlib>
#include <ostream>

#include "base/json.h"
#include "bench/serve_bench.h"
#include "bench/serve_output.h"
#include "bench/serve_plots.h"
#include "cli/bench_terminal.h"
#include "cli/exit_codes.h"
#include "cli/http_client.h"
#include "cli/signals.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"--url", "URL", "The server: http://HOST:PORT, with or without /v1. [http://127.0.0.1:8000]"},
    {"--model", "NAME", "The model to ask for. Without it: the first one of GET /v1/models."},
    {"--api-key", "KEY", "Sent as a bearer token."},
    {"--endpoint", "NAME", "completions (/v1/completions) or chat (/v1/chat/completions). [completions]"},
    {"--concurrency", "C,...", "Closed loop: so many requests in flight, a new one when one ends. Several values "
                               "are several runs (a sweep). [1]"},
    {"--rate", "R,...", "Open loop: requests a second, Poisson arrivals, sent whether or not the server keeps up; "
                        "latencies count from the planned time. Several values are several runs."},
    {"--burstiness", "K", "Open loop: gaps from a gamma distribution of shape K; 1 is Poisson, less is burstier. [1]"},
    {"--requests", "N", "Requests of a run. Without it and --duration: 4 times C, at least 16; 60 s of an open loop; "
                        "all of a file."},
    {"--duration", "TIME", "No request starts later than this; those in flight are waited for."},
    {"--warmup", "N", "Requests before each run that are not counted. [0]"},
    {"--input-len", "N", "Tokens of a prompt, as common words of about one token. The server's own count is "
                         "reported beside it. [256]"},
    {"--output-len", "N", "Tokens to generate. [128]"},
    {"--len-spread", "X", "Lengths are uniform within plus or minus this share: 0.2 is 20 %. [0]"},
    {"--shared-prefix-len", "L", "Tokens in front of each prompt that it shares with others. [0]"},
    {"--prefixes", "P", "How many different shared prefixes there are. [1]"},
    {"--turns", "T", "Conversations of T requests, each with all that was said before. --concurrency and --rate "
                     "then count conversations, --requests still requests. [1]"},
    {"--prompt-ids", "", "Prompts as token ids instead of text (completions only)."},
    {"--vocab", "N", "Ids are drawn below N. [8192]"},
    {"--prompts", "FILE", "JSONL with {\"prompt\": text, \"max_tokens\": N}; max_tokens may be absent."},
    {"--trace", "FILE", "JSONL in the Mooncake format {timestamp (ms), input_length, output_length, hash_ids}; equal "
                        "ids are equal blocks of 512 tokens. Sent at its own times unless --concurrency or --rate is "
                        "given."},
    {"--trace-speed", "X", "2 replays a trace twice as fast. [1]"},
    {"--trace-scale", "X", "Multiplies all lengths of a trace, for servers with less context. [1]"},
    {"--seed", "N", "Of prompts, lengths and arrivals. The same seed sends the same prompts: use another one for a "
                    "second run at a server with a prefix cache. [1]"},
    {"--temperature", "T", "0 is greedy. [0]"},
    {"--sampling-seed", "N", "The request's \"seed\"."},
    {"--no-ignore-eos", "", "Do not send \"ignore_eos\": true; answers may then end early."},
    {"--extra-json", "JSON", "More members of the request body: '{\"cache_prompt\": false}'."},
    {"--retry", "N", "Repeat a request after 429 or 503 up to N times, each after the Retry-After. [0]"},
    {"--timeout", "TIME", "A request without a byte for this long has failed. [600s]"},
    {"--slo", "LIST", "ttft=500ms,itl=50ms,tpot=40ms,e2e=10s: goodput counts the requests that meet all given (itl: "
                      "the 95th percentile of a request's own gaps)."},
    {"--price-per-hour", "X", "What the machine costs in dollars: tokens per dollar are reported."},
    {"--json", "FILE", "Write the report as JSON (docs/bench.md)."},
    {"--csv", "FILE", "Write one row a request."},
    {"--svg", "DIR", "Draw plots into this folder."},
};

int write_files(const Invocation& invocation, const bench::ServeOptions& options,
                const bench::ServeBenchResult& result) {
  Io& io = invocation.io;
  std::vector<std::pair<std::string, std::string>> files;
  if (invocation.has("--json"))
    files.emplace_back(invocation.get("--json"), bench::report_json(options, result.reports));
  if (invocation.has("--csv")) files.emplace_back(invocation.get("--csv"), bench::report_csv(result.samples));
  if (invocation.has("--svg")) {
    for (auto& [name, svg] : bench::report_plots(result.reports, result.samples))
      files.emplace_back(invocation.get("--svg") + "/" + name, std::move(svg));
  }
  return write_bench_files(io, files);
}

int run_bench_serve(Invocation& invocation) {
  Io& io = invocation.io;
  Result<bench::ServeOptions> options = serve_bench_options(invocation);
  if (!options) return bench_failed(io, options.error().message, kExitUsage);
  if (const std::string path = unwritable(invocation); !path.empty())
    return bench_failed(io, "cannot write " + path + ".", kExitCannotCreate);
  std::atomic<bool> stop = false;
  SignalWatch signals;
  if (options->body.model.empty()) {
    Result<std::string> model = first_model(options->target);
    if (!model) return bench_failed(io, model.error().message, kExitUnavailable);
    options->body.model = std::move(*model);
  }
  signals.arm([&] { stop = true; }, [] { std::_Exit(130); });
  ServeProgressLine progress(io);
  const bench::ServeBenchHooks hooks{
      .loop = {.progress = [&](const bench::ServeProgress& p) { progress.draw(p); }, .stop = &stop},
      .begin = [&](const std::string& name, bool warmup) { progress.begin(warmup ? "warm-up" : name); },
      .end =
          [&](const bench::RunReport& report) {
            progress.clear();
            io.out << bench::report_table(*options, report) << "\n" << std::flush;
          }};
  const Result<bench::ServeBenchResult> result = bench::run_serve_bench(*options, hooks);
  progress.clear();
  signals.arm([] { std::_Exit(130); }, [] { std::_Exit(130); });
  if (!result) {
    const bool nobody = result.error().code == ErrorCode::kUnavailable;
    return bench_failed(io, result.error().message, nobody ? kExitUnavailable : kExitFailure);
  }
  if (result->reports.size() > 1) io.out << bench::sweep_table(result->reports) << std::flush;
  const int written = write_files(invocation, *options, *result);
  if (written != kExitOk) return written;
  return result->all_answered() && result->reports.size() == options->loads.size() ? kExitOk : kExitFailure;
}

}  // namespace

Result<std::string> first_model(const bench::ServeTarget& target) {
  const Url url{.host = target.host, .port = target.port};
  const Result<ClientResponse> answer =
      http_request(url, {.path = target.base_path + "/v1/models", .api_key = target.api_key, .body = {}});
  if (!answer) return std::unexpected(answer.error());
  const std::string asked = "GET " + target.base_path + "/v1/models";
  if (answer->status != 200) {
    return fail(ErrorCode::kUnavailable,
                asked + " was answered with status " + std::to_string(answer->status) + "; name the --model.");
  }
  const Result<Json> json = parse_json(answer->body, {.reject_duplicate_keys = false});
  const Json* data = json ? json->find("data") : nullptr;
  const Json* id = data != nullptr && data->size() > 0 && data->is_array() ? data->as_array()[0].find("id") : nullptr;
  if (id == nullptr || !id->is_string()) return fail(ErrorCode::kBadFile, asked + " lists no model; name the --model.");
  return id->as_string();
}

const Command kBenchServeCommand{
    .name = "bench serve",
    .summary = "load any OpenAI-compatible server; report latency and throughput",
    .flags = kFlags,
    .run = run_bench_serve,
    .details =
        "Examples:\n"
        "  barg bench serve --concurrency 1,8,32 --warmup 4 --json report.json --svg plots\n"
        "  barg bench serve --rate 2 --duration 5m --slo ttft=500ms,itl=50ms --price-per-hour 0.4\n"
        "  barg bench serve --endpoint chat --turns 5 --concurrency 4 --requests 100\n"
        "  barg bench serve --trace mooncake_conversation.jsonl --trace-scale 0.05 --requests 500\n"
        "\n"
        "TTFT, ITL (gaps between tokens), TPOT and end-to-end times are exact percentiles of all samples, counted\n"
        "from the time at which a request was meant to leave. Ctrl-C ends the run and prints what there is.\n"
        "Exit code: 0 every request was answered, 1 not all were (or the run was interrupted), 2 a wrong flag,\n"
        "69 nobody answers at the start, 73 a file cannot be written."};

}  // namespace barg::cli
