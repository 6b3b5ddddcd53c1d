// What the Messages protocol has beside its answers: counting tokens, and its form of the list of models.
// Handlers of routes (routes.h): io thread, return at once.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/server_state.h"

namespace barg::server {

/// {"input_tokens": N} of a body as of /v1/messages, without its max_tokens. On the text pool: no generation waits
/// for it, and it asks no engine.
void count_message_tokens(const std::shared_ptr<ServerState>& state, HttpRequest request,
                          std::shared_ptr<Responder> responder);

/// The list of models, a page of it (limit, after_id, before_id), in the form of Anthropic's clients.
void list_message_models(const std::shared_ptr<ServerState>& state, HttpRequest request,
                         std::shared_ptr<Responder> responder);
/// One of them; `name` is decoded.
HttpResponse one_message_model(const ServerState& state, std::string_view name);

}  // namespace barg::server
