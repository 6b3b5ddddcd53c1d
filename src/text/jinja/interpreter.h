// Interpreter: walks the AST of one template once. Statements in interpreter.cpp, expressions in eval.cpp,
// calls of macros and loops in calls.cpp.
//
// Output goes to a stack of builders: block sets, filter blocks and macros capture theirs. Scopes are chains;
// names found nowhere are the caller's variables, then the global functions, then undefined.
// Owned by one render on one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"

namespace barg::text::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  bool captured = false;
  std::vector<std::pair<NameId, Value>> values;

  Value* find_here(NameId id) {
    for (auto& [k, v] : values) {
      if (k == id) return &v;
    }
    return nullptr;
  }
  void set(NameId id, Value value) {
    if (Value* old = find_here(id)) {
      *old = std::move(value);
    } else {
      values.emplace_back(id, std::move(value));
    }
  }
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroObject final : Object {
  const Macro* macro = nullptr;
  ScopePtr scope;  ///< where it was defined
  std::string describe() const override;
};

/// Where a loop's items come from: a list taken when the loop starts, or an iterator shared with others.
struct ItemSource {
  std::vector<Value> items;
  std::size_t next = 0;
  std::shared_ptr<Object> iterator;  ///< an Iterator, instead of `items`
  std::optional<Int> size;           ///< len() of the iterable, absent for iterators and filtered loops
};

/// The `loop` variable.
struct LoopObject final : Object {
  const Stmt* stmt = nullptr;
  ScopePtr scope;  ///< around the loop
  ItemSource source;
  Int index0 = -1;
  int depth0 = 0;
  std::optional<Int> length;
  bool filtered = false;  ///< the items left have passed the loop's test already
  std::optional<Value> after, current, before;
  std::optional<Value> last_changed;
  std::string describe() const override;
};

enum class Flow { kNormal, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(Runtime& rt, const TemplateAst& ast, std::vector<Value> variables);
  ~Interpreter();
  MarkedString run();

 private:
  struct Deeper {
    explicit Deeper(Interpreter& i);
    ~Deeper() { --interpreter.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Interpreter& interpreter;
  };

  // Statements.
  Flow exec(const Body& body);
  Flow exec(const Stmt& s);
  Flow exec_block(const Block& block);
  Flow exec_if(const Stmt& s);
  void exec_set(const Stmt& s);
  Flow exec_set_block(const Stmt& s);
  Flow exec_filter_block(const Stmt& s);
  Flow exec_with(const Stmt& s);
  void exec_call_block(const Stmt& s);
  Flow exec_for(const Stmt& s, const Value& iterable, int depth0);
  void assign(const Expr& target, const Value& value, Scope& scope);
  void print(const Value& v);
  /// Output of the block of a block set or filter block, filtered; nullopt if break or continue left it.
  std::optional<Value> capture(const Stmt& s, Flow& flow);
  ScopePtr push_scope(const Block& block);

  // Loops.
  ItemSource open(const Value& iterable);
  std::optional<Value> pull(LoopObject& loop);
  bool passes(const Stmt& s, const Value& item, Value& bound);
  const std::optional<Value>& peek(LoopObject& loop);
  Int loop_length(LoopObject& loop);
  Value loop_attribute(const Value& loop, std::string_view name);

  // Expressions.
  Value eval(const Expr& e);
  Value eval_name(NameId id);
  Value eval_attribute(const Expr& e);
  Value eval_item(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_compare(const Expr& e);
  bool compare(Cmp op, const Value& a, const Value& b);
  Value eval_dict(const Expr& e);
  std::vector<Value> eval_items(const std::vector<ExprPtr>& items);
  Value eval_call(const Expr& e, const Value* caller);
  Value eval_filter(const Expr& e, const Value* input);
  CallArgs eval_arguments(const Arguments& args);

  // Calls.
  Value call(const Value& callee, CallArgs args);
  Value call_macro(const MacroObject& macro, CallArgs args);
  void bind_macro(const Macro& macro, CallArgs& args, Scope& scope);
  Value make_macro(const Macro& macro);
  Value macro_attribute(const Value& macro, std::string_view name);

  Runtime& rt_;
  const TemplateAst& ast_;
  std::vector<Value> variables_;  // by NameId; missing where the caller gave none
  std::vector<std::unique_ptr<TextBuilder>> out_;
  ScopePtr scope_;
  // Scopes that macros hold. Kept and emptied at the end: a macro in its own scope is a cycle, and a long
  // chain of them must not be destroyed by recursion.
  std::vector<ScopePtr> captured_;
  int depth_ = 0;
  int calls_ = 0;
};

}  // namespace barg::text::jinja
