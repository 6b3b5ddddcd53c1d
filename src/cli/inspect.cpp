// `barg inspect`: what a model is and exactly what it would take, from its metadata alone.
#include "model/inspect.h"

#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bundle.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/values.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {{"--tensors", "", "One line for each tensor as well."}};

int failed(Io& io, const std::string& path, const Error& error) {
  const bool named = error.message.find(path) != std::string::npos;
  io.err << "error: " << (named ? "" : path + ": ") << error.message << "\n";
  return exit_code_of(error);
}

/// Of a file that can be read: what it holds has been said, why it is refused comes last.
int refused(Io& io, const std::string& path, const Error& error) {
  io.out << "verdict: refused\n" << std::flush;
  return failed(io, path, error);
}

std::string exact(std::uint64_t bytes) { return std::to_string(bytes) + " bytes (" + show_size(bytes) + ")"; }

void print_plan(std::ostream& out, const runtime::MemoryPlan& plan) {
  out << "memory plan:\n"
      << "  recipe: " << recipe_name(plan.recipe) << "\n"
      << "  context: " << plan.max_model_len << " of " << plan.model_max_len << " tokens\n"
      << "  weights: " << exact(plan.weight_bytes) << "\n"
      << "  kv per token: " << plan.kv_bytes_per_token << " bytes (" << dtype_name(plan.kv_dtype) << ")\n";
  for (std::size_t g = 0; g < plan.num_blocks.size(); ++g) {
    out << "  kv group " << g << ": " << plan.num_blocks[g] << " blocks of " << plan.group_tokens[g]
        << " tokens, " << plan.block_bytes[g] << " bytes each\n";
  }
  out << "  kv pool: " << exact(plan.kv_bytes) << "\n"
      << "  activations: " << exact(plan.activation_bytes) << " at " << plan.max_rows << " rows\n"
      << "  workspace: " << exact(plan.workspace_bytes) << "\n"
      << "  logits: " << exact(plan.logits_bytes) << "\n"
      << "  total: " << exact(plan.total_bytes) << "\n"
      << "  available: " << exact(plan.available_bytes) << "\n";
  for (const std::string& note : plan.notes) out << "  note: " << note << "\n";
}

void print_text(std::ostream& out, const TextBundle& text) {
  const Tokenizer& tokenizer = *text.tokenizer;
  const auto token = [&](TokenId id) { return json_quote(tokenizer.token_bytes(id)) + " " + std::to_string(id); };
  out << "tokenizer: " << tokenizer.kind() << ", " << tokenizer.size() << " tokens\n";
  const auto list = [&](const std::vector<TokenId>& ids) {
    std::string all;
    for (const TokenId id : ids) all += (all.empty() ? "" : ", ") + token(id);
    return all.empty() ? std::string("nothing") : all;
  };
  out << "  put around a text: " << list(tokenizer.encode("", {})) << "\n"
      << "  an answer ends with: " << list(tokenizer.end_ids()) << "\n";
  const text::DetectedDialect& found = text.detected;
  const auto named = [&](std::ostream& to) -> std::ostream& {
    return to << text::dialect_name(*found.dialect) << " (" << text::dialect_summary(*found.dialect) << ")";
  };
  out << "tool dialect: ";
  (found.known ? named(out) : out << "not known") << "\n  because: " << found.evidence << "\n";
  if (!found.known) named(out << "  calls as the model writes them stay text; read are those of ") << "\n";
  if (found.reasoning.open.empty() && found.reasoning.close.empty()) {
    out << "  reasoning: none\n";
  } else {
    out << "  reasoning: between " << json_quote(found.reasoning.open) << " and " << json_quote(found.reasoning.close)
        << "\n";
  }
}

std::string_view prompt_end_name(text::PromptEnd end) {
  switch (end) {
    case text::PromptEnd::kPlain: return "left to the model";
    case text::PromptEnd::kOpens: return "opened by the prompt";
    case text::PromptEnd::kCloses: return "closed by the prompt";
  }
  return "";
}

void print_template(std::ostream& out, const text::ChatTemplate& chat, const std::vector<std::string>& more) {
  const std::vector<std::string> problems = chat.problems();
  if (!chat.has_template()) out << "chat template: " << (problems.empty() ? "none" : "does not parse, so chat is refused") << "\n";
  for (const std::string& problem : problems) out << (chat.has_template() ? "warning: " : "  ") << problem << "\n";
  if (!chat.has_template()) return;
  const text::TemplateCapabilities& c = chat.capabilities();
  const auto or_none = [](const std::string& name) { return name.empty() ? std::string("none") : name; };
  out << "chat template:\n"
      << "  tools: " << (c.tools ? "shown by the template" : "described in a system message") << "\n"
      << "  calls in the history: "
      << (!c.tool_calls ? "as text" : c.parallel_tool_calls ? "shown, several at once" : "shown, one at a time") << "\n"
      << "  results in the history: " << (c.tool_results ? "shown" : "as text") << "\n"
      << "  system message: " << (c.system_role ? "shown" : "goes to the user") << "\n"
      << "  reasoning in the history: " << (c.reasoning_history ? "shown" : "left out") << "\n"
      << "  reasoning of an answer: " << prompt_end_name(c.prompt) << "; thinking on: " << prompt_end_name(c.prompt_thinking)
      << "; off: " << prompt_end_name(c.prompt_answer) << "\n"
      << "  thinking switch: " << or_none(c.thinking_switch) << "; effort: " << or_none(c.effort_variable)
      << "; budget: " << or_none(c.budget_variable) << "\n";
  for (const std::string& name : more) out << "  another template of the file: " << json_quote(name) << "\n";
}

int run_inspect(Invocation& invocation) {
  Io& io = invocation.io;
  const Config& config = invocation.settings.config;
  const std::string& path = config.model.path;
  if (path.empty()) {
    io.err << "error: which model? Give a .gguf file or a Hugging Face directory.\n";
    return kExitUsage;
  }
  const auto files = model::ModelFiles::open(path);
  if (!files) return failed(io, path, files.error());
  const Result<model::Inspection> inspection = model::inspect(**files);
  if (!inspection) {
    io.out << model::header_text(**files);
    return refused(io, path, inspection.error());
  }
  const Result<runtime::MemoryPlan> plan = runtime::plan_memory(config, **files);
  io.out << model::to_text(*inspection, **files, plan ? plan->kv_dtype : DType::kF16, invocation.has("--tensors"));
  // The tokenizer is part of the verdict: a model that cannot read text cannot be served.
  const Result<TextBundle> text = open_text_bundle(config.model);
  if (text) {
    print_text(io.out, *text);
    const std::string beyond = tokens_beyond(*text->tokenizer, inspection->spec);
    if (!beyond.empty()) io.out << "  note: " << beyond << "\n";
    if (text->chat_template) print_template(io.out, *text->chat_template, inspection->template_names);
  }
  if (plan) print_plan(io.out, *plan);
  if (!text || !plan) return refused(io, path, !text ? text.error() : plan.error());
  io.out << "verdict: valid, can be served\n";
  return kExitOk;
}

}  // namespace

const Command kInspectCommand{.name = "inspect",
                              .summary = "what a model file holds and the memory it would take",
                              .arguments = "MODEL",
                              .max_arguments = 1,
                              .model_argument = true,
                              .sections = "model kv scheduler runtime",
                              .flags = kFlags,
                              .run = run_inspect};

}  // namespace barg::cli
