// Messages as clients write them, and as templates want them. Two steps, with history_calls.h and history_roles.h
// between them:
//
//   canonical_messages   one spelling of everything: roles, tool calls, reasoning, text parts
//   present_messages     content, arguments and reasoning in the form that this template reads
//
// A canonical message has `role` (system, developer where the template knows it, user, assistant, tool, or what
// the client wrote if that is none of the known ones), `content` (null, a string or a list of {type: text, text}
// parts), of an assistant also `tool_calls` (non-empty, {id?, type, function: {name, arguments}}) and
// `reasoning_content` (a string); other members as the client sent them.
//
// Pure functions, any thread. They change structure only, never text: what a template renders is what the client
// wrote.
#pragma once

#include <string>
#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "text/history_traits.h"
#include "text/history_trust.h"

namespace barg::text {

/// Errors name the field (`messages[2].content[0].type`). REQUIRES an array of objects with a string `role` each
/// (else kInvalidValue).
Result<Json> canonical_messages(const Json& messages, const TemplateTraits& traits);

/// REQUIRES canonical messages. What it writes into them itself is marked in `own`.
Json present_messages(Json messages, const TemplateTraits& traits, OwnWords& own);

/// The text of a canonical content: parts joined by line feeds, null as "".
std::string content_text(const Json* content);
/// Contents behind each other, a blank line between them; parts stay parts. Null entries are no content.
Json join_contents(const std::vector<const Json*>& contents);
bool content_empty(const Json* content);
void remove_member(Json& object, std::string_view key);

/// Appends `marker` to the text of the last message; false if it has no text.
bool append_to_last(Json& messages, const std::string& marker);

}  // namespace barg::text
