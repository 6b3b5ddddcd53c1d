#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/parser_impl.h"

namespace barg::text::jinja {

ExprPtr Parser::make(ExprKind kind, int line) const {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

ExprPtr Parser::finished(ExprPtr e) const {
  int deepest = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  see(e->a);
  see(e->b);
  see(e->c);
  for (const ExprPtr& item : e->items) see(item);
  if (e->call) {
    for (const ExprPtr& arg : e->call->positional) see(arg);
    for (const auto& [name, arg] : e->call->named) see(arg);
    see(e->call->star);
    see(e->call->star_star);
  }
  e->depth = deepest + 1;
  if (e->depth > 4 * limits_.nesting) syntax_error(e->line, "an expression is nested too deeply");
  return e;
}

ExprPtr Parser::binary_node(ExprKind kind, ExprPtr a, ExprPtr b, int line) const {
  ExprPtr e = make(kind, line);
  e->a = std::move(a);
  e->b = std::move(b);
  return finished(std::move(e));
}

ExprPtr Parser::parse_tuple(const TupleRules& rules) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    const bool end = is(Tok::kVariableEnd) || is(Tok::kBlockEnd) || is_op(")") ||
                     (!rules.end_name.empty() && is_name(rules.end_name));
    if (end) break;
    items.push_back(rules.simplified ? primary(rules.with_namespace) : expression(rules.conditions));
    if (!is_op(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parenthesised) unexpected("an expression");
  }
  ExprPtr e = make(ExprKind::kTuple, line);
  e->items = std::move(items);
  return finished(std::move(e));
}

ExprPtr Parser::expression(bool conditions) { return conditions ? condition() : parse_or(); }

ExprPtr Parser::condition() {
  Deeper deeper(*this);
  ExprPtr e = parse_or();
  while (is_name("if")) {
    ExprPtr c = make(ExprKind::kCondition, next().line);
    c->b = std::move(e);
    c->a = parse_or();
    if (skip_name("else")) c->c = condition();
    e = finished(std::move(c));
  }
  return e;
}

ExprPtr Parser::parse_or() {
  ExprPtr e = parse_and();
  while (is_name("or")) {
    const int line = next().line;
    e = binary_node(ExprKind::kOr, std::move(e), parse_and(), line);
  }
  return e;
}

ExprPtr Parser::parse_and() {
  ExprPtr e = parse_not();
  while (is_name("and")) {
    const int line = next().line;
    e = binary_node(ExprKind::kAnd, std::move(e), parse_not(), line);
  }
  return e;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return compare();
  Deeper deeper(*this);
  const int line = next().line;
  return binary_node(ExprKind::kNot, parse_not(), nullptr, line);
}

ExprPtr Parser::compare() {
  struct Row {
    std::string_view op;
    Cmp cmp;
  };
  static constexpr Row kOps[] = {{"==", Cmp::kEq}, {"!=", Cmp::kNe}, {"<", Cmp::kLt},
                                 {"<=", Cmp::kLe}, {">", Cmp::kGt},  {">=", Cmp::kGe}};
  ExprPtr first = sum();
  ExprPtr e = make(ExprKind::kCompare, first->line);
  while (true) {
    const auto* row =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const Row& r) { return is_op(r.op); });
    if (row != std::end(kOps)) {
      next();
      e->ops.push_back(row->cmp);
    } else if (skip_name("in")) {
      e->ops.push_back(Cmp::kIn);
    } else if (is_name("not") && look().type == Tok::kName && look().text == "in") {
      next();
      next();
      e->ops.push_back(Cmp::kNotIn);
    } else {
      break;
    }
    e->items.push_back(sum());
  }
  if (e->ops.empty()) return first;
  e->a = std::move(first);
  return finished(std::move(e));
}

ExprPtr Parser::sum() {
  ExprPtr e = concat();
  while (is_op("+") || is_op("-")) {
    const Token& t = next();
    const ExprKind kind = t.text == "+" ? ExprKind::kAdd : ExprKind::kSub;
    const int line = t.line;
    e = binary_node(kind, std::move(e), concat(), line);
  }
  return e;
}

ExprPtr Parser::concat() {
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr e = make(ExprKind::kConcat, first->line);
  e->items.push_back(std::move(first));
  while (skip_op("~")) e->items.push_back(product());
  return finished(std::move(e));
}

ExprPtr Parser::product() {
  struct Row {
    std::string_view op;
    ExprKind kind;
  };
  static constexpr Row kOps[] = {
      {"*", ExprKind::kMul}, {"/", ExprKind::kDiv}, {"//", ExprKind::kFloorDiv}, {"%", ExprKind::kMod}};
  ExprPtr e = power();
  while (true) {
    const auto* row =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const Row& r) { return is_op(r.op); });
    if (row == std::end(kOps)) return e;
    const int line = next().line;
    e = binary_node(row->kind, std::move(e), power(), line);
  }
}

ExprPtr Parser::power() {
  // Left-associative, unlike Python's.
  ExprPtr e = unary();
  while (is_op("**")) {
    const int line = next().line;
    e = binary_node(ExprKind::kPow, std::move(e), unary(), line);
  }
  return e;
}

ExprPtr Parser::unary(bool with_filter) {
  Deeper deeper(*this);
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    const Token& t = next();
    const ExprKind kind = t.text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    const int line = t.line;
    e = binary_node(kind, unary(false), nullptr, line);
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filter_expr(std::move(e)) : std::move(e);
}

ExprPtr Parser::primary(bool with_namespace) {
  const Token& t = current();
  if (t.type == Tok::kName) {
    next();
    ExprPtr e = make(ExprKind::kConst, t.line);
    if (t.text == "true" || t.text == "True" || t.text == "false" || t.text == "False") {
      e->value = Value::boolean(t.text[0] == 't' || t.text[0] == 'T');
    } else if (t.text != "none" && t.text != "None") {
      e->kind = ExprKind::kName;
      e->id = intern(t.text);
      e->name = t.text;
      if (with_namespace && skip_op(".")) {
        e->kind = ExprKind::kNamespaceRef;
        e->value = make_literal(expect_name());
      }
    }
    return e;
  }
  if (t.type == Tok::kString) {
    ExprPtr e = make(ExprKind::kConst, t.line);
    std::string text;
    while (is(Tok::kString)) text += next().text;
    e->value = make_literal(std::move(text));
    return e;
  }
  if (t.type == Tok::kInteger || t.type == Tok::kFloat) {
    next();
    ExprPtr e = make(ExprKind::kConst, t.line);
    e->value = t.type == Tok::kInteger ? Value::integer(t.integer) : Value::real(t.real);
    return e;
  }
  if (skip_op("(")) {
    ExprPtr e = parse_tuple({.parenthesised = true});
    expect_op(")");
    return e;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  syntax_error(t.line, "unexpected " + describe(t));
}

ExprPtr Parser::parse_list() {
  ExprPtr e = make(ExprKind::kList, next().line);
  while (!is_op("]")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("]")) break;
    e->items.push_back(expression());
  }
  expect_op("]");
  return finished(std::move(e));
}

ExprPtr Parser::parse_dict() {
  ExprPtr e = make(ExprKind::kDict, next().line);
  while (!is_op("}")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("}")) break;
    e->items.push_back(expression());
    expect_op(":");
    e->items.push_back(expression());
  }
  expect_op("}");
  return finished(std::move(e));
}

ExprPtr Parser::postfix(ExprPtr e) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      e = subscript(std::move(e));
    } else if (is_op("(")) {
      ExprPtr call = make(ExprKind::kCall, current().line);
      call->a = std::move(e);
      call->call = arguments();
      e = finished(std::move(call));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::filter_expr(ExprPtr e) {
  while (true) {
    if (is_op("|")) {
      e = parse_filter(std::move(e));
    } else if (is_name("is")) {
      e = parse_test(std::move(e));
    } else if (is_op("(")) {
      ExprPtr call = make(ExprKind::kCall, current().line);
      call->a = std::move(e);
      call->call = arguments();
      e = finished(std::move(call));
    } else {
      return e;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr object) {
  const Token& t = next();
  ExprPtr e = make(ExprKind::kItem, t.line);
  e->a = std::move(object);
  if (t.text == ".") {
    const Token& name = next();
    if (name.type == Tok::kName) {
      e->kind = ExprKind::kAttribute;
      e->value = make_literal(name.text);
      e->name = name.text;
      return finished(std::move(e));
    }
    if (name.type != Tok::kInteger) syntax_error(name.line, "expected name or number");
    e->b = make(ExprKind::kConst, name.line);
    e->b->value = Value::integer(name.integer);
    return finished(std::move(e));
  }
  std::vector<ExprPtr> keys;
  while (!is_op("]")) {
    if (!keys.empty()) expect_op(",");
    keys.push_back(subscribed());
  }
  expect_op("]");
  if (keys.size() == 1) {
    e->b = std::move(keys[0]);
  } else {
    e->b = make(ExprKind::kTuple, t.line);
    e->b->items = std::move(keys);
    e->b = finished(std::move(e->b));
  }
  return finished(std::move(e));
}

ExprPtr Parser::subscribed() {
  const int line = current().line;
  const auto at_end = [&] { return is_op("]") || is_op(","); };
  ExprPtr start;
  if (!is_op(":")) {
    start = expression();
    if (!is_op(":")) return start;
  }
  next();
  ExprPtr e = make(ExprKind::kSlice, line);
  e->items.resize(3);
  e->items[0] = std::move(start);
  if (!is_op(":") && !at_end()) e->items[1] = expression();
  if (skip_op(":") && !at_end()) e->items[2] = expression();
  return finished(std::move(e));
}

std::unique_ptr<Arguments> Parser::arguments() {
  auto args = std::make_unique<Arguments>();
  const int line = current().line;
  const auto ensure = [&](bool ok) {
    if (!ok) syntax_error(line, "invalid syntax for function call expression");
  };
  expect_op("(");
  bool comma = false;
  while (!is_op(")")) {
    if (comma) {
      expect_op(",");
      if (is_op(")")) break;
    }
    if (is_op("*")) {
      ensure(!args->star && !args->star_star);
      next();
      args->star = expression();
    } else if (is_op("**")) {
      ensure(!args->star_star);
      next();
      args->star_star = expression();
    } else if (is(Tok::kName) && look().type == Tok::kOperator && look().text == "=") {
      ensure(!args->star_star);
      const std::string name = next().text;
      next();
      args->named.emplace_back(name, expression());
    } else {
      ensure(!args->star && !args->star_star && args->named.empty());
      args->positional.push_back(expression());
    }
    comma = true;
  }
  expect_op(")");
  return args;
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr input, bool start_inline) {
  while (is_op("|") || start_inline) {
    if (!start_inline) next();
    start_inline = false;
    ExprPtr e = make(ExprKind::kFilter, current().line);
    e->name = dotted_name();
    e->call = is_op("(") ? arguments() : std::make_unique<Arguments>();
    e->a = std::move(input);
    e->builtin = find_filter(e->name);
    input = finished(std::move(e));
  }
  return input;
}

ExprPtr Parser::parse_test(ExprPtr operand) {
  ExprPtr e = make(ExprKind::kTest, next().line);
  const bool negated = skip_name("not");
  e->a = std::move(operand);
  e->name = dotted_name();
  e->builtin = find_test(e->name);
  const bool starts_operand =
      is(Tok::kName) || is(Tok::kString) || is(Tok::kInteger) || is(Tok::kFloat) || is_op("[") || is_op("{");
  if (is_op("(")) {
    e->call = arguments();
  } else {
    e->call = std::make_unique<Arguments>();
    if (starts_operand && !is_name("else") && !is_name("or") && !is_name("and")) {
      if (is_name("is")) syntax_error(e->line, "You cannot chain multiple tests with is");
      e->call->positional.push_back(postfix(primary()));
    }
  }
  const int line = e->line;
  ExprPtr test = finished(std::move(e));
  return negated ? binary_node(ExprKind::kNot, std::move(test), nullptr, line) : std::move(test);
}

}  // namespace barg::text::jinja
