#include "server/messages_error.h"

#include <utility>

#include "server/api_error.h"

namespace barg::server {
namespace {

constexpr int kOverloaded = 529;

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case kOverloaded:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 && status != 501 && status != 505 ? "api_error" : "invalid_request_error";
  }
}

Json envelope(int status, std::string_view message, Json request_id) {
  Json out = Json::object({{"type", "error"},
                           {"error", Json::object({{"type", error_type(status)}, {"message", message}})}});
  if (!request_id.is_null()) out.set("request_id", std::move(request_id));
  return out;
}

/// The protocol has no place for the field that an error is about but its message.
std::string with_field(const std::string& message, const std::string& field) {
  return field.empty() || message.find(field) != std::string::npos ? message : field + ": " + message;
}

/// The message of an error body of either protocol, with the field it is about.
std::string message_of(const std::string& body) {
  const auto json = parse_json(body);
  const Json* error = json ? json->find("error") : nullptr;
  const Json* message = error != nullptr ? error->find("message") : nullptr;
  if (message == nullptr || !message->is_string() || message->as_string().empty()) return "the request was refused";
  const Json* param = error->find("param");
  return with_field(message->as_string(), param != nullptr && param->is_string() ? param->as_string() : "");
}

class MessagesResponder final : public Responder {
 public:
  MessagesResponder(std::shared_ptr<Responder> inner, std::string request_id)
      : inner_(std::move(inner)), request_id_(std::move(request_id)) {}

  void respond(HttpResponse response) override {
    inner_->respond(in_messages_envelope(std::move(response), request_id_));
  }
  void begin_stream(HttpResponse head, std::string_view keep_alive) override {
    head.headers.emplace_back("request-id", request_id_);
    inner_->begin_stream(std::move(head), keep_alive);
  }
  void write(std::string_view bytes) override { inner_->write(bytes); }
  void end() override { inner_->end(); }
  bool gone() const override { return inner_->gone(); }
  AccessNote& note() override { return inner_->note(); }
  void set_route(std::string_view pattern) override { inner_->set_route(pattern); }
  void on_interrupt(std::function<void(Interrupt)> callback) override { inner_->on_interrupt(std::move(callback)); }
  void on_backlog(std::function<void(bool)> callback) override { inner_->on_backlog(std::move(callback)); }
  void post(std::move_only_function<void()> function) override { inner_->post(std::move(function)); }

 private:
  const std::shared_ptr<Responder> inner_;
  const std::string request_id_;
};

bool is_under(std::string_view path, std::string_view root) {
  return path == root || (path.starts_with(root) && path[root.size()] == '/');
}

}  // namespace

bool wants_messages_models(const HttpRequest& head) { return head.header("anthropic-version") != nullptr; }

bool speaks_messages(const HttpRequest& head) {
  std::string_view path = head.path;
  if (is_under(path, "/v1")) path.remove_prefix(3);
  return is_under(path, "/messages") || (is_under(path, "/models") && wants_messages_models(head));
}

Json messages_error_json(const Error& error) {
  const int status = error_shape(error.code).status;
  const bool ours = status == 500;
  if (ours) return envelope(status, "the server failed to answer this request", nullptr);
  std::string message = with_field(error.message.empty() ? "the request failed" : error.message, error.param);
  // Agents look for these words to know that they have to shorten the conversation.
  if (error.code == ErrorCode::kContextLengthExceeded) message = "prompt is too long: " + message;
  return envelope(status, message, nullptr);
}

HttpResponse messages_error(const Error& error) {
  HttpResponse response = error_response(error);
  if (response.status == 503) response.status = kOverloaded;
  response.body = dump_json(messages_error_json(error));
  return response;
}

HttpResponse in_messages_envelope(HttpResponse response, const std::string& request_id) {
  if (!request_id.empty()) response.headers.emplace_back("request-id", request_id);
  if (response.status < 400) return response;
  if (response.status == 503) response.status = kOverloaded;
  response.content_type = "application/json";
  const Json id = request_id.empty() ? Json() : Json(request_id);
  response.body = dump_json(envelope(response.status, message_of(response.body), id));
  return response;
}

std::shared_ptr<Responder> messages_responder(std::shared_ptr<Responder> inner, std::string request_id) {
  return std::make_shared<MessagesResponder>(std::move(inner), std::move(request_id));
}

}  // namespace barg::server
