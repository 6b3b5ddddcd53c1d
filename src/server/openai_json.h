// The only place where a client's JSON enters: the body of every endpoint that generates becomes an ApiRequest, checked
// once and completely by its protocol's parser (chat_protocol.cpp, ...); nothing behind it sees JSON (but the messages,
// which belong to the chat template and are type-checked here).
//
// Values and ranges are OpenAI's and vLLM's; null is absent; unknown fields are accepted and listed in
// `ignored`; what changes the meaning of an answer and is not built yet is kUnsupported and names the field.
// A request's own value wins over the model's generation_config, which wins over OpenAI's default.
//
// Pure functions, any thread. Sizes are bounded before anything is copied; the caller bounds the body itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/request.h"
#include "barg/result.h"
#include "base/json.h"
#include "server/constraint_spec.h"
#include "server/json_fields.h"
#include "server/served_model.h"
#include "text/chat_template.h"

namespace barg::server {

enum class Api : std::uint8_t { kChat, kCompletions, kResponses, kMessages };
inline constexpr std::size_t kApis = 4;

/// For FieldSpec::apis.
constexpr unsigned api_bit(Api api) { return 1U << static_cast<unsigned>(api); }
inline constexpr unsigned kChatLike = api_bit(Api::kChat) | api_bit(Api::kResponses) | api_bit(Api::kMessages);

/// What only one protocol's writer needs; made by its parser, read by its writer.
struct ProtocolExtras {
  virtual ~ProtocolExtras() = default;
};

enum class ToolMode : std::uint8_t { kAuto, kNone, kRequired, kNamed };

/// A tool as the request declares it, whatever its protocol.
struct ToolSpec {
  std::string name;
  std::string description;
  Json parameters;      ///< JSON Schema, or null
  bool strict = false;
  bool custom = false;  ///< plain text input (OpenAI's custom tools)
  std::string field = {};  ///< of the body, where its schema is: for errors
};

/// Tools are those that may be used: mode kNone leaves none, allowed_tools those it lists. See tool_rules.h.
struct ToolOptions {
  std::vector<ToolSpec> tools;
  ToolMode mode = ToolMode::kAuto;
  std::string named;            ///< with kNamed
  std::string mode_by = {};     ///< the field of the body that says the mode
  bool parallel = true;

  bool must_call() const { return mode == ToolMode::kRequired || mode == ToolMode::kNamed; }
};

struct ReasoningOptions {
  std::optional<bool> enabled;        ///< what a switch says; absent: the effort decides, else the template's default
  std::string effort;                 ///< none ... max, empty: not said
  std::optional<std::int32_t> budget; ///< most tokens of reasoning; its end is forced then
  bool show = true;                   ///< false: it is counted and not returned
  bool separate = true;               ///< false: it is part of the text, markers and all
  // The fields of the body that said so, whole paths: named where they contradict each other or have no effect.
  std::string enabled_by = {}, effort_by = {}, budget_by = {};
};

/// How the answer is to be written; the engine knows nothing of it.
struct OutputSpec {
  Api api = Api::kChat;
  bool stream = false;
  bool include_usage = false;            ///< a last chunk with the usage
  bool continuous_usage = false;         ///< usage on every chunk
  bool echo = false;                     ///< completions: the text begins with the prompt
  std::optional<std::int32_t> logprobs;  ///< alternatives per token to show, absent = no logprobs
  bool prompt_logprobs = false;          ///< show them (extension), beside what echo needs
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  std::int32_t min_tokens = 0;  ///< stop strings do not match in these first tokens
  bool whole = false;           ///< a constraint sees to it: what no stop string cuts is whole, also at its longest
  ToolOptions tools;
  ReasoningOptions reasoning;
  std::shared_ptr<const ProtocolExtras> extras;  ///< may be null
};

/// One prompt of /v1/completions, or input of /v1/embeddings: text or token ids.
struct PromptInput {
  std::string text;
  std::vector<TokenId> ids;
  bool is_ids = false;
};

struct ApiRequest {
  std::string model;
  std::vector<PromptInput> prompts;  ///< completions, at least one
  text::ChatPrompt chat;             ///< chat
  bool add_special_tokens = false;
  std::optional<std::int64_t> max_tokens;  ///< as asked; the caller clamps to what remains
  std::string_view max_tokens_field = "max_tokens";  ///< what the protocol calls it, or the client did
  SamplingParams sampling;                 ///< max_tokens not filled in
  std::int32_t n = 1;
  Priority priority = Priority::kStandard;
  std::string cache_salt;
  double cache_pin_s = 0;
  ConstraintSpec constraint;
  OutputSpec output;
  bool strict = false;               ///< strict_params: a field without effect is an error
  std::vector<std::string> ignored;  ///< fields that had no effect
};

inline constexpr std::int64_t kDefaultCompletionTokens = 16;
inline constexpr std::int32_t kMaxChoices = 128;
inline constexpr std::int64_t kMaxAllChoices = 4096;  ///< prompts times n: one request is no second queue
inline constexpr std::size_t kMaxMessages = 2048;
inline constexpr std::size_t kMaxPrompts = 1024;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 4096;
inline constexpr std::int32_t kMaxLogprobs = 20;
inline constexpr std::size_t kMaxTools = 512;
inline constexpr std::size_t kMaxToolName = 128;
inline constexpr std::size_t kMaxToolCalls = 512;  ///< of one message of the history

/// The `model` member: nullopt when absent. Fails when it is not a string or absurdly long.
Result<std::optional<std::string>> parse_model_name(const Json& body);

/// `vocab_size`: ids are checked against it.
Result<ApiRequest> parse_chat_request(const Json& body, const SamplingDefaults& defaults,
                                      std::int32_t vocab_size);
Result<ApiRequest> parse_completion_request(const Json& body, const SamplingDefaults& defaults,
                                            std::int32_t vocab_size);

/// The tables of the two below.
std::span<const FieldSpec> tokenize_fields();
std::span<const FieldSpec> detokenize_fields();

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
};
Result<TokenizeRequest> parse_tokenize_request(const Json& body);
Result<std::vector<TokenId>> parse_detokenize_request(const Json& body, std::int32_t vocab_size);

/// Value of the x-barg-ignored header: printable, bounded. Empty when nothing was ignored.
std::string ignored_header(const std::vector<std::string>& names);

}  // namespace barg::server
