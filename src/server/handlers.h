// What handlers of routes share: who asks, what stands behind the '?', and answers that are made on the text pool.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/server_state.h"

namespace barg::server {

/// The API key that came with a request. Where none is asked for, whatever a client sends as one says nothing: empty.
std::string_view asking_key(const ServerState& state, const HttpRequest& request);
/// What stores know an API key by, so that no key is kept: empty where none is asked for.
std::string key_owner(std::string_view api_key);

/// Of a target's query, decoded; nullopt where it is absent or not decodable.
std::optional<std::string> query_value(std::string_view target, std::string_view name);

HttpResponse json_response(const Json& body, int status = 200);

/// Answers with what `work()`, an HttpResponse, returns on the text pool: it may take longer than an io thread has.
/// `refuse`: how to say that the pool is full.
template <class Work>
void answer_on_text_pool(const std::shared_ptr<ServerState>& state, const std::shared_ptr<Responder>& responder,
                         Work work, HttpResponse (*refuse)(const Error&) = error_response) {
  const bool queued = state->text_pool->submit([responder, work = std::move(work)]() mutable {
    responder->post([responder, r = work()]() mutable { responder->respond(std::move(r)); });
  });
  if (!queued) responder->respond(refuse({ErrorCode::kUnavailable, "too many requests are being prepared", "", 1}));
}

}  // namespace barg::server
