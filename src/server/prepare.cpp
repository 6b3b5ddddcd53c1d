#include "server/prepare.h"

#include <algorithm>

#include "server/cache_salt.h"

namespace barg::server {
namespace {

constexpr std::int64_t kBytesPerToken = 4;  // of ordinary text, for the admission estimate
/// Normalisation may shrink text before it is tokenised (three bytes of a full-width letter to one).
constexpr std::size_t kNormalisationFactor = 4;
constexpr std::size_t kMaxNameShown = 128;
/// Log-probabilities of prompts in one answer (about 30 bytes each). They come all at once, and an echo
/// repeats them for every choice.
constexpr std::int64_t kMaxPromptScores = 1 << 20;

Error too_long(const EngineInfo& info, std::int64_t tokens, bool at_least, Api api) {
  const bool chat = api == Api::kChat;
  std::string message = "This model's maximum context length is " + std::to_string(info.max_model_len) +
                        " tokens. However, your " + (chat ? "messages" : "prompt") + " resulted in " +
                        (at_least ? "at least " : "") + std::to_string(tokens) +
                        " tokens. Please reduce the length of the " + (chat ? "messages." : "prompt.");
  return {ErrorCode::kContextLengthExceeded, std::move(message), chat ? "messages" : "prompt", 0};
}

std::size_t text_bytes(const Json& value) {
  if (value.is_string()) return value.as_string().size();
  std::size_t sum = 0;
  if (value.is_array()) {
    for (const Json& part : value.as_array()) {
      if (const Json* text = part.find("text"); text && text->is_string()) sum += text->as_string().size();
    }
  }
  return sum;
}

/// Client text of each prompt in bytes, or token counts where ids were given.
struct Size {
  std::size_t bytes = 0;
  std::size_t ids = 0;
};
std::vector<Size> sizes(const ApiRequest& request) {
  std::vector<Size> out;
  if (request.output.api == Api::kChat) {
    Size s;
    for (const Json& m : request.chat.messages.as_array()) {
      if (const Json* content = m.find("content")) s.bytes += text_bytes(*content);
    }
    out.push_back(s);
  }
  for (const PromptInput& p : request.prompts) out.push_back({.bytes = p.text.size(), .ids = p.ids.size()});
  return out;
}

/// What can be refused without tokenising.
Result<void> check_before(const ServedModel& model, const ApiRequest& request) {
  const EngineInfo& info = model.engine->info();
  std::int64_t estimate = 0;
  for (const Size& s : sizes(request)) {
    const std::size_t most = std::max<std::size_t>(1, model.max_token_bytes) * kNormalisationFactor;
    const auto least = static_cast<std::int64_t>(s.ids + s.bytes / most);
    if (least > info.max_model_len)
      return std::unexpected(too_long(info, least, s.ids == 0, request.output.api));
    estimate += static_cast<std::int64_t>(s.ids) +
                std::max<std::int64_t>(1, static_cast<std::int64_t>(s.bytes) / kBytesPerToken);
  }
  return model.engine->admissible(estimate);
}

Result<PromptInfo> chat_prompt(const ServedModel& model, const ApiRequest& request) {
  if (!model.chat_template)
    return fail(ErrorCode::kUnsupported, "this model has no chat template", "messages");
  auto rendered = model.chat_template->render(request.chat);
  if (!rendered) return std::unexpected(rendered.error());
  PromptInfo info;
  info.ids = model.tokenizer->encode_marked(rendered->pieces());
  const auto bos = model.tokenizer->bos();
  if (request.add_special_tokens && bos && (info.ids.empty() || info.ids[0] != *bos))
    info.ids.insert(info.ids.begin(), *bos);
  return info;
}

PromptInfo completion_prompt(const ServedModel& model, const ApiRequest& request, const PromptInput& input) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const bool need_text = request.output.echo || request.output.logprobs;
  PromptInfo info;
  if (input.is_ids) {
    info.ids = input.ids;
    if (need_text) info.text = tokenizer.decode(input.ids, request.output.skip_special_tokens);
    return info;
  }
  info.ids = tokenizer.encode(
      input.text, {.add_special_tokens = request.add_special_tokens, .parse_special_tokens = true});
  if (need_text) {
    info.text = input.text;
    info.from_text = true;
    const auto added = [&](std::optional<TokenId> id, TokenId at, std::string_view literal, bool front) {
      return request.add_special_tokens && id && at == *id &&
             !(front ? input.text.starts_with(literal) : input.text.ends_with(literal));
    };
    if (!info.ids.empty()) {
      info.added_front = added(tokenizer.bos(), info.ids.front(), tokenizer.special_text("bos_token"), true);
      info.added_back = info.ids.size() > 1 &&
                        added(tokenizer.eos(), info.ids.back(), tokenizer.special_text("eos_token"), false);
    }
  }
  return info;
}

Result<Request> engine_request(const EngineInfo& info, const ApiRequest& api, const PromptInfo& prompt,
                               Prepared& out) {
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  if (length == 0)
    return fail(ErrorCode::kInvalidValue, "the prompt has no tokens",
                api.output.api == Api::kChat ? "messages" : "prompt");
  const std::int64_t room = info.max_model_len - length;
  const bool scoring = api.max_tokens == 0;
  if (room < 0 || (room == 0 && !scoring))
    return std::unexpected(too_long(info, length, false, api.output.api));
  Request request;
  request.prompt = prompt.ids;
  request.sampling = api.sampling;
  request.sampling.max_tokens = static_cast<std::int32_t>(std::min(room, api.max_tokens.value_or(room)));
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  if (api.max_tokens && request.sampling.max_tokens < *api.max_tokens)
    out.clamped_max_tokens = request.sampling.max_tokens;
  request.n = api.n;
  request.priority = api.priority;
  request.cache_salt = api.cache_salt;
  request.cache_pin_s = api.cache_pin_s;
  request.follows = !out.requests.empty();
  return request;
}

Result<void> check_prompt_scores(const ApiRequest& api, const Prepared& prepared) {
  if (!api.sampling.prompt_logprobs) return {};
  std::int64_t scores = 0;
  for (const PromptInfo& prompt : prepared.prompts) scores += static_cast<std::int64_t>(prompt.ids.size());
  scores *= (*api.sampling.prompt_logprobs + 1) * (api.output.echo ? api.n : 1);
  if (scores <= kMaxPromptScores) return {};
  const bool repeated = api.output.echo && api.n > 1;
  return fail(ErrorCode::kInvalidValue,
              "the answer would have " + std::to_string(scores) +
                  " log-probabilities of prompt tokens; at most " + std::to_string(kMaxPromptScores) +
                  " are allowed: give fewer prompts, or a smaller n or logprobs",
              repeated          ? "n"
              : api.output.echo ? "logprobs"
                                : "prompt_logprobs");
}

Result<void> fill(const ServedModel& model, const ApiRequest& api, Prepared& out) {
  if (auto ok = check_before(model, api); !ok) return ok;
  const auto add = [&](PromptInfo info) -> Result<void> {
    auto request = engine_request(model.engine->info(), api, info, out);
    if (!request) return std::unexpected(request.error());
    out.requests.push_back(std::move(*request));
    out.prompts.push_back(std::move(info));
    return {};
  };
  if (api.output.api == Api::kChat) {
    auto info = chat_prompt(model, api);
    if (!info) return std::unexpected(info.error());
    if (auto ok = add(std::move(*info)); !ok) return ok;
  }
  for (const PromptInput& input : api.prompts) {
    if (auto ok = add(completion_prompt(model, api, input)); !ok) return ok;
  }
  return check_prompt_scores(api, out);
}

}  // namespace

Result<const ServedModel*> find_model(const ServerState& state, const Json& body) {
  auto name = parse_model_name(body);
  if (!name) return std::unexpected(name.error());
  if (!*name) return &state.models.front();
  if (const ServedModel* model = state.find(**name)) return model;
  return fail(ErrorCode::kNotFound,
              "the model " + json_quote((*name)->substr(0, kMaxNameShown)) + " does not exist", "model");
}

Result<Prepared> prepare(const ServerState& state, Api api, std::string_view body, std::string_view api_key) {
  auto json = parse_json(body);
  if (!json) return std::unexpected(json.error());
  auto model = find_model(state, *json);
  if (!model) return std::unexpected(model.error());
  const auto vocab = (*model)->engine->info().vocab_size;
  auto request = api == Api::kChat ? parse_chat_request(*json, (*model)->sampling, vocab)
                                   : parse_completion_request(*json, (*model)->sampling, vocab);
  if (!request) return std::unexpected(request.error());
  if (const std::string& secret = (*model)->salt_secret; !secret.empty())
    request->cache_salt = derived_salt(secret, api_key, request->cache_salt);
  Prepared out;
  out.model = *model;
  out.n = request->n;
  if (auto ok = fill(**model, *request, out); !ok) return std::unexpected(ok.error());
  out.output = std::move(request->output);
  out.ignored = std::move(request->ignored);
  return out;
}

}  // namespace barg::server
