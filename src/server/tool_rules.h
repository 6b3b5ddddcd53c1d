// Tools: what requests may say of them, the same in every protocol once it is read, and what the template and the
// parser of the output are given. Internal to the protocols' parsers and to prepare(). Pure; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/json_fields.h"
#include "server/openai_json.h"
#include "text/output_parser.h"

namespace barg::server {

/// 1 to kMaxToolName letters, digits, '_', '-', '.', ':' and '/': what OpenAI takes, and what MCP servers use.
bool valid_tool_name(std::string_view name);

/// Adds a tool that was read from `path` ("tools[2].function"), or fails: a bad or second name (path + ".name"),
/// parameters that are no object.
void add_tool(Fields& fields, ToolOptions& options, ToolSpec tool, const std::string& path);

/// `names` are all that may be used. Fails where one is not among the tools (`path` names it).
void allow_only(Fields& fields, ToolOptions& options, const std::vector<std::string>& names, std::string_view path);

/// Applies the mode: kNone leaves no tools, kNamed the one; kRequired and kNamed fail where there are no such tools.
/// `path`: of the choice.
void settle_choice(Fields& fields, ToolOptions& options, std::string_view path);

/// tools, tool_choice, parallel_tool_calls and their ancestors functions and function_call, of Chat Completions.
/// True: the ancestors were used, and the answer speaks their language.
bool read_chat_tools(Fields& fields, ToolOptions& options);
/// Rows of an item of `tools` and of `functions`.
extern const std::span<const FieldSpec> kToolMembers, kFunctionMembers;

/// As templates expect them, in OpenAI's form; null without tools. A custom tool is a function of one string, "input".
Json template_tools(const ToolOptions& options);
/// Null without tools.
std::shared_ptr<const std::vector<text::ToolInfo>> parser_tools(const ToolOptions& options);

}  // namespace barg::server
