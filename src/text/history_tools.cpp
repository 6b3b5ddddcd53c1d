#include "text/history_tools.h"

#include "text/chat_messages.h"

namespace barg::text {

namespace {

constexpr const char* kIntroduction = "You may call tools. These are they, one JSON object a line:\n";

constexpr const char* kAskForJson =
    "To call a tool, write a JSON object of its name and its arguments and nothing else, as in\n"
    "{\"name\": \"example_tool\", \"arguments\": {\"argument\": \"value\"}}\n"
    "To call several at once, write a JSON array of such objects and nothing else. The results come in the next "
    "message. If no tool is needed, answer in plain text.";

constexpr const char* kAskForExample =
    "To call a tool, write its name and its arguments in exactly this format, and nothing behind it:\n";
constexpr const char* kAfterExample =
    "\nThe results come in the next message. If no tool is needed, answer in plain text.";

// The call as {"name": ..., "arguments": {...}}; arguments that are no JSON stay text.
Json plain_call(const Json& call) {
  const Json* function = call.find("function");
  const Json* name = function == nullptr ? nullptr : function->find("name");
  const Json* arguments = function == nullptr ? nullptr : function->find("arguments");
  Json value = arguments == nullptr || arguments->is_null() ? Json::object() : *arguments;
  if (value.is_string()) {
    auto parsed = parse_json(value.as_string().empty() ? "{}" : std::string_view(value.as_string()));
    if (parsed) value = std::move(*parsed);
  }
  return Json::object({{"name", name == nullptr ? Json("") : *name}, {"arguments", std::move(value)}});
}

const Json& function_of(const Json& tool) {
  const Json* function = tool.find("function");
  return function != nullptr && function->is_object() ? *function : tool;
}

// The first system message; a new one, without content, in front if there is none.
Json& ensure_system(Json& messages) {
  for (Json& m : messages.as_array()) {
    const std::string& role = m.find("role")->as_string();
    if (role == "system" || role == "developer") return m;
  }
  auto& list = messages.as_array();
  return *list.insert(list.begin(), Json::object({{"role", "system"}, {"content", Json()}}));
}

}  // namespace

std::string describe_tools(const Json& tools, std::string_view call_example, OwnWords& own) {
  std::string out = kIntroduction;
  for (const Json& tool : tools.as_array()) {
    out += dump_json(function_of(tool), {.spaces = true}) + "\n";
  }
  out += "\n";
  if (call_example.empty()) return out + kAskForJson;
  const std::size_t begin = std::string_view(kAskForExample).size();
  return out + own.add(kAskForExample + std::string(call_example), {{begin, begin + call_example.size()}}) +
         kAfterExample;
}

std::string calls_as_text(const Json& tool_calls) {
  const auto& calls = tool_calls.as_array();
  if (calls.size() == 1) return dump_json(plain_call(calls[0]), {.spaces = true});
  Json list = Json::array();
  for (const Json& call : calls) list.push(plain_call(call));
  return dump_json(list, {.spaces = true});
}

std::string result_as_text(const std::string& name, const std::string& content) {
  return (name.empty() ? "Result of the tool:\n" : "Result of the tool " + name + ":\n") + content;
}

Json add_to_system(Json messages, const std::string& text) {
  Json& system = ensure_system(messages);
  const Json more = text;
  system.set("content", join_contents({system.find("content"), &more}));
  return messages;
}

Json tools_to_system(Json messages, const Json& tools, bool as_member) {
  Json& system = ensure_system(messages);
  if (!as_member) return messages;
  Json functions = Json::array();
  for (const Json& tool : tools.as_array()) functions.push(function_of(tool));
  system.set("tools", Json(dump_json(functions, {.spaces = true})));
  return messages;
}

}  // namespace barg::text
