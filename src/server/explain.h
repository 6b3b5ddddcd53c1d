// explain: what a request would become, without generating anything: POST /v1/explain?endpoint=PATH (default
// /v1/chat/completions) with the body of that endpoint. Answers with the rendered prompt and its ids, the values that
// will be used and where each comes from, what is clamped and ignored, the model's dialect and what its template made
// of the wishes, the tokens of the prompt that are cached now, and the queue in front of it.
//
// It goes the way of the request itself (prepare.h, then the engine's own checks). A prompt that is too long, or a full
// queue, is part of the explanation ("refused"), not a refusal of it: of such a prompt only the length is told, and where
// its bytes alone are too many not even that. Nothing is reserved: what is cached and who waits may change at once.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/server_state.h"

namespace barg::server {

/// Handler of a route: io thread, returns at once. The work is done on the text pool, and one question asked of the
/// engine.
void explain(const std::shared_ptr<ServerState>& state, HttpRequest request, std::shared_ptr<Responder> responder);

}  // namespace barg::server
