// A whole run: finds the model, asks the rules, and says what came of it as a table and as JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "conform/rule.h"
#include "conform/session.h"

namespace barg::conform {

struct Finding {
  const Rule* rule = nullptr;
  const RuleGroup* group = nullptr;
  Verdict verdict;
  double seconds = 0;
};

struct Report {
  std::string server;  ///< the Server header, if any
  std::string model;
  std::vector<Finding> findings;
  double seconds = 0;

  int count(Verdict::Kind kind) const;
  bool holds() const { return count(Verdict::Kind::kFail) == 0; }
};

/// Names of rules or of groups: "chat", "chat.finish_once". kInvalidValue for a name that is neither.
Result<std::vector<const Rule*>> choose_rules(const std::vector<std::string>& only);

/// Called before each rule.
using Progress = std::function<void(std::size_t done, std::size_t all, std::string_view name)>;

/// kUnavailable when nobody answers, kBadFile when no model is named and none is listed.
Result<Report> run_conform(Options options, const std::vector<const Rule*>& rules, const Progress& progress = {});

/// One line a rule; failures with the offending bytes below, then a line of totals.
std::string report_table(const Report& report);
/// {"version": 1, "url", "model", "pass", "fail", "not_applicable", "rules": [{name, group, demands, reason, verdict,
/// why, evidence, seconds}]}
std::string report_json(const Report& report, std::string_view url);
/// Every rule with what it demands and why.
std::string rule_list();

std::string_view verdict_name(Verdict::Kind kind);

}  // namespace barg::conform
