#include "text/chat_messages.h"

#include <unordered_set>

#include "text/jinja/ast.h"
#include "text/jinja/scope.h"

namespace barg::text {

namespace {

using jinja::Body;
using jinja::Expr;
using jinja::ExprKind;

bool is_text(const Expr& e, std::string_view text) {
  return e.kind == ExprKind::kConst && e.value.is_string() && e.value.text() == text;
}

// message.content, message['content'], also behind filters and slices.
bool reads_content(const Expr& e) {
  if (e.kind == ExprKind::kAttribute) return e.name == "content";
  if (e.kind == ExprKind::kItem)
    return is_text(*e.b, "content") || (e.b->kind == ExprKind::kSlice && reads_content(*e.a));
  return e.kind == ExprKind::kFilter && e.a && reads_content(*e.a);
}

class TraitReader {
 public:
  TemplateTraits run(const Body& body) {
    // A name for the content counts wherever it is looped over, so names are collected first.
    collect(body);
    visit(body);
    return traits_;
  }

 private:
  bool is_content(const Expr& e) const {
    if (e.kind == ExprKind::kName) return e.name == "content" || aliases_.contains(e.name);
    return reads_content(e);
  }

  void collect(const Body& body) {
    for (const auto& s : body) {
      if (s->kind == jinja::StmtKind::kSet && s->target->kind == ExprKind::kName && reads_content(*s->expr)) {
        aliases_.insert(s->target->name);
      }
      for_each_body(*s, [&](const Body& b) { collect(b); });
    }
  }

  template <class F>
  static void for_each_body(const jinja::Stmt& s, const F& f) {
    f(s.block.body);
    f(s.else_block.body);
    for (const auto& [test, branch] : s.branches) f(branch);
    if (s.macro) f(s.macro->block.body);
  }

  void visit(const Body& body) {
    for (const auto& s : body) {
      if (s->kind == jinja::StmtKind::kFor && is_content(*s->expr)) traits_.wants_parts = true;
      for_each_body(*s, [&](const Body& b) { visit(b); });
    }
    jinja::for_each_expr(body, [&](const Expr& e) {
      if (is_text(e, "developer")) traits_.knows_developer = true;
      if (e.kind != ExprKind::kTest || !is_content(*e.a)) return;
      if (e.name == "string") traits_.checks_string = true;
      if (e.name == "none") traits_.checks_null = true;
    });
  }

  TemplateTraits traits_;
  std::unordered_set<std::string> aliases_;
};

// The text of a content part, or null if it has none.
const std::string* part_text(const Json& part) {
  const Json* type = part.find("type");
  if (type == nullptr || !type->is_string()) return nullptr;
  const Json* text = part.find(type->as_string() == "refusal" ? "refusal" : "text");
  const bool textual = type->as_string() == "text" || type->as_string() == "refusal" ||
                       type->as_string() == "input_text" || type->as_string() == "output_text";
  return textual && text != nullptr && text->is_string() ? &text->as_string() : nullptr;
}

Result<Json> content_from_parts(const Json& parts, const TemplateTraits& traits, const std::string& path) {
  std::string joined;
  Json list = Json::array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts.as_array()[i];
    const std::string where = path + "[" + std::to_string(i) + "]";
    if (part.is_string()) {
      list.push(Json::object({{"type", "text"}, {"text", part}}));
      joined += (i == 0 ? "" : "\n") + part.as_string();
      continue;
    }
    const std::string* text = part_text(part);
    if (text == nullptr) {
      return fail(ErrorCode::kUnsupported, where + ": only text parts are supported", where + ".type");
    }
    list.push(Json::object({{"type", "text"}, {"text", *text}}));
    joined += (i == 0 ? "" : "\n") + *text;
  }
  return traits.wants_parts ? std::move(list) : Json(std::move(joined));
}

void set_arguments(Json& call, const TemplateTraits& traits) {
  Json* function = call.find("function");
  Json* arguments = function == nullptr ? nullptr : function->find("arguments");
  if (arguments == nullptr) return;
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

void remove(Json& object, std::string_view key) {
  std::erase_if(object.as_object(), [&](const Json::Member& m) { return m.first == key; });
}

void normalise_assistant(Json& m, const TemplateTraits& traits) {
  if (Json* calls = m.find("tool_calls")) {
    if (calls->is_null() || (calls->is_array() && calls->size() == 0)) {
      remove(m, "tool_calls");
    } else if (calls->is_array()) {
      for (Json& call : calls->as_array()) set_arguments(call, traits);
    }
  }
  // Two spellings of one field are in use.
  const Json* content = m.find("reasoning_content");
  const Json* reasoning = m.find("reasoning");
  const bool has_content = content != nullptr && content->is_string();
  const bool has_reasoning = reasoning != nullptr && reasoning->is_string();
  if (has_content && !has_reasoning) m.set("reasoning", Json(*content));
  if (has_reasoning && !has_content) m.set("reasoning_content", Json(*reasoning));
}

}  // namespace

TemplateTraits read_traits(const jinja::TemplateAst& ast) { return TraitReader().run(ast.root.body); }

Result<Json> normalise_messages(const Json& messages, const TemplateTraits& traits) {
  if (!messages.is_array()) return fail(ErrorCode::kInvalidValue, "messages must be an array", "messages");
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Json m = messages.as_array()[i];
    const std::string path = "messages[" + std::to_string(i) + "]";
    const Json* role = m.find("role");
    if (role == nullptr || !role->is_string()) {
      return fail(ErrorCode::kInvalidValue, path + ".role must be a string", path + ".role");
    }
    if (role->as_string() == "developer" && !traits.knows_developer) m.set("role", "system");
    if (m.find("role")->as_string() == "assistant") normalise_assistant(m, traits);
    const Json* content = m.find("content");
    if (content == nullptr || content->is_null()) {
      m.set("content", traits.checks_null ? Json() : Json(""));
    } else if (content->is_array()) {
      auto shaped = content_from_parts(*content, traits, path + ".content");
      if (!shaped) return std::unexpected(shaped.error());
      m.set("content", std::move(*shaped));
    } else if (content->is_string() && traits.wants_parts && !traits.checks_string) {
      Json parts = Json::array();
      parts.push(Json::object({{"type", "text"}, {"text", *content}}));
      m.set("content", std::move(parts));
    }
    out.push(std::move(m));
  }
  return out;
}

Json merge_system_messages(const Json& messages) {
  Json out = Json::array();
  std::string text;
  std::size_t count = 0, first = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& m = messages.as_array()[i];
    const Json* content = m.find("content");
    if (m.find("role")->as_string() != "system" || content == nullptr || !content->is_string()) continue;
    if (count == 0) first = i;
    text += (count == 0 ? "" : "\n\n") + content->as_string();
    ++count;
  }
  if (count == 0 || (count == 1 && first == 0)) return Json();
  out.push(Json::object({{"role", "system"}, {"content", text}}));
  for (const Json& m : messages.as_array()) {
    const Json* content = m.find("content");
    if (m.find("role")->as_string() != "system" || content == nullptr || !content->is_string()) out.push(m);
  }
  return out;
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
