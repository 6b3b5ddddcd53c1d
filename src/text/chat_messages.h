// What a template expects of its messages, read off its AST, and messages brought into that shape.
//
// Clients send what servers accept; templates are written for what transformers passes. Pure functions, any
// thread. They change structure only, never text: what a template renders is what the client wrote.
#pragma once

#include <string>

#include "barg/result.h"
#include "base/json.h"
#include "text/jinja/template.h"

namespace barg::text {

struct TemplateTraits {
  bool wants_parts = false;      ///< loops over a message's content
  bool checks_string = false;    ///< ... and tells strings from lists itself
  bool checks_null = false;      ///< asks whether content is none
  bool knows_developer = false;  ///< names the role
  bool string_arguments =
      false;  ///< tool-call arguments as JSON text rather than an object (found by trying)
};

TemplateTraits read_traits(const jinja::TemplateAst& ast);

/// `messages` as the template wants them. Errors name the field (`messages[2].content[0].type`).
/// REQUIRES an array of objects with a string `role` each (else kInvalidValue).
Result<Json> normalise_messages(const Json& messages, const TemplateTraits& traits);

/// All system messages joined (blank line between) into one in front; nullopt-like null if there is nothing
/// to do.
Json merge_system_messages(const Json& messages);

/// Appends `marker` to the text of the last message; false if it has no text.
bool append_to_last(Json& messages, const std::string& marker);

}  // namespace barg::text
