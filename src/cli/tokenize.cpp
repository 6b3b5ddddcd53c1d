// `barg tokenize`: text on stdin, token ids on stdout.
#include <istream>
#include <iterator>
#include <ostream>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"--no-special", "", "Add no BOS or EOS. (Without it: as the model's tokenizer does.)"},
    {"--plain", "", "Literals of special tokens in the text are plain text."},
};

int run_tokenize(Invocation& invocation) {
  Io& io = invocation.io;
  const Result<TextBundle> bundle = open_text_bundle(invocation.settings.config.model);
  if (!bundle) {
    io.err << "error: " << bundle.error().message << "\n";
    return bundle.error().param == "model.path" ? kExitUsage : exit_code_of(bundle.error());
  }
  const std::string text(std::istreambuf_iterator<char>(io.in), {});
  if (!is_valid_utf8(text)) {
    io.err << "error: the text on stdin is not UTF-8.\n";
    return kExitFailure;
  }
  const EncodeOptions options{.add_special_tokens = !invocation.has("--no-special"),
                              .parse_special_tokens = !invocation.has("--plain")};
  const Result<std::vector<TokenId>> encoded = bundle->tokenizer->try_encode(text, options);
  if (!encoded) {
    io.err << "error: " << encoded.error().message << "\n";
    return kExitFailure;
  }
  Json::Array ids;
  for (const TokenId id : *encoded) ids.emplace_back(id);
  io.out << dump_json(Json(std::move(ids)), {.spaces = true}) << "\n";
  return kExitOk;
}

}  // namespace

const Command kTokenizeCommand{.name = "tokenize",
                               .summary = "text on stdin to a JSON list of token ids",
                               .arguments = "[MODEL]",
                               .max_arguments = 1,
                               .model_argument = true,
                               .sections = "model.path",
                               .flags = kFlags,
                               .run = run_tokenize};

}  // namespace barg::cli
