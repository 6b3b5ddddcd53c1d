// ConstraintSpec: what a request says its answer's content must be, whatever the spelling. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace barg::server {

enum class ConstraintKind : std::uint8_t {
  kNone,
  kJsonObject,  // any JSON object
  kSchema,      // value: a JSON Schema
  kRegex,       // text: the whole content
  kChoice,      // choices: one of them
  kGrammar,     // text: GBNF
  kTags,        // value: a structural tag
};

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::kNone;
  Json value = {};
  std::string text = {};
  std::vector<std::string> choices = {};
  bool lenient = false;  ///< what a schema asks and cannot be enforced is listed in the answer, not refused
  bool lenient_tools = false;  ///< the same for strict tools
  bool compact = false;  ///< JSON without white space
  std::string field = {};  ///< of the body, for errors: "response_format.json_schema.schema"

  explicit operator bool() const { return kind != ConstraintKind::kNone; }
};

}  // namespace barg::server
