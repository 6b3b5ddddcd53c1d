#include "text/history_options.h"

#include <array>

namespace barg::text {

namespace {

using How = AppliedOption::How;

// Tokens of reasoning for a template that takes a number; efforts above these are without bound.
constexpr std::array<std::pair<std::string_view, int>, 4> kBudgets = {
    {{"minimal", 512}, {"low", 1024}, {"medium", 4096}, {"high", 16384}}};

class Options {
 public:
  explicit Options(const Json& kwargs) : kwargs_(kwargs) {}

  void set(const char* option, const std::string& variable, Json value) {
    const Json* own = kwargs_.find(variable);
    if (own != nullptr) {
      out_.options.push_back({option, variable, *own, How::kTemplateKwargs});
    } else {
      out_.variables.set(variable, value);
      out_.options.push_back({option, variable, std::move(value), How::kApplied});
    }
  }

  void leave(const char* option, const std::string& variable) {
    const Json* own = kwargs_.find(variable);
    out_.options.push_back({option, variable, own == nullptr ? Json() : *own,
                            own == nullptr ? How::kDefaulted : How::kTemplateKwargs});
  }

  void no_effect(const char* option, Json value) {
    out_.options.push_back({option, "", std::move(value), How::kNoEffect});
  }

  AppliedOptions take() { return std::move(out_); }

 private:
  const Json& kwargs_;
  AppliedOptions out_;
};

std::optional<int> budget_of(std::string_view effort) {
  for (const auto& [name, tokens] : kBudgets) {
    if (name == effort) return tokens;
  }
  return std::nullopt;
}

void apply_thinking(Options& options, const TemplateTraits& traits, std::optional<bool> thinking) {
  for (const std::string& variable : traits.thinking_variables) {
    if (thinking) {
      options.set("thinking", variable, *thinking);
    } else {
      options.leave("thinking", variable);
    }
  }
  if (!traits.thinking_variables.empty() || !thinking) return;
  if (!*thinking && !traits.budget_variable.empty()) {
    options.set("thinking", traits.budget_variable, 0);
  } else if (!*thinking && !traits.effort_variable.empty()) {
    // The least that such a template knows.
    options.set("thinking", traits.effort_variable, "low");
  } else {
    options.no_effect("thinking", *thinking);
  }
}

void apply_effort(Options& options, const TemplateTraits& traits, const std::string& effort, bool off) {
  const bool variable = !traits.effort_variable.empty();
  if (effort.empty()) {
    // Thinking switched off may have claimed the variable already.
    if (variable && !(off && traits.thinking_variables.empty())) {
      options.leave("reasoning_effort", traits.effort_variable);
    }
    return;
  }
  if (off || effort == "none") {
    // "none" did all that it says by switching thinking off, unless the request's own switch said otherwise.
    if (!off || effort != "none") options.no_effect("reasoning_effort", effort);
  } else if (variable) {
    options.set("reasoning_effort", traits.effort_variable, effort);
  } else if (const auto tokens = budget_of(effort); tokens && !traits.budget_variable.empty()) {
    options.set("reasoning_effort", traits.budget_variable, *tokens);
  } else {
    options.no_effect("reasoning_effort", effort);
  }
}

}  // namespace

std::string_view how_name(How how) {
  switch (how) {
    case How::kApplied: return "applied";
    case How::kTemplateKwargs: return "chat_template_kwargs";
    case How::kDefaulted: return "defaulted";
    case How::kNoEffect: return "no effect";
  }
  return "";
}

AppliedOptions apply_options(const TemplateTraits& traits, std::optional<bool> thinking, const std::string& effort,
                             const Json& kwargs) {
  Options options(kwargs);
  // Who only asked for an effort is not told about a switch that the template lacks.
  const bool asked = thinking || effort == "none" || !traits.thinking_variables.empty();
  if (!thinking && !effort.empty()) thinking = effort != "none";
  apply_thinking(options, traits, asked ? thinking : std::nullopt);
  apply_effort(options, traits, effort, thinking && !*thinking);
  return options.take();
}

}  // namespace barg::text
