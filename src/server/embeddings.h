// POST /v1/embeddings: one request from its body to its answer. As a generation (generation.h) it is prepared on the CPU
// pool and lives on the connection's io thread; its inputs are sequences of the engine that end with their prompts, and
// what comes of them is written on the text pool. A disconnect at any moment cancels.
#pragma once

#include <memory>

#include "server/http.h"
#include "server/server_state.h"

namespace barg::server {

/// Answers `request` through `responder` in any case. io thread; returns at once.
void embeddings(const std::shared_ptr<ServerState>& state, HttpRequest request, std::shared_ptr<Responder> responder);

}  // namespace barg::server
