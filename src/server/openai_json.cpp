#include "server/openai_json.h"

#include <algorithm>
#include <limits>

#include "server/json_fields.h"
#include "server/request_rules.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxModelBytes = 4096;
constexpr std::size_t kMaxIgnoredShown = 16;
constexpr std::size_t kMaxIgnoredNameBytes = 64;

/// Unknown fields are listed, not refused: clients send many. strict_params refuses them.
Result<ApiRequest> finish(ApiRequest request, Fields& fields) {
  const bool strict = fields.boolean("strict_params").value_or(false);
  if (!fields.ok()) return std::unexpected(*fields.error());
  for (std::string& name : fields.unread()) request.ignored.push_back(std::move(name));
  if (!strict || request.ignored.empty()) return request;
  return fail(ErrorCode::kUnsupported, "with strict_params: a field that has no effect here",
              request.ignored.front());
}

void read_stream_options(Fields& fields, ApiRequest& request) {
  OutputSpec& out = request.output;
  out.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (!options) return;
  Fields inner(*options, "stream_options.");
  const bool usage = inner.boolean("include_usage").value_or(false);
  const bool continuous = inner.boolean("continuous_usage_stats").value_or(false);
  inner.boolean("include_obfuscation");
  if (inner.error()) fields.fail(inner.error()->code, inner.error()->message, inner.error()->param);
  for (std::string& name : inner.unread()) request.ignored.push_back(std::move(name));
  if (!out.stream) return;  // meaningless without a stream, and standard clients send it all the same
  out.include_usage = usage;
  out.continuous_usage = usage && continuous;
}

/// Everything both endpoints share.
void read_common(Fields& fields, ApiRequest& request, const SamplingDefaults& defaults, std::int32_t vocab) {
  fields.get("model");
  refuse_unsupported(fields, request.output.api);
  read_stream_options(fields, request);
  read_sampling(fields, request, defaults, vocab);
  read_stops(fields, request.output);
  request.n = static_cast<std::int32_t>(fields.integer("n", 1, kMaxChoices).value_or(1));
  if (const auto best_of = fields.integer("best_of", 1, kMaxChoices); best_of && *best_of != request.n) {
    fields.fail(ErrorCode::kUnsupported, "best_of is supported only where it equals n", "best_of");
  }
  read_identity(fields, request);
  OutputSpec& out = request.output;
  out.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  out.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  out.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  out.min_tokens = request.sampling.min_tokens;
  if (const auto n = fields.integer("prompt_logprobs", 0, kMaxLogprobs)) {
    out.prompt_logprobs = true;
    request.sampling.prompt_logprobs = static_cast<std::int32_t>(*n);
    if (out.stream)
      fields.fail(ErrorCode::kInvalidValue, "prompt_logprobs cannot be streamed", "prompt_logprobs");
  }
}

void read_chat_logprobs(Fields& fields, ApiRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxLogprobs);
  if (top.value_or(0) > 0 && !wanted) {
    fields.fail(ErrorCode::kInvalidValue, "top_logprobs needs logprobs to be true", "top_logprobs");
  }
  if (!wanted) return;
  request.output.logprobs = static_cast<std::int32_t>(top.value_or(0));
  request.sampling.logprobs = request.output.logprobs;
}

void read_completion_logprobs(Fields& fields, ApiRequest& request) {
  const Json* value = fields.get("logprobs");
  if (!value || (value->is_bool() && !value->as_bool())) return;
  const auto n = fields.integer("logprobs", 0, kMaxLogprobs);
  if (!n) return;
  request.output.logprobs = static_cast<std::int32_t>(*n);
  request.sampling.logprobs = request.output.logprobs;
  if (request.output.echo && request.sampling.prompt_logprobs.value_or(0) < *n) {
    request.sampling.prompt_logprobs = request.output.logprobs;
  }
  if (request.output.echo && !request.sampling.prompt_logprobs) request.sampling.prompt_logprobs = 0;
}

void check_min_tokens(Fields& fields, const ApiRequest& request) {
  if (request.max_tokens && request.sampling.min_tokens > *request.max_tokens) {
    fields.fail(ErrorCode::kInvalidValue, "min_tokens is larger than max_tokens", "min_tokens");
  }
}

bool has_item_type(const Json& list, auto predicate) {
  return std::all_of(list.as_array().begin(), list.as_array().end(), predicate);
}

std::vector<TokenId> read_ids(Fields& fields, const Json& list, const std::string& path, std::int32_t vocab) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (const Json& item : list.as_array()) {
    const auto id = whole_number(item);
    if (!id || *id < 0 || *id >= vocab) {
      const std::string at = path + "[" + std::to_string(ids.size()) + "]";
      fields.fail(ErrorCode::kInvalidValue, at + " must be a token id from 0 to " + std::to_string(vocab - 1),
                  at);
      return {};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

/// string | [string] | [int] | [[int]], nothing empty, nothing mixed.
void read_prompt(Fields& fields, ApiRequest& request, std::int32_t vocab) {
  const Json* prompt = fields.get("prompt");
  if (!prompt) return fields.fail(ErrorCode::kMissingParameter, "prompt is missing", "prompt");
  const auto invalid = [&](std::string message) {
    fields.fail(ErrorCode::kInvalidValue, std::move(message), "prompt");
  };
  if (prompt->is_string()) {
    if (prompt->as_string().empty()) return invalid("prompt is empty");
    request.prompts.push_back({.text = prompt->as_string(), .ids = {}, .is_ids = false});
    return;
  }
  if (!prompt->is_array()) return invalid("prompt must be a string, an array of strings, or token ids");
  if (prompt->size() == 0) return invalid("prompt is empty");
  if (has_item_type(*prompt, [](const Json& j) { return j.is_number(); })) {
    request.prompts.push_back(
        {.text = {}, .ids = read_ids(fields, *prompt, "prompt", vocab), .is_ids = true});
    return;
  }
  if (prompt->size() > kMaxPrompts) return invalid("more than " + std::to_string(kMaxPrompts) + " prompts");
  const bool strings = has_item_type(*prompt, [](const Json& j) { return j.is_string(); });
  const bool lists = has_item_type(*prompt, [](const Json& j) { return j.is_array(); });
  if (!strings && !lists)
    return invalid("prompt mixes types; give strings, or token ids, or arrays of token ids");
  for (std::size_t i = 0; i < prompt->size() && fields.ok(); ++i) {
    const Json& item = prompt->as_array()[i];
    const std::string path = "prompt[" + std::to_string(i) + "]";
    const bool empty = strings ? item.as_string().empty() : item.size() == 0;
    if (empty) return fields.fail(ErrorCode::kInvalidValue, path + " is empty", path);
    if (strings) {
      request.prompts.push_back({.text = item.as_string(), .ids = {}, .is_ids = false});
    } else {
      request.prompts.push_back({.text = {}, .ids = read_ids(fields, item, path, vocab), .is_ids = true});
    }
  }
}

}  // namespace

Result<std::optional<std::string>> parse_model_name(const Json& body) {
  Fields fields(body);
  auto name = fields.string("model", kMaxModelBytes);
  if (!fields.ok() && body.is_object() && body.find("model")->is_string()) {
    return fail(ErrorCode::kNotFound, "no model has such a long name", "model");
  }
  if (!fields.ok()) return std::unexpected(*fields.error());
  return name;
}

Result<ApiRequest> parse_chat_request(const Json& body, const SamplingDefaults& defaults,
                                      std::int32_t vocab_size) {
  Fields fields(body);
  ApiRequest request;
  request.output.api = Api::kChat;
  read_messages(fields, request.chat);
  read_common(fields, request, defaults, vocab_size);
  read_chat_logprobs(fields, request);
  const auto top = std::numeric_limits<std::int64_t>::max();
  const auto alias = fields.integer("max_tokens", 1, top);
  request.max_tokens = fields.integer("max_completion_tokens", 1, top);
  if (!request.max_tokens) request.max_tokens = alias;
  check_min_tokens(fields, request);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);
  return finish(std::move(request), fields);
}

Result<ApiRequest> parse_completion_request(const Json& body, const SamplingDefaults& defaults,
                                            std::int32_t vocab_size) {
  Fields fields(body);
  ApiRequest request;
  request.output.api = Api::kCompletions;
  read_prompt(fields, request, vocab_size);
  request.output.echo = fields.boolean("echo").value_or(false);
  read_common(fields, request, defaults, vocab_size);
  read_completion_logprobs(fields, request);
  if (static_cast<std::int64_t>(request.prompts.size()) * request.n > kMaxAllChoices) {
    fields.fail(ErrorCode::kInvalidValue, "prompts times n may be at most " + std::to_string(kMaxAllChoices),
                "n");
  }
  const bool scoring = request.output.echo || request.output.prompt_logprobs;
  request.max_tokens =
      fields.integer("max_tokens", scoring ? 0 : 1, std::numeric_limits<std::int64_t>::max())
          .value_or(std::max<std::int64_t>(kDefaultCompletionTokens, request.sampling.min_tokens));
  check_min_tokens(fields, request);
  // A prompt that is only scored: the engine runs it for its log-probabilities.
  if (request.max_tokens == 0 && !request.sampling.prompt_logprobs) request.sampling.prompt_logprobs = 0;
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  return finish(std::move(request), fields);
}

Result<TokenizeRequest> parse_tokenize_request(const Json& body) {
  Fields fields(body);
  fields.get("model");
  TokenizeRequest request;
  if (const Json* prompt = fields.get("prompt"); !prompt) {
    fields.fail(ErrorCode::kMissingParameter, "prompt is missing", "prompt");
  }
  request.text = fields.string("prompt", std::numeric_limits<std::size_t>::max()).value_or("");
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  if (!fields.ok()) return std::unexpected(*fields.error());
  return request;
}

Result<std::vector<TokenId>> parse_detokenize_request(const Json& body, std::int32_t vocab_size) {
  Fields fields(body);
  if (!fields.get("tokens")) fields.fail(ErrorCode::kMissingParameter, "tokens is missing", "tokens");
  auto ids = fields.token_ids("tokens", std::numeric_limits<std::size_t>::max(), vocab_size);
  if (!fields.ok()) return std::unexpected(*fields.error());
  return ids;
}

std::string ignored_header(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < kMaxIgnoredShown; ++i) {
    if (!out.empty()) out += ", ";
    for (const char c : names[i].substr(0, kMaxIgnoredNameBytes)) {
      const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         c == '_' || c == '.' || c == '-';
      out += plain ? c : '?';
    }
  }
  if (names.size() > kMaxIgnoredShown) out += ", ...";
  return out;
}

}  // namespace barg::server
