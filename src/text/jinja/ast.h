// The parsed template. One struct for expressions and one for statements: the interpreter switches on `kind`,
// and which fields a kind uses stands beside it. Names are interned: a scope is a short list of (id, value).
//
// Built by parser.cpp, completed by scope.cpp, then never written: any thread may read it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace barg::text::jinja {

using NameId = std::uint32_t;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : std::uint8_t {
  kConst,         // value
  kName,          // name, id
  kNamespaceRef,  // target only: id . name
  kAttribute,     // a . name
  kItem,          // a [ b ]
  kSlice,         // only as b of kItem: items[0..2], each may be null
  kCall,          // a ( call )
  kFilter,        // a | name ( call ); a is null for a filter block's own input
  kTest,          // a is name ( call )
  kTuple,         // items
  kList,          // items
  kDict,          // items: key, value, key, value, ...
  kConcat,        // items joined as text
  kCondition,     // b if a else c (c may be null)
  kAnd,
  kOr,  // a, b
  kNot,
  kNegate,
  kPlus,  // a
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,      // a, b
  kCompare,  // a, then ops with items
};

enum class Cmp : std::uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, star_star;  // *args, **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 0;
  int depth = 1;  // of the tree below
  NameId id = 0;
  std::string name;
  Value value;
  ExprPtr a, b, c;
  std::vector<ExprPtr> items;
  std::vector<Cmp> ops;
  std::unique_ptr<Arguments> call;
  const void* builtin =
      nullptr;  // the row of the filter or test table; null = unknown (an error when reached)
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// What `for`, `macro`, `call`, ... open. `missing`: names that are set in it before anything reads them;
/// they hide outer variables of the same name from the start, as Jinja2's compiled locals do.
struct Block {
  Body body;
  std::vector<NameId> missing;
};

struct Macro {
  std::string name;
  std::vector<std::pair<NameId, std::string>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Block block;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  NameId caller = 0, kwargs = 0, varargs = 0;
};

enum class StmtKind : std::uint8_t {
  kOutput,       // exprs
  kFor,          // target in expr [if test], block, else_block, recursive; id is `loop`
  kIf,           // branches: (test or null for else, body)
  kSet,          // target = expr
  kSetBlock,     // target, filter (may be null), block
  kMacro,        // macro; id is its name
  kCallBlock,    // expr (a kCall), macro as caller
  kFilterBlock,  // filter, block
  kWith,         // targets, exprs, block
  kGeneration,   // block
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  int line = 0;
  NameId id = 0;
  std::vector<ExprPtr> exprs, targets;
  ExprPtr target, expr, test, filter;
  Block block, else_block;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::unique_ptr<Macro> macro;
  bool recursive = false;
};

struct TemplateAst {
  Block root;
  std::vector<std::string> names;  // by NameId
  std::string source;
};

}  // namespace barg::text::jinja
