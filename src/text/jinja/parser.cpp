#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/parser_impl.h"
#include "text/jinja/scope.h"

namespace barg::text::jinja {

Value make_literal(std::string text) {
  auto s = std::make_shared<Str>();
  s->chars = 0;
  for (char c : text) s->chars += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  s->text = std::move(text);
  return Value(Kind::kString, std::move(s));
}

Parser::Parser(std::string_view source, const Limits& limits)
    : limits_(limits), tokens_(tokenize(source)), ast_(std::make_unique<TemplateAst>()) {
  ast_->source = source;
}

std::unique_ptr<TemplateAst> Parser::run() {
  ast_->root.body = subparse({});
  return std::move(ast_);
}

void Parser::enter() {
  if (++depth_ > 2 * limits_.nesting) {
    syntax_error(current().line, "nested more than " + std::to_string(limits_.nesting) + " deep");
  }
}

NameId Parser::intern(const std::string& name) {
  const auto [it, fresh] = ids_.emplace(name, static_cast<NameId>(ast_->names.size()));
  if (fresh) ast_->names.push_back(name);
  return it->second;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected("'" + std::string(op) + "'");
}

void Parser::expect(Tok type) {
  if (!is(type)) unexpected(type == Tok::kBlockEnd ? "end of statement block" : "end of print statement");
  next();
}

std::string Parser::expect_name() {
  if (!is(Tok::kName)) unexpected("a name");
  return next().text;
}

std::string Parser::describe(const Token& t) const {
  switch (t.type) {
    case Tok::kData:
      return "template text";
    case Tok::kVariableBegin:
      return "begin of print statement";
    case Tok::kVariableEnd:
      return "end of print statement";
    case Tok::kBlockBegin:
      return "begin of statement block";
    case Tok::kBlockEnd:
      return "end of statement block";
    case Tok::kString:
      return "a string";
    case Tok::kInteger:
    case Tok::kFloat:
      return "a number";
    case Tok::kEof:
      return "end of template";
    default:
      return "'" + t.text.substr(0, 60) + "'";
  }
}

void Parser::unexpected(std::string_view wanted) const {
  syntax_error(current().line, "expected " + std::string(wanted) + ", got " + describe(current()));
}

Body Parser::subparse(const Ends& ends) {
  Deeper deeper(*this);
  Body body;
  Stmt* output = nullptr;
  const auto print = [&](ExprPtr e) {
    if (output == nullptr) {
      output = body.emplace_back(std::make_unique<Stmt>()).get();
      output->line = e->line;
    }
    output->exprs.push_back(std::move(e));
  };
  while (!is(Tok::kEof)) {
    if (is(Tok::kData)) {
      const Token& t = next();
      ExprPtr e = make(ExprKind::kConst, t.line);
      e->value = make_literal(t.text);
      print(std::move(e));
    } else if (is(Tok::kVariableBegin)) {
      next();
      print(parse_tuple({}));
      expect(Tok::kVariableEnd);
    } else {
      output = nullptr;
      next();  // a block's begin: the lexer gives nothing else here
      const bool ended = is(Tok::kName) && std::find(ends.begin(), ends.end(), current().text) != ends.end();
      if (ended) return body;
      body.push_back(statement());
      expect(Tok::kBlockEnd);
    }
  }
  if (!ends.empty()) {
    std::string wanted;
    for (std::string_view e : ends) wanted += (wanted.empty() ? "'" : " or '") + std::string(e) + "'";
    syntax_error(current().line, "unexpected end of template, looking for " + wanted);
  }
  return body;
}

Body Parser::statements(const Ends& ends) {
  skip_op(":");
  expect(Tok::kBlockEnd);
  return subparse(ends);
}

std::unique_ptr<Stmt> Parser::statement() {
  struct Row {
    std::string_view name;
    std::unique_ptr<Stmt> (Parser::*parse)();
  };
  static constexpr Row kStatements[] = {
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_jump},
      {"continue", &Parser::parse_jump},
      {"generation", &Parser::parse_generation},
  };
  static constexpr std::string_view kUnsupported[] = {"include", "import", "from",
                                                      "extends", "block",  "autoescape"};
  if (!is(Tok::kName)) syntax_error(current().line, "tag name expected");
  const std::string& tag = current().text;
  for (const Row& row : kStatements) {
    if (row.name == tag) return (this->*row.parse)();
  }
  for (std::string_view name : kUnsupported) {
    if (name == tag) syntax_error(current().line, "the statement '" + tag + "' is not supported");
  }
  syntax_error(current().line, "unknown tag '" + tag.substr(0, 60) + "'");
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kFor;
  s->line = next().line;
  s->id = intern("loop");
  s->target = assign_target(true, false);
  if (!skip_name("in")) unexpected("'in'");
  s->expr = parse_tuple({.conditions = false, .end_name = "recursive"});
  if (skip_name("if")) s->test = expression();
  s->recursive = skip_name("recursive");
  ++loops_;
  s->block.body = statements({"endfor", "else"});
  --loops_;
  if (next().text == "else") {
    // The else part of a recursive loop lies inside the loop's own function.
    const int outer = loops_;
    if (s->recursive) loops_ = 0;
    s->else_block.body = statements({"endfor"});
    loops_ = outer;
    next();
  }
  return s;
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kIf;
  s->line = next().line;
  while (true) {
    ExprPtr test = parse_tuple({.conditions = false});
    Body body = statements({"elif", "else", "endif"});
    s->branches.emplace_back(std::move(test), std::move(body));
    const std::string end = next().text;
    if (end == "elif") continue;
    if (end == "else") {
      s->branches.emplace_back(nullptr, statements({"endif"}));
      next();
    }
    return s;
  }
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto s = std::make_unique<Stmt>();
  s->line = next().line;
  s->target = assign_target(false, true);
  if (skip_op("=")) {
    s->kind = StmtKind::kSet;
    s->expr = parse_tuple({});
    return s;
  }
  s->kind = StmtKind::kSetBlock;
  s->filter = parse_filter(nullptr);
  s->block.body = statements({"endset"});
  next();
  return s;
}

void Parser::parse_signature(Macro& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.parameters.empty()) expect_op(",");
    const std::string name = expect_name();
    check_target([&] {
      Expr e;
      e.kind = ExprKind::kName;
      e.line = current().line;
      e.name = name;
      return e;
    }());
    if (skip_op("=")) {
      macro.defaults.push_back(expression());
    } else if (!macro.defaults.empty()) {
      syntax_error(current().line, "non-default argument follows default argument");
    }
    macro.parameters.emplace_back(intern(name), name);
  }
  expect_op(")");
}

void Parser::finish_macro(Macro& macro, const Ends& ends) {
  macro.caller = intern("caller");
  macro.kwargs = intern("kwargs");
  macro.varargs = intern("varargs");
  const int outer = loops_;
  loops_ = 0;
  macro.block.body = statements(ends);
  loops_ = outer;
  next();
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kMacro;
  s->line = next().line;
  s->macro = std::make_unique<Macro>();
  s->macro->name = expect_name();
  s->id = intern(s->macro->name);
  parse_signature(*s->macro);
  finish_macro(*s->macro, {"endmacro"});
  return s;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kCallBlock;
  s->line = next().line;
  s->macro = std::make_unique<Macro>();
  if (is_op("(")) parse_signature(*s->macro);
  s->expr = expression();
  if (s->expr->kind != ExprKind::kCall) syntax_error(s->line, "expected call");
  finish_macro(*s->macro, {"endcall"});
  return s;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kFilterBlock;
  s->line = next().line;
  s->filter = parse_filter(nullptr, true);
  s->block.body = statements({"endfilter"});
  next();
  return s;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kWith;
  s->line = next().line;
  while (!is(Tok::kBlockEnd)) {
    if (!s->targets.empty()) expect_op(",");
    s->targets.push_back(assign_target(false, false));
    expect_op("=");
    s->exprs.push_back(expression());
  }
  s->block.body = statements({"endwith"});
  next();
  return s;
}

std::unique_ptr<Stmt> Parser::parse_print() {
  auto s = std::make_unique<Stmt>();
  s->line = next().line;
  while (!is(Tok::kBlockEnd)) {
    if (!s->exprs.empty()) expect_op(",");
    s->exprs.push_back(expression());
  }
  return s;
}

std::unique_ptr<Stmt> Parser::parse_generation() {
  auto s = std::make_unique<Stmt>();
  s->kind = StmtKind::kGeneration;
  s->line = next().line;
  const int outer = loops_;
  loops_ = 0;
  s->block.body = statements({"endgeneration"});
  loops_ = outer;
  next();
  return s;
}

std::unique_ptr<Stmt> Parser::parse_jump() {
  auto s = std::make_unique<Stmt>();
  const Token& t = next();
  s->kind = t.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
  s->line = t.line;
  if (loops_ == 0) syntax_error(t.line, "'" + t.text + "' outside of a loop");
  return s;
}

ExprPtr Parser::assign_target(bool until_in, bool with_namespace) {
  ExprPtr e = parse_tuple({.simplified = true,
                           .with_namespace = with_namespace,
                           .end_name = until_in ? "in" : std::string_view()});
  check_target(*e);
  return e;
}

void Parser::check_target(const Expr& target) const {
  switch (target.kind) {
    case ExprKind::kNamespaceRef:
      return;
    case ExprKind::kName:
      if (target.name != "true" && target.name != "false" && target.name != "none" && target.name != "True" &&
          target.name != "False" && target.name != "None") {
        return;
      }
      break;
    case ExprKind::kTuple:
      for (const ExprPtr& e : target.items) check_target(*e);
      return;
    default:
      break;
  }
  syntax_error(target.line, "can't assign to this expression");
}

std::unique_ptr<TemplateAst> parse_template(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    raise(RenderError::Type::kLimit,
          "the template is larger than " + std::to_string(limits.source_bytes) + " bytes");
  }
  std::unique_ptr<TemplateAst> ast = Parser(source, limits).run();
  resolve_scopes(*ast);
  return ast;
}

}  // namespace barg::text::jinja
