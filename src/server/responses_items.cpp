#include "server/responses_items.h"

#include <utility>

#include "server/responses_ids.h"

namespace barg::server {
namespace {

constexpr std::size_t kMaxTypeShown = 48, kMaxNotes = 64;

std::string at(const std::string& path, std::size_t i) { return path + "[" + std::to_string(i) + "]"; }

std::string string_or(const Json& object, const char* key, std::string fallback = {}) {
  const Json* v = object.find(key);
  return v && v->is_string() ? v->as_string() : std::move(fallback);
}

bool present(const Json* v) { return v && !v->is_null(); }

void join(std::string& text, std::string_view more, std::string_view separator) {
  if (!text.empty() && !more.empty()) text += separator;
  text += more;
}

struct PartKind {
  std::string_view type;
  const char* key;  ///< of its text; null: it has none that a model of text could read
};
constexpr PartKind kParts[] = {
    {"input_text", "text"},           {"output_text", "text"},    {"text", "text"},
    {"summary_text", "text"},         {"reasoning_text", "text"}, {"refusal", "refusal"},
    {"input_image", nullptr},         {"input_file", nullptr},    {"input_audio", nullptr},
    {"computer_screenshot", nullptr}, {"image_url", nullptr},
};

}  // namespace

std::string flat_tool_name(std::string_view space, std::string_view name) {
  std::string out(space);
  if (!out.ends_with("__")) out += "__";
  return out += name;
}

void ItemReader::note(std::string what) {
  if (ignored_.size() < kMaxNotes) ignored_.push_back(std::move(what));
}

const std::string* ItemReader::text_member(const Json& object, const std::string& path, const char* key) {
  const Json* v = object.find(key);
  if (v && v->is_string()) return &v->as_string();
  const std::string field = path + "." + key;
  if (!present(v))
    fields_.fail_at(ErrorCode::kMissingParameter, field + " is missing", field);
  else
    fields_.fail_at(ErrorCode::kInvalidValue, field + " must be a string, not " + std::string(type_name(*v)),
                    field);
  return nullptr;
}

std::optional<std::string> ItemReader::part_text(const Json& part, const std::string& path,
                                                 const PartRules& rules) {
  if (part.is_string()) return part.as_string();
  if (!part.is_object()) {
    fields_.fail_at(ErrorCode::kInvalidValue, path + " must be an object", path);
    return std::nullopt;
  }
  const std::string type = string_or(part, "type", "text");
  for (const PartKind& kind : kParts) {
    if (kind.type != type) continue;
    if (kind.key) {
      const std::string* text = text_member(part, path, kind.key);
      return text ? std::optional(*text) : std::nullopt;
    }
    if (!rules.placeholder) {
      fields_.fail_at(ErrorCode::kUnsupported,
                      "content parts of type " + type + " are not supported; this model reads text",
                      path + ".type");
      return std::nullopt;
    }
    note(path);
    return "[" + type + " left out: this model reads text]";
  }
  note(path);
  return "";
}

/// Null where the content is no array, with an error where it is no string either.
const Json::Array* ItemReader::parts_of(const Json& content, const std::string& path) {
  if (content.is_string()) return nullptr;
  if (!content.is_array()) {
    fields_.fail_at(ErrorCode::kInvalidValue,
                    path + " must be a string or an array of parts, not " + std::string(type_name(content)),
                    path);
    return nullptr;
  }
  if (content.size() <= kMaxItemParts) return &content.as_array();
  fields_.fail_at(ErrorCode::kInvalidValue,
                  path + " has more than " + std::to_string(kMaxItemParts) + " parts", path);
  return nullptr;
}

std::string ItemReader::texts(const Json* content, const std::string& path, const PartRules& rules) {
  if (!present(content)) return "";
  if (content->is_string()) return content->as_string();
  const Json::Array* parts = parts_of(*content, path);
  std::string out;
  for (std::size_t i = 0; parts && i < parts->size() && fields_.ok(); ++i)
    join(out, part_text((*parts)[i], at(path, i), rules).value_or(""), rules.separator);
  return out;
}

void ItemReader::close_assistant() {
  if (!assistant_.open) return;
  Json message = Json::object({{"role", "assistant"}});
  if (!assistant_.reasoning.empty()) message.set("reasoning_content", std::move(assistant_.reasoning));
  const bool only_calls = assistant_.content.empty() && !assistant_.calls.empty();
  message.set("content", only_calls ? Json(nullptr) : Json(std::move(assistant_.content)));
  if (!assistant_.calls.empty()) message.set("tool_calls", Json(std::move(assistant_.calls)));
  messages_.push_back(std::move(message));
  assistant_ = {};
}

void ItemReader::add_text(std::string_view role, std::string_view text) {
  close_assistant();
  messages_.push_back(Json::object({{"role", std::string(role)}, {"content", std::string(text)}}));
}

void ItemReader::message(const Json& item, const std::string& path) {
  const std::string* role = text_member(item, path, "role");
  if (!role) return;
  const Json* content = item.find("content");
  const std::string field = path + ".content";
  if (*role == "assistant") {
    const std::string text = texts(content, field, {.separator = ""});
    assistant_.open = true;
    join(assistant_.content, text, "\n");
    return;
  }
  if (*role != "user" && *role != "system" && *role != "developer") {
    return fields_.fail_at(ErrorCode::kInvalidValue,
                           path + ".role must be user, assistant, system or developer", path + ".role");
  }
  if (!present(content)) return fields_.fail_at(ErrorCode::kMissingParameter, field + " is missing", field);
  const Json::Array* given = parts_of(*content, field);
  if (!given || given->size() < 2) return add_text(*role, texts(content, field, {}));
  Json::Array parts;  // the template's own way of putting several together is the right one
  for (std::size_t i = 0; i < given->size() && fields_.ok(); ++i) {
    if (auto text = part_text((*given)[i], at(field, i), {}))
      parts.push_back(Json::object({{"type", "text"}, {"text", std::move(*text)}}));
  }
  close_assistant();
  messages_.push_back(Json::object({{"role", *role}, {"content", Json(std::move(parts))}}));
}

/// The text itself where it is there, else what is sealed, else its summary.
void ItemReader::reasoning(const Json& item, const std::string& path) {
  std::string text = texts(item.find("content"), path + ".content", {.separator = ""});
  const std::string sealed = string_or(item, "encrypted_content");
  if (text.empty() && !sealed.empty()) {
    if (auto opened = open_(sealed))
      text = std::move(*opened);
    else
      note(path + ".encrypted_content");
  }
  if (text.empty()) text = texts(item.find("summary"), path + ".summary", {});
  if (text.empty()) return;
  assistant_.open = true;
  join(assistant_.reasoning, text, "\n");
}

void ItemReader::call(const Json& item, const std::string& path, bool custom) {
  const std::string* name = text_member(item, path, "name");
  if (!name) return;
  const std::string space = string_or(item, "namespace");
  const std::string flat = space.empty() ? *name : flat_tool_name(space, *name);
  const std::string id = string_or(item, "call_id", string_or(item, "id"));
  Json arguments = "{}";
  const char* key = custom ? "input" : "arguments";
  if (const Json* given = item.find(key); present(given)) {
    if (!given->is_string() && !given->is_object()) {
      const std::string field = path + "." + key;
      return fields_.fail_at(ErrorCode::kInvalidValue, field + " must be a string", field);
    }
    arguments = custom ? Json::object({{"input", *given}}) : *given;
  } else if (custom) {
    arguments = Json::object({{"input", ""}});
  }
  assistant_.open = true;
  assistant_.calls.push_back(
      Json::object({{"id", id},
                    {"type", "function"},
                    {"function", Json::object({{"name", flat}, {"arguments", std::move(arguments)}})}}));
  call_names_[id] = flat;
}

void ItemReader::output(const Json& item, const std::string& path) {
  const Json* given = item.find("output");
  const std::string field = path + ".output";
  if (!present(given)) return fields_.fail_at(ErrorCode::kMissingParameter, field + " is missing", field);
  const bool structured = given->is_object() || given->is_number() || given->is_bool();
  std::string text = structured ? dump_json(*given) : texts(given, field, {.placeholder = true});
  const std::string id = string_or(item, "call_id");
  close_assistant();
  Json message = Json::object({{"role", "tool"}, {"tool_call_id", id}});
  if (const auto name = call_names_.find(id); name != call_names_.end()) message.set("name", name->second);
  message.set("content", std::move(text));
  messages_.push_back(std::move(message));
}

void ItemReader::reference(const Json& item, const std::string& path) {
  const std::string* id = text_member(item, path, "id");
  if (!id) return;
  const auto found = find_(*id);
  if (!found && !response_of_item(*id))
    return note(path + ".item_reference");  // another server's: it never was here
  if (!found) {
    return fields_.fail_at(ErrorCode::kInvalidValue,
                           "there is no stored item " + json_quote(id->substr(0, kMaxTypeShown)) +
                               ": items are kept while their response is stored",
                           path + ".id");
  }
  if (string_or(*found, "type") == "item_reference")
    return fields_.fail_at(ErrorCode::kInvalidValue, path + " refers to a reference", path + ".id");
  read(*found, path);
}

void ItemReader::read(const Json& item, const std::string& path) {
  struct Kind {
    std::string_view type;
    void (*read)(ItemReader&, const Json&, const std::string&);
  };
  static constexpr Kind kKinds[] = {
      {"message", [](ItemReader& r, const Json& i, const std::string& p) { r.message(i, p); }},
      {"reasoning", [](ItemReader& r, const Json& i, const std::string& p) { r.reasoning(i, p); }},
      {"function_call", [](ItemReader& r, const Json& i, const std::string& p) { r.call(i, p, false); }},
      {"custom_tool_call", [](ItemReader& r, const Json& i, const std::string& p) { r.call(i, p, true); }},
      {"function_call_output", [](ItemReader& r, const Json& i, const std::string& p) { r.output(i, p); }},
      {"custom_tool_call_output", [](ItemReader& r, const Json& i, const std::string& p) { r.output(i, p); }},
      {"item_reference", [](ItemReader& r, const Json& i, const std::string& p) { r.reference(i, p); }},
  };
  const Json* type = item.find("type");
  if (present(type) && !type->is_string())
    return fields_.fail_at(ErrorCode::kInvalidValue, path + ".type must be a string", path + ".type");
  const std::string name = present(type)       ? type->as_string()
                           : item.find("role") ? "message"
                                               : "item_reference";
  for (const Kind& kind : kKinds) {
    if (kind.type == name) return kind.read(*this, item, path);
  }
  note(path + "." + name.substr(0, kMaxTypeShown));
}

void ItemReader::add(const Json& item, const std::string& path, bool keep) {
  if (!fields_.ok()) return;
  if (!item.is_object())
    return fields_.fail_at(ErrorCode::kInvalidValue,
                           path + " must be an object, not " + std::string(type_name(item)), path);
  if (++count_ > kMaxInputItems) {
    return fields_.fail_at(ErrorCode::kInvalidValue,
                           "a conversation may have at most " + std::to_string(kMaxInputItems) + " items",
                           path);
  }
  read(item, path);
  if (!keep || !fields_.ok()) return;
  if (!kept_.empty()) kept_ += ',';
  const bool refers =
      string_or(item, "type") == "item_reference" || (!item.find("type") && !item.find("role"));
  kept_ += dump_json(refers ? find_(string_or(item, "id")).value_or(item) : item);
}

Json::Array ItemReader::take() {
  close_assistant();
  return std::move(messages_);
}

}  // namespace barg::server
