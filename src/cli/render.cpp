// `barg render`: a chat template's output for a context given as JSON on stdin, to the byte.
#include <cstdio>
#include <ctime>
#include <istream>
#include <iterator>
#include <optional>
#include <ostream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"

namespace barg::cli {
namespace {

constexpr std::size_t kMaxTemplateBytes = 1 << 20;

constexpr CommandFlag kFlags[] = {
    {"--template", "FILE",
     "A Jinja file. Without it: the template of --model, with its bos_token and eos_token."},
    {"--now", "TIME", "What strftime_now() sees, as 2026-11-29T12:34:56. Without it: the local time."},
};

int failed(Io& io, const std::string& sentence, int code = kExitFailure) {
  io.err << "error: " << sentence << "\n";
  return code;
}

// Strict: exactly YYYY-MM-DDTHH:MM:SS and a date that exists.
std::optional<std::tm> parse_time(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (text.size() != 19 || end == nullptr || *end != '\0') return std::nullopt;
  const std::tm asked = time;
  timegm(&time);  // fills the weekday and the day of the year, and moves a 31 February
  if (time.tm_mday != asked.tm_mday || time.tm_mon != asked.tm_mon || time.tm_sec != asked.tm_sec)
    return std::nullopt;
  return time;
}

// The template's source; tokens the model defines join `context` unless it names them itself.
Result<std::string> model_template(const ModelOptions& options, Json& context) {
  const Result<TextBundle> bundle = open_text_bundle(options);
  if (!bundle) return std::unexpected(bundle.error());
  if (const auto problems = bundle->chat_template->problems(); !bundle->chat_template->has_template() && !problems.empty())
    return fail(ErrorCode::kBadFile, options.path + ": " + problems.front());
  if (!bundle->chat_template->has_template())
    return fail(ErrorCode::kUnsupported, options.path + " has no chat template.");
  for (const char* role : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const std::string_view text = bundle->tokenizer->special_text(role);
    if (!text.empty() && context.find(role) == nullptr) context.set(role, Json(text));
  }
  return bundle->chat_template->source();
}

int run_render(Invocation& invocation) {
  Io& io = invocation.io;
  const ModelOptions& options = invocation.settings.config.model;
  std::optional<std::tm> now;
  if (invocation.has("--now")) {
    now = parse_time(invocation.get("--now"));
    if (!now) return failed(io, "--now must be a time as 2026-11-29T12:34:56.", kExitUsage);
  }
  const std::string file = invocation.get("--template", options.chat_template);
  if (file.empty() && options.path.empty())
    return failed(io, "give --template FILE or --model M.", kExitUsage);
  const std::string input(std::istreambuf_iterator<char>(io.in), {});
  Result<Json> context =
      parse_json(input, {.max_depth = 64, .max_members = 0, .reject_duplicate_keys = false});
  if (!context) return failed(io, "the context on stdin is not JSON: " + context.error().message);
  if (!context->is_object()) return failed(io, "the context on stdin must be a JSON object.");
  const Result<std::string> source =
      file.empty() ? model_template(options, *context) : read_file(file, kMaxTemplateBytes);
  if (!source) return failed(io, source.error().message);
  const Result<std::string> text = text::render_template(*source, *context, now);
  if (!text) return failed(io, text.error().message);
  io.out << *text;
  return kExitOk;
}

}  // namespace

const Command kRenderCommand{.name = "render",
                             .summary = "a chat template's output for a JSON context on stdin",
                             .sections = "model.path model.chat_template",
                             .flags = kFlags,
                             .run = run_render,
                             .details =
                                 "Example: echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], "
                                 "\"add_generation_prompt\": true}' | barg render --model M"};

}  // namespace barg::cli
