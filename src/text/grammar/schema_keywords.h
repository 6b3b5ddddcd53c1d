// The keywords of each draft: which have no effect, which are enforced, which are refused and why, and of what type
// their values are. Pure functions, any thread.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_issue.h"

namespace barg::text::grammar::schema {

enum class Role : std::uint8_t {
  kAnnotation,  ///< says nothing about values
  kIdentity,    ///< names places: $id, $defs, ...
  kAssertion,
  kRefused,  ///< of the draft, but not enforced
};

struct Keyword {
  std::string_view name;
  Role role = Role::kAssertion;
  std::string_view reason = {};  ///< of kRefused
};

/// nullptr: not a keyword of this draft.
const Keyword* find_keyword(std::string_view name, Draft draft);
/// Why a name is no keyword of this draft, as one clause.
std::string why_unknown(std::string_view name, Draft draft);
/// An object without any keyword that says something about values.
bool only_annotations(const Json& schema, Draft draft);

/// Types of the keywords' own values (not of the schemas inside them). REQUIRES an object.
Checked<void> check_values(const Json& schema, Draft draft, Place place);

/// A count: an integer >= 0, also written 2.0; nullopt of nullptr. REQUIRES check_values.
std::optional<std::int64_t> count_of(const Json* value);

}  // namespace barg::text::grammar::schema
