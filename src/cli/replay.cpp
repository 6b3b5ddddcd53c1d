// `barg replay`: computes the answer of a captured request again, in this process, and compares every byte.
#include <ostream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/build_info.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "server/replay.h"

namespace barg::cli {
namespace {

constexpr std::size_t kMaxCapsuleBytes = std::size_t{1} << 30;

constexpr CommandFlag kFlags[] = {
    {"--print", "", "Print the answer as it is computed now."},
};

int failed(Io& io, const Error& error, int code) {
  io.err << "error: " << error.message << "\n";
  return code;
}

int run_replay(Invocation& invocation) {
  Io& io = invocation.io;
  if (invocation.arguments.empty())
    return failed(io, fail(ErrorCode::kInvalidValue, "which capsule? Give the file of a GET /v1/captures/{id}.").error(), kExitUsage);
  auto bytes = read_file(invocation.arguments[0], kMaxCapsuleBytes);
  if (!bytes) return failed(io, bytes.error(), kExitFailure);
  auto capsule = parse_json(*bytes, {.max_members = 0});
  if (!capsule) return failed(io, capsule.error(), kExitFailure);
  const Result<Bundle> bundle = open_bundle(invocation.settings.config, quiet_watch(io));
  if (!bundle)
    return failed(io, bundle.error(),
                  bundle.error().param == "model.path" ? kExitUsage : exit_code_of(bundle.error()));
  const BuildFacts build = build_facts();
  const auto report = server::replay(served_model(*bundle), *capsule, build.version + " " + build.git);
  if (!report) return failed(io, report.error(), kExitFailure);
  if (invocation.has("--print")) io.out << report->answer << "\n";
  if (!report->note.empty()) io.err << "note: " << report->note << "\n";
  io.err << report->tokens << " tokens computed again: "
         << (report->same ? "the same answer, byte for byte" : report->difference) << "\n";
  return report->same ? kExitOk : kExitFailure;
}

}  // namespace

const Command kReplayCommand{
    .name = "replay",
    .summary = "compute a captured answer again and compare every byte",
    .arguments = "FILE",
    .max_arguments = 1,
    .sections = "model kv scheduler runtime",
    .flags = kFlags,
    .run = run_replay,
    .details = "Example: curl -s http://127.0.0.1:8000/v1/captures/ID > capsule.json\n"
               "         barg replay capsule.json --model M"};

}  // namespace barg::cli
