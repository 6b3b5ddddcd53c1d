// OutputParser: the tokens of one choice become OutputEvents, by its model's dialect.
//
//   Detokenizer -> StopMatcher -> OutputParser -> OutputEvent
//
// Where the pieces are: the text between calls and reasoning here, one run of calls in output_form.h, its arguments in
// output_call.h and output_values.h, answers in channels in output_channels.h, types in output_schema.h.
//
// Invariants (tests cut every output at every byte and every token):
//  1. However the same output is cut into pushes, the events are the same once neighbours of one kind are joined,
//     and held() bounds what is still undecided.
//  2. No byte vanishes: what is not a marker, and not the syntax of a call that became events, is in some event.
//     A call that is malformed before its kToolStart is text, exactly as the model wrote it; one that breaks
//     later ends with complete = false and the rest is text. note() says why.
//  3. Calls are looked for outside reasoning only, and only where tools were given. A call to a name that no tool
//     has is an event with declared = false and disturbs no other.
//  4. Values without types (XML parameters) become JSON by the tool's schema; an unknown parameter, or a value
//     that does not read as its type, is a string.
//  5. Arguments leave as soon as they are certain to be JSON; a string leaves piece by piece.
//  6. A block of reasoning that never ends is reasoning to the last byte.
//  7. White space that templates put around markers is layout, in all families: runs of it directly before and behind
//     calls, and newlines directly inside and behind reasoning, are in no event. All other white space is kept.
//  8. A closing marker inside a JSON string is part of the string; <think> spelled as text opens a block only where
//     nothing but white space came before (or since a call), as a token anywhere.
//  9. Lenient behind complete arguments: a missing closing marker does not spoil a call that the model ended.
//
// State of one choice of one request; not thread-safe. Bounded memory: held text plus nesting (at most 64 deep).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/dialect.h"
#include "text/output_events.h"

namespace barg::text {

struct ToolInfo {
  std::string name;
  Json parameters;      ///< JSON Schema of the arguments, or null
  bool custom = false;  ///< the input is plain text, not JSON
};

struct ParserOptions {
  /// Null or empty: nothing is taken for a call. Shared, for a request may ask for 128 choices of megabytes of schemas.
  std::shared_ptr<const std::vector<ToolInfo>> tools = {};
  bool inside_reasoning = false; ///< the prompt ended inside an open block
  bool read_reasoning = true;    ///< false: its markers are text, like everything
  bool parallel = true;          ///< false: text behind the first complete call that looks like a second is text
};

class OutputParser {
 public:
  OutputParser(std::shared_ptr<const BoundDialect> dialect, ParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  /// Ordinary text: whole characters. Appends to `out`.
  void push_text(std::string_view text, OutputEvents& out);
  /// An added token where it stands between texts; `literal` is its text. `shown`: where it is no marker it is
  /// ordinary text (a special token that is skipped is not).
  void push_token(TokenId id, std::string_view literal, bool shown, OutputEvents& out);
  /// The end. `natural`: the model ended its answer; false: it was cut (length, a stop string, a client).
  void finish(bool natural, OutputEvents& out);

  std::size_t held() const;      ///< bytes pushed whose events are not decided yet
  bool in_reasoning() const;     ///< where the next token falls
  std::int32_t complete_calls() const;
  const std::string& note() const;  ///< empty: nothing was malformed

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace barg::text
