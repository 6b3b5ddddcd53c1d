// Dialect: how a family of models writes tool calls and reasoning, as data. One description gives the
// incremental parser (output_parser.h), the grammar of constrained decoding, and what the history needs
// (chat_messages.h). Adding a family is one description and one row of the table in dialect.cpp; what only its
// shape of arguments needs new is one file.
//
// A Dialect is constant data. A BoundDialect knows how a tokenizer spells it: a marker that is one added token
// is recognised only as that token, so that a model that repeats a marker which a user typed (ordinary tokens)
// triggers nothing; other markers are recognised as text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"

namespace barg::text {

/// How reasoning is told from the answer. Empty strings: the model has none. The generation prompt may end inside
/// the block or behind a closed one; what a given prompt does is found from its end (reasoning_open).
struct ReasoningMarkers {
  std::string open = {}, close = {};
  /// What some families write around the answer behind it (<response>); no part of the answer.
  std::string answer_open = {}, answer_close = {};
  bool operator==(const ReasoningMarkers&) const = default;
};

struct Dialect;  // dialect_spec.h: the declarative description, private to src/text

/// All dialects, the generic one last. Names are stable: configuration and `barg inspect` show them.
std::span<const Dialect* const> dialects();
std::string_view dialect_name(const Dialect& dialect);
/// What it looks like, for people.
std::string_view dialect_summary(const Dialect& dialect);
/// By its name or one that another server gives it ("qwen3_xml"); nullptr if there is none.
const Dialect* find_dialect(std::string_view name);

/// What a chat template says about its model's output.
struct DetectedDialect {
  const Dialect* dialect = nullptr;  ///< never null: the generic dialect where nothing is recognised
  ReasoningMarkers reasoning;
  std::string evidence;  ///< what decided it, for people ("<tool_call> with a JSON object in the template")
  bool known = true;     ///< false: the template's own dialect is one that cannot be read; `dialect` stands in for it
};

/// Reads the markers that a template's source holds; never renders. An empty source gives the generic dialect.
DetectedDialect detect_dialect(std::string_view template_source);
/// The reasoning markers of a template whose dialect was named by hand.
ReasoningMarkers reasoning_of(std::string_view template_source, const Dialect& dialect);

class BoundDialect {
 public:
  virtual ~BoundDialect() = default;
  virtual const Dialect& dialect() const = 0;
  virtual const ReasoningMarkers& reasoning() const = 0;
  /// Ids that mean something to the parser: they must reach it although they are special and shown to nobody.
  virtual bool is_marker(TokenId id) const = 0;
  /// End tokens of the model after which it waits for a tool's result (<|call|>, <|eom_id|>): a natural end.
  virtual std::span<const TokenId> call_end_ids() const = 0;
};

/// `tokenizer` outlives the result.
std::shared_ptr<const BoundDialect> bind_dialect(const DetectedDialect& detected, const Tokenizer& tokenizer);

/// Does a rendered prompt end inside an open reasoning block? The last marker decides; markers in what the user
/// wrote do not count (pass the trusted tail of the prompt only).
bool reasoning_open(const ReasoningMarkers& markers, std::string_view prompt_tail);

}  // namespace barg::text
