// What a request says about reasoning, in the variables that a template reads (enable_thinking, thinking,
// reasoning_effort, thinking_budget, ...), and a record of what became of each wish.
//
// chat_template_kwargs win over everything here. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/history_traits.h"

namespace barg::text {

struct AppliedOption {
  enum class How : std::uint8_t {
    kApplied,         ///< `variable` was set to `value`
    kTemplateKwargs,  ///< chat_template_kwargs set the variable
    kDefaulted,       ///< the request says nothing: the template decides
    kNoEffect,        ///< this template has no such choice
  };
  std::string option;    ///< "thinking", "reasoning_effort", "tools"
  std::string variable;  ///< of the template; "" if none
  Json value;
  How how = How::kApplied;
};

std::string_view how_name(AppliedOption::How how);

struct AppliedOptions {
  std::vector<AppliedOption> options;
  Json variables = Json::object();  ///< what the template is given besides chat_template_kwargs
};

/// `effort` "" says nothing, "none" switches thinking off, any other switches it on unless `thinking` says
/// otherwise. `kwargs`: an object or null.
AppliedOptions apply_options(const TemplateTraits& traits, std::optional<bool> thinking, const std::string& effort,
                             const Json& kwargs);

}  // namespace barg::text
