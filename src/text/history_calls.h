// Tool calls and their results in a conversation, as a template wants them: ids in its form, results in the order
// of their calls and with a name, one call a message where it takes no more, text in a message of its own where it
// would get lost, and all of it as plain text where the template knows no tools.
//
// Pure functions over canonical messages (chat_messages.h), linear in their number. What becomes of a message
// depends on it and on earlier ones only, so that the prompts of a conversation's turns stay prefixes of each
// other.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "text/history_traits.h"

namespace barg::text {

Json shape_calls(const Json& messages, const TemplateTraits& traits);

/// The id that Mistral's templates accept: itself if it is nine letters and digits, else nine made of its digest.
std::string nine_alnum(std::string_view id);
/// functions.NAME:IDX with digits only behind the last colon.
bool is_kimi_id(std::string_view id, std::string_view name);

}  // namespace barg::text
