#include "server/responses_ids.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace barg::server {
namespace {

constexpr std::size_t kResponseDigits = 24, kItemDigits = 4;

std::string type_of(const Json& item) {
  const Json* type = item.find("type");
  return type && type->is_string() ? type->as_string() : "message";
}

void set_default(Json& object, const char* key, Json value) {
  if (const Json* v = object.find(key); !v || v->is_null()) object.set(key, std::move(value));
}

Json text_part(const char* type, Json text) {
  Json part = Json::object({{"type", type}, {"text", std::move(text)}});
  return part;
}

void list_message(Json& item) {
  const Json* role = item.find("role");
  const bool assistant = role && role->is_string() && role->as_string() == "assistant";
  const char* kind = assistant ? "output_text" : "input_text";
  Json* content = item.find("content");
  if (!content || content->is_null()) {
    item.set("content", Json::array());
  } else if (content->is_string()) {
    Json part = text_part(kind, std::move(*content));
    item.set("content", Json(Json::Array{std::move(part)}));
  }
  if (!item.find("content")->is_array()) return;  // an item without a type may hold anything: it was only skipped
  for (Json& part : item.find("content")->as_array()) {
    if (part.is_string()) part = text_part(kind, std::move(part));
    if (!part.is_object()) continue;
    set_default(part, "type", kind);
    if (type_of(part) != "output_text") continue;
    set_default(part, "annotations", Json::array());
    set_default(part, "logprobs", Json::array());
  }
}

}  // namespace

std::string item_id(std::string_view prefix, std::string_view response_id, std::size_t index) {
  if (response_id.starts_with(kResponsePrefix)) response_id.remove_prefix(kResponsePrefix.size());
  char own[16];
  std::snprintf(own, sizeof own, "%04zx", index & 0xFFFF);
  return std::string(prefix) + "_" + std::string(response_id) + own;
}

std::optional<std::string> response_of_item(std::string_view item_id) {
  const std::size_t bar = item_id.find('_');
  if (bar == std::string_view::npos) return std::nullopt;
  const std::string_view digits = item_id.substr(bar + 1);
  const bool ours = digits.size() == kResponseDigits + kItemDigits &&
                    digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!ours) return std::nullopt;
  return std::string(kResponsePrefix) + std::string(digits.substr(0, kResponseDigits));
}

std::string input_item_id(const Json& item, std::string_view response_id, std::size_t index) {
  struct Prefix {
    std::string_view type, prefix;
  };
  static constexpr Prefix kPrefixes[] = {
      {"message", "msg"},          {"reasoning", "rs"},
      {"function_call", "fc"},     {"function_call_output", "fco"},
      {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"},
  };
  const std::string type = type_of(item);
  std::string_view prefix = "item";
  for (const Prefix& p : kPrefixes) {
    if (p.type == type) prefix = p.prefix;
  }
  return item_id(prefix, response_id, kFirstInputItem + index);
}

Json listed_item(Json item, std::string_view response_id, std::size_t index) {
  if (!item.is_object()) return item;
  const std::string type = type_of(item);
  Json* own = item.find("id");
  if (!own || !own->is_string()) item.set("id", input_item_id(item, response_id, index));
  set_default(item, "type", type);
  if (type == "message") list_message(item);
  if (type == "reasoning") set_default(item, "summary", Json::array());
  if (type == "message" || type.starts_with("function_call")) set_default(item, "status", "completed");
  return item;
}

}  // namespace barg::server
