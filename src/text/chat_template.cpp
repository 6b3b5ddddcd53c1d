#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <vector>

#include "text/chat_messages.h"
#include "text/dialect.h"
#include "text/history_calls.h"
#include "text/history_probe.h"
#include "text/history_roles.h"
#include "text/history_tools.h"
#include "text/history_trust.h"

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

// A probe is a few short messages: a template that needs more for it is not worth waiting for.
constexpr jinja::Limits kProbeLimits = {.steps = 200'000,
                                        .string_bytes = 1 << 20,
                                        .output_bytes = 1 << 20,
                                        .work_bytes = 8 << 20,
                                        .work_per_input_byte = 16};

struct Named {
  std::string name;
  std::string source;
  TemplatePtr parsed;  ///< nullptr: it does not parse, and `problem` says why
  TemplateTraits traits;
  std::string problem{};
};

TemplateCapabilities capabilities_of(const TemplateTraits& t) {
  TemplateCapabilities c;
  c.tools = t.tools;
  c.tool_calls = t.calls;
  c.parallel_tool_calls = t.calls && t.parallel_calls;
  c.tool_results = t.calls && t.results;
  c.system_role = t.system;
  c.reasoning_history = t.reasoning.kind != ReasoningPlace::Kind::kNowhere;
  c.thinking_switch = t.thinking_variables.empty() ? "" : t.thinking_variables.front();
  c.effort_variable = t.effort_variable;
  c.budget_variable = t.budget_variable;
  c.prompt = t.prompt;
  c.prompt_thinking = t.prompt_thinking;
  c.prompt_answer = t.prompt_answer;
  return c;
}

bool filled(const Json& list) { return list.is_array() && list.size() > 0; }

bool needs_own_words(const TemplateTraits& traits, const Json& tools) {
  return traits.reasoning.kind == ReasoningPlace::Kind::kContent ||
         (filled(tools) && !traits.tools && !traits.call_example.empty());
}

// Canonical messages in the shape that the template takes.
Json shape(const Json& canonical, const TemplateTraits& traits, const Json& tools, OwnWords& own) {
  Json messages = shape_calls(canonical, traits);
  const auto replace = [&](Json changed) {
    if (!changed.is_null()) messages = std::move(changed);
  };
  if (filled(tools) && !traits.tools) {
    messages = add_to_system(std::move(messages), describe_tools(tools, traits.call_example, own));
  } else if (filled(tools) && traits.tools_need_system) {
    messages = tools_to_system(std::move(messages), tools, traits.tools_in_system);
  }
  if (!traits.late_system) replace(merge_system_messages(messages));
  if (!traits.system) replace(system_to_user(messages));
  if (traits.alternates) replace(merge_neighbours(messages));
  return present_messages(std::move(messages), traits, own);
}

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
    out.push_back({"default", std::move(override_source), nullptr, {}, {}});
    return out;
  }
  if (!vocab.chat_template.empty()) out.push_back({"default", vocab.chat_template, nullptr, {}, {}});
  for (const auto& [name, source] : vocab.named_chat_templates) out.push_back({name, source, nullptr, {}, {}});
  const Json* own = config.find("chat_template");
  if (!out.empty() || own == nullptr) return out;
  if (own->is_string()) out.push_back({"default", own->as_string(), nullptr, {}, {}});
  if (!own->is_array()) return out;
  for (const Json& entry : own->as_array()) {
    const Json* name = entry.find("name");
    const Json* source = entry.find("template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) continue;
    out.push_back({name->as_string(), source->as_string(), nullptr, {}, {}});
  }
  return out;
}

class ChatTemplateImpl final : public ChatTemplate {
 public:
  ChatTemplateImpl(std::vector<Named> templates, std::vector<std::pair<std::string, Json>> specials)
      : templates_(std::move(templates)), specials_(std::move(specials)) {
    for (Named& t : templates_) {
      if (t.parsed) probe(t);
    }
    if (!templates_.empty()) capabilities_ = capabilities_of(choose(true, false).traits);
  }

  bool has_template() const override { return !templates_.empty() && choose(false, false).parsed; }

  std::vector<std::string> problems() const override {
    std::vector<std::string> out;
    for (const Named& t : templates_) {
      if (!t.parsed) out.push_back(t.problem);
    }
    return out;
  }

  const std::string& source() const override {
    static const std::string kNone;
    return templates_.empty() ? kNone : choose(false, false).source;
  }

  const std::string& tools_source() const override {
    return templates_.empty() ? source() : choose(true, false).source;
  }

  const TemplateCapabilities& capabilities() const override { return capabilities_; }

  AppliedOptions applied(const ChatPrompt& prompt) const override {
    if (templates_.empty()) return {};
    const Named& chosen = choose(prompt);
    if (!chosen.parsed) return {};
    AppliedOptions out = apply_options(chosen.traits, prompt.thinking, prompt.reasoning_effort, prompt.kwargs);
    if (filled(prompt.tools)) {
      const bool own = chosen.traits.tools;
      out.options.push_back({"tools", own ? "tools" : "", own ? "by the template" : "described in a system message",
                             AppliedOption::How::kApplied});
    }
    return out;
  }

  Result<MarkedString> render(const ChatPrompt& prompt) const override {
    if (templates_.empty()) {
      return fail(ErrorCode::kUnsupported,
                  "the model has no chat template, so it cannot chat; use /v1/completions or give a template",
                  "messages");
    }
    if (auto ok = check_kwargs(prompt.kwargs); !ok) return std::unexpected(ok.error());
    const Named& chosen = choose(prompt);
    if (!chosen.parsed) {
      return fail(ErrorCode::kUnsupported,
                  "the model's chat template cannot be read, so it cannot chat (" + chosen.problem +
                      "); use /v1/completions or give a template",
                  "messages");
    }
    const auto canonical = canonical_messages(prompt.messages, chosen.traits);
    if (!canonical) return std::unexpected(canonical.error());
    const Json extra =
        apply_options(chosen.traits, prompt.thinking, prompt.reasoning_effort, prompt.kwargs).variables;
    const auto with = [&](const TemplateTraits& traits) {
      return render_messages({*chosen.parsed, traits, prompt, extra}, *canonical);
    };
    auto rendered = with(chosen.traits);
    if (rendered || rendered.error().param != "messages") return rendered;
    // The probes did not foresee what this template objects to: it gets the simplest conversation.
    TemplateTraits simple = chosen.traits;
    simple.late_system = false;
    simple.alternates = true;
    auto again = with(simple);
    return again ? again : rendered;
  }

 private:
  const Named& choose(const ChatPrompt& prompt) const { return choose(filled(prompt.tools), filled(prompt.documents)); }

  const Named& choose(bool tools, bool documents) const {
    const auto named = [&](std::string_view name) -> const Named* {
      for (const Named& t : templates_) {
        if (t.name == name) return &t;
      }
      return nullptr;
    };
    if (tools) {
      if (const Named* t = named("tool_use")) return *t;
    }
    if (documents) {
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

  struct Job {
    const jinja::Template& t;
    const TemplateTraits& traits;
    const ChatPrompt& prompt;
    const Json& extra;  // variables besides the prompt's own
  };

  Result<MarkedString> render_messages(const Job& job, const Json& canonical) const {
    const ChatPrompt& p = job.prompt;
    OwnWords own = needs_own_words(job.traits, p.tools)
                       ? OwnWords({&canonical, &p.tools, &p.documents, &p.kwargs, &job.extra})
                       : OwnWords();
    const Json messages = shape(canonical, job.traits, job.prompt.tools, own);
    auto out = job.prompt.continue_final_message ? continued(job, messages)
                                                 : run(job, messages, job.prompt.add_generation_prompt);
    if (out) own.give_back(*out);
    return out;
  }

  Result<MarkedString> run(const Job& job, const Json& messages, bool generation) const {
    const ChatPrompt& prompt = job.prompt;
    const Json none = nullptr, add = generation;
    std::vector<jinja::Variable> variables = {
        {"messages", &messages, false},
        {"tools", job.traits.takes_tools && filled(prompt.tools) ? &prompt.tools : &none, false},
        {"documents", filled(prompt.documents) ? &prompt.documents : &none, false},
        {"add_generation_prompt", &add, true},
    };
    for (const auto& [name, text] : specials_) variables.push_back({name, &text, true});
    if (prompt.kwargs.is_object()) {
      for (const auto& [name, value] : prompt.kwargs.as_object()) variables.push_back({name, &value, false});
    }
    for (const auto& [name, value] : job.extra.as_object()) variables.push_back({name, &value, false});
    auto out = job.t.render(variables, {.now = prompt.now, .allow_mutation = true});
    if (!out) return fail(ErrorCode::kInvalidValue, "chat template: " + out.error().message, "messages");
    return out;
  }

  // As transformers: a marker goes behind the last message, and the prompt ends where it shows.
  Result<MarkedString> continued(const Job& job, const Json& messages) const {
    const ChatPrompt& p = job.prompt;
    const std::string word = "CONTINUE_" + unforeseen_word({&messages, &p.tools, &p.documents, &p.kwargs, &job.extra});
    Json marked = messages;
    const auto refuse = [](const char* why) {
      return fail(ErrorCode::kInvalidValue, why, "continue_final_message");
    };
    if (!append_to_last(marked, word + " "))
      return refuse("continue_final_message: the last message has no text");
    auto out = run(job, marked, false);
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

  // What the AST does not say about a template is asked once, when it is loaded.
  void probe(Named& t) const {
    const auto bounded = jinja::Template::parse(t.source, kProbeLimits);
    if (!bounded) return;
    ChatPrompt prompt;
    prompt.now.emplace();
    prompt.now->tm_mday = 1;
    prompt.now->tm_year = 100;
    const ProbeRender render = [&](const TemplateTraits& traits, const Probe& probe) -> std::optional<MarkedString> {
      const auto canonical = canonical_messages(probe.messages, traits);
      if (!canonical) return std::nullopt;
      prompt.tools = probe.tools;
      OwnWords none;
      auto out = run({**bounded, traits, prompt, probe.variables}, shape(*canonical, traits, probe.tools, none),
                     probe.generation);
      return out ? std::optional(std::move(*out)) : std::nullopt;
    };
    probe_traits(t.traits, detect_dialect(t.source).reasoning, render);
  }

  std::vector<Named> templates_;
  std::vector<std::pair<std::string, Json>> specials_;
  TemplateCapabilities capabilities_;
};

}  // namespace

AppliedOptions ChatTemplate::applied(const ChatPrompt&) const { return {}; }

const TemplateCapabilities& ChatTemplate::capabilities() const {
  static const TemplateCapabilities kNone;
  return kNone;
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::create(const VocabData& vocab,
                                                                 const Tokenizer* tokenizer,
                                                                 std::string override_source) {
  Json config;
  if (!vocab.tokenizer_config_json.empty()) {
    auto parsed = parse_json(vocab.tokenizer_config_json, {.max_members = 0, .reject_duplicate_keys = false});
    if (!parsed) return fail(ErrorCode::kBadFile, "tokenizer_config.json: " + parsed.error().message);
    config = std::move(*parsed);
  }
  const bool given = !override_source.empty();
  std::vector<Named> templates = collect(vocab, config, std::move(override_source));
  for (Named& t : templates) {
    auto parsed = jinja::Template::parse(t.source);
    if (!parsed) {
      const std::string field = t.name == "default" ? "chat_template" : "chat_template." + t.name;
      t.problem = field + ": " + parsed.error().message;
      if (given) return fail(ErrorCode::kBadFile, t.problem, field);
      continue;
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
