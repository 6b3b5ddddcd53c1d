// Generation: one request of any protocol (protocol.h) from its body to its last byte.
//
//   io thread --body--> CPU pool: prepare() --requests--> io thread: submit, headers, events --> answer
//
// It lives on the connection's io thread but for prepare(). The engine's sink posts events there; it holds
// the Generation until the last final event, whatever becomes of the client. A disconnect at any moment
// cancels.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/openai_json.h"
#include "server/server_state.h"

namespace barg::server {

/// Answers `request` through `responder` in any case. io thread; returns at once.
void start_generation(const std::shared_ptr<ServerState>& state, Api api, HttpRequest request,
                      std::shared_ptr<Responder> responder);

}  // namespace barg::server
