#include "server/messages_content.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "server/json_fields.h"
#include "server/messages_ids.h"
#include "server/messages_volatile.h"

namespace barg::server {
namespace {

constexpr double kShortPinSeconds = 300, kLongPinSeconds = 3600;  // what the protocol's ttl may be
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kErrorWithinBytes = 64;  // of a tool's result: where it says itself that it failed

enum class Role : std::uint8_t { kSystem, kUser, kAssistant };

/// A message of the converted conversation.
struct Message {
  Role role = Role::kUser;
  std::string text;
  bool has_text = false;
  std::string reasoning;
  Json calls;                ///< null or an array
  std::string result_of;     ///< a tool's result: the id of its call
  std::string result_name;   ///< and the tool's name, where the call is there

  bool is_result() const { return !result_of.empty(); }
};

std::unexpected<Error> invalid(const std::string& path, const std::string& what) {
  return fail(ErrorCode::kInvalidValue, path + " " + what, path);
}

void add_line(std::string& text, std::string_view more, bool first) {
  if (!first) text += '\n';
  text += more;
}

void add_text(Message& m, std::string_view text) {
  add_line(m.text, text, !m.has_text);
  m.has_text = true;
}

Result<std::string> string_member(const Json& object, std::string_view name, const std::string& path,
                                  std::size_t max_bytes = std::string::npos) {
  const Json* value = object.find(name);
  const std::string at = path + "." + std::string(name);
  if (value == nullptr || value->is_null()) return fail(ErrorCode::kMissingParameter, at + " is missing", at);
  if (!value->is_string()) return invalid(at, "must be a string, not " + std::string(type_name(*value)));
  if (value->as_string().size() > max_bytes) return invalid(at, "is longer than " + std::to_string(max_bytes) + " bytes");
  return value->as_string();
}

const std::string* optional_text(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

bool says_error(std::string_view text) {
  constexpr std::string_view kWord = "error";
  text = text.substr(0, kErrorWithinBytes);
  return !std::ranges::search(text, kWord, [](char a, char b) { return (a | 0x20) == b; }).empty();
}

class Reader {
 public:
  Reader(const ContentOptions& options, IgnoredFields& ignored) : options_(options), ignored_(ignored) {}

  Result<void> system(const Json& value);
  Result<void> message(const Json& value, const std::string& path);
  Conversation finish();
  bool empty() const { return out_.empty(); }

 private:
  Result<void> block(const Json& value, Message& turn, std::vector<Message>& results, const std::string& path);
  Result<void> tool_use(const Json& value, Message& turn, const std::string& path);
  Result<void> tool_result(const Json& value, std::vector<Message>& results, const std::string& path);
  Result<void> thinking(const Json& value, Message& turn, const std::string& path);
  Result<std::optional<std::string>> readable(const Json& value, const std::string& type, const std::string& path);
  Result<std::string> document(const Json& value, const std::string& path);
  Result<std::string> joined(const Json& content, const std::string& path);
  std::string kept(const std::string& text, Role role, const std::string& path);
  void append(Message turn);

  const ContentOptions& options_;
  IgnoredFields& ignored_;
  std::vector<Message> out_;
  std::map<std::string, std::string, std::less<>> names_;  ///< of calls, by id
  double cache_pin_s_ = 0;
};

/// System text goes without its volatile lines.
std::string Reader::kept(const std::string& text, Role role, const std::string& path) {
  if (role != Role::kSystem || !options_.strip_volatile) return text;
  std::string out = without_volatile_lines(text);
  if (out.size() != text.size()) ignored_.add(path);
  return out;
}

/// A text or a list of blocks that have one: a tool's result, what a document holds.
Result<std::string> Reader::joined(const Json& content, const std::string& path) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) {
    return invalid(path, "must be a string or an array of blocks, not " + std::string(type_name(content)));
  }
  std::string out;
  bool first = true;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Json& part = content.as_array()[i];
    const std::string at = path + "." + std::to_string(i);
    if (!part.is_object()) return invalid(at, "must be an object");
    const auto type = string_member(part, "type", at);
    if (!type) return std::unexpected(type.error());
    auto text = readable(part, *type, at);
    if (!text) return std::unexpected(text.error());
    if (!*text) continue;
    add_line(out, **text, first);
    first = false;
  }
  return out;
}

Result<std::string> Reader::document(const Json& value, const std::string& path) {
  const std::string at = path + ".source";
  const Json* source = value.find("source");
  if (source == nullptr || !source->is_object()) return invalid(at, "must be an object");
  const auto type = string_member(*source, "type", at);
  if (!type) return std::unexpected(type.error());
  Result<std::string> body;
  if (*type == "text") {
    body = string_member(*source, "data", at);
  } else if (const Json* content = source->find("content"); *type == "content" && content != nullptr) {
    body = joined(*content, at + ".content");
  } else {
    return fail(ErrorCode::kUnsupported, at + ": only documents that are text can be read here", at + ".type");
  }
  if (!body) return body;
  std::string out;
  for (const char* name : {"title", "context"}) {
    if (const std::string* line = optional_text(value, name); line && !line->empty()) out += *line + "\n";
  }
  return out + *body;
}

/// The text of a block that is read as text; nullopt where it was left out.
Result<std::optional<std::string>> Reader::readable(const Json& value, const std::string& type,
                                                    const std::string& path) {
  static constexpr std::array<std::string_view, 5> kMedia = {"image", "audio", "video", "file", "input_audio"};
  read_cache_control(value, path, cache_pin_s_, ignored_);
  if (std::ranges::find(kMedia, type) != kMedia.end()) {
    return fail(ErrorCode::kUnsupported, path + ": this model reads text, not a block of type " + json_quote(type),
                path + ".type");
  }
  if (type == "text") return string_member(value, "text", path);
  if (type == "tool_reference") return string_member(value, "tool_name", path, kMaxNameBytes);
  if (type == "document") return document(value, path);
  if (type == "search_result") {
    const Json* content = value.find("content");
    auto body = joined(content != nullptr ? *content : Json(), path + ".content");
    if (!body) return std::unexpected(body.error());
    std::string out;
    for (const char* name : {"title", "source"}) {
      if (const std::string* line = optional_text(value, name)) out += *line + "\n";
    }
    return out + *body;
  }
  for (const char* name : {"text", "content"}) {
    if (const std::string* text = optional_text(value, name)) return *text;
  }
  ignored_.add(path);
  return std::nullopt;
}

Result<void> Reader::tool_use(const Json& value, Message& turn, const std::string& path) {
  auto id = string_member(value, "id", path, kMaxNameBytes);
  if (!id) return std::unexpected(id.error());
  auto name = string_member(value, "name", path, kMaxNameBytes);
  if (!name) return std::unexpected(name.error());
  const Json* input = value.find("input");
  if (input != nullptr && !input->is_null() && !input->is_object()) {
    return invalid(path + ".input", "must be an object, not " + std::string(type_name(*input)));
  }
  Json arguments = input != nullptr && input->is_object() ? *input : Json::object();
  turn.calls.push(Json::object({{"id", native_tool_id(*id).value_or(*id)},
                                {"type", "function"},
                                {"function", Json::object({{"name", *name}, {"arguments", std::move(arguments)}})}}));
  names_[*id] = std::move(*name);
  return {};
}

Result<void> Reader::tool_result(const Json& value, std::vector<Message>& results, const std::string& path) {
  auto id = string_member(value, "tool_use_id", path, kMaxNameBytes);
  if (!id) return std::unexpected(id.error());
  if (id->empty()) return invalid(path + ".tool_use_id", "is empty");
  Message m;
  m.has_text = true;
  if (const Json* content = value.find("content"); content != nullptr && !content->is_null()) {
    auto text = joined(*content, path + ".content");
    if (!text) return std::unexpected(text.error());
    m.text = std::move(*text);
  }
  const Json* error = value.find("is_error");
  if (error != nullptr && error->is_bool() && error->as_bool() && !says_error(m.text)) m.text.insert(0, "Error: ");
  if (const auto name = names_.find(*id); name != names_.end()) m.result_name = name->second;
  m.result_of = native_tool_id(*id).value_or(*id);
  results.push_back(std::move(m));
  return {};
}

Result<void> Reader::thinking(const Json& value, Message& turn, const std::string& path) {
  auto text = string_member(value, "thinking", path);
  if (!text) return std::unexpected(text.error());
  if (const std::string* signature = optional_text(value, "signature");
      signature && check_thought(options_.thought_key, *signature, *text) == Signed::kChanged) {
    ignored_.add(path + ".signature");
  }
  add_line(turn.reasoning, *text, turn.reasoning.empty());
  return {};
}

Result<void> Reader::block(const Json& value, Message& turn, std::vector<Message>& results, const std::string& path) {
  if (!value.is_object()) return invalid(path, "must be an object, not " + std::string(type_name(value)));
  const auto type = string_member(value, "type", path);
  if (!type) return std::unexpected(type.error());
  const bool assistants = *type == "tool_use" || *type == "thinking";
  const bool users = *type == "tool_result";
  if ((assistants && turn.role != Role::kAssistant) || (users && turn.role != Role::kUser)) {
    return fail(ErrorCode::kInvalidValue, path + ": " + *type + " blocks belong to the " + (users ? "user" : "assistant"),
                path + ".type");
  }
  if (!assistants && !users) {
    auto text = readable(value, *type, path);
    if (!text) return std::unexpected(text.error());
    if (!*text) return {};
    const std::string rest = kept(**text, turn.role, path);
    if (!rest.empty() || (*text)->empty()) add_text(turn, rest);
    return {};
  }
  read_cache_control(value, path, cache_pin_s_, ignored_);
  if (*type == "tool_use") return tool_use(value, turn, path);
  if (*type == "thinking") return thinking(value, turn, path);
  return tool_result(value, results, path);
}

void Reader::append(Message turn) {
  if (turn.role != Role::kUser && turn.text.empty() && turn.reasoning.empty() && turn.calls.is_null()) return;
  if (out_.empty() || out_.back().role != turn.role || out_.back().is_result() || turn.is_result()) {
    out_.push_back(std::move(turn));
    return;
  }
  Message& last = out_.back();
  if (turn.has_text) add_text(last, turn.text);
  if (!turn.reasoning.empty()) add_line(last.reasoning, turn.reasoning, last.reasoning.empty());
  if (turn.calls.is_null()) return;
  for (Json& call : turn.calls.as_array()) last.calls.push(std::move(call));
}

Result<void> Reader::system(const Json& value) {
  Message turn;
  turn.role = Role::kSystem;
  if (value.is_string()) {
    add_text(turn, kept(value.as_string(), turn.role, "system"));
    append(std::move(turn));
    return {};
  }
  if (!value.is_array()) {
    return invalid("system", "must be a string or an array of blocks, not " + std::string(type_name(value)));
  }
  std::vector<Message> none;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (auto ok = block(value.as_array()[i], turn, none, "system." + std::to_string(i)); !ok) return ok;
  }
  append(std::move(turn));
  return {};
}

Result<void> Reader::message(const Json& value, const std::string& path) {
  if (!value.is_object()) return invalid(path, "must be an object, not " + std::string(type_name(value)));
  const auto role = string_member(value, "role", path, kMaxNameBytes);
  if (!role) return std::unexpected(role.error());
  Message turn;
  if (*role == "assistant") turn.role = Role::kAssistant;
  if (*role == "system" || *role == "developer") turn.role = Role::kSystem;
  const Json* content = value.find("content");
  const std::string at = path + ".content";
  std::vector<Message> results;
  if (content == nullptr || content->is_null()) {
    if (turn.role != Role::kAssistant) return fail(ErrorCode::kMissingParameter, at + " is missing", at);
  } else if (content->is_string()) {
    add_text(turn, kept(content->as_string(), turn.role, at));
  } else if (content->is_array()) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      if (auto ok = block(content->as_array()[i], turn, results, at + "." + std::to_string(i)); !ok) return ok;
    }
  } else {
    return invalid(at, "must be a string or an array of blocks, not " + std::string(type_name(*content)));
  }
  const bool only_results = !results.empty() && !turn.has_text;
  for (Message& result : results) append(std::move(result));
  if (!only_results) append(std::move(turn));
  return {};
}

Json chat_message(Message&& m) {
  if (m.is_result()) {
    Json out = Json::object({{"role", "tool"}, {"tool_call_id", std::move(m.result_of)}});
    if (!m.result_name.empty()) out.set("name", std::move(m.result_name));
    out.set("content", std::move(m.text));
    return out;
  }
  static constexpr const char* kNames[] = {"system", "user", "assistant"};
  Json out = Json::object({{"role", kNames[static_cast<std::size_t>(m.role)]}});
  const bool text = m.has_text || m.role != Role::kAssistant;
  out.set("content", text ? Json(std::move(m.text)) : Json());
  if (!m.reasoning.empty()) out.set("reasoning_content", std::move(m.reasoning));
  if (!m.calls.is_null()) out.set("tool_calls", std::move(m.calls));
  return out;
}

Conversation Reader::finish() {
  Conversation out;
  const Message& last = out_.back();
  out.continues = last.role == Role::kAssistant && !last.text.empty() && last.calls.is_null();
  out.cache_pin_s = cache_pin_s_;
  for (Message& m : out_) out.messages.push(chat_message(std::move(m)));
  return out;
}

}  // namespace

void read_cache_control(const Json& holder, const std::string& path, double& pin_s, IgnoredFields& ignored) {
  const Json* control = holder.find("cache_control");
  if (control == nullptr || control->is_null()) return;
  const std::string* type = optional_text(*control, "type");
  const Json* ttl = control->find("ttl");
  const bool short_ttl = ttl == nullptr || ttl->is_null() || *ttl == Json("5m");
  const bool long_ttl = ttl != nullptr && *ttl == Json("1h");
  if (type == nullptr || *type != "ephemeral" || (!short_ttl && !long_ttl)) {
    return ignored.add((path.empty() ? "" : path + ".") + "cache_control");
  }
  pin_s = std::max(pin_s, long_ttl ? kLongPinSeconds : kShortPinSeconds);
}

Result<Conversation> read_conversation(const Json* system, const Json& messages, const ContentOptions& options,
                                       IgnoredFields& ignored) {
  Reader reader(options, ignored);
  if (messages.size() == 0) return invalid("messages", "is empty");
  if (messages.size() > kMaxTurns) return invalid("messages", "has more than " + std::to_string(kMaxTurns) + " items");
  if (system != nullptr) {
    if (auto ok = reader.system(*system); !ok) return std::unexpected(ok.error());
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (auto ok = reader.message(messages.as_array()[i], "messages." + std::to_string(i)); !ok)
      return std::unexpected(ok.error());
  }
  if (reader.empty()) return invalid("messages", "have nothing that could be answered");
  return reader.finish();
}

}  // namespace barg::server
