// The parser's state, shared by parser.cpp (statements) and parse_expr.cpp (expressions). Private to the two.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/template.h"

namespace barg::text::jinja {

class Parser {
 public:
  Parser(std::string_view source, const Limits& limits);
  std::unique_ptr<TemplateAst> run();

 private:
  using Ends = std::vector<std::string_view>;
  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) { p.enter(); }
    ~Deeper() { --parser.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Parser& parser;
  };
  void enter();

  // Tokens.
  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool is(Tok type) const { return current().type == type; }
  bool is_op(std::string_view op) const { return is(Tok::kOperator) && current().text == op; }
  bool is_name(std::string_view name) const { return is(Tok::kName) && current().text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect(Tok type);
  std::string expect_name();
  std::string describe(const Token& t) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;
  NameId intern(const std::string& name);

  // Statements.
  Body subparse(const Ends& ends);
  Body statements(const Ends& ends);
  std::unique_ptr<Stmt> statement();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_print();
  std::unique_ptr<Stmt> parse_generation();
  std::unique_ptr<Stmt> parse_jump();
  void parse_signature(Macro& macro);
  void finish_macro(Macro& macro, const Ends& ends);
  ExprPtr assign_target(bool until_in, bool with_namespace);
  void check_target(const Expr& target) const;

  // Expressions.
  struct TupleRules {
    bool simplified = false, conditions = true, parenthesised = false, with_namespace = false;
    std::string_view end_name = {};
  };
  ExprPtr parse_tuple(const TupleRules& rules);
  ExprPtr expression(bool conditions = true);
  ExprPtr condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr postfix(ExprPtr e);
  ExprPtr filter_expr(ExprPtr e);
  ExprPtr subscript(ExprPtr e);
  ExprPtr subscribed();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_filter(ExprPtr input, bool start_inline = false);
  ExprPtr parse_test(ExprPtr e);
  std::unique_ptr<Arguments> arguments();
  std::string dotted_name();

  ExprPtr make(ExprKind kind, int line) const;
  ExprPtr binary_node(ExprKind kind, ExprPtr a, ExprPtr b, int line) const;
  /// Computes depth; refuses expressions that are too deep to walk.
  ExprPtr finished(ExprPtr e) const;

  const Limits& limits_;
  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // of the function we are in: where break and continue make sense
  std::unique_ptr<TemplateAst> ast_;
  std::unordered_map<std::string, NameId> ids_;
};

}  // namespace barg::text::jinja
