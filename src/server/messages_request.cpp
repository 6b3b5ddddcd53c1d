#include "server/messages_request.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "server/constraint_rules.h"
#include "server/messages_content.h"
#include "server/messages_writer.h"
#include "server/request_rules.h"
#include "server/tool_rules.h"

namespace barg::server {
namespace {

using enum FieldType;
using enum FieldEffect;

constexpr double kInt32Max = 2147483647;
constexpr double kMaxTypeBytes = 64;
constexpr std::string_view kThinkingTypes[] = {"enabled", "adaptive", "disabled", "between_tools"};
constexpr std::string_view kChoices[] = {"auto", "any", "tool", "none"};

constexpr FieldSpec kToolRows[] = {
    {.name = "name", .type = kString, .about = "Letters, digits, _ - . : and /. A custom tool must have one.",
     .max = kMaxToolName},
    {.name = "type", .type = kString, .about = "custom, also if absent; a tool of another type is the server's, and skipped.",
     .max = kMaxTypeBytes},
    {.name = "description", .type = kString, .about = "For the model."},
    {.name = "input_schema", .type = kObject, .about = "A JSON Schema of the input. A custom tool must have one."},
    {.name = "strict", .type = kBool, .about = "Calls always fit the schema; what cannot be enforced is refused."},
    {.name = "cache_control", .type = kAny, .about = "As of the request."},
    {.name = "eager_input_streaming", .type = kAny, .about = "Accepted; input is always streamed as it comes."},
    {.name = "allowed_callers", .type = kAny, .about = "Ignored.", .effect = kIgnored},
    {.name = "defer_loading", .type = kAny, .about = "Ignored: every tool is loaded.", .effect = kIgnored},
    {.name = "input_examples", .type = kAny, .about = "Ignored.", .effect = kIgnored},
};
constexpr FieldSpec kChoiceRows[] = {
    {.name = "type", .type = kString, .about = "auto, any, tool or none.", .max = kMaxTypeBytes,
     .required = true, .values = kChoices},
    {.name = "name", .type = kString, .about = "Of the tool.", .max = kMaxToolName},
    {.name = "disable_parallel_tool_use", .type = kBool, .about = "At most one call."},
};
constexpr FieldSpec kThinkingRows[] = {
    {.name = "type", .type = kString, .about = "Whether the model reasons first.", .max = kMaxTypeBytes,
     .required = true, .values = kThinkingTypes},
    {.name = "budget_tokens", .type = kInteger, .about = "The reasoning is ended after so many tokens.", .min = 1,
     .max = kInt32Max},
    {.name = "display", .type = kString, .about = "omitted: it is counted and not returned.", .max = kMaxTypeBytes},
};
const FieldSpec kOutputRows[] = {
    {.name = "effort", .type = kString, .about = "How much to reason.", .max = kMaxTypeBytes, .values = kEfforts},
    {.name = "format", .type = kObject, .about = "What the text must be: json_schema with its schema.", .members = kFormatRows},
};
const FieldSpec kOwn[] = {
    {.name = "max_tokens", .type = kInteger, .about = "Most tokens of the answer, reasoning included.", .min = 1,
     .required = true},
    {.name = "messages", .type = kArray, .about = "The conversation: roles and texts or content blocks.",
     .max = kMaxTurns, .required = true},
    {.name = "system", .type = kAny, .about = "A text or text blocks in front of the conversation."},
    {.name = "tools", .type = kArray, .about = "What the model may call.", .max = kMaxTools, .members = kToolRows},
    {.name = "tool_choice", .type = kObject, .about = "Whether it may call.", .members = kChoiceRows},
    {.name = "stop_sequences", .type = kArray, .about = "Strings, each of which ends the answer.", .max = kMaxStops},
    {.name = "thinking", .type = kObject, .about = "Reasoning; the model's own default if absent.",
     .members = kThinkingRows},
    {.name = "output_config", .type = kObject, .about = "Effort and format of the answer.", .members = kOutputRows},
    {.name = "cache_control", .type = kAny,
     .about = "{\"type\": \"ephemeral\", \"ttl\": \"5m\" or \"1h\"}: the prompt stays in the cache for so long."},
    {.name = "output_format", .type = kObject, .about = "The older name of output_config.format.", .members = kFormatRows},
    {.name = "metadata", .type = kObject, .about = "Ignored.", .effect = kIgnored},
    {.name = "betas", .about = "Ignored.", .effect = kIgnored},
    {.name = "container", .about = "Ignored.", .effect = kIgnored},
    {.name = "context_management", .about = "Ignored.", .effect = kIgnored},
    {.name = "diagnostics", .about = "Ignored.", .effect = kIgnored},
    {.name = "inference_geo", .about = "Ignored.", .effect = kIgnored},
    {.name = "mcp_servers", .about = "Ignored.", .effect = kIgnored},
    {.name = "service_tier", .about = "Ignored.", .effect = kIgnored},
    {.name = "speed", .about = "Ignored.", .effect = kIgnored},
};

void take_over(Fields& fields, const Error& error) { fields.fail_at(error.code, error.message, error.param); }

void missing(Fields& fields, std::string_view name) {
  fields.fail(ErrorCode::kMissingParameter, std::string(name) + " is missing", name);
}

void read_tool(Fields& fields, const Json& item, std::size_t index, ApiRequest& request, IgnoredFields& ignored) {
  const std::string path = "tools." + std::to_string(index);
  Fields tool(item, kToolRows, path + ".");
  const std::string type = tool.string("type").value_or("custom");
  if (tool.ok() && type != "custom") return ignored.add(path);
  ToolSpec spec;
  spec.name = tool.string("name").value_or("");
  spec.description = tool.string("description").value_or("");
  const Json* schema = tool.object("input_schema");
  if (schema) spec.parameters = *schema;
  if (tool.ok() && !schema) missing(tool, "input_schema");
  spec.strict = tool.boolean("strict").value_or(false);
  for (const char* name : {"cache_control", "eager_input_streaming"}) tool.get(name);
  if (!tool.ok()) return take_over(fields, *tool.error());
  for (std::string& name : tool.unread()) ignored.add(std::move(name));
  read_cache_control(item, path, request.cache_pin_s, ignored);
  add_tool(fields, request.output.tools, std::move(spec), path);
}

void read_tool_choice(Fields& fields, ToolOptions& options) {
  auto choice = fields.nested("tool_choice");
  if (!choice) return;
  const auto type = choice->string("type");
  options.named = choice->string("name").value_or("");
  options.parallel = !choice->boolean("disable_parallel_tool_use").value_or(false);
  if (choice->ok() && !type) missing(*choice, "type");
  if (choice->ok() && *type == "tool" && options.named.empty()) missing(*choice, "name");
  fields.absorb(*choice);
  if (!fields.ok()) return;
  options.mode = *type == "any" ? ToolMode::kRequired : *type == "tool" ? ToolMode::kNamed
               : *type == "none" ? ToolMode::kNone : ToolMode::kAuto;
  settle_choice(fields, options, "tool_choice");
}

void read_stop_sequences(Fields& fields, OutputSpec& out) {
  const Json* stops = fields.array("stop_sequences");
  for (std::size_t i = 0; stops && i < stops->size(); ++i) {
    const Json& stop = stops->as_array()[i];
    if (stop.is_string() && !stop.as_string().empty() && stop.as_string().size() <= kMaxStopBytes) {
      out.stop.push_back(stop.as_string());
      continue;
    }
    const std::string path = "stop_sequences." + std::to_string(i);
    return fields.fail_at(ErrorCode::kInvalidValue,
                          path + " must be a string of 1 to " + std::to_string(kMaxStopBytes) + " bytes", path);
  }
}

/// Absent, and between_tools, leave it to the model's template.
void read_thinking(Fields& fields, ApiRequest& request) {
  ReasoningOptions& reasoning = request.output.reasoning;
  if (auto thinking = fields.nested("thinking")) {
    const auto type = thinking->string("type");
    const auto budget = thinking->integer("budget_tokens");
    if (thinking->string("display") == "omitted") reasoning.show = false;
    if (thinking->ok() && !type) missing(*thinking, "type");
    fields.absorb(*thinking);
    if (type == "enabled" || type == "adaptive") set_switch(fields, reasoning, true, "thinking.type");
    if (type == "disabled") set_switch(fields, reasoning, false, "thinking.type");
    if (budget && type != "disabled") set_budget(fields, reasoning, *budget, "thinking.budget_tokens");
  }
  if (auto output = fields.nested("output_config")) {
    if (auto effort = output->string("effort"))
      set_effort(*output, reasoning, std::move(*effort), "output_config.effort");
    if (auto format = output->nested("format")) {
      read_format(*format, "output_config.format", request.constraint);
      output->absorb(*format);
    }
    fields.absorb(*output);
  }
  if (auto format = fields.nested("output_format")) {
    read_format(*format, "output_format", request.constraint);
    fields.absorb(*format);
  }
}

void read_turns(Fields& fields, ApiRequest& request, const MessagesContext& context, IgnoredFields& ignored) {
  const Json* system = fields.get("system");
  const Json* messages = fields.array("messages");
  if (!fields.ok()) return;
  if (!messages) return missing(fields, "messages");
  auto conversation = read_conversation(
      system, *messages, {.strip_volatile = context.strip_volatile, .thought_key = context.thought_key}, ignored);
  if (!conversation) return take_over(fields, conversation.error());
  request.chat.messages = std::move(conversation->messages);
  request.chat.continue_final_message = conversation->continues;
  request.chat.add_generation_prompt = !conversation->continues;
  request.cache_pin_s = std::max(request.cache_pin_s, conversation->cache_pin_s);
}

}  // namespace

std::span<const FieldSpec> messages_fields() {
  static const std::vector<FieldSpec> rows = with_shared(Api::kMessages, kOwn);
  return rows;
}

std::span<const FieldSpec> messages_count_fields() {
  static const std::vector<FieldSpec> rows = [] {
    std::vector<FieldSpec> all = with_shared(Api::kMessages, kOwn);
    for (FieldSpec& row : all) row.required = row.required && row.name != "max_tokens";
    return all;
  }();
  return rows;
}

Result<ApiRequest> parse_messages_request(const Json& body, const MessagesContext& context) {
  Fields fields(body, messages_fields());
  ApiRequest request;
  request.output.api = Api::kMessages;
  auto extras = std::make_shared<MessagesExtras>();
  extras->thought_key = context.thought_key;
  request.output.extras = std::move(extras);
  IgnoredFields ignored;
  read_generation(fields, request, context.defaults, context.vocab_size);
  request.max_tokens = fields.integer("max_tokens");
  if (!request.max_tokens && !context.counting && fields.ok()) missing(fields, "max_tokens");
  fields.get("cache_control");
  read_cache_control(body, "", request.cache_pin_s, ignored);
  read_turns(fields, request, context, ignored);
  const Json* tools = fields.array("tools");
  for (std::size_t i = 0; tools && i < tools->size() && fields.ok(); ++i)
    read_tool(fields, tools->as_array()[i], i, request, ignored);
  read_tool_choice(fields, request.output.tools);
  read_stop_sequences(fields, request.output);
  read_thinking(fields, request);
  read_reasoning(fields, request);
  check_min_tokens(fields, request);
  request.ignored = std::move(ignored.names());
  return finish_request(std::move(request), fields);
}

}  // namespace barg::server
