// Scopes: what Jinja2's compiler knows before a template runs. Fills Block::missing and Macro::uses_*, and
// refuses what the compiler refuses: unknown filters and tests outside of conditions, assignments to `loop`
// inside loops. Raises RenderError with "line N: ...". Called once by the parser.
#pragma once

#include "text/jinja/ast.h"

namespace barg::text::jinja {

void resolve_scopes(TemplateAst& ast);

/// Visits every expression below `body`, inner ones after their parents, nested blocks included.
template <class Visit>
void for_each_expr(const Body& body, const Visit& visit);
template <class Visit>
void for_each_expr(const Expr* e, const Visit& visit);

// -- implementation

template <class Visit>
void for_each_expr(const Expr* e, const Visit& visit) {
  if (e == nullptr) return;
  visit(*e);
  for (const Expr* child : {e->a.get(), e->b.get(), e->c.get()}) for_each_expr(child, visit);
  for (const ExprPtr& item : e->items) for_each_expr(item.get(), visit);
  if (!e->call) return;
  for (const ExprPtr& arg : e->call->positional) for_each_expr(arg.get(), visit);
  for (const auto& [name, arg] : e->call->named) for_each_expr(arg.get(), visit);
  for_each_expr(e->call->star.get(), visit);
  for_each_expr(e->call->star_star.get(), visit);
}

template <class Visit>
void for_each_expr(const Body& body, const Visit& visit) {
  for (const auto& s : body) {
    for (const Expr* e : {s->target.get(), s->expr.get(), s->test.get(), s->filter.get()})
      for_each_expr(e, visit);
    for (const ExprPtr& e : s->targets) for_each_expr(e.get(), visit);
    for (const ExprPtr& e : s->exprs) for_each_expr(e.get(), visit);
    for (const auto& [test, branch] : s->branches) {
      for_each_expr(test.get(), visit);
      for_each_expr(branch, visit);
    }
    for_each_expr(s->block.body, visit);
    for_each_expr(s->else_block.body, visit);
    if (s->macro) {
      for (const ExprPtr& e : s->macro->defaults) for_each_expr(e.get(), visit);
      for_each_expr(s->macro->block.body, visit);
    }
  }
}

}  // namespace barg::text::jinja
