// `barg complete`: goes on from a text, in this process.
#include <istream>
#include <iterator>
#include <ostream>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    kMaxTokensFlag,
    kTemperatureFlag,
    kSeedFlag,
    {"--echo", "", "Print the prompt before its continuation."},
};

int failed(Io& io, const Error& error, int code) {
  io.err << "error: " << error.message << "\n";
  return code;
}

int run_complete(Invocation& invocation) {
  Io& io = invocation.io;
  std::string prompt = invocation.arguments.empty() ? std::string(std::istreambuf_iterator<char>(io.in), {})
                                                    : invocation.arguments[0];
  if (!is_valid_utf8(prompt))
    return failed(io, fail(ErrorCode::kInvalidValue, "the prompt is not UTF-8.").error(), kExitFailure);
  const Result<Bundle> bundle = open_bundle(invocation.settings.config, quiet_watch(io), {}, invocation.open_device);
  if (!bundle)
    return failed(io, bundle.error(),
                  bundle.error().param == "model.path" ? kExitUsage : exit_code_of(bundle.error()));
  const Result<SamplingParams> sampling = sampling_from_flags(invocation, bundle->defaults);
  if (!sampling) return failed(io, sampling.error(), kExitUsage);
  const Result<std::vector<TokenId>> ids = bundle->tokenizer->try_encode(prompt, {});
  if (!ids) return failed(io, ids.error(), kExitFailure);
  if (invocation.has("--echo")) io.out << prompt;
  const Result<std::string> text = generate(*bundle, *ids, *sampling,
                                            [&](std::string_view piece) { io.out << piece << std::flush; });
  if (!text) return failed(io, text.error(), kExitFailure);
  io.out << "\n";
  return kExitOk;
}

}  // namespace

const Command kCompleteCommand{
    .name = "complete",
    .summary = "continue a text (argument or stdin) in this process",
    .arguments = "[PROMPT]",
    .max_arguments = 1,
    .sections = "model kv scheduler runtime",
    .flags = kFlags,
    .run = run_complete,
    .details = "Example: barg complete --model M --max-tokens 20 --temperature 0 'The capital of France is'"};

}  // namespace barg::cli
