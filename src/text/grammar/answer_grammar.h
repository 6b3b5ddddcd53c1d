// answer_grammar: what a whole answer may be, from what its content must be and the tools that it may or must call, in
// the model's own dialect. Content and calls are alternatives; text before a call only where nothing binds the content.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/dialect.h"
#include "text/grammar/node.h"
#include "text/grammar/schema.h"

namespace barg::text::grammar {

struct ConstrainedTool {
  std::string name;
  Json parameters;      ///< JSON Schema of the arguments, or null: it has none
  bool custom = false;  ///< one string called "input"
  bool strict = false;  ///< its schema must be enforced whole; else what can be, and the rest is reported
  std::string field;    ///< of the request, for errors: "tools[2].function.parameters"
};

struct AnswerTools {
  std::vector<ConstrainedTool> tools;  ///< those that may be called: one, where the choice names it
  bool must_call = false;
  bool parallel = true;                ///< false: one call at most
};

struct AnswerGrammar {
  Grammar grammar;
  /// Of tools that are not strict, and what has no effect in a schema's draft; pointers begin with the tool's field.
  std::vector<Unenforced> unenforced;
};

/// `content`: null where any text will do. REQUIRES content or tools. kUnsupported where the dialect has no grammar for
/// what the tools ask (the error names the tool's field, or "tools").
Result<AnswerGrammar> answer_grammar(const Grammar* content, const AnswerTools& tools, const BoundDialect& dialect,
                                     const SchemaOptions& options);

}  // namespace barg::text::grammar
