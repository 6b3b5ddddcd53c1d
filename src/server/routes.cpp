#include "server/routes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/generation.h"
#include "server/metrics_text.h"
#include "server/prepare.h"

namespace barg::server {
namespace {

using State = std::shared_ptr<ServerState>;
using Answerer = std::shared_ptr<Responder>;

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr double kDrainRetrySeconds = 5;

HttpResponse json_response(const Json& body, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = dump_json(body);
  return response;
}

// ---- handlers
// -------------------------------------------------------------------------------------------------

void chat(const State& s, HttpRequest q, Answerer a) {
  start_generation(s, Api::kChat, std::move(q), std::move(a));
}
void completions(const State& s, HttpRequest q, Answerer a) {
  start_generation(s, Api::kCompletions, std::move(q), std::move(a));
}

/// Runs `work(body)` on the text pool and answers with its JSON.
template <class Work>
void answer_from_pool(const State& state, HttpRequest request, Answerer responder, Work work) {
  const bool queued =
      state->text_pool->submit([state, request = std::move(request), responder, work]() mutable {
        Result<Json> result = [&]() -> Result<Json> {
          auto json = parse_json(request.body);
          if (!json) return std::unexpected(json.error());
          auto model = find_model(*state, *json);
          if (!model) return std::unexpected(model.error());
          return work(**model, *json);
        }();
        HttpResponse response = result ? json_response(*result) : error_response(result.error());
        responder->post([responder, r = std::move(response)]() mutable { responder->respond(std::move(r)); });
      });
  if (!queued)
    responder->respond(
        error_response({ErrorCode::kUnavailable, "too many requests are being prepared", "", 1}));
}

void tokenize(const State& state, HttpRequest request, Answerer responder) {
  answer_from_pool(state, std::move(request), std::move(responder),
                   [](const ServedModel& model, const Json& body) -> Result<Json> {
                     auto parsed = parse_tokenize_request(body);
                     if (!parsed) return std::unexpected(parsed.error());
                     const auto ids = model.tokenizer->encode(
                         parsed->text,
                         {.add_special_tokens = parsed->add_special_tokens, .parse_special_tokens = true});
                     Json::Array tokens;
                     for (const TokenId id : ids) tokens.emplace_back(id);
                     return Json::object({{"count", static_cast<std::int64_t>(ids.size())},
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

void list_models(const State& state, HttpRequest, Answerer responder) {
  Json::Array data;
  for (const ServedModel& model : state->models) {
    for (const std::string& name : model.names) data.push_back(model_json(model, name));
  }
  responder->respond(json_response(Json::object({{"object", "list"}, {"data", Json(std::move(data))}})));
}

void one_model(const State& state, HttpRequest request, Answerer responder) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const auto name = percent_decode(std::string_view(request.path).substr(kPrefix.size()));
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

constexpr Route kRoutes[] = {
    // method, path,                   open,  work,  handler
    {"POST", "/v1/chat/completions", false, true, chat},
    {"POST", "/v1/completions", false, true, completions},
    {"POST", "/tokenize", false, true, tokenize},
    {"POST", "/detokenize", false, true, detokenize},
    {"GET", "/v1/models", false, false, list_models},
    {"GET", "/v1/models/{id}", false, false, one_model},
    {"GET", "/version", false, false, version},
    {"GET", "/metrics", false, false, metrics},
    {"GET", "/health", true, false, ready},
    {"GET", "/livez", true, false, live},
    {"GET", "/readyz", true, false, ready},
};

// ---- checks
// ---------------------------------------------------------------------------------------------------

constexpr std::string_view kParameter = "{id}";

bool matches(const Route& route, std::string_view path) {
  if (!route.pattern.ends_with(kParameter)) return path == route.pattern;
  const std::string_view prefix = route.pattern.substr(0, route.pattern.size() - kParameter.size());
  return path.size() > prefix.size() && path.starts_with(prefix);
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

class Routes final : public HttpHandler {
 public:
  Routes(State state, std::function<void(const AccessRecord&)> access)
      : state_(std::move(state)), access_(std::move(access)) {}

  std::optional<HttpResponse> check(const HttpRequest& head, std::string& route) override;
  void handle(HttpRequest request, Answerer responder) override;
  HttpResponse refusal(int status, std::string_view code, std::string_view message) override;
  void on_access(const AccessRecord& record) override;

 private:
  std::optional<HttpResponse> check_method(const HttpRequest& head) const;
  std::optional<HttpResponse> check_loopback(const HttpRequest& head) const;
  std::optional<HttpResponse> check_key(const HttpRequest& head, bool open) const;
  std::optional<HttpResponse> check_content(const HttpRequest& head) const;

  const State state_;
  const std::function<void(const AccessRecord&)> access_;
};

std::optional<HttpResponse> Routes::check_method(const HttpRequest& head) const {
  static constexpr std::array<std::string_view, 9> kKnown = {"GET",   "HEAD",    "POST",  "PUT",    "DELETE",
                                                             "PATCH", "OPTIONS", "TRACE", "CONNECT"};
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
  route->handle(state_, std::move(request), std::move(responder));
}

HttpResponse Routes::refusal(int status, std::string_view code, std::string_view message) {
  const std::string_view type = status >= 500 && status != 505 && status != 501 ? "server_error" : kInvalid;
  return error_response({status, type, code}, message);
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
