// Errors as Anthropic's clients expect them: {"type":"error","error":{"type","message"},"request_id"}, whoever of
// us refuses: the protocol itself, the routes (key, method, URL) or the HTTP layer (size, time).
//
// 503 becomes 529 overloaded_error, the protocol's own way to say "later"; every other status stays.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "barg/result.h"
#include "base/json.h"
#include "server/http.h"

namespace barg::server {

/// Does whoever sent this expect the protocol's errors and headers? True for its own paths, with and without /v1,
/// and for the list of models where an anthropic-version header is there.
bool speaks_messages(const HttpRequest& head);
/// An anthropic-version header is there.
bool wants_messages_models(const HttpRequest& head);

/// The object of an `error` event; no request id.
Json messages_error_json(const Error& error);
/// Status, headers and body of an error that the protocol itself finds. The request id is added by the responder.
HttpResponse messages_error(const Error& error);
/// A refusal in OpenAI's envelope becomes one in Anthropic's; an envelope that is ours already gets the request id.
/// Anything but an error keeps its body. Every response gets the header request-id.
HttpResponse in_messages_envelope(HttpResponse response, const std::string& request_id);

/// Does that to everything that is answered through it; passes everything else on.
std::shared_ptr<Responder> messages_responder(std::shared_ptr<Responder> inner, std::string request_id);

}  // namespace barg::server
