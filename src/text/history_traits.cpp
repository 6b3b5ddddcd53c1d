#include "text/history_traits.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "text/jinja/ast.h"
#include "text/jinja/scope.h"

namespace barg::text {

namespace {

using jinja::Body;
using jinja::Expr;
using jinja::ExprKind;

constexpr std::array<std::string_view, 4> kThinkingVariables = {"enable_thinking", "thinking", "enable_reasoning",
                                                                "reasoning"};
// Of a message, the likeliest first.
constexpr std::array<std::string_view, 4> kReasoningMembers = {"reasoning_content", "reasoning", "thinking", "thought"};
constexpr std::array<std::string_view, 2> kEffortVariables = {"reasoning_effort", "thinking_effort"};
constexpr std::array<std::string_view, 2> kBudgetVariables = {"thinking_budget", "reasoning_budget"};

bool is_text(const Expr& e, std::string_view text) {
  return e.kind == ExprKind::kConst && e.value.is_string() && e.value.text() == text;
}

// x.name, x['name'] or x.get('name').
bool reads_member(const Expr& e, std::string_view name) {
  if (e.kind == ExprKind::kAttribute) return e.name == name;
  if (e.kind == ExprKind::kItem) return is_text(*e.b, name);
  return e.kind == ExprKind::kCall && e.a && e.a->kind == ExprKind::kAttribute && e.a->name == "get" && e.call &&
         !e.call->positional.empty() && is_text(*e.call->positional[0], name);
}

// message.content, message['content'], also behind filters and slices.
bool reads_content(const Expr& e) {
  if (e.kind == ExprKind::kItem && e.b->kind == ExprKind::kSlice) return reads_content(*e.a);
  if (e.kind == ExprKind::kFilter) return e.a && reads_content(*e.a);
  return reads_member(e, "content");
}

class TraitReader {
 public:
  explicit TraitReader(const jinja::TemplateAst& ast) : ast_(ast) {}

  TemplateTraits run() {
    // A name for the content counts wherever it is looped over, so names are collected first.
    collect(ast_.root.body);
    visit(ast_.root.body);
    jinja::for_each_expr(ast_.root.body, [&](const Expr& e) { look(e); });
    const auto mentions = [&](std::string_view text) { return ast_.source.find(text) != std::string::npos; };
    traits_.mentions_kimi_ids = mentions("<|tool_call_argument_begin|>");
    traits_.mentions_call_id_marker = mentions("[CALL_ID]");
    traits_.folds_results = tool_responses_ && !tool_role_;
    using Place = ReasoningPlace::Kind;
    for (const std::string_view name : kReasoningMembers) {
      // A content part of type "thinking" has a member of that name too.
      if (name == "thinking" && thinking_part_ && traits_.wants_parts) {
        traits_.reasoning_candidates.push_back({Place::kParts, {}});
      }
      if (members_.contains(std::string(name))) {
        traits_.reasoning_candidates.push_back({Place::kMember, std::string(name)});
      }
    }
    traits_.reasoning_candidates.push_back({Place::kContent, {}});
    return std::move(traits_);
  }

 private:
  bool is_content(const Expr& e) const {
    if (e.kind == ExprKind::kName) return e.name == "content" || aliases_.contains(e.name);
    return reads_content(e);
  }

  void collect(const Body& body) {
    for (const auto& s : body) {
      if (s->kind == jinja::StmtKind::kSet && s->target->kind == ExprKind::kName && reads_content(*s->expr)) {
        aliases_.insert(s->target->name);
      }
      for_each_body(*s, [&](const Body& b) { collect(b); });
    }
  }

  template <class F>
  static void for_each_body(const jinja::Stmt& s, const F& f) {
    f(s.block.body);
    f(s.else_block.body);
    for (const auto& [test, branch] : s.branches) f(branch);
    if (s.macro) f(s.macro->block.body);
  }

  void visit(const Body& body) {
    for (const auto& s : body) {
      if (s->kind == jinja::StmtKind::kFor && is_content(*s->expr)) traits_.wants_parts = true;
      for_each_body(*s, [&](const Body& b) { visit(b); });
    }
  }

  void look(const Expr& e) {
    if (is_text(e, "developer")) traits_.knows_developer = true;
    if (is_text(e, "thinking")) thinking_part_ = true;
    for (const std::string_view name : kReasoningMembers) {
      if (reads_member(e, name)) members_.emplace(name);
    }
    if (reads_member(e, "tool_call_id")) traits_.reads_call_id = true;
    if (reads_member(e, "tool_responses")) tool_responses_ = true;
    if (reads_member(e, "tools")) traits_.reads_system_tools = true;
    if (e.kind == ExprKind::kName) look_at_name(e.name);
    if (e.kind == ExprKind::kCompare) {
      const auto is_tool = [](const jinja::ExprPtr& item) { return is_text(*item, "tool"); };
      if (is_text(*e.a, "tool") || std::any_of(e.items.begin(), e.items.end(), is_tool)) tool_role_ = true;
    }
    if (e.kind != ExprKind::kTest || !is_content(*e.a)) return;
    if (e.name == "string") traits_.checks_string = true;
    if (e.name == "none") traits_.checks_null = true;
  }

  void look_at_name(const std::string& name) {
    const auto among = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    auto& switches = traits_.thinking_variables;
    if (among(kThinkingVariables) && std::find(switches.begin(), switches.end(), name) == switches.end()) {
      switches.push_back(name);
    }
    if (among(kEffortVariables)) traits_.effort_variable = name;
    if (among(kBudgetVariables)) traits_.budget_variable = name;
  }

  const jinja::TemplateAst& ast_;
  TemplateTraits traits_;
  std::unordered_set<std::string> aliases_, members_;
  bool thinking_part_ = false, tool_responses_ = false, tool_role_ = false;
};

}  // namespace

TemplateTraits read_traits(const jinja::TemplateAst& ast) { return TraitReader(ast).run(); }

}  // namespace barg::text
