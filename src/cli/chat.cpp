// `barg chat`: a conversation on the terminal, with a model in this process or with a server (--url).
#include <functional>
#include <istream>
#include <ostream>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/generate.h"
#include "cli/http_client.h"
#include "cli/sse_reader.h"

namespace barg::cli {
namespace {

constexpr CommandFlag kFlags[] = {
    {"--system", "TEXT", "A system message before the conversation."},
    {"--url", "http://HOST:PORT", "Speak to this server instead of loading a model."},
    {"--key", "KEY", "API key for --url. Without it: the first of BARG_API_KEY."},
    kMaxTokensFlag,
    kTemperatureFlag,
    kSeedFlag,
};

/// The assistant's answer to `messages`, also delivered piece by piece.
using Answer = std::function<Result<std::string>(const Json& messages, const TextSink& on_text)>;

Json message(const char* role, std::string_view content) {
  return Json::object({{"role", role}, {"content", content}});
}

Result<Answer> local_answer(Invocation& invocation) {
  Result<Bundle> opened = open_bundle(invocation.settings.config, quiet_watch(invocation.io), {}, invocation.open_device);
  if (!opened) return std::unexpected(opened.error());
  const auto bundle = std::make_shared<Bundle>(std::move(*opened));
  const Result<SamplingParams> sampling = sampling_from_flags(invocation, bundle->defaults);
  if (!sampling) return std::unexpected(sampling.error());
  return
      [bundle, sampling = *sampling](const Json& messages, const TextSink& on_text) -> Result<std::string> {
        text::ChatPrompt prompt;
        prompt.messages = messages;
        const Result<text::MarkedString> rendered = bundle->chat_template->render(prompt);
        if (!rendered) return std::unexpected(rendered.error());
        const Result<std::vector<TokenId>> ids = bundle->tokenizer->try_encode_marked(rendered->pieces());
        if (!ids) return std::unexpected(ids.error());
        return generate(*bundle, *ids, sampling, on_text);
      };
}

std::string error_text(const ClientResponse& response) {
  const Result<Json> body = parse_json(response.body);
  const Json* error = body ? body->find("error") : nullptr;
  const Json* text = error != nullptr ? error->find("message") : nullptr;
  if (text != nullptr && text->is_string()) return text->as_string();
  return "the server answered " + std::to_string(response.status) + ".";
}

Json remote_request(const Invocation& invocation, const std::string& model, const Json& messages) {
  Json body = Json::object({{"model", model}, {"messages", messages}, {"stream", true}});
  // The server checks the values; only their JSON type is decided here.
  for (const auto& [flag, name] :
       {std::pair{"--max-tokens", "max_tokens"}, {"--temperature", "temperature"}, {"--seed", "seed"}}) {
    if (!invocation.has(flag)) continue;
    const Result<Json> value = parse_json(invocation.get(flag));
    body.set(name, value ? *value : Json(invocation.get(flag)));
  }
  return body;
}

// The text of one chunk of a streamed answer.
std::string delta_of(const Json& chunk) {
  const Json* choices = chunk.find("choices");
  if (choices == nullptr || choices->size() == 0 || !choices->is_array()) return {};
  const Json* delta = choices->as_array()[0].find("delta");
  const Json* content = delta != nullptr ? delta->find("content") : nullptr;
  return content != nullptr && content->is_string() ? content->as_string() : std::string();
}

Result<std::string> ask_remote(const Url& url, ClientRequest request, const TextSink& on_text) {
  std::string all;
  std::string failure;
  SseReader reader([&](std::string_view data) {
    const Result<Json> chunk = parse_json(data);
    if (!chunk) return;
    if (const Json* error = chunk->find("error")) {
      const Json* text = error->find("message");
      failure = text != nullptr && text->is_string() ? text->as_string() : "the server broke the stream off.";
    }
    const std::string piece = delta_of(*chunk);
    if (!piece.empty()) on_text(piece);
    all += piece;
  });
  const Result<ClientResponse> response =
      http_request(url, request, [&](std::string_view bytes) { return reader.push(bytes); });
  if (!response) return std::unexpected(response.error());
  if (response->status != 200) return fail(ErrorCode::kInvalidValue, error_text(*response));
  if (!failure.empty()) return fail(ErrorCode::kInternal, failure);
  return all;
}

Result<std::string> first_model(const Url& url, const std::string& key) {
  const Result<ClientResponse> response =
      http_request(url, {.method = "GET", .path = "/v1/models", .api_key = key, .body = {}});
  if (!response) return std::unexpected(response.error());
  if (response->status != 200) return fail(ErrorCode::kUnavailable, error_text(*response));
  const Result<Json> body = parse_json(response->body);
  const Json* data = body ? body->find("data") : nullptr;
  const Json* id =
      data != nullptr && data->is_array() && data->size() > 0 ? data->as_array()[0].find("id") : nullptr;
  if (id == nullptr || !id->is_string()) return fail(ErrorCode::kUnavailable, "the server lists no model.");
  return id->as_string();
}

Result<Answer> remote_answer(Invocation& invocation) {
  const Result<Url> url = parse_url(invocation.get("--url"));
  if (!url) return fail(ErrorCode::kInvalidValue, url.error().message, "--url");
  const std::vector<std::string>& own_keys = invocation.settings.config.server.api_key;
  const std::string key = invocation.get("--key", own_keys.empty() ? "" : own_keys[0]);
  const Result<std::string> model = first_model(*url, key);
  if (!model) return std::unexpected(model.error());
  return [&invocation, url = *url, key, model = *model](const Json& messages, const TextSink& on_text) {
    const std::string body = dump_json(remote_request(invocation, model, messages));
    return ask_remote(
        url,
        {.method = "POST", .path = "/v1/chat/completions", .api_key = key, .body = body, .timeout_s = 600},
        on_text);
  };
}

// Answers one message and remembers both; false when it failed.
bool take_turn(Io& io, Json& messages, const std::string& text, const Answer& answer) {
  messages.push(message("user", text));
  const Result<std::string> reply =
      answer(messages, [&](std::string_view piece) { io.out << piece << std::flush; });
  io.out << "\n" << std::flush;
  if (!reply) {
    io.err << "error: " << reply.error().message << "\n";
    messages.as_array().pop_back();
    return false;
  }
  messages.push(message("assistant", *reply));
  return true;
}

int converse(Io& io, Json& messages, const Answer& answer) {
  if (io.in_is_terminal) io.err << "Type a message; an empty line or Ctrl-D ends the conversation.\n";
  std::string line;
  bool ok = true;
  while (true) {
    if (io.in_is_terminal) io.err << "> " << std::flush;
    if (!std::getline(io.in, line) || line.empty()) return ok ? kExitOk : kExitFailure;
    if (is_valid_utf8(line)) {
      ok = take_turn(io, messages, line, answer);
    } else {
      io.err << "error: that line is not UTF-8.\n";
    }
  }
}

int run_chat(Invocation& invocation) {
  Io& io = invocation.io;
  const Result<Answer> answer =
      invocation.has("--url") ? remote_answer(invocation) : local_answer(invocation);
  if (!answer) {
    io.err << "error: " << answer.error().message << "\n";
    const bool usage = answer.error().param == "model.path" || answer.error().param.starts_with("--");
    return usage ? kExitUsage : exit_code_of(answer.error());
  }
  Json messages = Json::array();
  if (invocation.has("--system")) messages.push(message("system", invocation.get("--system")));
  if (invocation.arguments.empty()) return converse(io, messages, *answer);
  if (!is_valid_utf8(invocation.arguments[0])) {
    io.err << "error: the message is not UTF-8.\n";
    return kExitFailure;
  }
  return take_turn(io, messages, invocation.arguments[0], *answer) ? kExitOk : kExitFailure;
}

}  // namespace

const Command kChatCommand{
    .name = "chat",
    .summary = "talk to a model on the terminal",
    .arguments = "[MESSAGE]",
    .max_arguments = 1,
    .sections = "model kv scheduler runtime",
    .flags = kFlags,
    .run = run_chat,
    .details = "With MESSAGE: one answer. Without: a conversation, one line a message."};

}  // namespace barg::cli
