// Who a generation of /v1/responses answers when its answer is stored: the client as ever, and its
// StoredResponse can end it (cancel); or, in the background, nobody: the client is told at once that the
// answer is queued, and reads it later.
//
//   generation --> KeptAnswer --> client                        (stored)
//   generation --> DetachedAnswer     StoredResponse --> Follower --> client   (background; replay of a
//   stream)
//
// Threads: like every Responder these live on the io thread of the connection that began them; a
// StoredResponse may cancel from any. A background answer goes on there after its connection is closed.
#pragma once

#include <memory>
#include <string_view>

#include "server/protocol.h"
#include "server/responses_store.h"

namespace barg::server {

/// Protocol::attach; nullptr where the answer is not stored. REQUIRES a ResponsesExtras in context.output.
std::shared_ptr<Responder> attach_response(const AttachContext& context);

/// Answers with the stored events behind sequence number `after` (-1: all) and those still to come: none where that
/// is beyond the last of a finished answer. Keeps itself alive. REQUIRES record->origin().streamed.
void follow_response(std::shared_ptr<StoredResponse> record, std::int64_t after, const Headers& headers,
                     std::shared_ptr<Responder> client);

inline constexpr std::string_view kResponsesKeepAlive = ": ping\n\n";

}  // namespace barg::server
