#include "text/jinja/interpreter.h"

#include <algorithm>

namespace barg::text::jinja {

namespace {
// C++ frames are a few hundred bytes each, with sanitizers a few thousand: this stays far below 8 MiB.
constexpr int kMaxWalk = 1000;
}  // namespace

Interpreter::Deeper::Deeper(Interpreter& i) : interpreter(i) {
  if (++i.depth_ > kMaxWalk) {
    --i.depth_;
    raise(RenderError::Type::kLimit, "the template recurses too deeply");
  }
}

Interpreter::Interpreter(Runtime& rt, const TemplateAst& ast, std::vector<Value> variables)
    : rt_(rt), ast_(ast), variables_(std::move(variables)) {}

Interpreter::~Interpreter() {
  for (const ScopePtr& s : captured_) s->values.clear();
}

MarkedString Interpreter::run() {
  out_.push_back(std::make_unique<TextBuilder>(rt_));
  scope_ = push_scope(ast_.root);
  exec(ast_.root.body);
  return out_.front()->take();
}

ScopePtr Interpreter::push_scope(const Block& block) {
  rt_.charge(sizeof(Scope));
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  for (NameId id : block.missing) scope->values.emplace_back(id, Value::missing());
  return scope;
}

Flow Interpreter::exec(const Body& body) {
  for (const auto& s : body) {
    const Flow flow = exec(*s);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Flow Interpreter::exec(const Stmt& s) {
  const Deeper deeper(*this);
  rt_.step();
  switch (s.kind) {
    case StmtKind::kOutput:
      for (const ExprPtr& e : s.exprs) print(eval(*e));
      return Flow::kNormal;
    case StmtKind::kIf:
      return exec_if(s);
    case StmtKind::kFor:
      return exec_for(s, eval(*s.expr), 0);
    case StmtKind::kSet:
      exec_set(s);
      return Flow::kNormal;
    case StmtKind::kSetBlock:
      return exec_set_block(s);
    case StmtKind::kMacro:
      scope_->set(s.id, make_macro(*s.macro));
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      exec_call_block(s);
      return Flow::kNormal;
    case StmtKind::kFilterBlock:
      return exec_filter_block(s);
    case StmtKind::kWith:
      return exec_with(s);
    case StmtKind::kGeneration:
      return exec_block(s.block);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Flow Interpreter::exec_block(const Block& block) {
  const ScopePtr outer = scope_;
  scope_ = push_scope(block);
  const Flow flow = exec(block.body);
  scope_ = outer;
  return flow;
}

Flow Interpreter::exec_if(const Stmt& s) {
  for (const auto& [test, body] : s.branches) {
    if (!test || truthy(eval(*test))) return exec(body);
  }
  return Flow::kNormal;
}

void Interpreter::print(const Value& v) {
  append_str(rt_, *out_.back(), v);
  if (out_.back()->size() > rt_.limits().output_bytes) {
    raise(RenderError::Type::kLimit,
          "the template prints more than " + std::to_string(rt_.limits().output_bytes) + " bytes");
  }
}

void Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
  switch (target.kind) {
    case ExprKind::kName:
      scope.set(target.id, value);
      return;
    case ExprKind::kNamespaceRef: {
      const Value ns = eval_name(target.id);
      if (!ns.is(Kind::kNamespace)) {
        raise(RenderError::Type::kTemplate, "cannot assign attribute on non-namespace object");
      }
      rt_.charge(2 * sizeof(Value));
      ns.object<Namespace>().attributes.set(target.value, value);
      return;
    }
    default:
      break;
  }
  const std::vector<Value> items = iterate(rt_, value);
  if (items.size() != target.items.size()) {
    value_error(items.size() < target.items.size()
                    ? "not enough values to unpack (expected " + std::to_string(target.items.size()) +
                          ", got " + std::to_string(items.size()) + ")"
                    : "too many values to unpack (expected " + std::to_string(target.items.size()) + ")");
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i], scope);
}

void Interpreter::exec_set(const Stmt& s) { assign(*s.target, eval(*s.expr), *scope_); }

std::optional<Value> Interpreter::capture(const Stmt& s, Flow& flow) {
  const ScopePtr outer = scope_;
  scope_ = push_scope(s.block);
  out_.push_back(std::make_unique<TextBuilder>(rt_));
  flow = exec(s.block.body);
  const std::unique_ptr<TextBuilder> text = std::move(out_.back());
  out_.pop_back();
  std::optional<Value> result;
  if (flow == Flow::kNormal) {
    result = text->finish();
    // The filter's arguments see what the block has set.
    if (s.filter) result = eval_filter(*s.filter, &*result);
  }
  scope_ = outer;
  return result;
}

Flow Interpreter::exec_set_block(const Stmt& s) {
  Flow flow = Flow::kNormal;
  const std::optional<Value> result = capture(s, flow);
  if (result) assign(*s.target, *result, *scope_);
  return flow;
}

Flow Interpreter::exec_filter_block(const Stmt& s) {
  Flow flow = Flow::kNormal;
  const std::optional<Value> result = capture(s, flow);
  if (!result) return flow;
  if (!result->is_string())
    type_error("a filter block must give a str, not " + std::string(type_name(*result)));
  print(*result);
  return flow;
}

Flow Interpreter::exec_with(const Stmt& s) {
  const ScopePtr outer = scope_;
  const ScopePtr inner = push_scope(s.block);
  for (std::size_t i = 0; i < s.targets.size(); ++i) assign(*s.targets[i], eval(*s.exprs[i]), *inner);
  scope_ = inner;
  const Flow flow = exec(s.block.body);
  scope_ = outer;
  return flow;
}

void Interpreter::exec_call_block(const Stmt& s) {
  const Value caller = make_macro(*s.macro);
  print(eval_call(*s.expr, &caller));
}

Flow Interpreter::exec_for(const Stmt& s, const Value& iterable, int depth0) {
  auto loop = std::make_shared<LoopObject>();
  rt_.charge(sizeof(LoopObject));
  loop->stmt = &s;
  loop->scope = scope_;
  loop->source = open(iterable);
  loop->depth0 = depth0;
  loop->depth = rt_.checked_depth(std::max(iterable.depth(), 0));
  if (s.test) loop->source.size.reset();
  // What the loop variable holds ends with the loop, so that it cannot keep itself alive.
  struct Release {
    LoopObject& loop;
    Interpreter& interpreter;
    ScopePtr outer;
    ~Release() {
      loop.last_changed.reset();
      interpreter.scope_ = outer;
    }
  };
  const Release release{*loop, *this, scope_};
  const NameId loop_id = s.id;
  bool none = true;
  while (true) {
    std::optional<Value> item = loop->after ? std::exchange(loop->after, std::nullopt) : pull(*loop);
    if (!item) break;
    rt_.step();
    ++loop->index0;
    loop->before = std::move(loop->current);
    loop->current = *item;
    scope_ = release.outer;
    const ScopePtr body = push_scope(s.block);
    body->set(loop_id, Value(Kind::kLoop, loop));
    assign(*s.target, *item, *body);
    scope_ = body;
    const Flow flow = exec(s.block.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) none = false;  // as Jinja2: a skipped round does not count
  }
  scope_ = release.outer;
  // A break in the else part belongs to the loop around this one.
  return none && !s.else_block.body.empty() ? exec_block(s.else_block) : Flow::kNormal;
}

}  // namespace barg::text::jinja
