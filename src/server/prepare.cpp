#include "server/prepare.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "server/cache_salt.h"
#include "server/request_rules.h"
#include "server/tool_rules.h"
#include "text/unicode.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxNameShown = 128;
/// Log-probabilities of prompts in one answer (about 30 bytes each). They come all at once, and an echo
/// repeats them for every choice.
constexpr std::int64_t kMaxPromptScores = 1 << 20;

Error too_long(const EngineInfo& info, std::int64_t tokens, bool at_least, const Protocol& protocol) {
  const std::string field(protocol.prompt_field);
  std::string message = "This model's maximum context length is " + std::to_string(info.max_model_len) +
                        " tokens. However, your " + field + " resulted in " + (at_least ? "at least " : "") +
                        std::to_string(tokens) + " tokens. Please reduce the length of the " + field + ".";
  return {ErrorCode::kContextLengthExceeded, std::move(message), field, 0};
}

/// Without the white space at both ends, which many templates cut off. REQUIRES valid UTF-8.
std::size_t trimmed_bytes(std::string_view text) {
  const auto is_space = [&](std::size_t at) {
    const char32_t cp = text::decode_utf8(text, at).value;
    return cp <= ' ' || (text::char_class(cp) & text::kSpace) != 0;
  };
  while (!text.empty() && is_space(0)) text.remove_prefix(text::decode_utf8(text, 0).bytes);
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_space(last)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

std::size_t text_bytes(const Json& value) {
  if (value.is_string()) return trimmed_bytes(value.as_string());
  std::size_t sum = 0;
  if (value.is_array()) {
    for (const Json& part : value.as_array()) {
      if (const Json* text = part.find("text"); text && text->is_string()) sum += trimmed_bytes(text->as_string());
    }
  }
  return sum;
}

/// Bytes of all strings in a value.
std::size_t string_bytes(const Json& value) {
  std::size_t sum = value.is_string() ? value.as_string().size() : 0;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) sum += string_bytes(item);
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.as_object()) sum += name.size() + string_bytes(member);
  }
  return sum;
}

/// Client text of each prompt in bytes, or token counts where ids were given.
struct Size {
  std::size_t bytes = 0;       ///< that is in the prompt whatever the template does
  std::size_t more_bytes = 0;  ///< that probably is
  std::size_t ids = 0;
};
std::vector<Size> sizes(const ApiRequest& request) {
  std::vector<Size> out;
  for (const PromptInput& p : request.prompts)
    out.push_back({.bytes = p.text.size(), .more_bytes = 0, .ids = p.ids.size()});
  if (!request.prompts.empty()) return out;
  Size s;
  for (const Json& m : request.chat.messages.as_array()) {
    const Json* role = m.find("role");
    // Of what a model said, templates leave out the reasoning.
    const bool said = role != nullptr && role->is_string() && role->as_string() == "assistant";
    if (const Json* content = m.find("content")) (said ? s.more_bytes : s.bytes) += text_bytes(*content);
    if (const Json* calls = m.find("tool_calls")) s.more_bytes += string_bytes(*calls);
  }
  s.more_bytes += string_bytes(request.chat.tools);
  out.push_back(s);
  return out;
}

}  // namespace

std::int64_t least_tokens(const Tokenizer& tokenizer, std::size_t bytes) {
  const std::optional<std::size_t> most = tokenizer.max_text_bytes();
  return most ? static_cast<std::int64_t>(bytes / *most) : 0;
}

Result<void> check_before(const ServedModel& model, const Protocol& protocol, const ApiRequest& request) {
  const EngineInfo& info = model.engine->info();
  std::int64_t estimate = 0;
  for (const Size& s : sizes(request)) {
    const auto least = static_cast<std::int64_t>(s.ids) + least_tokens(*model.tokenizer, s.bytes);
    if (least > info.max_model_len) return std::unexpected(too_long(info, least, s.ids == 0, protocol));
    const auto bytes = static_cast<std::int64_t>(s.bytes + s.more_bytes);
    estimate += static_cast<std::int64_t>(s.ids) + std::max<std::int64_t>(1, bytes / kBytesPerToken);
  }
  return model.engine->admissible(estimate);
}

namespace {

/// The model goes on with words of its own, which the client gave back: a block of reasoning that they open is open.
bool continues_answer(const text::ChatPrompt& chat) {
  if (!chat.continue_final_message || chat.messages.size() == 0) return false;
  const Json* role = chat.messages.as_array().back().find("role");
  return role && role->is_string() && role->as_string() == "assistant";
}

Result<PromptInfo> chat_prompt(const ServedModel& model, const Protocol& protocol, const ApiRequest& request) {
  if (!model.chat_template)
    return fail(ErrorCode::kUnsupported, "this model has no chat template", std::string(protocol.prompt_field));
  auto rendered = model.chat_template->render(request.chat);
  if (!rendered) {
    Error error = rendered.error();
    if (error.param.starts_with("messages") && protocol.prompt_field != "messages") error.param = protocol.prompt_field;
    return std::unexpected(std::move(error));
  }
  PromptInfo info;
  auto ids = model.tokenizer->try_encode_marked(rendered->pieces());
  if (!ids) return fail(ids.error().code, ids.error().message, std::string(protocol.prompt_field));
  info.ids = std::move(*ids);
  const auto bos = model.tokenizer->bos();
  if (request.add_special_tokens && bos && (info.ids.empty() || info.ids[0] != *bos))
    info.ids.insert(info.ids.begin(), *bos);
  if (model.dialect) {
    const bool continues = continues_answer(request.chat);
    info.inside_reasoning = text::reasoning_open(model.dialect->reasoning(),
                                                 continues ? rendered->continued_tail() : rendered->trusted_tail());
  }
  return info;
}

Result<PromptInfo> completion_prompt(const ServedModel& model, const ApiRequest& request, const PromptInput& input) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const bool need_text = request.output.echo || request.output.logprobs;
  PromptInfo info;
  if (input.is_ids) {
    info.ids = input.ids;
    if (need_text) info.text = tokenizer.decode(input.ids, request.output.skip_special_tokens);
    return info;
  }
  auto ids = tokenizer.try_encode(
      input.text, {.add_special_tokens = request.add_special_tokens, .parse_special_tokens = true});
  if (!ids) return fail(ids.error().code, ids.error().message, "prompt");
  info.ids = std::move(*ids);
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

/// A budget of reasoning becomes what the sampler needs to end it; a model without reasoning keeps every budget.
std::optional<ReasoningLimit> reasoning_limit(const ServedModel& model, const ApiRequest& api, const PromptInfo& prompt) {
  auto budget = api.output.reasoning.budget;
  // A constraint begins behind the reasoning, so the sampler has to know where that ends.
  const bool reasons = api.output.api != Api::kCompletions && (prompt.inside_reasoning || api.output.reasoning.enabled != false);
  if (!budget && api.sampling.constraint && reasons) budget = std::numeric_limits<std::int32_t>::max();
  if (!budget || !model.dialect || model.dialect->reasoning().close.empty()) return std::nullopt;
  const text::ReasoningMarkers& markers = model.dialect->reasoning();
  const EncodeOptions options{.add_special_tokens = false, .parse_special_tokens = true};
  ReasoningLimit limit{.budget = *budget,
                       .open = prompt.inside_reasoning,
                       .begin = model.tokenizer->encode(markers.open, options),
                       .close = model.tokenizer->encode(markers.close, options)};
  if (limit.close.empty()) return std::nullopt;
  return limit;
}

/// A model that waits for a call's result has ended its answer, whether its files say so or not.
void add_call_ends(const ServedModel& model, const ApiRequest& api, SamplingParams& sampling) {
  if (!model.dialect || api.output.tools.tools.empty() || sampling.ignore_eos) return;
  for (const TokenId id : model.dialect->call_end_ids()) {
    const auto known = [id](const std::vector<TokenId>& ids) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
    if (!known(model.engine->info().end_ids) && !known(sampling.stop_token_ids)) sampling.stop_token_ids.push_back(id);
  }
}

/// What the engine says of a request with a constraint, in the protocol's words.
Result<void> check_constrained(const ServedModel& model, const Protocol& protocol, const ApiRequest& api,
                               const Request& request) {
  if (!request.sampling.constraint) return {};
  auto ok = model.engine->check(request);
  if (ok) return {};
  Error error = ok.error();
  constexpr std::string_view kBudget = "max_tokens";
  if (error.param == kBudget) {
    if (error.message.starts_with(kBudget)) error.message.replace(0, kBudget.size(), api.max_tokens_field);
    error.param = api.max_tokens_field;
  }
  if (error.param == "prompt") error.param = protocol.prompt_field;
  return std::unexpected(std::move(error));
}

/// Prompt `index` of the request (a conversation has one), of any length.
Result<PromptInfo> tokenised_prompt(const ServedModel& model, const Protocol& protocol, const ApiRequest& request,
                                    std::size_t index) {
  if (request.prompts.empty()) return chat_prompt(model, protocol, request);
  return completion_prompt(model, request, request.prompts[index]);
}

/// What the engine is asked for; refuses what does not fit its context.
Result<Request> engine_request(const ServedModel& model, const Protocol& protocol, const ApiRequest& api,
                               const PromptInfo& prompt) {
  const EngineInfo& info = model.engine->info();
  const auto length = static_cast<std::int64_t>(prompt.ids.size());
  if (length == 0)
    return fail(ErrorCode::kInvalidValue, "the prompt has no tokens", std::string(protocol.prompt_field));
  const std::int64_t room = info.max_model_len - length;
  const bool scoring = api.max_tokens == 0;
  if (room < 0 || (room == 0 && !scoring)) return std::unexpected(too_long(info, length, false, protocol));
  Request request;
  request.prompt = prompt.ids;
  request.sampling = api.sampling;
  request.sampling.max_tokens = static_cast<std::int32_t>(std::min(room, api.max_tokens.value_or(room)));
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, request.sampling.max_tokens);
  request.sampling.reasoning = reasoning_limit(model, api, prompt);
  add_call_ends(model, api, request.sampling);
  request.n = api.n;
  request.priority = api.priority;
  request.cache_salt = api.cache_salt;
  request.cache_pin_s = api.cache_pin_s;
  if (auto ok = check_constrained(model, protocol, api, request); !ok) return std::unexpected(ok.error());
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

/// Adds what the request says of reasoning and this model has no choice of. Not to reason is what a model without
/// reasoning does.
void list_without_effect(const ServedModel& model, ApiRequest& request) {
  const ReasoningOptions& asked = request.output.reasoning;
  const bool reasons = model.dialect && !model.dialect->reasoning().close.empty();
  const auto add = [&ignored = request.ignored](const std::string& path) {
    if (!path.empty() && std::find(ignored.begin(), ignored.end(), path) == ignored.end()) ignored.push_back(path);
  };
  if (!reasons) add(asked.budget_by);
  if (!model.chat_template || !request.prompts.empty()) return;
  for (const text::AppliedOption& option : model.chat_template->applied(request.chat).options) {
    if (option.how != text::AppliedOption::How::kNoEffect) continue;
    const bool off = option.value == Json(false) || option.value == Json("none");
    if (off && !reasons) continue;
    const bool effort = option.option == "reasoning_effort" || asked.enabled_by.empty();
    add(effort ? asked.effort_by : asked.enabled_by);
  }
}

std::optional<std::tm> local_time(std::time_t now, std::optional<std::int64_t> utc_offset) {
  std::tm out{};
  const std::time_t shifted = now + utc_offset.value_or(0);
  const std::tm* there = utc_offset ? gmtime_r(&shifted, &out) : localtime_r(&now, &out);
  return there != nullptr ? std::optional(out) : std::nullopt;
}

/// What a template is told beside the messages.
void complete_chat(ApiRequest& request) {
  request.chat.tools = template_tools(request.output.tools);
  request.chat.thinking = request.output.reasoning.enabled;
  request.chat.reasoning_effort = request.output.reasoning.effort;
}

}  // namespace

Result<void> bind_constraint(const ServerState& state, const ServedModel& model, ApiRequest& request, bool may_compile,
                             Prepared& out) {
  if (!constrained(request)) return {};
  auto compiled = state.constraints->find(model, request);
  if (!compiled && !may_compile) {
    out.must_compile = true;
    return {};
  }
  if (!compiled) {
    auto made = state.constraints->compile(model, request);
    if (!made) return std::unexpected(made.error());
    compiled = std::move(*made);
  }
  request.sampling.constraint = compiled->constraint;
  request.output.whole = true;
  out.unenforced = compiled->unenforced;
  return {};
}

Result<void> make_prompts(const ServedModel& model, const Protocol& protocol, const ApiRequest& api, Prepared& out) {
  const std::size_t prompts = std::max<std::size_t>(1, api.prompts.size());
  for (std::size_t i = 0; i < prompts; ++i) {
    auto info = tokenised_prompt(model, protocol, api, i);
    if (!info) return std::unexpected(info.error());
    out.prompts.push_back(std::move(*info));
    auto request = engine_request(model, protocol, api, out.prompts.back());
    if (!request) return std::unexpected(request.error());
    request->follows = i > 0;
    if (api.max_tokens && request->sampling.max_tokens < *api.max_tokens)
      out.clamped_max_tokens = request->sampling.max_tokens;
    out.requests.push_back(std::move(*request));
  }
  return check_prompt_scores(api, out);
}

Result<PromptInfo> render_prompt(const ServedModel& model, const Protocol& protocol, ApiRequest& request) {
  complete_chat(request);
  return chat_prompt(model, protocol, request);
}

Result<const ServedModel*> find_model(const ServerState& state, const Json& body) {
  auto name = parse_model_name(body);
  if (!name) return std::unexpected(name.error());
  if (!*name) return &state.models.front();
  if (const ServedModel* model = state.find(**name)) return model;
  return fail(ErrorCode::kNotFound,
              "the model " + json_quote((*name)->substr(0, kMaxNameShown)) + " does not exist", "model");
}

Result<Parsed> parse_request(const ServerState& state, const Protocol& protocol, const HttpRequest& http,
                             std::string_view api_key, std::time_t now) {
  auto json = parse_json(http.body);
  if (!json) return std::unexpected(json.error());
  auto model = find_model(state, *json);
  if (!model) return std::unexpected(model.error());
  if ((*model)->engine->info().embedding.size > 0) {
    return fail(ErrorCode::kUnsupported,
                "the model " + json_quote((*model)->names.front()) +
                    " computes embeddings and generates nothing: ask /v1/embeddings",
                "model");
  }
  auto request =
      protocol.parse(*json, {.state = state, .model = **model, .request = http, .api_key = api_key});
  if (!request) return std::unexpected(request.error());
  if (const std::string& secret = (*model)->salt_secret; !secret.empty())
    request->cache_salt = derived_salt(secret, api_key, request->cache_salt);
  complete_chat(*request);
  list_without_effect(**model, *request);
  if (auto ok = check_strict(*request); !ok) return std::unexpected(ok.error());
  request->chat.now = local_time(now, state.utc_offset);
  return Parsed{.model = *model, .request = std::move(*request), .body = std::move(*json)};
}

Result<Prepared> prepare(const ServerState& state, const Protocol& protocol, const HttpRequest& http,
                         std::string_view api_key, std::time_t now, bool may_compile) {
  auto parsed = parse_request(state, protocol, http, api_key, now);
  if (!parsed) return std::unexpected(parsed.error());
  ApiRequest& request = parsed->request;
  Prepared out;
  out.model = parsed->model;
  out.created = now;
  out.n = request.n;
  if (auto ok = check_before(*out.model, protocol, request); !ok) return std::unexpected(ok.error());
  if (auto ok = bind_constraint(state, *out.model, request, may_compile, out); !ok) return std::unexpected(ok.error());
  if (out.must_compile) return out;
  if (auto ok = make_prompts(*out.model, protocol, request, out); !ok) return std::unexpected(ok.error());
  out.output = std::move(request.output);
  out.ignored = std::move(request.ignored);
  return out;
}

}  // namespace barg::server
