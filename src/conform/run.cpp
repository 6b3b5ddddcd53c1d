#include "conform/run.h"

#include <algorithm>

#include "conform/look.h"

namespace barg::conform {
namespace {

std::string padded(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, text.size()), ' ');
}

std::size_t name_width() {
  std::size_t width = 0;
  for (const RuleGroup* group : rule_groups()) {
    for (const Rule& rule : group->rules) width = std::max(width, rule.name.size());
  }
  return width;
}

/// The first model listed. Also finds out whether anybody is there.
Result<std::string> find_model(Session& session) {
  const Exchange& e = session.exchange("models");
  if (e.end == Exchange::End::kUnreachable) return fail(ErrorCode::kUnavailable, e.problem);
  if (e.status == 0) return fail(ErrorCode::kUnavailable, "GET /v1/models: " + e.problem);
  if (!session.model().empty()) return session.model();
  const std::string id = text_at(session.json("models"), "data.0.id");
  if (!id.empty()) return id;
  return fail(ErrorCode::kBadFile,
              "GET /v1/models (" + std::to_string(e.status) + ") lists no model; name the --model.");
}

}  // namespace

int Report::count(Verdict::Kind kind) const {
  return static_cast<int>(std::ranges::count_if(findings, [&](const Finding& f) { return f.verdict.kind == kind; }));
}

Result<std::vector<const Rule*>> choose_rules(const std::vector<std::string>& only) {
  std::vector<const Rule*> out;
  std::vector<bool> used(only.size(), false);
  for (const RuleGroup* group : rule_groups()) {
    for (const Rule& rule : group->rules) {
      bool wanted = only.empty();
      for (std::size_t i = 0; i < only.size(); ++i) {
        if (only[i] != group->name && only[i] != rule.name) continue;
        wanted = used[i] = true;
      }
      if (wanted) out.push_back(&rule);
    }
  }
  for (std::size_t i = 0; i < only.size(); ++i) {
    if (!used[i])
      return fail(ErrorCode::kInvalidValue,
                  "there is no rule or group '" + shown(only[i], 60) + "'; --list names them.");
  }
  return out;
}

Result<Report> run_conform(Options options, const std::vector<const Rule*>& rules, const Progress& progress) {
  const double start = now_s();
  Session session(std::move(options));
  Result<std::string> model = find_model(session);
  if (!model) return std::unexpected(std::move(model.error()));
  session.set_model(*model);
  Report report;
  report.model = std::move(*model);
  if (const std::string* server = session.exchange("models").header("server")) report.server = *server;
  for (const RuleGroup* group : rule_groups()) {
    for (const Rule& rule : group->rules) {
      if (std::ranges::find(rules, &rule) == rules.end()) continue;
      if (progress) progress(report.findings.size(), rules.size(), rule.name);
      const double began = now_s();
      Verdict verdict = rule.check(session);
      report.findings.push_back({&rule, group, std::move(verdict), now_s() - began});
    }
  }
  report.seconds = now_s() - start;
  return report;
}

std::string_view verdict_name(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::kPass:
      return "pass";
    case Verdict::Kind::kFail:
      return "FAIL";
    case Verdict::Kind::kNotApplicable:
      return "n/a";
  }
  return "";
}

std::string report_table(const Report& report) {
  const std::size_t width = name_width();
  std::string out;
  const RuleGroup* group = nullptr;
  for (const Finding& f : report.findings) {
    if (f.group != group) {
      group = f.group;
      out += (out.empty() ? "" : "\n") + std::string(group->title) + "\n";
    }
    out += "  " + padded(verdict_name(f.verdict.kind), 5) + padded(f.rule->name, width + 1);
    const bool fails = f.verdict.kind == Verdict::Kind::kFail;
    out += fails || f.verdict.why.empty() ? std::string(f.rule->demands) : f.verdict.why;
    out += "\n";
    if (!fails) continue;
    out += "       " + shown(f.verdict.why, 400) + "\n";
    if (!f.verdict.evidence.empty()) out += "       > " + f.verdict.evidence + "\n";
  }
  out += "\n" + std::to_string(report.count(Verdict::Kind::kPass)) + " hold, " +
         std::to_string(report.count(Verdict::Kind::kFail)) + " fail, " +
         std::to_string(report.count(Verdict::Kind::kNotApplicable)) + " do not apply (" +
         std::to_string(static_cast<long>(report.seconds)) + " s, model " + shown(report.model, 100) + ")\n";
  return out;
}

std::string report_json(const Report& report, std::string_view url) {
  Json rules = Json::array();
  for (const Finding& f : report.findings) {
    const bool na = f.verdict.kind == Verdict::Kind::kNotApplicable;
    rules.push(Json::object({{"name", f.rule->name},
                             {"group", f.group->name},
                             {"demands", f.rule->demands},
                             {"reason", f.rule->reason},
                             {"verdict", na                                       ? "not_applicable"
                                         : f.verdict.kind == Verdict::Kind::kPass ? "pass"
                                                                                  : "fail"},
                             {"why", f.verdict.why},
                             {"evidence", f.verdict.evidence},
                             {"seconds", f.seconds}}));
  }
  return dump_json(Json::object({{"version", 1},
                                 {"url", url},
                                 {"server", report.server},
                                 {"model", report.model},
                                 {"seconds", report.seconds},
                                 {"pass", report.count(Verdict::Kind::kPass)},
                                 {"fail", report.count(Verdict::Kind::kFail)},
                                 {"not_applicable", report.count(Verdict::Kind::kNotApplicable)},
                                 {"rules", std::move(rules)}}),
                   {.indent = 2}) +
         "\n";
}

std::string rule_list() {
  std::string out;
  for (const RuleGroup* group : rule_groups()) {
    out += (out.empty() ? "" : "\n") + std::string(group->title) + "\n";
    for (const Rule& rule : group->rules)
      out += "  " + padded(rule.name, name_width() + 1) + std::string(rule.demands) + " " + std::string(rule.reason) +
             "\n";
  }
  return out;
}

}  // namespace barg::conform
