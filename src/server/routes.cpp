#include "server/routes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/embeddings.h"
#include "server/embeddings_request.h"
#include "server/explain.h"
#include "server/generation.h"
#include "server/handlers.h"
#include "server/messages_error.h"
#include "server/messages_handlers.h"
#include "server/messages_request.h"
#include "server/metrics_text.h"
#include "server/openapi.h"
#include "server/prepare.h"
#include "server/responses_routes.h"

namespace barg::server {
namespace {

using State = std::shared_ptr<ServerState>;
using Answerer = std::shared_ptr<Responder>;

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr double kDrainRetrySeconds = 5;

// ---- handlers
// -------------------------------------------------------------------------------------------------

void chat(const State& s, HttpRequest q, Answerer a) {
  start_generation(s, Api::kChat, std::move(q), std::move(a));
}
void completions(const State& s, HttpRequest q, Answerer a) {
  start_generation(s, Api::kCompletions, std::move(q), std::move(a));
}

void messages(const State& s, HttpRequest q, Answerer a) {
  start_generation(s, Api::kMessages, std::move(q), std::move(a));
}

/// Answers with the JSON of `work(model, body)`, made on the text pool.
template <class Work>
void answer_from_pool(const State& state, HttpRequest request, const Answerer& responder, Work work) {
  answer_on_text_pool(state, responder, [state, request = std::move(request), work] {
    const Result<Json> result = [&]() -> Result<Json> {
      auto json = parse_json(request.body);
      if (!json) return std::unexpected(json.error());
      auto model = find_model(*state, *json);
      if (!model) return std::unexpected(model.error());
      return work(**model, *json);
    }();
    return result ? json_response(*result) : error_response(result.error());
  });
}

void tokenize(const State& state, HttpRequest request, Answerer responder) {
  answer_from_pool(state, std::move(request), std::move(responder),
                   [](const ServedModel& model, const Json& body) -> Result<Json> {
                     auto parsed = parse_tokenize_request(body);
                     if (!parsed) return std::unexpected(parsed.error());
                     const auto ids = model.tokenizer->try_encode(
                         parsed->text,
                         {.add_special_tokens = parsed->add_special_tokens, .parse_special_tokens = true});
                     if (!ids) return fail(ids.error().code, ids.error().message, "prompt");
                     Json::Array tokens;
                     for (const TokenId id : *ids) tokens.emplace_back(id);
                     return Json::object({{"count", static_cast<std::int64_t>(ids->size())},
                                          {"max_model_len", model.engine->info().max_model_len},
                                          {"tokens", Json(std::move(tokens))}});
                   });
}

void detokenize(const State& state, HttpRequest request, Answerer responder) {
  answer_from_pool(state, std::move(request), std::move(responder),
                   [](const ServedModel& model, const Json& body) -> Result<Json> {
                     auto ids = parse_detokenize_request(body, model.engine->info().vocab_size);
                     if (!ids) return std::unexpected(ids.error());
                     return Json::object({{"prompt", model.tokenizer->decode(*ids, false)}});
                   });
}

Json model_json(const ServedModel& model, const std::string& name) {
  return Json::object({{"id", name},
                       {"object", "model"},
                       {"created", model.created},
                       {"owned_by", "barg"},
                       {"root", model.names.front()},
                       {"parent", nullptr},
                       {"max_model_len", model.engine->info().max_model_len}});
}

void list_models(const State& state, HttpRequest request, Answerer responder) {
  if (wants_messages_models(request)) return list_message_models(state, std::move(request), std::move(responder));
  Json::Array data;
  for (const ServedModel& model : state->models) {
    for (const std::string& name : model.names) data.push_back(model_json(model, name));
  }
  responder->respond(json_response(Json::object({{"object", "list"}, {"data", Json(std::move(data))}})));
}

void one_model(const State& state, HttpRequest request, Answerer responder) {
  constexpr std::string_view kModels = "/models/";
  const std::string_view path = request.path;
  const auto name = percent_decode(path.substr(path.find(kModels) + kModels.size()));
  if (name && wants_messages_models(request)) return responder->respond(one_message_model(*state, *name));
  const ServedModel* model = name ? state->find(*name) : nullptr;
  if (model) return responder->respond(json_response(model_json(*model, *name)));
  responder->respond(error_response({ErrorCode::kNotFound, "the model does not exist", "model", 0}));
}

/// A lost device never comes back in this process: whoever restarts us must see it.
HttpResponse alive(const ServerState& state) {
  const bool failed = std::any_of(state.models.begin(), state.models.end(),
                                  [](const ServedModel& model) { return model.engine->failed(); });
  return json_response(Json::object({{"status", failed ? "failed" : "ok"}}), failed ? 503 : 200);
}

void live(const State& state, HttpRequest, Answerer responder) { responder->respond(alive(*state)); }

void ready(const State& state, HttpRequest, Answerer responder) {
  if (!state->draining) return responder->respond(alive(*state));
  HttpResponse response = json_response(Json::object({{"status", "draining"}}), 503);
  add_retry_after(response, kDrainRetrySeconds);
  responder->respond(std::move(response));
}

void version(const State& state, HttpRequest, Answerer responder) {
  responder->respond(
      json_response(Json::object({{"version", state->build.version}, {"git", state->build.git}})));
}

void metrics(const State& state, HttpRequest, Answerer responder) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_text(*state);
  responder->respond(std::move(response));
}

void get_capture(const State& state, HttpRequest request, Answerer responder) {
  answer_on_text_pool(state, responder, [state, request = std::move(request)] {
    const std::string_view id = std::string_view(request.path).substr(request.path.rfind('/') + 1);
    auto capsule = state->captures->find(id, key_owner(asking_key(*state, request)));
    if (!capsule)
      return error_response({ErrorCode::kNotFound, "there is no such capture, or it was forgotten for newer ones", "", 0});
    HttpResponse response;
    response.body = std::move(*capsule);
    return response;
  });
}

void openapi(const State& state, HttpRequest, Answerer responder) {
  responder->respond(json_response(openapi_document(state->build.version)));
}

template <Api api>
std::span<const FieldSpec> body_of() {
  return fields_of(api);
}
std::span<const FieldSpec> any_body() { return {}; }

using enum FieldType;

constexpr FieldSpec kExplainQuery[] = {
    {.name = "endpoint", .type = kString, .about = "The path whose body this is; /v1/chat/completions if absent."},
};
constexpr FieldSpec kResponseQuery[] = {
    {.name = "stream", .type = kBool, .about = "Answer with its events, again and as they come."},
    {.name = "starting_after", .type = kInteger, .about = "Only events behind this sequence number.", .min = -1},
};
constexpr std::string_view kOrders[] = {"asc", "desc"};
constexpr FieldSpec kPageQuery[] = {
    {.name = "limit", .type = kInteger, .about = "How many at most; 20 if absent.", .min = 1, .max = 100},
    {.name = "after", .type = kString, .about = "Only those behind this id."},
    {.name = "order", .type = kString, .about = "desc if absent.", .values = kOrders},
};
constexpr FieldSpec kModelsQuery[] = {
    {.name = "limit", .type = kInteger, .about = "With anthropic-version: how many at most; 20 if absent.", .min = 1,
     .max = 1000},
    {.name = "after_id", .type = kString, .about = "With anthropic-version: only those behind this id."},
    {.name = "before_id", .type = kString, .about = "With anthropic-version: only those in front of this id."},
};
constexpr FieldSpec kModelsHeaders[] = {
    {.name = "anthropic-version", .type = kString, .about = "Any value: the answer is in Anthropic's form."},
};
constexpr FieldSpec kGenerationHeaders[] = {
    {.name = "Idempotency-Key", .type = kString, .about = "A retry under the same key gets the same answer.", .max = 255},
    {.name = "X-Capture", .type = kString,
     .about = "1: keep a capsule of this request, where captures are on; its id is in x-barg-capture."},
};

constexpr std::string_view kText = "text/plain";

constexpr Route kRoutes[] = {
    // method, path, open, work, handler, about, body, query, headers, streams, answers
    {"POST", "/v1/chat/completions", false, true, chat, "OpenAI's Chat Completions.", body_of<Api::kChat>, {},
     kGenerationHeaders, true},
    {"POST", "/v1/completions", false, true, completions, "OpenAI's Completions.", body_of<Api::kCompletions>, {},
     kGenerationHeaders, true},
    {"POST", "/v1/responses", false, true, create_response, "OpenAI's Responses.", body_of<Api::kResponses>, {},
     kGenerationHeaders, true},
    {"GET", "/v1/responses/{id}", false, false, get_response, "A stored response, or its events.", nullptr,
     kResponseQuery, {}, true},
    {"DELETE", "/v1/responses/{id}", false, false, delete_response, "Forgets a stored response."},
    {"POST", "/v1/responses/{id}/cancel", false, false, cancel_response, "Stops a running response.", any_body},
    {"GET", "/v1/responses/{id}/input_items", false, false, list_input_items, "What a stored response was asked.",
     nullptr, kPageQuery},
    {"POST", "/v1/responses/input_tokens", false, true, count_input_tokens, "Counts, and generates nothing.",
     body_of<Api::kResponses>},
    {"POST", "/v1/messages", false, true, messages, "Anthropic's Messages.", body_of<Api::kMessages>, {}, kGenerationHeaders,
     true},
    {"POST", "/v1/messages/count_tokens", false, true, count_message_tokens, "Counts, and generates nothing.",
     messages_count_fields},
    {"POST", "/v1/explain", false, true, explain, "What a request would become: prompt, values, queue; generates nothing.",
     any_body, kExplainQuery},
    {"GET", "/v1/captures/{id}", false, false, get_capture, "A captured request, for barg replay."},
    {"POST", "/v1/embeddings", false, true, embeddings, "OpenAI's Embeddings.", embeddings_fields},
    {"POST", "/tokenize", false, true, tokenize, "Text to token ids.", tokenize_fields},
    {"POST", "/detokenize", false, true, detokenize, "Token ids to text.", detokenize_fields},
    {"GET", "/v1/models", false, false, list_models, "The models, in OpenAI's form or Anthropic's.", nullptr,
     kModelsQuery, kModelsHeaders},
    {"GET", "/v1/models/{name}", false, false, one_model, "One of them.", nullptr, {}, kModelsHeaders},
    {"GET", "/openapi.json", false, false, openapi, "This description, for programs."},
    {"GET", "/version", false, false, version, "Version and revision."},
    {"GET", "/metrics", false, false, metrics, "Counters and gauges for Prometheus.", nullptr, {}, {}, false, kText},
    {"GET", "/health", true, false, ready, "As /readyz."},
    {"GET", "/livez", true, false, live, "200 while the process can serve."},
    {"GET", "/readyz", true, false, ready, "200 while new requests are taken."},
};

// ---- checks
// ---------------------------------------------------------------------------------------------------

constexpr std::string_view kVersion = "/v1";

bool matches_pattern(std::string_view pattern, std::string_view path) {
  const std::size_t brace = pattern.find('{');
  if (brace == std::string_view::npos) return path == pattern;
  if (!path.starts_with(pattern.substr(0, brace))) return false;
  path.remove_prefix(brace);
  const std::string_view rest = pattern.substr(pattern.find('}') + 1);
  if (pattern.substr(brace).starts_with("{name}")) return !path.empty();
  const std::size_t segment = std::min(path.find('/'), path.size());
  return segment > 0 && path.substr(segment) == rest;
}

bool matches(const Route& route, std::string_view path) {
  if (matches_pattern(route.pattern, path)) return true;
  return route.pattern.starts_with(kVersion) && matches_pattern(route.pattern.substr(kVersion.size()), path);
}

std::string allowed_methods(std::string_view path) {
  std::string out;
  for (const Route& route : kRoutes) {
    if (path != "*" && !matches(route, path)) continue;
    const std::string add = route.method == "GET" ? "GET, HEAD" : std::string(route.method);
    if (out.find(add) == std::string::npos) out += (out.empty() ? "" : ", ") + add;
  }
  return out.empty() ? out : out + ", OPTIONS";
}

const Route* find_route(std::string_view method, std::string_view path) {
  for (const Route& route : kRoutes) {
    if ((route.method == method || (method == "HEAD" && route.method == "GET")) && matches(route, path))
      return &route;
  }
  return nullptr;
}

bool iequals(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// A protocol whose errors do not look like OpenAI's, wherever they come from.
struct Envelope {
  bool (*applies)(const HttpRequest& head);
  HttpResponse (*dress)(HttpResponse response, const std::string& request_id);
  std::shared_ptr<Responder> (*responder)(std::shared_ptr<Responder> inner, std::string request_id);
};
constexpr Envelope kEnvelopes[] = {
    {speaks_messages, in_messages_envelope, messages_responder},
};

HttpResponse in_envelope(const HttpRequest& head, HttpResponse response) {
  for (const Envelope& envelope : kEnvelopes) {
    if (envelope.applies(head)) return envelope.dress(std::move(response), head.id);
  }
  return response;
}

Answerer in_envelope(const HttpRequest& head, Answerer responder) {
  for (const Envelope& envelope : kEnvelopes) {
    if (envelope.applies(head)) return envelope.responder(std::move(responder), head.id);
  }
  return responder;
}

class Routes final : public HttpHandler {
 public:
  Routes(State state, std::function<void(const AccessRecord&)> access)
      : state_(std::move(state)), access_(std::move(access)) {}

  std::optional<HttpResponse> check(const HttpRequest& head, std::string& route) override;
  void handle(HttpRequest request, Answerer responder) override;
  HttpResponse refusal(const HttpRequest* head, int status, std::string_view code, std::string_view message) override;
  void on_access(const AccessRecord& record) override;

 private:
  std::optional<HttpResponse> refused_by_checks(const HttpRequest& head, std::string& route) const;
  std::optional<HttpResponse> check_method(const HttpRequest& head) const;
  std::optional<HttpResponse> check_loopback(const HttpRequest& head) const;
  std::optional<HttpResponse> check_key(const HttpRequest& head, bool open) const;
  std::optional<HttpResponse> check_content(const HttpRequest& head) const;

  const State state_;
  const std::function<void(const AccessRecord&)> access_;
};

std::optional<HttpResponse> Routes::check_method(const HttpRequest& head) const {
  static constexpr std::array<std::string_view, 10> kKnown = {"GET",   "HEAD",    "POST",  "PUT",    "DELETE",
                                                             "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY"};
  if (std::find(kKnown.begin(), kKnown.end(), head.method) == kKnown.end()) {
    HttpResponse response =
        error_response({501, kInvalid, "unknown_method"}, "this method is not implemented");
    response.close = true;
    return response;
  }
  if (head.method == "TRACE" || head.method == "CONNECT") {
    HttpResponse response =
        error_response({405, kInvalid, "method_not_allowed"}, "this method is not allowed");
    response.headers.emplace_back("allow", "GET, HEAD, POST, OPTIONS");
    response.close = true;
    return response;
  }
  return std::nullopt;
}

/// A page of another site that talks to a server on this machine (DNS rebinding) carries that site's name.
std::optional<HttpResponse> Routes::check_loopback(const HttpRequest& head) const {
  if (!state_->loopback) return std::nullopt;
  const std::string* host = head.header("host");
  if (host && !loopback_host_allowed(*host, state_->options.host)) {
    return error_response({403, "permission_error", "host_not_allowed"},
                          "this server answers to local names only");
  }
  const std::string* origin = head.header("origin");
  if (!origin) return std::nullopt;
  std::string_view rest = *origin;
  const std::size_t scheme = rest.find("://");
  const bool web = scheme != std::string_view::npos &&
                   (iequals(rest.substr(0, scheme), "http") || iequals(rest.substr(0, scheme), "https"));
  if (rest == "null" || (web && !loopback_host_allowed(rest.substr(scheme + 3), state_->options.host))) {
    return error_response({403, "permission_error", "origin_not_allowed"},
                          "this server answers to local pages only");
  }
  return std::nullopt;
}

std::optional<HttpResponse> Routes::check_key(const HttpRequest& head, bool open) const {
  if (open || state_->options.api_key.empty()) return std::nullopt;
  const std::optional<std::string_view> key = presented_key(head);
  const bool once = head.header_count("authorization") <= 1 && head.header_count("x-api-key") <= 1;
  const bool known = key_matches(key.value_or(""), state_->options.api_key);
  if (key && once && known) return std::nullopt;
  return error_response({ErrorCode::kUnauthorized,
                         key ? "the API key is wrong" : "an API key is needed: Authorization: Bearer KEY",
                         "", 0});
}

std::optional<HttpResponse> Routes::check_content(const HttpRequest& head) const {
  if (const std::string* encoding = head.header("content-encoding");
      encoding && !iequals(*encoding, "identity")) {
    return error_response({415, kInvalid, "unsupported_encoding"}, "compressed bodies are not accepted");
  }
  const std::string* type = head.header("content-type");
  if (!type || type->empty()) return std::nullopt;
  std::string name = type->substr(0, type->find(';'));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name == "application/json" || name.ends_with("+json")) return std::nullopt;
  return error_response({415, kInvalid, "unsupported_media_type"},
                        "the body must be JSON: send Content-Type: application/json");
}

std::optional<HttpResponse> Routes::check(const HttpRequest& head, std::string& route) {
  auto refused = refused_by_checks(head, route);
  if (refused) *refused = in_envelope(head, std::move(*refused));
  return refused;
}

std::optional<HttpResponse> Routes::refused_by_checks(const HttpRequest& head, std::string& route) const {
  if (auto refused = check_method(head)) return refused;
  if (auto refused = check_loopback(head)) return refused;
  const std::string allow = allowed_methods(head.path);
  if (head.method == "OPTIONS" && !allow.empty()) {
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("allow", allow);
    return response;
  }
  const Route* found = find_route(head.method, head.path);
  if (found) route = found->pattern;
  const bool public_path = head.method == "OPTIONS" || (found && found->open);
  if (auto refused = check_key(head, public_path)) return refused;
  if (allow.empty()) {
    return error_response({404, kInvalid, "unknown_url"},
                          "unknown URL: " + head.method + " " + head.path.substr(0, 128));
  }
  if (!found) {
    HttpResponse response = error_response({405, kInvalid, "method_not_allowed"},
                                           head.method + " is not allowed here; allowed: " + allow);
    response.headers.emplace_back("allow", allow);
    return response;
  }
  if (const std::string* upgrade = head.header("upgrade"); upgrade && iequals(*upgrade, "websocket")) {
    return error_response({400, kInvalid, "invalid_http"}, "WebSocket is not spoken here");
  }
  if (found->work && state_->draining) {
    HttpResponse response =
        error_response({ErrorCode::kUnavailable, "the server is shutting down", "", kDrainRetrySeconds});
    response.close = true;
    return response;
  }
  if (head.method == "POST") return check_content(head);
  return std::nullopt;
}

void Routes::handle(HttpRequest request, Answerer responder) {
  const Route* route = find_route(request.method, request.path);
  if (!route)
    return responder->respond(
        error_response({ErrorCode::kInternal, "check() let an unknown route pass", "", 0}));
  responder->set_route(route->pattern);
  responder = in_envelope(request, std::move(responder));
  route->handle(state_, std::move(request), std::move(responder));
}

HttpResponse Routes::refusal(const HttpRequest* head, int status, std::string_view code, std::string_view message) {
  const std::string_view type = status >= 500 && status != 505 && status != 501 ? "server_error" : kInvalid;
  HttpResponse response = error_response({status, type, code}, message);
  return head ? in_envelope(*head, std::move(response)) : response;
}

void Routes::on_access(const AccessRecord& record) {
  state_->http.add(record);
  access_(record);
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::unique_ptr<HttpHandler> make_routes(std::shared_ptr<ServerState> state,
                                         std::function<void(const AccessRecord&)> access) {
  return std::make_unique<Routes>(std::move(state), std::move(access));
}

std::optional<std::string> percent_decode(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    char c = s[i];
    if (c == '%') {
      if (i + 2 >= s.size() || !std::isxdigit(static_cast<unsigned char>(s[i + 1])) ||
          !std::isxdigit(static_cast<unsigned char>(s[i + 2]))) {
        return std::nullopt;
      }
      c = static_cast<char>(std::stoi(std::string(s.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    out += c;
  }
  return out;
}

std::optional<std::string_view> presented_key(const HttpRequest& head) {
  if (const std::string* authorization = head.header("authorization")) {
    constexpr std::size_t kScheme = 7;  // "Bearer "
    if (!iequals(std::string_view(*authorization).substr(0, kScheme), "bearer ")) return std::nullopt;
    return std::string_view(*authorization).substr(kScheme);
  }
  if (const std::string* x = head.header("x-api-key")) return *x;
  return std::nullopt;
}

/// Digests of equal length are compared, and all keys always, so that time tells nothing about any of them.
bool key_matches(std::string_view presented, const std::vector<std::string>& keys) {
  const Digest mine = sha256(presented.data(), presented.size());
  unsigned found = 0;
  for (const std::string& key : keys) {
    const Digest theirs = sha256(key.data(), key.size());
    unsigned difference = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) difference |= static_cast<unsigned>(mine[i] ^ theirs[i]);
    found |= difference == 0 ? 1U : 0U;
  }
  return found != 0;
}

bool loopback_host_allowed(std::string_view authority, std::string_view bound) {
  std::string_view host = authority;
  if (host.starts_with("[")) {
    host = host.substr(0, host.find(']') + 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  return iequals(host, "localhost") || iequals(host, bound) || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace barg::server
