#include "text/jinja/scope.h"

#include <algorithm>
#include <unordered_set>

#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

namespace barg::text::jinja {

namespace {

struct Frame {
  const Frame* parent = nullptr;
  std::unordered_set<NameId> refs;

  bool knows(NameId id) const {
    for (const Frame* f = this; f != nullptr; f = f->parent) {
      if (f->refs.contains(id)) return true;
    }
    return false;
  }
};

class Resolver {
 public:
  void run(Block& block) {
    Frame root;
    enter(root, block);
  }

 private:
  // What a frame's body reads and sets, in order, without the frames inside it. A name that is set before it
  // is read, and that no outer frame knows, is missing until then; one set in some branch only is looked up
  // first.
  void analyze(Frame& frame, const Body& body, bool in_branch, std::vector<NameId>& missing) {
    const auto load = [&](const Expr* e) {
      for_each_expr(e, [&](const Expr& x) {
        const bool name = x.kind == ExprKind::kName || x.kind == ExprKind::kNamespaceRef;
        if (name && !frame.knows(x.id)) frame.refs.insert(x.id);
      });
    };
    const auto store = [&](NameId id) {
      const bool outer = frame.parent != nullptr && frame.parent->knows(id);
      if (frame.refs.insert(id).second && !outer && !in_branch) missing.push_back(id);
    };
    const auto store_target = [&](const Expr* target) {
      for_each_expr(target, [&](const Expr& x) {
        if (x.kind == ExprKind::kName) store(x.id);
        if (x.kind == ExprKind::kNamespaceRef && !frame.knows(x.id)) frame.refs.insert(x.id);
      });
    };
    for (const auto& s : body) {
      for (const ExprPtr& e : s->exprs) load(e.get());
      load(s->expr.get());
      switch (s->kind) {
        case StmtKind::kIf:
          for (const auto& [test, branch] : s->branches) {
            load(test.get());
            analyze(frame, branch, true, missing);
          }
          break;
        case StmtKind::kSet:
        case StmtKind::kSetBlock:
          store_target(s->target.get());
          break;
        case StmtKind::kMacro:
          store(s->id);
          break;
        case StmtKind::kFilterBlock:
          load(s->filter.get());
          break;
        default:
          break;
      }
    }
  }

  void enter(Frame& frame, Block& block) {
    analyze(frame, block.body, false, block.missing);
    descend(frame, block.body, false);
  }

  void declare(Frame& frame, const Expr* target) const {
    for_each_expr(target, [&](const Expr& x) {
      if (x.kind == ExprKind::kName) frame.refs.insert(x.id);
    });
  }

  void descend(Frame& frame, const Body& body, bool soft) {
    for (const auto& s : body) {
      check_target(s->target.get());
      const bool condition = s->kind == StmtKind::kIf;
      for (const ExprPtr& e : s->exprs) check(e.get(), soft);
      check(s->expr.get(), soft);
      check(s->filter.get(), false);
      for (const auto& [test, branch] : s->branches) {
        check(test.get(), soft || condition);
        descend(frame, branch, true);
      }
      if (s->kind == StmtKind::kFor) {
        enter_for(frame, *s);
      } else if (s->macro) {
        enter_macro(frame, *s->macro);
      } else {
        Frame inner{&frame, {}};
        for (const ExprPtr& t : s->targets) declare(inner, t.get());
        enter(inner, s->block);
      }
    }
  }

  void enter_for(Frame& frame, Stmt& s) {
    ++loops_;
    Frame body{&frame, {}}, test{&frame, {}}, other{&frame, {}};
    body.refs.insert(s.id);
    declare(body, s.target.get());
    declare(test, s.target.get());
    check_target(s.target.get());
    check(s.test.get(), false);
    enter(body, s.block);
    enter(other, s.else_block);
    --loops_;
  }

  void enter_macro(Frame& frame, Macro& macro) {
    Frame inner{&frame, {}};
    for (const auto& [id, name] : macro.parameters) inner.refs.insert(id);
    for (const ExprPtr& e : macro.defaults) {
      check(e.get(), false);
      for_each_expr(e.get(), [&](const Expr& x) {
        if (x.kind == ExprKind::kName && !inner.knows(x.id)) inner.refs.insert(x.id);
      });
    }
    find_special(macro);
    const auto has = [&](NameId id) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& p) { return p.first == id; });
    };
    if (macro.uses_caller) inner.refs.insert(macro.caller);
    if (has(macro.kwargs)) macro.uses_kwargs = false;
    if (has(macro.varargs)) macro.uses_varargs = false;
    if (macro.uses_kwargs) inner.refs.insert(macro.kwargs);
    if (macro.uses_varargs) inner.refs.insert(macro.varargs);
    const int outer = loops_;
    enter(inner, macro.block);
    loops_ = outer;
  }

  // caller, kwargs and varargs are parameters iff the body reads them before it sets them.
  void find_special(Macro& macro) const {
    std::unordered_set<NameId> open = {macro.caller, macro.kwargs, macro.varargs};
    scan(macro.block.body, macro, open);
  }

  void scan(const Body& body, Macro& macro, std::unordered_set<NameId>& open) const {
    const auto load = [&](const Expr* e) {
      for_each_expr(e, [&](const Expr& x) {
        if (x.kind != ExprKind::kName || !open.contains(x.id)) return;
        if (x.id == macro.caller) macro.uses_caller = true;
        if (x.id == macro.kwargs) macro.uses_kwargs = true;
        if (x.id == macro.varargs) macro.uses_varargs = true;
      });
    };
    const auto store = [&](const Expr* e) {
      for_each_expr(e, [&](const Expr& x) {
        if (x.kind == ExprKind::kName) open.erase(x.id);
      });
    };
    for (const auto& s : body) {
      store(s->target.get());
      for (const ExprPtr& t : s->targets) store(t.get());
      for (const ExprPtr& e : s->exprs) load(e.get());
      load(s->expr.get());
      if (s->macro) {
        for (const auto& [id, name] : s->macro->parameters) open.erase(id);
        for (const ExprPtr& e : s->macro->defaults) load(e.get());
        scan(s->macro->block.body, macro, open);
      }
      for (const auto& [test, branch] : s->branches) {
        load(test.get());
        scan(branch, macro, open);
      }
      scan(s->block.body, macro, open);
      scan(s->else_block.body, macro, open);
      load(s->test.get());
      load(s->filter.get());
    }
  }

  void check_target(const Expr* target) const {
    for_each_expr(target, [&](const Expr& x) {
      if (loops_ > 0 && x.kind == ExprKind::kName && x.name == "loop") {
        syntax_error(x.line, "can't assign to the special loop variable");
      }
    });
  }

  // `soft`: inside a condition, where Jinja2 lets an unknown filter pass until it is reached.
  void check(const Expr* e, bool soft) const {
    if (e == nullptr || soft) return;
    if (e->kind == ExprKind::kCondition) return;
    if (e->kind == ExprKind::kFilter || e->kind == ExprKind::kTest) {
      const char* what = e->kind == ExprKind::kFilter ? "filter" : "test";
      if (e->builtin == nullptr)
        syntax_error(e->line, std::string("no ") + what + " named '" + e->name + "'");
    }
    for (const Expr* child : {e->a.get(), e->b.get(), e->c.get()}) check(child, soft);
    for (const ExprPtr& item : e->items) check(item.get(), soft);
    if (!e->call) return;
    for (const ExprPtr& arg : e->call->positional) check(arg.get(), soft);
    for (const auto& [name, arg] : e->call->named) check(arg.get(), soft);
    check(e->call->star.get(), soft);
    check(e->call->star_star.get(), soft);
  }

  int loops_ = 0;
};

}  // namespace

void resolve_scopes(TemplateAst& ast) { Resolver().run(ast.root); }

}  // namespace barg::text::jinja
