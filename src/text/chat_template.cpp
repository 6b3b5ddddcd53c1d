#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <vector>

#include "text/chat_messages.h"

namespace barg::text {

namespace {

using TemplatePtr = std::shared_ptr<const jinja::Template>;

constexpr std::array<std::string_view, 7> kSpecialRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};
// What a caller may not replace: our own variables and arguments, the functions, and transformers'
// parameters.
constexpr std::array<std::string_view, 19> kReserved = {"messages",
                                                        "tools",
                                                        "documents",
                                                        "add_generation_prompt",
                                                        "continue_final_message",
                                                        "conversation",
                                                        "chat_template",
                                                        "tokenize",
                                                        "tokenizer_kwargs",
                                                        "return_dict",
                                                        "return_tensors",
                                                        "padding",
                                                        "truncation",
                                                        "max_length",
                                                        "raise_exception",
                                                        "strftime_now",
                                                        "namespace",
                                                        "range",
                                                        "loop"};

struct Named {
  std::string name;
  std::string source;
  TemplatePtr parsed;
  TemplateTraits traits;
};

Json special_from_config(const Json& config, std::string_view role) {
  const Json* v = config.find(role);
  if (v != nullptr && v->is_object()) v = v->find("content");
  return v != nullptr && v->is_string() ? *v : Json();
}

std::string special_from_vocab(const VocabData& vocab, std::string_view role) {
  const std::optional<TokenId> id = role == "bos_token"   ? vocab.bos
                                    : role == "eos_token" ? vocab.eos
                                    : role == "unk_token" ? vocab.unk
                                    : role == "pad_token" ? vocab.pad
                                                          : std::nullopt;
  if (!id || *id < 0 || static_cast<std::size_t>(*id) >= vocab.tokens.size()) return {};
  return vocab.tokens[static_cast<std::size_t>(*id)];
}

std::vector<Named> collect(const VocabData& vocab, const Json& config, std::string override_source) {
  std::vector<Named> out;
  if (!override_source.empty()) {
    out.push_back({"default", std::move(override_source), nullptr, {}});
    return out;
  }
  if (!vocab.chat_template.empty()) out.push_back({"default", vocab.chat_template, nullptr, {}});
  for (const auto& [name, source] : vocab.named_chat_templates) out.push_back({name, source, nullptr, {}});
  const Json* own = config.find("chat_template");
  if (!out.empty() || own == nullptr) return out;
  if (own->is_string()) out.push_back({"default", own->as_string(), nullptr, {}});
  if (!own->is_array()) return out;
  for (const Json& entry : own->as_array()) {
    const Json* name = entry.find("name");
    const Json* source = entry.find("template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) continue;
    out.push_back({name->as_string(), source->as_string(), nullptr, {}});
  }
  return out;
}

class ChatTemplateImpl final : public ChatTemplate {
 public:
  ChatTemplateImpl(std::vector<Named> templates, std::vector<std::pair<std::string, Json>> specials)
      : templates_(std::move(templates)), specials_(std::move(specials)) {
    for (Named& t : templates_) t.traits.string_arguments = needs_string_arguments(t);
  }

  bool has_template() const override { return !templates_.empty(); }

  const std::string& source() const override {
    static const std::string kNone;
    return templates_.empty() ? kNone : choose({}).source;
  }

  Result<MarkedString> render(const ChatPrompt& prompt) const override {
    if (templates_.empty()) {
      return fail(ErrorCode::kUnsupported,
                  "the model has no chat template, so it cannot chat; use /v1/completions or give a template",
                  "messages");
    }
    if (auto ok = check_kwargs(prompt.kwargs); !ok) return std::unexpected(ok.error());
    const Named& chosen = choose(prompt);
    auto messages = normalise_messages(prompt.messages, chosen.traits);
    if (!messages) return std::unexpected(messages.error());
    auto rendered = render_messages(chosen, prompt, *messages);
    if (rendered) return rendered;
    // Some templates refuse several system messages, or one that is not first: they get one.
    const Json merged = merge_system_messages(*messages);
    if (merged.is_null()) return rendered;
    auto again = render_messages(chosen, prompt, merged);
    return again ? again : rendered;
  }

 private:
  const Named& choose(const ChatPrompt& prompt) const {
    const auto named = [&](std::string_view name) -> const Named* {
      for (const Named& t : templates_) {
        if (t.name == name) return &t;
      }
      return nullptr;
    };
    if (prompt.tools.is_array() && prompt.tools.size() > 0) {
      if (const Named* t = named("tool_use")) return *t;
    }
    if (prompt.documents.is_array() && prompt.documents.size() > 0) {
      if (const Named* t = named("rag")) return *t;
    }
    const Named* t = named("default");
    return t != nullptr ? *t : templates_.front();
  }

  Result<void> check_kwargs(const Json& kwargs) const {
    if (kwargs.is_null()) return {};
    if (!kwargs.is_object()) {
      return fail(ErrorCode::kInvalidValue, "chat_template_kwargs must be an object", "chat_template_kwargs");
    }
    for (const auto& [name, value] : kwargs.as_object()) {
      const bool special = std::find(kSpecialRoles.begin(), kSpecialRoles.end(), name) != kSpecialRoles.end();
      if (!special && std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end()) continue;
      const std::string field = "chat_template_kwargs." + name;
      return fail(ErrorCode::kInvalidValue, field + " may not be set", field);
    }
    return {};
  }

  Result<MarkedString> render_messages(const Named& t, const ChatPrompt& prompt, const Json& messages) const {
    if (!prompt.continue_final_message) return run(t, prompt, messages, prompt.add_generation_prompt);
    return continued(t, prompt, messages);
  }

  Result<MarkedString> run(const Named& t, const ChatPrompt& prompt, const Json& messages,
                           bool generation) const {
    const Json none = nullptr, add = generation;
    const bool no_tools = !prompt.tools.is_array() || prompt.tools.size() == 0;
    const bool no_documents = !prompt.documents.is_array() || prompt.documents.size() == 0;
    std::vector<jinja::Variable> variables = {
        {"messages", &messages, false},
        {"tools", no_tools ? &none : &prompt.tools, false},
        {"documents", no_documents ? &none : &prompt.documents, false},
        {"add_generation_prompt", &add, true},
    };
    for (const auto& [name, text] : specials_) variables.push_back({name, &text, true});
    if (prompt.kwargs.is_object()) {
      for (const auto& [name, value] : prompt.kwargs.as_object()) variables.push_back({name, &value, false});
    }
    auto out = t.parsed->render(variables, {.now = prompt.now, .allow_mutation = true});
    if (!out) return fail(ErrorCode::kInvalidValue, "chat template: " + out.error().message, "messages");
    return out;
  }

  // As transformers: a marker goes behind the last message, and the prompt ends where it shows.
  Result<MarkedString> continued(const Named& t, const ChatPrompt& prompt, const Json& messages) const {
    const std::string all = dump_json(messages);
    std::string word = "CONTINUE_FINAL_MESSAGE";
    while (all.find(word) != all.npos) word += "_X";
    Json marked = messages;
    const auto refuse = [](const char* why) {
      return fail(ErrorCode::kInvalidValue, why, "continue_final_message");
    };
    if (!append_to_last(marked, word + " "))
      return refuse("continue_final_message: the last message has no text");
    auto out = run(t, prompt, marked, false);
    if (!out) return out;
    const std::size_t at = out->text.rfind(word);
    if (at == out->text.npos) {
      return refuse("continue_final_message: the chat template does not show the last message");
    }
    const bool kept_space = out->text.compare(at + word.size(), 1, " ") == 0;
    std::size_t end = at;
    // The template trimmed the message: so are we.
    while (!kept_space && end > 0 &&
           std::string_view(" \t\r\n").find(out->text[end - 1]) != std::string_view::npos)
      --end;
    out->text.resize(end);
    std::erase_if(out->untrusted, [&](const auto& r) { return r.first >= end; });
    if (!out->untrusted.empty()) out->untrusted.back().second = std::min(out->untrusted.back().second, end);
    return out;
  }

  // Whether arguments come through as an object; if not, as text. Asked once, when the template is loaded.
  bool needs_string_arguments(Named t) const {
    const auto shows = [&](const Json& arguments) {
      ChatPrompt p;
      p.now.emplace();
      p.now->tm_mday = 1;
      p.now->tm_year = 100;
      const Json function = Json::object({{"name", "probe_name"}, {"arguments", arguments}});
      Json call = Json::object({{"id", "probecall"}, {"type", "function"}, {"function", function}});
      p.messages = Json(Json::Array{
          Json::object({{"role", "user"}, {"content", "question"}}),
          Json::object(
              {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json(Json::Array{call})}})});
      const Json parameters = Json::object({{"type", "object"}, {"properties", Json::object()}});
      const Json tool =
          Json::object({{"name", "probe_name"}, {"description", "d"}, {"parameters", parameters}});
      p.tools = Json(Json::Array{Json::object({{"type", "function"}, {"function", tool}})});
      t.traits.string_arguments = arguments.is_string();
      const auto messages = normalise_messages(p.messages, t.traits);
      const auto out = messages ? run(t, p, *messages, false) : fail(ErrorCode::kInternal, "");
      return out && out->text.find("probe_value") != out->text.npos;
    };
    const Json object = Json::object({{"probe_key", "probe_value"}});
    return !shows(object) && shows(Json(dump_json(object, {.spaces = true})));
  }

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, Json>> specials_;
};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::create(const VocabData& vocab,
                                                                 const Tokenizer* tokenizer,
                                                                 std::string override_source) {
  Json config;
  if (!vocab.tokenizer_config_json.empty()) {
    auto parsed = parse_json(vocab.tokenizer_config_json, {.max_members = 0, .reject_duplicate_keys = false});
    if (!parsed) return fail(ErrorCode::kBadFile, "tokenizer_config.json: " + parsed.error().message);
    config = std::move(*parsed);
  }
  std::vector<Named> templates = collect(vocab, config, std::move(override_source));
  for (Named& t : templates) {
    auto parsed = jinja::Template::parse(t.source);
    if (!parsed) {
      const std::string field = t.name == "default" ? "chat_template" : "chat_template." + t.name;
      return fail(ErrorCode::kBadFile, field + ": " + parsed.error().message, field);
    }
    t.parsed = std::move(*parsed);
    t.traits = read_traits(t.parsed->ast());
  }
  std::vector<std::pair<std::string, Json>> specials;
  for (std::string_view role : kSpecialRoles) {
    Json text(tokenizer == nullptr ? std::string_view() : tokenizer->special_text(role));
    if (text.as_string().empty()) text = special_from_config(config, role);
    if (text.is_null()) text = Json(special_from_vocab(vocab, role));
    if (!text.as_string().empty()) specials.emplace_back(std::string(role), std::move(text));
  }
  return std::make_shared<const ChatTemplateImpl>(std::move(templates), std::move(specials));
}

Result<std::string> render_template(const std::string& source, const Json& context,
                                    std::optional<std::tm> now) {
  if (!context.is_object())
    return fail(ErrorCode::kInvalidValue, "the template's context must be a JSON object");
  const auto parsed = jinja::Template::parse(source);
  if (!parsed) return std::unexpected(parsed.error());
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : context.as_object()) variables.push_back({name, &value, true});
  auto out = (*parsed)->render(variables, {.now = now, .allow_mutation = false});
  if (!out) return std::unexpected(out.error());
  return std::move(out->text);
}

}  // namespace barg::text
