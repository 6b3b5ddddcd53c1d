// `barg conform`: asks any OpenAI- or Anthropic-compatible server whether it keeps the rules of the wire. The work is
// in src/conform; here are the flags, the progress line and the file.
#include <filesystem>
#include <fstream>
#include <ostream>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/values.h"
#include "conform/run.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"--model", "NAME", "The model to ask for. Without it: the first one of GET /v1/models."},
    {"--api-key", "KEY", "Sent as a bearer token, and as x-api-key to /v1/messages."},
    {"--only", "RULE,...", "These rules, or groups of rules (chat, responses, ...), only."},
    {"--list", "", "Name every rule, what it demands and why, and ask nobody."},
    {"--json", "FILE", "Write the report as JSON (docs/conformance.md)."},
    {"--timeout", "TIME", "An answer that is not complete after this long is none. [60s]"},
    {"--disconnect-within", "TIME", "How soon an abandoned request must be off the device. [1s]"},
    {"--keep-alive-within", "TIME", "The longest silence of a stream. [20s]"},
    {"--metrics-url", "URL", "Where the gauges of running requests are. [/metrics of the server]"},
};

int refuse(Io& io, const std::string& sentence, int code) {
  io.err << "error: " << sentence << "\n";
  return code;
}

Result<void> read_time(const Invocation& invocation, const std::string& flag, double& out) {
  if (!invocation.has(flag)) return {};
  const std::optional<double> seconds = read_seconds(invocation.get(flag));
  if (!seconds || *seconds <= 0 || *seconds > 3600)
    return fail(ErrorCode::kInvalidValue, flag + " takes a time between 0 and 1h, such as 500ms.");
  out = *seconds;
  return {};
}

Result<conform::Options> read_options(const Invocation& invocation) {
  if (invocation.arguments.empty())
    return fail(ErrorCode::kInvalidValue, "name the server: barg conform http://HOST:PORT.");
  Result<conform::Target> target = conform::parse_target(invocation.arguments[0]);
  if (!target) return std::unexpected(std::move(target.error()));
  conform::Options out;
  out.target = std::move(*target);
  out.target.api_key = invocation.get("--api-key");
  out.model = invocation.get("--model");
  if (out.target.api_key.find_first_of("\r\n") != std::string::npos)
    return fail(ErrorCode::kInvalidValue, "--api-key must be one line.");
  const std::pair<const char*, double*> times[] = {{"--timeout", &out.timeout_s},
                                                   {"--disconnect-within", &out.disconnect_s},
                                                   {"--keep-alive-within", &out.keep_alive_s}};
  for (const auto& [flag, field] : times) {
    if (const Result<void> read = read_time(invocation, flag, *field); !read) return std::unexpected(read.error());
  }
  if (invocation.has("--metrics-url")) {
    Result<conform::Target> metrics = conform::parse_target(invocation.get("--metrics-url"));
    if (!metrics) return std::unexpected(std::move(metrics.error()));
    out.metrics = std::move(*metrics);
  }
  return out;
}

// Before the run: a minute of asking must not end in a file that cannot be written.
bool can_write(const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (!std::ofstream(path, std::ios::app)) return false;
  if (!there) std::filesystem::remove(path, error);
  return true;
}

bool write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return !out.fail();
}

int run_conform_command(Invocation& invocation) {
  Io& io = invocation.io;
  if (invocation.has("--list")) {
    io.out << conform::rule_list();
    return kExitOk;
  }
  Result<conform::Options> options = read_options(invocation);
  if (!options) return refuse(io, options.error().message, kExitUsage);
  const auto only = invocation.has("--only") ? split_list(invocation.get("--only")) : std::vector<std::string>{};
  const auto rules = conform::choose_rules(only);
  if (!rules) return refuse(io, rules.error().message, kExitUsage);
  const std::string file = invocation.get("--json");
  if (!file.empty() && !can_write(file)) return refuse(io, "cannot write " + file + ".", kExitCannotCreate);

  const auto progress = [&](std::size_t done, std::size_t all, std::string_view name) {
    if (io.err_is_terminal) io.err << "\r" << done << "/" << all << " " << name << "\x1b[K" << std::flush;
  };
  const Result<conform::Report> report = conform::run_conform(std::move(*options), *rules, progress);
  if (io.err_is_terminal) io.err << "\r\x1b[K" << std::flush;
  if (!report)
    return refuse(io, report.error().message,
                  report.error().code == ErrorCode::kUnavailable ? kExitUnavailable : kExitFailure);
  io.out << conform::report_table(*report) << std::flush;
  if (!file.empty() && !write(file, conform::report_json(*report, invocation.arguments[0])))
    return refuse(io, "cannot write " + file + ".", kExitCannotCreate);
  return report->holds() ? kExitOk : kExitFailure;
}

}  // namespace

const Command kConformCommand{
    .name = "conform",
    .summary = "check any OpenAI- or Anthropic-compatible server against the rules of the wire",
    .arguments = "URL",
    .max_arguments = 1,
    .flags = kFlags,
    .run = run_conform_command,
    .details =
        "Examples:\n"
        "  barg conform http://127.0.0.1:8000\n"
        "  barg conform http://127.0.0.1:8000 --only sse,chat.finish_once --json report.json\n"
        "  barg conform --list\n"
        "\n"
        "Each rule passes, fails with the offending bytes, or does not apply, where the server lacks the endpoint or\n"
        "the feature. Exit code: 0 all that apply hold, 1 one fails, 2 a wrong flag, 69 nobody answers, 73 a file\n"
        "cannot be written."};

}  // namespace barg::cli
