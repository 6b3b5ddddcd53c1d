// `barg replay`: computes the answer of a captured request again, in this process, and compares every byte.
#include <ostream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/build_info.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "cli/http_client.h"
#include "server/replay.h"

namespace barg::cli {
namespace {

constexpr std::size_t kMaxCapsuleBytes = std::size_t{1} << 28;  // as JSON values in memory it is up to 20 times as large
constexpr double kFetchSeconds = 60;
constexpr int kHttpOk = 200, kHttpUnauthorized = 401, kHttpNotFound = 404;

constexpr CommandFlag kFlags[] = {
    {"--print", "", "Print the answer as it is computed now."},
    {"--api-key", "KEY", "Sent to the server, where the capsule is given by its address."},
};

int failed(Io& io, const Error& error, int code) {
  io.err << "error: " << error.message << "\n";
  return code;
}

Result<std::string> fetch(const std::string& address, const std::string& api_key) {
  if (api_key.find_first_of("\r\n") != std::string::npos)
    return fail(ErrorCode::kInvalidValue, "--api-key must be one line");
  const Result<Url> url = parse_url(address);
  if (!url) return std::unexpected(url.error());
  auto response = http_request(
      *url, {.method = "GET", .path = url->path, .api_key = api_key, .body = {}, .timeout_s = kFetchSeconds});
  if (!response) return std::unexpected(response.error());
  if (response->status == kHttpOk) return std::move(response->body);
  const std::string why = response->status == kHttpUnauthorized ? "the server wants another API key (--api-key)"
                          : response->status == kHttpNotFound   ? "the server has no such capture for this API key"
                                                                : "the server answers with status " + std::to_string(response->status);
  return fail(ErrorCode::kNotFound, why);
}

Result<Json> read_capsule(const std::string& where, const std::string& api_key) {
  const bool remote = where.starts_with("http://") || where.starts_with("https://");
  const auto bytes = remote ? fetch(where, api_key) : read_file(where, kMaxCapsuleBytes);
  auto json = bytes ? parse_json(*bytes, {.max_members = 0}) : Result<Json>(std::unexpected(bytes.error()));
  const Result<void> good = json ? server::check_capsule(*json) : Result<void>(std::unexpected(json.error()));
  if (good) return json;
  Error error = good.error();
  if (error.message.find(where) == std::string::npos) error.message = where + ": " + error.message;
  return std::unexpected(std::move(error));
}

void tell(Io& io, const server::ReplayReport& report) {
  if (!report.note.empty()) io.err << "note: " << report.note << "\n";
  if (report.note.empty() && !report.same) io.err << "note: build, model and settings are those of the capsule\n";
  io.err << report.tokens << " tokens computed again: ";
  if (!report.same) {
    io.err << report.difference << "\n";
  } else if (report.seals) {
    io.err << "the same answer, byte for byte but for signatures or seals (their secret is in no capsule)\n";
  } else {
    io.err << "the same answer, byte for byte\n";
  }
}

int run_replay(Invocation& invocation) {
  Io& io = invocation.io;
  if (invocation.arguments.empty())
    return failed(io, fail(ErrorCode::kInvalidValue, "which capsule? Give the file, or the address, of a GET /v1/captures/{id}.").error(),
                  kExitUsage);
  const Result<Json> capsule = read_capsule(invocation.arguments[0], invocation.get("--api-key"));
  if (!capsule) {
    const ErrorCode code = capsule.error().code;
    const bool nobody = code == ErrorCode::kUnavailable || code == ErrorCode::kTimeout;
    return failed(io, capsule.error(), nobody ? kExitUnavailable : kExitFailure);
  }
  const Result<Bundle> bundle = open_bundle(invocation.settings.config, quiet_watch(io), {}, invocation.open_device);
  if (!bundle)
    return failed(io, bundle.error(),
                  bundle.error().param == "model.path" ? kExitUsage : exit_code_of(bundle.error()));
  const BuildFacts build = build_facts();
  const auto report = server::replay(served_model(*bundle), *capsule, build.version + " " + build.git);
  if (!report) return failed(io, report.error(), kExitFailure);
  if (invocation.has("--print")) io.out << report->answer << "\n";
  tell(io, *report);
  return report->same ? kExitOk : kExitFailure;
}

}  // namespace

const Command kReplayCommand{
    .name = "replay",
    .summary = "compute a captured answer again and compare every byte",
    .arguments = "FILE|URL",
    .max_arguments = 1,
    .sections = "model kv scheduler runtime",
    .flags = kFlags,
    .run = run_replay,
    .details = "Exit code: 0 the same answer, 1 another one or no capsule, 69 nobody answers at URL.\n"
               "Example: curl -s http://127.0.0.1:8000/v1/captures/ID > capsule.json\n"
               "         barg replay capsule.json --model M"};

}  // namespace barg::cli
