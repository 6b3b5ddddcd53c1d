#include "server/responses_tools.h"

#include <optional>
#include <utility>

#include "server/tool_rules.h"

namespace barg::server {
namespace {

using enum FieldType;

constexpr std::size_t kMaxTypeShown = 48, kMaxGrammarShown = 16 << 10;

constexpr FieldSpec kFormatRows[] = {
    {.name = "type", .type = kString, .about = "text or grammar.", .max = 64},
    {.name = "syntax", .type = kString, .about = "lark or regex.", .max = 64},
    {.name = "definition", .type = kString, .about = "The grammar: shown to the model, not enforced."},
};
constexpr FieldSpec kToolRows[] = {
    {.name = "type",
     .type = kString,
     .about = "function, custom or namespace; others are skipped.",
     .max = 128,
     .required = true},
    {.name = "name", .type = kString, .about = "Letters, digits, _ - . : and /.", .max = kMaxToolName},
    {.name = "description", .type = kString, .about = "For the model."},
    {.name = "parameters", .type = kObject, .about = "Of a function: a JSON Schema of its arguments."},
    {.name = "strict", .type = kBool, .about = "Of a function: its calls always fit the schema."},
    {.name = "format", .type = kObject, .about = "Of a custom tool.", .members = kFormatRows},
    {.name = "tools",
     .type = kArray,
     .about = "Of a namespace: functions and custom tools.",
     .max = kMaxTools},
};

std::string at(const std::string& path, std::size_t i) { return path + "[" + std::to_string(i) + "]"; }

class ToolReader {
 public:
  ToolReader(Fields& fields, ToolOptions& options, std::vector<NamespacedTool>& spaces,
             std::vector<std::string>& ignored)
      : fields_(fields), options_(options), spaces_(spaces), ignored_(ignored) {}

  void read(const Json& item, const std::string& path, const std::string& space);

 private:
  void read_namespace(Fields& tool, const std::string& path);
  void add(ToolSpec spec, const std::string& path, const std::string& space);
  std::string grammar(Fields& tool, const std::string& path);

  Fields& fields_;
  ToolOptions& options_;
  std::vector<NamespacedTool>& spaces_;
  std::vector<std::string>& ignored_;
};

void ToolReader::read(const Json& item, const std::string& path, const std::string& space) {
  Fields tool(item, kToolRows, path + ".");
  const auto type = tool.string("type");
  if (tool.ok() && !type) tool.fail(ErrorCode::kMissingParameter, path + ".type is missing", "type");
  if (tool.ok() && *type != "function" && *type != "custom" && (*type != "namespace" || !space.empty()))
    return ignored_.push_back(path + "." + type->substr(0, kMaxTypeShown));
  if (tool.ok() && *type == "namespace") return read_namespace(tool, path);
  ToolSpec spec;
  spec.name = tool.string("name").value_or("");
  spec.description = tool.string("description").value_or("");
  spec.custom = type == "custom";
  if (spec.custom) {
    spec.description += grammar(tool, path);
  } else {
    if (const Json* parameters = tool.object("parameters")) spec.parameters = *parameters;
    spec.strict = tool.boolean("strict").value_or(false);
  }
  fields_.absorb(tool);
  add(std::move(spec), path, space);
}

void ToolReader::read_namespace(Fields& tool, const std::string& path) {
  const auto name = tool.string("name");
  tool.string("description");
  const Json* tools = tool.array("tools");
  if (tool.ok() && (!name || name->empty()))
    tool.fail(ErrorCode::kMissingParameter, path + ".name is missing", "name");
  fields_.absorb(tool);
  for (std::size_t i = 0; tools && i < tools->size() && fields_.ok(); ++i)
    read(tools->as_array()[i], at(path + ".tools", i), *name);
}

std::string ToolReader::grammar(Fields& tool, const std::string& path) {
  auto format = tool.nested("format");
  if (!format) return "";
  const auto type = format->string("type");
  const std::string syntax = format->string("syntax").value_or("");
  const std::string definition = format->string("definition").value_or("");
  tool.absorb(*format);
  if (!type || *type == "text" || definition.empty()) return "";
  ignored_.push_back(path + ".format");
  if (definition.size() > kMaxGrammarShown) return "";
  return "\n\nThe input must match this " + syntax + " grammar:\n" + definition;
}

void ToolReader::add(ToolSpec spec, const std::string& path, const std::string& space) {
  if (!space.empty() && !spec.name.empty()) {
    const std::string flat = flat_tool_name(space, spec.name);
    spaces_.push_back({.flat = flat, .space = space, .name = spec.name});
    spec.name = flat;
  }
  if (options_.tools.size() >= kMaxTools && fields_.ok()) {
    return fields_.fail_at(ErrorCode::kInvalidValue,
                           "there are more than " + std::to_string(kMaxTools) + " tools", path);
  }
  add_tool(fields_, options_, std::move(spec), path);
}

const std::string* string_member(const Json& object, const char* key) {
  const Json* v = object.find(key);
  return v && v->is_string() ? &v->as_string() : nullptr;
}

/// Names of the allowed tools; hosted ones are no matter here.
void read_allowed(Fields& fields, const Json& choice, ToolOptions& options) {
  const Json* list = choice.find("tools");
  if (!list || !list->is_array() || list->size() > kMaxTools)
    return fields.fail_at(ErrorCode::kInvalidValue, "tool_choice.tools must be an array of tools",
                          "tool_choice.tools");
  std::vector<std::string> names;
  for (const Json& item : list->as_array()) {
    const std::string* name = string_member(item, "name");
    const std::string* space = string_member(item, "namespace");
    if (name) names.push_back(space ? flat_tool_name(*space, *name) : *name);
  }
  allow_only(fields, options, names, "tool_choice.tools");
  const std::string* mode = string_member(choice, "mode");
  if (mode && *mode == "required") {
    options.mode = ToolMode::kRequired;
  } else if (choice.find("mode") && (!mode || *mode != "auto")) {
    fields.fail_at(ErrorCode::kInvalidValue, "tool_choice.mode must be auto or required", "tool_choice.mode");
  }
}

void read_choice(Fields& fields, ToolOptions& options) {
  const Json* choice = fields.get("tool_choice");
  if (!choice) return;
  const std::string* type = string_member(*choice, "type");
  if (choice->is_string()) {
    const std::string& mode = choice->as_string();
    if (mode != "none" && mode != "auto" && mode != "required")
      return fields.fail(ErrorCode::kInvalidValue, "tool_choice must be none, auto, required or an object",
                         "tool_choice");
    options.mode = mode == "none" ? ToolMode::kNone : mode == "auto" ? ToolMode::kAuto : ToolMode::kRequired;
  } else if (type && *type == "allowed_tools") {
    read_allowed(fields, *choice, options);
  } else if (const std::string* name = string_member(*choice, "name"); name && type) {
    const std::string* space = string_member(*choice, "namespace");
    options.mode = ToolMode::kNamed;
    options.named = space ? flat_tool_name(*space, *name) : *name;
  } else if (type) {
    return fields.fail(
        ErrorCode::kUnsupported,
        "tools of type " + json_quote(type->substr(0, kMaxTypeShown)) + " cannot be chosen here",
        "tool_choice");
  } else {
    return fields.fail(ErrorCode::kInvalidValue, "tool_choice must be none, auto, required or name a tool",
                       "tool_choice");
  }
  if (fields.ok()) settle_choice(fields, options, "tool_choice");
}

}  // namespace

std::span<const FieldSpec> responses_tool_fields() { return kToolRows; }

void read_responses_tools(Fields& fields, ToolOptions& options, std::vector<NamespacedTool>& spaces,
                          std::vector<std::string>& ignored) {
  const Json* tools = fields.array("tools");
  ToolReader reader(fields, options, spaces, ignored);
  for (std::size_t i = 0; tools && i < tools->size() && fields.ok(); ++i)
    reader.read(tools->as_array()[i], at("tools", i), "");
  options.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  read_choice(fields, options);
}

}  // namespace barg::server
