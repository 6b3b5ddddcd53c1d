// ChatTemplate: a model's chat template, parsed once, and what it needs to turn a conversation into a prompt.
//
// Which template: the caller's override, else the file's own (chat_template, or the `chat_template` string or
// list of tokenizer_config.json); the one named "tool_use" when tools are given, else "default". A model
// without any is still an object: render() then refuses with kUnsupported, completions go on working.
//
// The conversation is normalised before it is rendered, because clients write what servers accept and
// templates are written for what transformers passes: content parts become strings where the template wants
// strings, null content and null tool_calls disappear, tool-call arguments become objects, `developer`
// becomes `system` and several system messages one, where the template does not know better.
//
// Immutable after create() and safe from any number of threads at once. It renders text; it never tokenises,
// and it knows nothing of HTTP. Templates are hostile input: every render has limits (jinja/template.h).
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "barg/result.h"
#include "barg/tokenizer.h"
#include "base/json.h"
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
  std::optional<std::tm> now;           ///< what strftime_now() sees; absent = local time
};

class ChatTemplate {
 public:
  /// `override_source` (may be empty) replaces every template of `vocab`. `tokenizer` (may be null) gives the
  /// texts of bos_token, eos_token, ...; it is not kept. kBadFile when a template does not parse.
  static Result<std::shared_ptr<const ChatTemplate>> create(const VocabData& vocab,
                                                            const Tokenizer* tokenizer,
                                                            std::string override_source);
  virtual ~ChatTemplate() = default;

  /// Errors: kUnsupported (the model has no template), kInvalidValue with `param` "messages" and the
  /// template's own words (raise_exception and everything else that goes wrong while rendering),
  /// kInvalidValue naming `chat_template_kwargs.X` for a kwarg that shadows a variable of ours,
  /// `continue_final_message` where the last message does not show in the prompt.
  virtual Result<MarkedString> render(const ChatPrompt& prompt) const = 0;

  virtual bool has_template() const = 0;
  /// The source that render() uses without tools ("" if none): for `barg inspect` and reasoning detection.
  virtual const std::string& source() const = 0;
};

/// Renders one template with `context` (an object: its members are the template's variables), as transformers
/// would: for `barg render` and tests. Errors: kBadFile (does not parse), kInvalidValue (rendering failed).
Result<std::string> render_template(const std::string& source, const Json& context,
                                    std::optional<std::tm> now = std::nullopt);

}  // namespace barg::text
