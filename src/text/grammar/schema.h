// JSON Schema to Grammar: exact or refused. Drafts 7, 2019-09, 2020-12.
//
// A schema is normalised ($ref, allOf, siblings intersected; oneOf, not, if/then/else, dependent* where they reduce)
// into a union of typed shapes, and these become nodes. What cannot be enforced exactly is an Unenforced entry: by
// default that refuses the schema; with `lenient` it is left out (the language is then wider than the schema, never
// narrower) and reported. Nothing is ignored silently; annotations are the listed exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "text/grammar/node.h"

namespace barg::text::grammar {

enum class Draft : std::uint8_t { k7, k2019, k2020 };
Result<Draft> parse_draft(std::string_view name);  ///< "7", "2019-09", "2020-12"

struct SchemaOptions {
  Draft draft = Draft::k2020;  ///< where the schema has no $schema
  bool lenient = false;
  Spacing spacing = Spacing::kFlexible;
  std::size_t max_bytes = std::size_t{1} << 20;
  std::size_t max_nodes = 100'000;  ///< of the grammar
  std::int32_t max_depth = 64;      ///< of nesting in the schema
  std::int64_t* work = nullptr;     ///< as DfaLimits::work, shared with others; nullptr: kCompileWork of its own
};

struct Unenforced {
  std::string pointer;  ///< JSON pointer of the keyword's schema object: "#/properties/a"
  std::string keyword;
  std::string reason;  ///< one clause
};

struct CompiledSchema {
  Grammar grammar;
  std::vector<Unenforced> unenforced;  ///< only with lenient
  /// Keywords that the draft itself gives no effect where they stand: siblings of $ref in draft 7, `then` without `if`.
  std::vector<Unenforced> without_effect;
  std::vector<std::string> enforced_keywords;  ///< sorted, unique: what `barg grammar check` prints
  Draft draft = Draft::k2020;
};

/// kUnsupported: the message has pointer, keyword and reason; kInvalidValue: no schema (wrong types, a $ref to
/// nowhere), or one that nothing satisfies.
Result<CompiledSchema> compile_schema(const Json& schema, const SchemaOptions& options = {});

/// {"type": "object"} of response_format json_object: any JSON object (of bounded nesting only by the budget).
Grammar any_object_grammar(Spacing spacing);

}  // namespace barg::text::grammar
