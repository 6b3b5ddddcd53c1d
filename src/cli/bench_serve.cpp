// `barg bench serve`: loads any OpenAI-compatible server and reports latency and throughput. The work is in
// src/bench; here are the flags, the progress line and the files.
#include "cli/bench_serve.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "base/json.h"
#include "bench/serve_bench.h"
#include "bench/serve_output.h"
#include "bench/serve_plots.h"
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

int failed(Io& io, const std::string& sentence, int code) {
  io.err << "error: " << sentence << "\n";
  return code;
}

// The first model the server lists.
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

// Columns of the terminal on stderr; a line that wraps could not be drawn over.
std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// One line on a terminal that is drawn over.
class ProgressLine {
 public:
  explicit ProgressLine(Io& io) : io_(io) {}

  void begin(std::string name) { name_ = std::move(name); }
  void draw(const bench::ServeProgress& p) {
    if (!io_.err_is_terminal) return;
    double share = 0;
    if (p.total && *p.total > 0) share = static_cast<double>(p.answered + p.failed) / static_cast<double>(*p.total);
    if (!p.total && p.duration_s) share = std::min(1.0, p.elapsed_s / *p.duration_s);
    const std::size_t width = terminal_width();
    const std::size_t bar = std::clamp<std::size_t>(width, 80, 96) - 72;
    const auto filled = static_cast<std::size_t>(std::min(share, 1.0) * static_cast<double>(bar));
    std::string line = name_ + " [" + std::string(filled, '#') + std::string(bar - filled, '.') + "] " +
                       std::to_string(p.answered) + (p.total ? "/" + std::to_string(*p.total) : "") + " answered, " +
                       std::to_string(p.in_flight) + " in flight, ";
    if (p.failed > 0) line += std::to_string(p.failed) + " failed, ";
    const double rate = p.elapsed_s > 0 ? static_cast<double>(p.pieces) / p.elapsed_s : 0;
    line += std::to_string(static_cast<long>(rate)) + " chunks/s, " + std::to_string(static_cast<long>(p.elapsed_s)) + " s";
    io_.err << "\r" << line.substr(0, width - 1) << "\x1b[K" << std::flush;
    drawn_ = true;
  }
  void clear() {
    if (drawn_) io_.err << "\r\x1b[K" << std::flush;
    drawn_ = false;
  }

 private:
  Io& io_;
  std::string name_;
  bool drawn_ = false;
};

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return !out.fail();
}

// Before the run: an hour of measuring must not end in a file that cannot be written. A run that fails leaves no
// empty file.
std::string unwritable(const Invocation& invocation) {
  std::error_code error;
  for (const char* flag : {"--json", "--csv"}) {
    if (!invocation.has(flag)) continue;
    const std::string path = invocation.get(flag);
    const bool there = std::filesystem::exists(path, error);
    if (!std::ofstream(path, std::ios::app)) return path;
    if (!there) std::filesystem::remove(path, error);
  }
  error.clear();
  if (invocation.has("--svg")) std::filesystem::create_directories(invocation.get("--svg"), error);
  return error ? invocation.get("--svg") : "";
}

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
  for (const auto& [path, text] : files) {
    if (!write_file(path, text)) return failed(io, "cannot write " + path + ".", kExitCannotCreate);
  }
  return kExitOk;
}

int run_bench_serve(Invocation& invocation) {
  Io& io = invocation.io;
  Result<bench::ServeOptions> options = serve_bench_options(invocation);
  if (!options) return failed(io, options.error().message, kExitUsage);
  if (const std::string path = unwritable(invocation); !path.empty())
    return failed(io, "cannot write " + path + ".", kExitCannotCreate);
  std::atomic<bool> stop = false;
  SignalWatch signals;
  if (options->body.model.empty()) {
    Result<std::string> model = first_model(options->target);
    if (!model) return failed(io, model.error().message, kExitUnavailable);
    options->body.model = std::move(*model);
  }
  signals.arm([&] { stop = true; }, [] { std::_Exit(130); });
  ProgressLine progress(io);
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
    return failed(io, result.error().message, nobody ? kExitUnavailable : kExitFailure);
  }
  if (result->reports.size() > 1) io.out << bench::sweep_table(result->reports) << std::flush;
  const int written = write_files(invocation, *options, *result);
  if (written != kExitOk) return written;
  return result->all_answered() && result->reports.size() == options->loads.size() ? kExitOk : kExitFailure;
}

}  // namespace

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
