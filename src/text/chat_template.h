// ChatTemplate: a model's chat template, parsed once, and what it needs to turn a conversation into a prompt.
//
// Which template: the caller's override, else the file's own (chat_template, or the `chat_template` string or
// list of tokenizer_config.json); the one named "tool_use" when tools are given, else "default". A model
// without any, or whose own does not parse, is still an object: render() then refuses with kUnsupported,
// completions go on working.
//
// The conversation is normalised before it is rendered, because clients write what servers accept and templates are
// written for what transformers passes. One step a file, all driven by the template's traits (history_traits.h),
// which are read off its AST and found by rendering probes when it is loaded:
//
//   chat_messages.h    one spelling of roles, parts, calls and reasoning; and at the end the form this template reads
//   history_calls.h    ids, names and order of tool calls and results
//   history_roles.h    system messages and alternation, where the template objects
//   history_tools.h    tools in words, where the template knows none
//   history_options.h  thinking and effort as the template's own variables
//
// Immutable after create() and safe from any number of threads at once. It renders text; it never tokenises,
// and it knows nothing of HTTP. Templates are hostile input: every render has limits (jinja/template.h).
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"
#include "base/json.h"
#include "text/history_options.h"
#include "text/history_traits.h"
#include "text/marked_string.h"

namespace barg::text {

/// What a chat request gives a template. The JSON values are as the client sent them, already type-checked
/// (messages: an array of objects with a string `role`).
struct ChatPrompt {
  Json messages;
  Json tools;      ///< array, or null; an empty array counts as null
  Json documents;  ///< array, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< the prompt ends inside the last message; excludes the flag above
  Json kwargs;                          ///< object of extra variables (`chat_template_kwargs`), or null
  std::optional<bool> thinking;         ///< asked on or off; absent = the template's default
  std::string reasoning_effort;         ///< "none" (thinking off), "minimal" .. "max"; "" = not said
  std::optional<std::tm> now;           ///< what strftime_now() sees; absent = local time
};

/// What a template can do, found when it was loaded: for `barg inspect`, /v1/models and explain.
struct TemplateCapabilities {
  bool tools = false;                ///< shows tools itself; else they are described in a system message
  bool tool_calls = false;           ///< shows calls of the history in the model's own format
  bool parallel_tool_calls = false;  ///< ... several of one message
  bool tool_results = false;
  bool system_role = false;
  bool reasoning_history = false;  ///< shows reasoning of earlier messages (of those it chooses to)
  std::string thinking_switch;     ///< the variable that turns thinking on and off, "" if none
  std::string effort_variable;     ///< takes reasoning_effort, "" if none
  std::string budget_variable;     ///< takes a number of tokens, "" if none
  PromptEnd prompt = PromptEnd::kPlain;           ///< of the generation prompt where nothing is said
  PromptEnd prompt_thinking = PromptEnd::kPlain;  ///< thinking on
  PromptEnd prompt_answer = PromptEnd::kPlain;    ///< thinking off
};

class ChatTemplate {
 public:
  /// `override_source` (may be empty) replaces every template of `vocab`. `tokenizer` (may be null) gives the
  /// texts of bos_token, eos_token, ...; it is not kept. kBadFile when the override does not parse.
  static Result<std::shared_ptr<const ChatTemplate>> create(const VocabData& vocab,
                                                            const Tokenizer* tokenizer,
                                                            std::string override_source);
  virtual ~ChatTemplate() = default;

  /// Errors: kUnsupported (the model has no template, or none that parses), kInvalidValue with `param` "messages" and the
  /// template's own words (raise_exception and everything else that goes wrong while rendering),
  /// kInvalidValue naming `chat_template_kwargs.X` for a kwarg that shadows a variable of ours,
  /// `continue_final_message` where the last message does not show in the prompt.
  virtual Result<MarkedString> render(const ChatPrompt& prompt) const = 0;

  /// What render() makes of the request's wishes (tools, thinking, effort): for `explain`.
  virtual AppliedOptions applied(const ChatPrompt& prompt) const;

  /// Of the template that a request with tools gets. The same object for the life of this one.
  virtual const TemplateCapabilities& capabilities() const;

  /// There is one for a request without tools, and it parses.
  virtual bool has_template() const = 0;
  /// What is wrong with those that do not parse: field, line and reason.
  virtual std::vector<std::string> problems() const { return {}; }
  /// The source that render() uses without tools ("" if none): for `barg inspect` and reasoning detection.
  virtual const std::string& source() const = 0;
  /// The one that it uses with tools: what tells the dialect of the answers.
  virtual const std::string& tools_source() const { return source(); }
};

/// Renders one template with `context` (an object: its members are the template's variables), as transformers
/// would: for `barg render` and tests. Errors: kBadFile (does not parse), kInvalidValue (rendering failed).
Result<std::string> render_template(const std::string& source, const Json& context,
                                    std::optional<std::tm> now = std::nullopt);

}  // namespace barg::text
