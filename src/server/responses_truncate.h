// truncation: "auto". The oldest messages are left out whole until the prompt and a share of the answer fit;
// system messages and the last message stay, and no tool's result is left without its call.
//
// Most requests cost nothing: a text of fewer bytes than the context has tokens fits. Of the others the
// prompt is counted once (prepare() does it again), and once more for each guess of how much is too much: two
// or three times as a rule, kMaxGuesses at most; what does not fit then is refused as ever. CPU pool or text
// pool.
#pragma once

#include <cstddef>

#include "server/openai_json.h"

namespace barg::server {

/// How many messages were left out of request.chat.
std::size_t truncate_messages(ApiRequest& request, const ServedModel& model);

}  // namespace barg::server
