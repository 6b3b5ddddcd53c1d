// Items and tools of a Responses body: refused with a field and a message, or messages that templates can be given.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/responses_items.h"
#include "server/responses_request.h"
#include "server/responses_seal.h"
#include "server/responses_tools.h"
#include "server/tool_rules.h"

namespace {

using namespace barg;
using namespace barg::server;

bool is_text(const Json* v) { return v && v->is_string(); }

void check_message(const Json& message) {
  const Json* role = message.find("role");
  CHECK(is_text(role));
  const std::string& name = role->as_string();
  CHECK(name == "system" || name == "developer" || name == "user" || name == "assistant" || name == "tool");
  const Json* content = message.find("content");
  CHECK(content && (content->is_string() || content->is_null() || content->is_array()));
  for (std::size_t i = 0; content->is_array() && i < content->size(); ++i) CHECK(is_text(content->as_array()[i].find("text")));
  if (name == "tool") CHECK(content->is_string() && is_text(message.find("tool_call_id")));
  const Json* calls = message.find("tool_calls");
  for (std::size_t i = 0; calls && i < calls->size(); ++i)
    CHECK(is_text(calls->as_array()[i].find("function")->find("name")));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  Fields fields(*json, responses_fields());
  std::vector<std::string> ignored;
  ToolOptions tools;
  std::vector<NamespacedTool> spaces;
  read_responses_tools(fields, tools, spaces, ignored);
  for (const ToolSpec& tool : tools.tools) CHECK(valid_tool_name(tool.name));
  ItemReader reader(
      fields, ignored, [](const std::string& sealed) { return open_reasoning("secret", "", sealed); },
      [](const std::string&) -> std::optional<Json> { return std::nullopt; });
  const Json* input = json->find("input");
  for (std::size_t i = 0; input && input->is_array() && i < input->size(); ++i)
    reader.add(input->as_array()[i], "input[" + std::to_string(i) + "]", true);
  const auto kept = parse_json(reader.kept(), {.max_depth = 65, .max_members = 0});
  CHECK(kept && kept->is_array());
  const Json::Array messages = reader.take();
  if (!fields.ok()) CHECK(!fields.error()->message.empty());
  for (const Json& message : messages) check_message(message);
  return 0;
}
