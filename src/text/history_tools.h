// Tools in words, for templates that know none: what the model is told, in a system message, and how its calls and
// their results stand in the history. What it is asked to write is what the dialect "generic" reads: a JSON object
// {"name": ..., "arguments": {...}} alone, or several in a JSON array.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "text/history_trust.h"

namespace barg::text {

/// `call_example`: how this template writes a call, if it shows calls but no tools; "" asks for plain JSON. `own`
/// gets the example, whose markers are the model's.
std::string describe_tools(const Json& tools, std::string_view call_example, OwnWords& own);
/// The calls of one message as the model was asked to write them. Arguments may be objects or JSON text.
std::string calls_as_text(const Json& tool_calls);
std::string result_as_text(const std::string& name, const std::string& content);
/// `messages` with `text` behind what the first system message says; makes one in front if there is none.
Json add_to_system(Json messages, const std::string& text);
/// `messages` with a system message, made in front if there is none, and in it, if `as_member`, the tools as JSON
/// text in a member `tools`.
Json tools_to_system(Json messages, const Json& tools, bool as_member);

/// The tool whose call `call_example` shows.
inline constexpr const char* kExampleTool = "example_tool";
inline constexpr const char* kExampleArgument = "argument";
inline constexpr const char* kExampleValue = "value";

}  // namespace barg::text
