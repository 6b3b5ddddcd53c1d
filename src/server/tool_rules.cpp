#include "server/tool_rules.h"

#include <algorithm>
#include <cctype>

namespace barg::server {
namespace {

using enum FieldType;

constexpr FieldSpec kFunctionRows[] = {
    {.name = "name", .type = kString, .about = "Letters, digits, _ - . : and /.", .max = kMaxToolName, .required = true},
    {.name = "description", .type = kString, .about = "For the model."},
    {.name = "parameters", .type = kObject, .about = "A JSON Schema of the arguments."},
    {.name = "strict", .type = kBool, .about = "Calls always fit the schema; what cannot be enforced is refused."},
};
constexpr FieldSpec kCustomFormatRows[] = {
    {.name = "type", .type = kString, .about = "Only text.", .max = 64},
    {.name = "grammar", .type = kObject, .about = "Not supported."},
};
constexpr FieldSpec kCustomRows[] = {
    {.name = "name", .type = kString, .about = "As of a function.", .max = kMaxToolName, .required = true},
    {.name = "description", .type = kString, .about = "For the model."},
    {.name = "format", .type = kObject, .about = "Of the input.", .members = kCustomFormatRows},
};
constexpr FieldSpec kToolRows[] = {
    {.name = "type", .type = kString, .about = "function or custom.", .max = 64},
    {.name = "function", .type = kObject, .about = "Called with JSON.", .members = kFunctionRows},
    {.name = "custom", .type = kObject, .about = "Called with plain text.", .members = kCustomRows},
};

std::string item_path(std::string_view list, std::size_t i) {
  return std::string(list) + "[" + std::to_string(i) + "]";
}

/// The members of a function, read through `f`.
void read_function(Fields& fields, Fields& f, ToolOptions& options, const std::string& path) {
  ToolSpec tool;
  tool.name = f.string("name").value_or("");
  tool.description = f.string("description").value_or("");
  if (const Json* parameters = f.object("parameters")) tool.parameters = *parameters;
  tool.strict = f.boolean("strict").value_or(false);
  fields.absorb(f);
  add_tool(fields, options, std::move(tool), path);
}

void read_custom(Fields& fields, Fields& f, ToolOptions& options, const std::string& path) {
  ToolSpec tool{.name = f.string("name").value_or(""),
                .description = f.string("description").value_or(""),
                .parameters = nullptr,
                .custom = true};
  if (auto format = f.nested("format")) {
    if (const auto type = format->string("type"); type && *type != "text")
      format->fail(ErrorCode::kUnsupported, "a format other than text is not supported", "type");
    format->get("grammar");
    f.absorb(*format);
  }
  fields.absorb(f);
  add_tool(fields, options, std::move(tool), path);
}

void read_tool(Fields& fields, const Json& item, ToolOptions& options, const std::string& path) {
  Fields tool(item, kToolRows, path + ".");
  const std::string type = tool.string("type").value_or(item.find("custom") ? "custom" : "function");
  if (type != "function" && type != "custom") {
    return fields.fail_at(ErrorCode::kUnsupported, "tools of type " + json_quote(type.substr(0, 32)) +
                                                       " are not supported", path + ".type");
  }
  auto inner = tool.nested(type);
  fields.absorb(tool);
  const std::string inside = path + "." + type;
  if (!inner) return fields.fail_at(ErrorCode::kInvalidValue, inside + " must be an object", inside);
  if (type == "custom") return read_custom(fields, *inner, options, inside);
  read_function(fields, *inner, options, inside);
}

/// The name in {"type": "function", "function": {"name": ...}} (or custom), or flat.
const std::string* chosen_name(const Json& choice) {
  for (const char* key : {"function", "custom"}) {
    const Json* inner = choice.find(key);
    const Json* name = inner ? inner->find("name") : nullptr;
    if (name && name->is_string()) return &name->as_string();
  }
  const Json* name = choice.find("name");
  return name && name->is_string() ? &name->as_string() : nullptr;
}

void read_allowed(Fields& fields, const Json& choice, ToolOptions& options, const std::string& path) {
  const Json* inner = choice.find("allowed_tools");
  const std::string inside = inner ? path + ".allowed_tools" : path;
  const Json& allowed = inner ? *inner : choice;
  const Json* list = allowed.find("tools");
  if (!list || !list->is_array() || list->size() > kMaxTools)
    return fields.fail_at(ErrorCode::kInvalidValue, inside + ".tools must be an array of tools", inside + ".tools");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string* name = chosen_name(list->as_array()[i]);
    const std::string at = item_path(inside + ".tools", i);
    if (!name) return fields.fail_at(ErrorCode::kInvalidValue, at + " names no tool", at);
    names.push_back(*name);
  }
  allow_only(fields, options, names, inside + ".tools");
  const Json* mode = allowed.find("mode");
  if (!mode || (mode->is_string() && mode->as_string() == "auto")) return;
  if (!mode->is_string() || mode->as_string() != "required")
    return fields.fail_at(ErrorCode::kInvalidValue, inside + ".mode must be auto or required", inside + ".mode");
  options.mode = ToolMode::kRequired;
}

void read_choice(Fields& fields, ToolOptions& options, const std::string& path) {
  const Json* choice = fields.get(path);
  if (!choice) return;
  const Json* type = choice->find("type");
  if (choice->is_string()) {
    const std::string& mode = choice->as_string();
    if (mode != "none" && mode != "auto" && mode != "required")
      return fields.fail_at(ErrorCode::kInvalidValue, path + " must be none, auto, required or an object", path);
    options.mode = mode == "none" ? ToolMode::kNone : mode == "auto" ? ToolMode::kAuto : ToolMode::kRequired;
  } else if (type && type->is_string() && type->as_string() == "allowed_tools") {
    read_allowed(fields, *choice, options, path);
  } else if (const std::string* name = chosen_name(*choice)) {
    options.mode = ToolMode::kNamed;
    options.named = *name;
  } else {
    return fields.fail_at(ErrorCode::kInvalidValue, path + " must be none, auto, required or name a tool", path);
  }
  settle_choice(fields, options, path);
}

}  // namespace

const std::span<const FieldSpec> kToolMembers(kToolRows);
const std::span<const FieldSpec> kFunctionMembers(kFunctionRows);

bool valid_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-.:/").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

void add_tool(Fields& fields, ToolOptions& options, ToolSpec tool, const std::string& path) {
  if (!fields.ok()) return;
  if (!valid_tool_name(tool.name)) {
    return fields.fail_at(ErrorCode::kInvalidValue,
                          path + ".name must be 1 to " + std::to_string(kMaxToolName) +
                              " letters, digits, '_', '-', '.', ':' or '/'",
                          path + ".name");
  }
  const auto& all = options.tools;
  if (std::any_of(all.begin(), all.end(), [&](const ToolSpec& t) { return t.name == tool.name; })) {
    return fields.fail_at(ErrorCode::kInvalidValue, "there are two tools " + json_quote(tool.name), path + ".name");
  }
  if (!tool.parameters.is_null() && !tool.parameters.is_object())
    return fields.fail_at(ErrorCode::kInvalidValue, path + ".parameters must be an object", path + ".parameters");
  tool.field = path + ".parameters";
  options.tools.push_back(std::move(tool));
}

void allow_only(Fields& fields, ToolOptions& options, const std::vector<std::string>& names, std::string_view path) {
  for (const std::string& name : names) {
    const auto& all = options.tools;
    if (std::any_of(all.begin(), all.end(), [&](const ToolSpec& t) { return t.name == name; })) continue;
    return fields.fail_at(ErrorCode::kInvalidValue,
                          "there is no tool " + json_quote(std::string_view(name).substr(0, kMaxToolName)),
                          std::string(path));
  }
  std::erase_if(options.tools, [&](const ToolSpec& t) {
    return std::find(names.begin(), names.end(), t.name) == names.end();
  });
}

void settle_choice(Fields& fields, ToolOptions& options, std::string_view path) {
  options.mode_by = path;
  if (options.mode == ToolMode::kNone) options.tools.clear();
  if (!options.must_call()) return;
  if (options.tools.empty())
    return fields.fail_at(ErrorCode::kInvalidValue, std::string(path) + " asks for a call and there are no tools",
                          std::string(path));
  if (options.mode == ToolMode::kNamed) allow_only(fields, options, {options.named}, path);
}

bool read_chat_tools(Fields& fields, ToolOptions& options) {
  const Json* tools = fields.array("tools");
  const Json* functions = fields.array("functions");
  if (tools && tools->size() == 0) tools = nullptr;  // an empty list is none: clients send it
  const bool legacy = functions && functions->size() > 0;
  if (tools && legacy) {
    fields.fail(ErrorCode::kInvalidValue, "tools and functions exclude each other", "functions");
    return true;
  }
  const std::string list = legacy ? "functions" : "tools";
  const Json* items = legacy ? functions : tools;
  for (std::size_t i = 0; items && i < items->size() && fields.ok(); ++i) {
    const Json& item = items->as_array()[i];
    const std::string path = item_path(list, i);
    if (legacy) {
      Fields function(item, kFunctionRows, path + ".");
      read_function(fields, function, options, path);
    } else {
      read_tool(fields, item, options, path);
    }
  }
  options.parallel = fields.boolean("parallel_tool_calls").value_or(true) && !legacy;  // one call had a name then
  fields.get(legacy ? "tool_choice" : "function_call");
  read_choice(fields, options, legacy ? "function_call" : "tool_choice");
  return legacy;
}

Json template_tools(const ToolOptions& options) {
  if (options.tools.empty()) return nullptr;
  Json::Array out;
  for (const ToolSpec& tool : options.tools) {
    Json function = Json::object({{"name", tool.name}});
    if (!tool.description.empty()) function.set("description", tool.description);
    if (tool.custom) {
      function.set("parameters", Json::object({{"type", "object"},
                                               {"properties", Json::object({{"input", Json::object({{"type", "string"}})}})},
                                               {"required", Json(Json::Array{"input"})}}));
    } else if (tool.parameters.is_object()) {
      function.set("parameters", tool.parameters);
    } else {
      function.set("parameters", Json::object({{"type", "object"}, {"properties", Json::object()}}));
    }
    out.push_back(Json::object({{"type", "function"}, {"function", std::move(function)}}));
  }
  return Json(std::move(out));
}

std::shared_ptr<const std::vector<text::ToolInfo>> parser_tools(const ToolOptions& options) {
  if (options.tools.empty()) return nullptr;
  auto out = std::make_shared<std::vector<text::ToolInfo>>();
  for (const ToolSpec& tool : options.tools)
    out->push_back({.name = tool.name, .parameters = tool.parameters, .custom = tool.custom});
  return out;
}

}  // namespace barg::server
