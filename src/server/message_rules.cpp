// The messages of Chat Completions: checked field by field, and what is old-fashioned in them (function_call, the
// role "function", custom calls, thinking as parts of the content) told in today's terms, so that templates see one.
#include <algorithm>
#include <array>

#include "server/request_rules.h"

namespace barg::server {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

std::string at(const std::string& path, std::size_t i) { return path + "[" + std::to_string(i) + "]"; }

/// True where the member is absent, null or a string.
bool check_optional_string(Fields& fields, const Json& object, const std::string& path, const char* key) {
  const Json* v = object.find(key);
  if (!v || v->is_null() || v->is_string()) return true;
  const std::string field = path + "." + key;
  fields.fail_at(ErrorCode::kInvalidValue, field + " must be a string, not " + std::string(type_name(*v)), field);
  return false;
}

bool check_string(Fields& fields, const Json& object, const std::string& path, const char* key) {
  const Json* v = object.find(key);
  if (v && v->is_string()) return true;
  const std::string field = path + "." + key;
  fields.fail_at(ErrorCode::kInvalidValue, field + " must be a string", field);
  return false;
}

struct PartKind {
  std::string_view type;
  const char* key;  ///< of its text
  bool assistant;   ///< in the model's own messages only
};
constexpr PartKind kParts[] = {
    {"text", "text", false},
    {"refusal", "refusal", true},
    {"thinking", "thinking", true},
    {"reasoning", "text", true},
    {"redacted_thinking", nullptr, true},
};

const PartKind* part_kind(const Json& part, std::string_view role) {
  const Json* type = part.find("type");
  for (const PartKind& kind : kParts) {
    if (type && type->is_string() && type->as_string() == kind.type && (!kind.assistant || role == "assistant"))
      return &kind;
  }
  return nullptr;
}

void check_part(Fields& fields, const Json& part, const std::string& path, std::string_view role) {
  if (!part.is_object()) return fields.fail_at(ErrorCode::kInvalidValue, path + " must be an object", path);
  if (!check_string(fields, part, path, "type")) return;
  const PartKind* kind = part_kind(part, role);
  if (!kind) {
    return fields.fail_at(ErrorCode::kUnsupported,
                          "content parts of type " + json_quote(part.find("type")->as_string().substr(0, 32)) +
                              " are not supported; this model reads text",
                          path + ".type");
  }
  if (kind->key) check_string(fields, part, path, kind->key);
}

void check_content(Fields& fields, const Json& message, const std::string& path, std::string_view role) {
  const Json* content = message.find("content");
  const std::string field = path + ".content";
  if (!content || content->is_null()) {
    if (role == "assistant") return;  // a turn that was only tool calls
    return fields.fail_at(ErrorCode::kMissingParameter, field + " is missing", field);
  }
  if (content->is_string()) return;
  if (!content->is_array()) {
    return fields.fail_at(
        ErrorCode::kInvalidValue,
        field + " must be a string or an array of parts, not " + std::string(type_name(*content)), field);
  }
  for (std::size_t i = 0; i < content->size() && fields.ok(); ++i)
    check_part(fields, content->as_array()[i], at(field, i), role);
}

/// {"name": string, "arguments": string, object or null}
void check_function(Fields& fields, const Json* function, const std::string& path) {
  if (!function || !function->is_object())
    return fields.fail_at(ErrorCode::kInvalidValue, path + " must be an object", path);
  check_string(fields, *function, path, "name");
  const Json* arguments = function->find("arguments");
  if (arguments && !arguments->is_null() && !arguments->is_string() && !arguments->is_object())
    fields.fail_at(ErrorCode::kInvalidValue, path + ".arguments must be a string of JSON", path + ".arguments");
}

void check_call(Fields& fields, const Json& call, const std::string& path) {
  if (!call.is_object()) return fields.fail_at(ErrorCode::kInvalidValue, path + " must be an object", path);
  check_optional_string(fields, call, path, "id");
  check_optional_string(fields, call, path, "type");
  const Json* custom = call.find("custom");
  if (!custom || custom->is_null()) return check_function(fields, call.find("function"), path + ".function");
  if (!custom->is_object())
    return fields.fail_at(ErrorCode::kInvalidValue, path + ".custom must be an object", path + ".custom");
  check_string(fields, *custom, path + ".custom", "name");
  check_string(fields, *custom, path + ".custom", "input");
}

void check_calls(Fields& fields, const Json& message, const std::string& path) {
  const Json* calls = message.find("tool_calls");
  if (!calls || calls->is_null()) return;
  const std::string field = path + ".tool_calls";
  if (!calls->is_array()) return fields.fail_at(ErrorCode::kInvalidValue, field + " must be an array", field);
  if (calls->size() > kMaxToolCalls) {
    return fields.fail_at(ErrorCode::kInvalidValue,
                          field + " has more than " + std::to_string(kMaxToolCalls) + " items", field);
  }
  for (std::size_t i = 0; i < calls->size() && fields.ok(); ++i)
    check_call(fields, calls->as_array()[i], at(field, i));
}

void check_message(Fields& fields, const Json& message, const std::string& path) {
  if (!message.is_object())
    return fields.fail_at(ErrorCode::kInvalidValue, path + " must be an object", path);
  const Json* role = message.find("role");
  if (!role || role->is_null())
    return fields.fail_at(ErrorCode::kMissingParameter, path + ".role is missing", path + ".role");
  if (!role->is_string() || std::find(kRoles.begin(), kRoles.end(), role->as_string()) == kRoles.end()) {
    return fields.fail_at(ErrorCode::kInvalidValue,
                          path + ".role must be system, developer, user, assistant or tool", path + ".role");
  }
  check_content(fields, message, path, role->as_string());
  check_calls(fields, message, path);
  for (const char* key : {"name", "tool_call_id", "reasoning", "reasoning_content", "refusal"})
    check_optional_string(fields, message, path, key);
  if (const Json* call = message.find("function_call"); call && !call->is_null())
    check_function(fields, call, path + ".function_call");
}

// ---- today's terms
// ----------------------------------------------------------------------------------------

void remove(Json& object, std::string_view key) {
  std::erase_if(object.as_object(), [&](const Json::Member& m) { return m.first == key; });
}

void modernise_calls(Json& message) {
  if (Json* call = message.find("function_call"); call && !call->is_null()) {
    Json function = std::move(*call);
    if (Json* calls = message.find("tool_calls"); !calls || is_empty_value(*calls)) {
      message.set("tool_calls", Json(Json::Array{Json::object(
                                    {{"type", "function"}, {"function", std::move(function)}})}));
    }
  }
  remove(message, "function_call");
  Json* calls = message.find("tool_calls");
  if (!calls || !calls->is_array()) return;
  for (Json& call : calls->as_array()) {
    const Json* custom = call.find("custom");
    if (!custom || !custom->is_object()) continue;
    Json function = Json::object({{"name", *custom->find("name")},
                                  {"arguments", Json::object({{"input", *custom->find("input")}})}});
    remove(call, "custom");
    call.set("type", "function");
    call.set("function", std::move(function));
  }
}

/// Thinking among the content's parts becomes the message's reasoning, unless it has some.
void modernise_thinking(Json& message) {
  Json* content = message.find("content");
  if (!content || !content->is_array()) return;
  std::string thinking;
  std::erase_if(content->as_array(), [&](const Json& part) {
    const PartKind* kind = part_kind(part, "assistant");
    if (!kind || kind->type == "text" || kind->type == "refusal") return false;
    if (kind->key) thinking += part.find(kind->key)->as_string();
    return true;
  });
  const auto has = [&](const char* key) {
    const Json* v = message.find(key);
    return v && !is_empty_value(*v);
  };
  if (!thinking.empty() && !has("reasoning") && !has("reasoning_content"))
    message.set("reasoning_content", std::move(thinking));
}

void modernise(Json& message) {
  const std::string role = message.find("role")->as_string();
  if (role == "function") message.set("role", "tool");
  if (role != "assistant") return;
  if (message.find("function_call") || message.find("tool_calls")) modernise_calls(message);
  modernise_thinking(message);
}

}  // namespace

void read_messages(Fields& fields, text::ChatPrompt& chat) {
  const Json* messages = fields.array("messages");
  if (!messages) return fields.fail(ErrorCode::kMissingParameter, "messages is missing", "messages");
  if (messages->size() == 0) return fields.fail(ErrorCode::kInvalidValue, "messages is empty", "messages");
  for (std::size_t i = 0; i < messages->size() && fields.ok(); ++i)
    check_message(fields, messages->as_array()[i], at("messages", i));
  if (!fields.ok()) return;
  chat.messages = *messages;
  for (Json& message : chat.messages.as_array()) modernise(message);
  const auto generate = fields.boolean("add_generation_prompt");
  chat.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (generate.value_or(false) && chat.continue_final_message) {
    fields.fail(ErrorCode::kInvalidValue,
                "continue_final_message and add_generation_prompt exclude each other",
                "continue_final_message");
  }
  chat.add_generation_prompt = generate.value_or(!chat.continue_final_message);
  if (const Json* documents = fields.array("documents")) {
    for (std::size_t i = 0; i < documents->size(); ++i) {
      if (!documents->as_array()[i].is_object())
        fields.fail_at(ErrorCode::kInvalidValue, at("documents", i) + " must be an object", at("documents", i));
    }
    chat.documents = *documents;
  }
}

}  // namespace barg::server
