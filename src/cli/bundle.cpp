#include "cli/bundle.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/mapped_file.h"
#include "cli/salt_file.h"
#include "cli/values.h"
#include "engine/engine_impl.h"
#include "engine/metrics.h"
#include "model/inspect.h"
#include "model/unread_tensors.h"
#include "runtime/factory.h"
#include "runtime/tier_service.h"
#include "store/tier_spec.h"

namespace barg::cli {
namespace {

constexpr std::size_t kMaxTemplateBytes = 1 << 20;

std::string describe_files(const model::ModelFiles& files) {
  return files.display_name() + ": " + files.architecture() + ", " + files.quantisation_summary() + ", " +
         show_size(files.total_bytes());
}

std::string describe_text(const TextBundle& text, bool embeds) {
  const std::string tokens = std::to_string(text.tokenizer->size()) + " tokens, ";
  if (embeds) return tokens + "for embeddings: nothing is generated";
  return tokens +
         (text.chat_template->has_template()         ? "chat template"
          : text.chat_template->problems().empty() ? "no chat template: chat is refused, completions work"
                                                    : "no chat template that parses: chat is refused, completions work") +
         (text.detected.known ? ", tool dialect " : ", tool dialect not known, calls are read as ") +
         std::string(text::dialect_name(*text.detected.dialect));
}

// The numbers of KvPlan a person asks for: how long, how many, how large.
std::string describe_plan(const runtime::MemoryPlan& plan) {
  std::int64_t blocks = 0;
  for (const std::int64_t n : plan.num_blocks) blocks = std::max(blocks, n);
  return "context " + std::to_string(plan.max_model_len) + " of " + std::to_string(plan.model_max_len) +
         ", KV " + dtype_name(plan.kv_dtype) + " " + show_size(plan.kv_bytes_per_token) + " a token, " +
         std::to_string(blocks) + " blocks of " + std::to_string(plan.block_tokens) + " tokens (" +
         show_size(plan.kv_bytes) + "); in all " + show_size(plan.total_bytes) + " of " +
         show_size(plan.available_bytes) + " available";
}

/// model.tool_dialect, or what the chat template says.
Result<text::DetectedDialect> choose_dialect(const std::string& name, const text::ChatTemplate& chat) {
  text::DetectedDialect out = text::detect_dialect(chat.tools_source());
  if (name.empty() || name == "auto") return out;
  out.dialect = text::find_dialect(name);
  if (out.dialect == nullptr) {
    std::string known = "auto";
    for (const text::Dialect* d : text::dialects()) known += ", " + std::string(text::dialect_name(*d));
    return fail(ErrorCode::kInvalidValue, "no tool dialect is named \"" + name.substr(0, 64) + "\"; known are " + known,
                "model.tool_dialect");
  }
  out.reasoning = text::reasoning_of(chat.tools_source(), *out.dialect);
  out.evidence = "named by model.tool_dialect";
  out.known = true;
  return out;
}

Error with_path(Error error, const std::string& path) {
  if (error.message.find(path) == std::string::npos) error.message = path + ": " + error.message;
  return error;
}

/// Opens kv.tiers for the runner's blocks. A tier that cannot be opened now is a note: the model is served without it.
Result<void> open_tiers(const Config& config, const runtime::RunnerInfo& info, const std::string& state_directory,
                        const LoadWatch& watch, Bundle& out) {
  const store::Domain domain = runtime::domain_of(info, out.names.front() + " " + info.numerics_id);
  Result<store::OpenedStack> opened = store::open_stack(config.kv.tiers, domain, *out.clock);
  if (!opened) return std::unexpected(opened.error());
  for (const std::string& warning : opened->warnings) watch.done("note", warning);
  out.tiers = std::move(opened->stack);
  if (out.tiers == nullptr) return {};
  std::string names = out.tiers->has(store::TierKind::kDram) ? tier_name(store::TierKind::kDram) : "";
  for (const auto& tier : out.tiers->stats().tiers) names += (names.empty() ? "" : ", ") + tier.name;
  watch.done("tiers", names);
  if (!out.tiers->has(store::TierKind::kDisk) && !out.tiers->has(store::TierKind::kRemote)) return {};
  Result<SaltFile> salt = open_salt_file(config.kv.salt_file, state_directory);
  if (!salt) return std::unexpected(salt.error());
  if (salt->made) watch.done("note", "made the secret of stored KV blocks, " + salt->path);
  if (salt->exposed) watch.done("note", salt->path + " can be read by others: chmod 600 it");
  out.salt_secret = std::move(salt->secret);
  return {};
}

}  // namespace

std::string default_model_name(const std::string& path) {
  std::filesystem::path p = std::filesystem::path(path).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  return p.extension() == ".gguf" ? p.stem().string() : p.filename().string();
}

Result<TextBundle> open_text_bundle(const ModelOptions& options) {
  if (options.path.empty())
    return fail(ErrorCode::kInvalidValue,
                "which model? Give a .gguf file or a Hugging Face directory with --model.", "model.path");
  TextBundle out;
  auto files = model::ModelFiles::open(options.path);
  if (!files) return std::unexpected(with_path(files.error(), options.path));
  out.files = *files;
  const Result<VocabData> vocab = out.files->vocab();
  if (!vocab) return std::unexpected(with_path(vocab.error(), options.path));
  auto tokenizer = make_tokenizer(*vocab);
  if (!tokenizer) return std::unexpected(with_path(tokenizer.error(), options.path));
  out.tokenizer = *tokenizer;
  std::string override_source;
  if (!options.chat_template.empty()) {
    Result<std::string> source = read_file(options.chat_template, kMaxTemplateBytes);
    if (!source) return std::unexpected(with_path(source.error(), options.chat_template));
    override_source = std::move(*source);
  }
  auto chat = text::ChatTemplate::create(*vocab, out.tokenizer.get(), override_source);
  if (!chat)
    return std::unexpected(
        with_path(chat.error(), override_source.empty() ? options.path : options.chat_template));
  out.chat_template = *chat;
  Result<text::DetectedDialect> detected = choose_dialect(options.tool_dialect, *out.chat_template);
  if (!detected) return std::unexpected(detected.error());
  out.detected = std::move(*detected);
  out.dialect = text::bind_dialect(out.detected, *out.tokenizer);
  return out;
}

std::string tokens_beyond(const Tokenizer& tokenizer, const model::DecoderSpec& spec) {
  if (tokenizer.size() <= spec.vocab_rows) return {};
  return "the tokenizer has " + std::to_string(tokenizer.size()) + " ids and the embedding " +
         std::to_string(spec.vocab_rows) + " rows: a prompt with an id of " + std::to_string(spec.vocab_rows) +
         " or above is refused";
}

Result<Bundle> open_bundle(const Config& config, const LoadWatch& watch,
                           const std::optional<std::string>& state_directory,
                           const runtime::OpenDevice& open_device) {
  Bundle out;
  out.names = config.model.served_model_name;
  if (out.names.empty()) out.names.push_back(default_model_name(config.model.path));
  Result<TextBundle> text = open_text_bundle(config.model);
  if (!text) return std::unexpected(text.error());
  // Let go at the end: the runner keeps what it needs.
  const std::shared_ptr<const model::ModelFiles> files = text->files;
  out.tokenizer = text->tokenizer;
  out.chat_template = text->chat_template;
  out.dialect = text->dialect;
  watch.done("model", describe_files(*files));
  const Result<model::DecoderSpec> spec = files->spec();  // what it cannot be is said below
  watch.done("text", describe_text(*text, spec && !spec->generates()));
  for (const std::string& problem : text->chat_template->problems()) watch.done("warning", problem);
  if (spec) {
    for (const std::string& unread : model::unread_notes(*spec, *files)) watch.done("note", "not read: " + unread);
    if (const std::string beyond = tokens_beyond(*out.tokenizer, *spec); !beyond.empty()) watch.done("note", beyond);
  }

  const auto planned = [&watch](const runtime::MemoryPlan& plan) {
    watch.done("memory", describe_plan(plan));
    for (const std::string& note : plan.notes) watch.done("note", note);
  };
  Result<runtime::LoadedRunner> loaded =
      runtime::load_runner(config, files,
                           {.progress = watch.progress,
                            .planned = planned,
                            .vocab_size = out.tokenizer->size(),
                            .end_ids = out.tokenizer->end_ids(),
                            .open_device = open_device});
  if (!loaded) return std::unexpected(with_path(loaded.error(), config.model.path));
  out.plan = std::move(loaded->plan);
  watch.done("weights", std::string("recipe ") + recipe_name(out.plan.recipe) + ", " +
                            show_size(out.plan.weight_bytes) + " resident, kernels " + loaded->device + ", " +
                            std::to_string(loaded->threads) + " threads");

  if (config.model.generation_config == "auto") {
    const Result<model::GenerationDefaults> defaults = files->generation_defaults();
    if (!defaults) return std::unexpected(with_path(defaults.error(), config.model.path));
    out.defaults = *defaults;
  }
  out.clock = std::make_shared<SteadyClock>();
  if (state_directory && !config.kv.tiers.empty()) {
    if (auto tiers = open_tiers(config, loaded->runner->info(), *state_directory, watch, out); !tiers)
      return std::unexpected(tiers.error());
  }
  if (out.salt_secret.empty()) out.salt_secret = passing_secret();
  Result<std::unique_ptr<Engine>> engine =
      engine::make_engine(config, std::move(loaded->runner), *out.clock,
                          {.tiers = out.tiers, .lost = watch.lost});
  if (!engine) return std::unexpected(engine.error());
  out.engine = std::move(*engine);
  return out;
}

server::ServedModel served_model(const Bundle& bundle) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.names = bundle.names,
          .engine = bundle.engine,
          .tokenizer = bundle.tokenizer,
          .chat_template = bundle.chat_template,
          .dialect = bundle.dialect,
          .sampling = {.temperature = bundle.defaults.temperature,
                       .top_p = bundle.defaults.top_p,
                       .min_p = bundle.defaults.min_p,
                       .repetition_penalty = bundle.defaults.repetition_penalty,
                       .top_k = bundle.defaults.top_k},
          .salt_secret = bundle.salt_secret,
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .fingerprint = {}};
}

}  // namespace barg::cli
