// The tools of a Responses request. Functions and custom tools are flat; those in a namespace are told to the
// model under NAMESPACE__NAME and given back with their namespace. Tools that run elsewhere (web_search,
// image_generation, mcp, local_shell, ...) are skipped and noted: clients name them whatever the server. The
// grammar of a custom tool is shown to the model in its description; nothing enforces it. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "server/json_fields.h"
#include "server/openai_json.h"
#include "server/responses_items.h"

namespace barg::server {

/// tools, tool_choice and parallel_tool_calls.
void read_responses_tools(Fields& fields, ToolOptions& options, std::vector<NamespacedTool>& spaces,
                          std::vector<std::string>& ignored);

/// The members of one tool, for the table of fields.
std::span<const FieldSpec> responses_tool_fields();

}  // namespace barg::server
