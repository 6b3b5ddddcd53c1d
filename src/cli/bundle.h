// Bundle: a model opened for use: files -> tokenizer -> chat template -> runner -> engine. What `serve`,
// `chat` and `complete` have in common. A process may hold several.
//
// Everything is ready when open_bundle() returns. Destroying it stops the engine. The parts are immutable or
// do their own locking, see their headers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/config.h"
#include "barg/engine.h"
#include "barg/tokenizer.h"
#include "base/env.h"
#include "model/model_files.h"
#include "runtime/memory_plan.h"
#include "runtime/open_cuda.h"
#include "server/served_model.h"
#include "store/stack.h"
#include "text/chat_template.h"
#include "text/dialect.h"

namespace barg::cli {

/// Watches a model being opened. Called on the opening thread.
struct LoadWatch {
  /// A phase ended: "weights" and one line about it; or "note", "warning" and what a person should know.
  std::function<void(std::string_view phase, const std::string& detail)> done = [](std::string_view,
                                                                                   const std::string&) {};
  /// Share of the weights that is loaded, 0..1.
  std::function<void(double)> progress = [](double) {};
  /// The device is lost, some time after loading (EngineExtras::lost).
  std::function<void(const Error&)> lost{};
};

struct Bundle {
  std::vector<std::string> names;  ///< the first is canonical
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  std::shared_ptr<const text::BoundDialect> dialect;
  model::GenerationDefaults defaults;  ///< empty with generation_config vllm
  runtime::MemoryPlan plan;
  std::shared_ptr<const Clock> clock;  ///< outlives the engine
  std::shared_ptr<store::TierStack> tiers;  ///< below the engine's pool; nullptr = none
  std::string salt_secret;                  ///< of block keys; the pool's if blocks outlive the process, else made now
  std::shared_ptr<Engine> engine;
};

/// Fails with one sentence that names the file, or the option, that is wrong; kOutOfMemory when it does not
/// fit. `state_directory` (Settings::state_directory) is where the secret of kv.salt_file may be made; without it the
/// tiers of kv.tiers are not opened: what ends with its answer has no use for them.
Result<Bundle> open_bundle(const Config& config, const LoadWatch& watch = {},
                           const std::optional<std::string>& state_directory = {},
                           const runtime::OpenDevice& open_device = runtime::open_cuda);

/// Only the tokenizer and the template of a model, without its weights.
struct TextBundle {
  std::shared_ptr<const model::ModelFiles> files;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;
  text::DetectedDialect detected;  ///< found, or named by model.tool_dialect
  std::shared_ptr<const text::BoundDialect> dialect;
};
Result<TextBundle> open_text_bundle(const ModelOptions& options);

/// A sentence where the tokenizer knows ids that the embedding has no row for; else empty.
std::string tokens_beyond(const Tokenizer& tokenizer, const model::DecoderSpec& spec);

/// The bundle as the server wants it; shares its parts.
server::ServedModel served_model(const Bundle& bundle);

/// "llama.gguf" -> "llama", a directory -> its name.
std::string default_model_name(const std::string& path);

}  // namespace barg::cli
