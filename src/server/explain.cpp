#include "server/explain.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include "barg/constraint.h"
#include "server/api_error.h"
#include "server/handlers.h"
#include "server/openai_answer.h"
#include "server/prepare.h"
#include "server/protocol.h"

namespace barg::server {
namespace {

constexpr std::string_view kDefaultEndpoint = "/v1/chat/completions";

/// A value that sampling will use, and who says so.
struct Setting {
  std::string_view field;
  Json value;
  bool model_says;  ///< generation_config.json has one
};

std::vector<Setting> settings(const ServedModel& model, const ApiRequest& r) {
  const SamplingParams& s = r.sampling;
  const SamplingDefaults& d = model.sampling;
  return {{"temperature", s.temperature, d.temperature.has_value()},
          {"top_p", s.top_p, d.top_p.has_value()},
          {"top_k", s.top_k, d.top_k.has_value()},
          {"min_p", s.min_p, d.min_p.has_value()},
          {"repetition_penalty", s.repetition_penalty, d.repetition_penalty.has_value()},
          {"frequency_penalty", s.frequency_penalty, false},
          {"presence_penalty", s.presence_penalty, false},
          {"min_tokens", s.min_tokens, false},
          {"ignore_eos", s.ignore_eos, false},
          {"seed", s.seed ? Json(*s.seed) : Json(), false},
          {"n", r.n, false},
          {"stream", r.output.stream, false}};
}

/// Where each value comes from: "request", "generation_config" or "default".
Json settings_json(const Parsed& parsed) {
  Json out = Json::object();
  for (Setting& s : settings(*parsed.model, parsed.request)) {
    const Json* given = parsed.body.find(s.field);
    const bool asked = given != nullptr && !given->is_null() && !s.value.is_null();  // a seed of -1 is none
    out.set(std::string(s.field), Json::object({{"value", std::move(s.value)},
                                                {"from", asked          ? "request"
                                                         : s.model_says ? "generation_config"
                                                                        : "default"}}));
  }
  return out;
}

Json ignored_json(const std::vector<std::string>& names) {
  Json::Array out;
  for (const std::string& name : names) out.emplace_back(name);
  return Json(std::move(out));
}

Json dialect_json(const ServedModel& model) {
  if (!model.dialect) return nullptr;
  const text::ReasoningMarkers& markers = model.dialect->reasoning();
  Json reasoning;
  if (!markers.close.empty()) reasoning = Json::object({{"open", markers.open}, {"close", markers.close}});
  return Json::object({{"tools", std::string(text::dialect_name(model.dialect->dialect()))}, {"reasoning", reasoning}});
}

/// What the template made of the request's wishes.
Json wishes_json(const ServedModel& model, const ApiRequest& request) {
  Json::Array out;
  for (const text::AppliedOption& option : model.chat_template->applied(request.chat).options) {
    out.push_back(Json::object({{"option", option.option},
                                {"variable", option.variable.empty() ? Json() : Json(option.variable)},
                                {"value", option.value},
                                {"how", std::string(text::how_name(option.how))}}));
  }
  return Json(std::move(out));
}

/// An explanation on its way: `answer` lacks what only the engine knows.
struct Draft {
  const ServedModel* model = nullptr;
  Json answer;
  std::shared_ptr<const Request> request;  ///< of the first prompt; null where it cannot be asked for
};

/// What the request would get now, in the order in which it would get it; nullopt: an answer. Leaves in `prepared` what
/// there is to show, also behind a refusal; with prepared.must_compile there is nothing yet. An error: the body is no
/// request.
Result<std::optional<Error>> verdict(const ServerState& state, const Protocol& protocol, Parsed& parsed,
                                     bool may_compile, Prepared& prepared) {
  const ServedModel& model = *parsed.model;
  std::optional<Error> refused;
  const auto note = [&](const Result<void>& ok) {
    if (!ok && !refused) refused = ok.error();
  };
  note(check_before(model, protocol, parsed.request));
  if (refused && refused->code == ErrorCode::kContextLengthExceeded) return refused;  // by its bytes: it is not read
  note(bind_constraint(state, model, parsed.request, may_compile, prepared));
  if (prepared.must_compile) return refused;
  const auto made = make_prompts(model, protocol, parsed.request, prepared);
  const bool no_prompt = !made && prepared.prompts.size() == prepared.requests.size() &&
                         prepared.requests.size() < std::max<std::size_t>(1, parsed.request.prompts.size());
  if (no_prompt && !refused) return std::unexpected(made.error());
  note(made);
  for (const Request& request : prepared.requests) note(model.engine->check(request));
  if (!refused) note(model.engine->admissible(static_cast<std::int64_t>(prepared.prompts.front().ids.size())));
  return refused;
}

/// One longer than the context is counted and not shown.
Json prompt_json(const ServedModel& model, const PromptInfo& prompt) {
  const bool fits = prompt.ids.size() <= static_cast<std::size_t>(model.engine->info().max_model_len);
  return Json::object({{"text", fits ? Json(model.tokenizer->decode(prompt.ids, false)) : Json()},
                       {"token_ids", fits ? ids_json(prompt.ids) : Json()},
                       {"tokens", static_cast<std::int64_t>(prompt.ids.size())},
                       {"inside_reasoning", prompt.inside_reasoning}});
}

constexpr std::string_view kConstraintKinds[] = {"none", "json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"};

/// Null where nothing binds the answer.
Json constraint_json(const ApiRequest& request, const Prepared& prepared) {
  if (!constrained(request)) return nullptr;
  const ConstraintSpec& spec = request.constraint;
  const auto& bound = request.sampling.constraint;
  Json::Array lost;
  for (const text::grammar::Unenforced& u : prepared.unenforced)
    lost.push_back(Json::object({{"pointer", u.pointer}, {"keyword", u.keyword}, {"reason", u.reason}}));
  return Json::object({{"text", std::string(kConstraintKinds[static_cast<std::size_t>(spec.kind)])},
                       {"field", spec ? Json(spec.field) : Json()},
                       {"call", request.output.tools.must_call() ? "required" : request.output.tools.tools.empty() ? "none" : "allowed"},
                       {"min_tokens", bound ? Json(bound->min_tokens()) : Json()},
                       {"unenforced", Json(std::move(lost))}});
}

/// nullopt: without may_compile, and it has to be.
Result<std::optional<Draft>> draft(const ServerState& state, const Protocol& protocol, const HttpRequest& http,
                                   std::string_view api_key, bool may_compile) {
  auto parsed = parse_request(state, protocol, http, api_key, std::time(nullptr));
  if (!parsed) return std::unexpected(parsed.error());
  const ServedModel& model = *parsed->model;
  const ApiRequest& api = parsed->request;
  Prepared prepared;
  const auto refused = verdict(state, protocol, *parsed, may_compile, prepared);
  if (!refused) return std::unexpected(refused.error());
  if (prepared.must_compile) return std::nullopt;
  Json::Array prompts;
  for (const PromptInfo& prompt : prepared.prompts) prompts.push_back(prompt_json(model, prompt));
  std::shared_ptr<const Request> first;
  if (!prepared.requests.empty()) first = std::make_shared<const Request>(std::move(prepared.requests.front()));
  const Json asked = api.max_tokens ? Json(*api.max_tokens) : Json();
  const Json effective = first ? Json(first->sampling.max_tokens) : Json();
  const bool chat = api.prompts.empty();
  Json answer = Json::object({{"object", "barg.explanation"},
                              {"endpoint", std::string(protocol.path)},
                              {"model", model.names.front()},
                              {"refused", *refused ? *error_json(**refused).find("error") : Json()},
                              {"prompts", Json(std::move(prompts))},
                              {"max_model_len", model.engine->info().max_model_len},
                              {"max_tokens", Json::object({{"asked", asked}, {"effective", effective}})},
                              {"settings", settings_json(*parsed)},
                              {"ignored", ignored_json(api.ignored)},
                              {"constraint", constraint_json(api, prepared)},
                              {"dialect", dialect_json(model)},
                              {"template", chat && model.chat_template ? wishes_json(model, api) : Json()}});
  return Draft{&model, std::move(answer), std::move(first)};
}

void answer(const std::shared_ptr<Responder>& responder, HttpResponse response) {
  responder->post([responder, r = std::move(response)]() mutable { responder->respond(std::move(r)); });
}

Json forecast_json(const Forecast& f) {
  return Json::object({{"waiting", f.waiting},
                       {"running", f.running},
                       {"predicted_queue_s", f.queue_s},
                       {"predicted_ttft_s", f.first_token_s > 0 ? Json(f.first_token_s) : Json()}});
}

/// The engine's part, then the answer. A long prompt is no work for the engine's thread.
void complete(const std::shared_ptr<ServerState>& state, Draft draft, const std::shared_ptr<Responder>& responder) {
  const auto stopped = [responder] {
    answer(responder, error_response({ErrorCode::kUnavailable, "the server is shutting down", "", 1}));
  };
  auto body = std::make_shared<Json>(std::move(draft.answer));
  const auto send = [body, responder](const Json& cached, const Json& queue) {
    body->set("cached_tokens", cached);
    body->set("queue", queue);
    answer(responder, json_response(*body));
  };
  if (!draft.request) return send(nullptr, nullptr);
  const bool asked = draft.model->engine->forecast(draft.request, [state, send, stopped](const Forecast& f) {
    if (!state->text_pool->submit([send, f] { send(f.cached_tokens, forecast_json(f)); })) stopped();
  });
  if (!asked) stopped();
}

/// False: the pool is full. What must be compiled goes on to where that may be done.
bool explain_on(CpuPool& pool, const std::shared_ptr<ServerState>& state, HttpRequest request,
                const std::shared_ptr<Responder>& responder, const Protocol* protocol, bool may_compile) {
  return pool.submit([state, request = std::move(request), responder, protocol, may_compile]() mutable {
    auto made = draft(*state, *protocol, request, asking_key(*state, request), may_compile);
    if (!made) return answer(responder, error_response(made.error()));
    if (*made) return complete(state, std::move(**made), responder);
    if (explain_on(*state->compile_pool, state, std::move(request), responder, protocol, true)) return;
    answer(responder, error_response({ErrorCode::kUnavailable, "too many structured outputs are being compiled", "", 1}));
  });
}

}  // namespace

void explain(const std::shared_ptr<ServerState>& state, HttpRequest request, std::shared_ptr<Responder> responder) {
  const bool named = request.target.find("endpoint=") != std::string::npos;  // a broken escape is no default
  const auto endpoint = query_value(request.target, "endpoint");
  const Protocol* protocol = protocol_at(endpoint ? *endpoint : named ? "" : kDefaultEndpoint);
  if (protocol == nullptr) {
    return responder->respond(error_response(
        {ErrorCode::kInvalidValue, "endpoint must be the path of an endpoint that generates, such as /v1/responses",
         "endpoint", 0}));
  }
  if (!explain_on(*state->text_pool, state, std::move(request), responder, protocol, false))
    responder->respond(error_response({ErrorCode::kUnavailable, "too many requests are being prepared", "", 1}));
}

}  // namespace barg::server
