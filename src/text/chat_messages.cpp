#include "text/chat_messages.h"

#include <algorithm>

namespace barg::text {

namespace {

constexpr std::size_t kMaxReasoningDetails = 1024;

const std::string* string_member(const Json& object, std::string_view key) {
  const Json* v = object.find(key);
  return v != nullptr && v->is_string() ? &v->as_string() : nullptr;
}

// The text of a content part, or null if it has none.
const std::string* part_text(const Json& part) {
  const std::string* type = string_member(part, "type");
  if (type == nullptr) return nullptr;
  if (*type == "refusal") return string_member(part, "refusal");
  const bool textual = *type == "text" || *type == "input_text" || *type == "output_text";
  return textual ? string_member(part, "text") : nullptr;
}

// The reasoning in a content part; null if it is none. Encrypted reasoning is part of it and has no text.
const std::string* part_reasoning(const Json& part) {
  static const std::string kNone;
  const std::string* type = string_member(part, "type");
  if (type == nullptr) return nullptr;
  if (*type == "redacted_thinking") return &kNone;
  if (*type != "thinking" && *type != "reasoning") return nullptr;
  for (const char* key : {"thinking", "reasoning", "text"}) {
    if (const std::string* text = string_member(part, key)) return text;
  }
  return &kNone;
}

void append_paragraph(std::string& out, const std::string& text) {
  if (text.empty()) return;
  if (!out.empty()) out += "\n";
  out += text;
}

// OpenRouter's list of {type: reasoning.text | reasoning.summary | reasoning.encrypted, ...}.
std::string details_text(const Json& details) {
  std::string out;
  if (!details.is_array()) return out;
  for (std::size_t i = 0; i < std::min(details.size(), kMaxReasoningDetails); ++i) {
    const Json& d = details.as_array()[i];
    for (const char* key : {"text", "summary"}) {
      if (const std::string* text = string_member(d, key)) append_paragraph(out, *text);
    }
  }
  return out;
}

// All spellings of one thing; the first that says anything counts. `from_parts` is what the content's parts held.
void set_reasoning(Json& m, std::string from_parts) {
  std::string text;
  for (const char* key : {"reasoning_content", "reasoning", "thinking", "thought"}) {
    const std::string* value = string_member(m, key);
    if (value != nullptr && text.empty()) text = *value;
  }
  if (text.empty()) text = std::move(from_parts);
  if (const Json* details = m.find("reasoning_details"); details != nullptr && text.empty()) {
    text = details_text(*details);
  }
  for (const char* key : {"reasoning_content", "reasoning", "thinking", "thought", "reasoning_details"}) {
    remove_member(m, key);
  }
  if (!text.empty()) m.set("reasoning_content", Json(std::move(text)));
}

// A function call of any API generation as {id, type, function: {name, arguments}}.
Json canonical_call(const Json& call) {
  Json out = call;
  if (const Json* custom = call.find("custom"); custom != nullptr && call.find("function") == nullptr) {
    const std::string* name = string_member(*custom, "name");
    const std::string* input = string_member(*custom, "input");
    out.set("function", Json::object({{"name", name == nullptr ? Json("") : Json(*name)},
                                      {"arguments", Json::object({{"input", input == nullptr ? "" : *input}})}}));
    remove_member(out, "custom");
    out.set("type", "function");
  }
  if (string_member(out, "type") == nullptr) out.set("type", "function");
  return out;
}

void canonical_calls(Json& m) {
  Json calls = Json::array();
  if (const Json* given = m.find("tool_calls"); given != nullptr && given->is_array()) {
    for (const Json& call : given->as_array()) {
      if (call.is_object()) calls.push(canonical_call(call));
    }
  }
  if (const Json* legacy = m.find("function_call"); legacy != nullptr && legacy->is_object() && calls.size() == 0) {
    calls.push(Json::object({{"type", "function"}, {"function", *legacy}}));
  }
  remove_member(m, "function_call");
  remove_member(m, "tool_calls");
  if (calls.size() > 0) m.set("tool_calls", std::move(calls));
}

// Text parts in one spelling; reasoning goes to `reasoning`.
Result<Json> canonical_parts(const Json& parts, bool assistant, const std::string& path, std::string& reasoning) {
  Json list = Json::array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts.as_array()[i];
    if (part.is_string()) {
      list.push(Json::object({{"type", "text"}, {"text", part}}));
      continue;
    }
    if (const std::string* thought = assistant ? part_reasoning(part) : nullptr) {
      append_paragraph(reasoning, *thought);
      continue;
    }
    const std::string* text = part_text(part);
    if (text == nullptr) {
      const std::string where = path + "[" + std::to_string(i) + "]";
      return fail(ErrorCode::kUnsupported, where + ": only text parts are supported", where + ".type");
    }
    list.push(Json::object({{"type", "text"}, {"text", *text}}));
  }
  return list;
}

std::string canonical_role(const std::string& role, const TemplateTraits& traits) {
  if (role == "developer" && !traits.knows_developer) return "system";
  if (role == "function") return "tool";
  if (role == "ctx" || role == "msg") return "user";  // what some agents call what they add
  return role;
}

void set_arguments(Json& call, const TemplateTraits& traits) {
  Json* function = call.find("function");
  Json* arguments = function == nullptr ? nullptr : function->find("arguments");
  if (arguments == nullptr) {
    if (function != nullptr && function->is_object()) {
      function->set("arguments", traits.string_arguments ? Json("{}") : Json::object());
    }
    return;
  }
  if (traits.string_arguments) {
    if (arguments->is_object()) *arguments = Json(dump_json(*arguments, {.spaces = true}));
    if (arguments->is_null()) *arguments = Json("{}");
    return;
  }
  if (arguments->is_null() || (arguments->is_string() && arguments->as_string().empty())) {
    *arguments = Json::object();
  } else if (arguments->is_string()) {
    // What a model wrote may be no JSON at all; the template then sees the text.
    auto parsed = parse_json(arguments->as_string());
    if (parsed && parsed->is_object()) *arguments = std::move(*parsed);
  }
}

void present_content(Json& m, const TemplateTraits& traits) {
  const Json* content = m.find("content");
  const bool tool = m.find("role")->as_string() == "tool";
  if (content == nullptr || content->is_null()) {
    m.set("content", traits.checks_null ? Json() : Json(""));
  } else if (content->is_array()) {
    // Templates that tell strings from lists expect of a tool only a string, or lists of their own kind.
    const bool parts = traits.wants_parts && !(tool && traits.checks_string);
    if (!parts) m.set("content", Json(content_text(content)));
  } else if (content->is_string() && traits.wants_parts && !traits.checks_string) {
    m.set("content", Json(Json::Array{Json::object({{"type", "text"}, {"text", *content}})}));
  }
}

void present_reasoning(Json& m, const TemplateTraits& traits, OwnWords& own) {
  const std::string* given = string_member(m, "reasoning_content");
  if (given == nullptr) return;
  std::string text = *given;
  Json* content = m.find("content");
  switch (traits.reasoning.kind) {
    case ReasoningPlace::Kind::kNowhere:
      break;
    case ReasoningPlace::Kind::kMember:
      if (traits.content_or_reasoning && m.find("tool_calls") != nullptr && !content_empty(content)) {
        text += "\n\n" + content_text(content);
        *content = Json("");
      }
      m.set(traits.reasoning.member, Json(text));
      break;
    case ReasoningPlace::Kind::kParts: {
      Json parts = Json::array();
      parts.push(Json::object({{"type", "thinking"}, {"thinking", text}}));
      if (content->is_array()) {
        for (const Json& part : content->as_array()) parts.push(part);
      } else if (!content_empty(content)) {
        parts.push(Json::object({{"type", "text"}, {"text", *content}}));
      }
      *content = std::move(parts);
      remove_member(m, "reasoning_content");
      break;
    }
    case ReasoningPlace::Kind::kContent: {
      const std::string answer = content_text(content);
      if (answer.find(traits.reasoning_close) != std::string::npos) break;  // the client left it where it was
      const std::string &open = traits.reasoning_open, &close = traits.reasoning_close;
      std::string block = open + "\n" + text + "\n" + close;
      const std::size_t size = block.size();
      *content = Json(own.add(std::move(block), {{0, open.size()}, {size - close.size(), size}}) + "\n\n" + answer);
      remove_member(m, "reasoning_content");
      break;
    }
  }
}

}  // namespace

void remove_member(Json& object, std::string_view key) {
  if (!object.is_object()) return;
  std::erase_if(object.as_object(), [&](const Json::Member& m) { return m.first == key; });
}

std::string content_text(const Json* content) {
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return content->as_string();
  if (!content->is_array()) return dump_json(*content, {.spaces = true});
  std::string joined;
  bool first = true;
  for (const Json& part : content->as_array()) {
    const std::string* text = string_member(part, "text");
    if (!first) joined += "\n";
    first = false;
    if (text != nullptr) joined += *text;
  }
  return joined;
}

bool content_empty(const Json* content) {
  if (content == nullptr || content->is_null()) return true;
  return content->is_string() ? content->as_string().empty() : content->size() == 0;
}

Json join_contents(const std::vector<const Json*>& contents) {
  std::string text;
  Json parts = Json::array();
  const Json* only = nullptr;
  std::size_t count = 0;
  bool strings = true;
  for (const Json* content : contents) {
    if (content_empty(content)) continue;
    only = content;
    ++count;
    strings = strings && content->is_string();
  }
  if (count == 0) return Json();
  if (count == 1) return *only;
  for (const Json* content : contents) {
    if (content_empty(content)) continue;
    if (strings) {
      text += (text.empty() ? "" : "\n\n") + content->as_string();
    } else if (content->is_array()) {
      for (const Json& part : content->as_array()) parts.push(part);
    } else {
      parts.push(Json::object({{"type", "text"}, {"text", content_text(content)}}));
    }
  }
  return strings ? Json(std::move(text)) : std::move(parts);
}

Result<Json> canonical_messages(const Json& messages, const TemplateTraits& traits) {
  if (!messages.is_array()) return fail(ErrorCode::kInvalidValue, "messages must be an array", "messages");
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json m = messages.as_array()[i];
    const std::string path = "messages[" + std::to_string(i) + "]";
    const std::string* role = string_member(m, "role");
    if (role == nullptr) return fail(ErrorCode::kInvalidValue, path + ".role must be a string", path + ".role");
    m.set("role", Json(canonical_role(*role, traits)));
    const bool assistant = m.find("role")->as_string() == "assistant";
    std::string reasoning;
    if (const Json* content = m.find("content"); content != nullptr && content->is_array()) {
      auto parts = canonical_parts(*content, assistant, path + ".content", reasoning);
      if (!parts) return std::unexpected(parts.error());
      m.set("content", parts->size() == 0 ? Json() : std::move(*parts));
    } else if (content == nullptr) {
      m.set("content", Json());
    } else if (!content->is_string() && !content->is_null()) {
      // Some clients send a tool's result as the object that it is.
      m.set("content", Json(content_text(content)));
    }
    if (assistant) {
      canonical_calls(m);
      set_reasoning(m, std::move(reasoning));
    }
    out.push(std::move(m));
  }
  return out;
}

Json present_messages(Json messages, const TemplateTraits& traits, OwnWords& own) {
  for (Json& m : messages.as_array()) {
    if (Json* calls = m.find("tool_calls"); calls != nullptr && calls->is_array()) {
      for (Json& call : calls->as_array()) set_arguments(call, traits);
    }
    present_content(m, traits);
    if (m.find("role")->as_string() == "assistant") present_reasoning(m, traits, own);
  }
  return messages;
}

bool append_to_last(Json& messages, const std::string& marker) {
  if (messages.size() == 0) return false;
  Json* content = messages.as_array().back().find("content");
  if (content == nullptr) return false;
  if (content->is_string()) {
    *content = Json(content->as_string() + marker);
    return true;
  }
  if (!content->is_array() || content->size() == 0) return false;
  Json* text = content->as_array().back().find("text");
  if (text == nullptr || !text->is_string()) return false;
  *text = Json(text->as_string() + marker);
  return true;
}

}  // namespace barg::text
