// Who speaks in which order, where a template objects: several system messages or a late one become one in front,
// a system message that the template does not know goes to the user, neighbours of one role become one message.
//
// Pure functions over canonical messages (chat_messages.h); null where there is nothing to do.
#pragma once

#include "base/json.h"

namespace barg::text {

/// All system and developer messages joined (blank line between) into one in front.
Json merge_system_messages(const Json& messages);
/// REQUIRES that system messages are merged. Its text in front of the first user message's.
Json system_to_user(const Json& messages);
/// Neighbours that are both of the user, or both of the assistant without calls, are joined.
Json merge_neighbours(const Json& messages);

}  // namespace barg::text
