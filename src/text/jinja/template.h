// A Jinja template: parse once, render often. The language is Jinja2 3.1 in the environment of transformers
// (trim_blocks, lstrip_blocks, loop controls, `generation`, the immutable sandbox); its output is the oracle,
// to the byte.
//
//   source --lexer--> tokens --parser--> AST (ast.h) --scope.cpp--> checked AST --interpreter--> MarkedString
//
// Templates come from model files and requests and are hostile: no file access, no include/import/extends,
// and every render has a budget (Limits) of steps, bytes and depth. Running out is an error like any other.
//
// Immutable after parse(); render() is const and safe from any number of threads. Not a general Jinja: no
// autoescape, no template inheritance, no custom filters.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "base/json.h"
#include "text/marked_string.h"

namespace barg::text::jinja {

struct Limits {
  std::size_t source_bytes = 1 << 20;   ///< of the template itself
  int nesting = 100;                    ///< of blocks and of expressions in the source
  int call_depth = 100;                 ///< of macros, recursive loops and values inside values
  std::uint64_t steps = 20'000'000;     ///< nodes evaluated plus elements visited
  std::size_t string_bytes = 64 << 20;  ///< of one string
  std::size_t output_bytes = 64 << 20;
  std::size_t work_bytes = 256 << 20;    ///< of all strings and lists ever made in one render, on top of
  std::size_t work_per_input_byte = 16;  ///< ... this much for each byte of context
};

/// One top-level variable of a render.
struct Variable {
  std::string name;
  const Json* value = nullptr;  ///< borrowed for the call
  bool trusted = false;         ///< false: its strings (and keys) are marked as the client's
};

struct RenderOptions {
  std::optional<std::tm> now;  ///< strftime_now; absent = local time
  /// list.append and friends. transformers refuses them; some published templates need them.
  bool allow_mutation = false;
};

struct TemplateAst;  // ast.h

class Template {
 public:
  /// kBadFile with "line N: ..." when the source is not a template or uses what we do not support.
  static Result<std::shared_ptr<const Template>> parse(std::string_view source, const Limits& limits = {});
  ~Template();

  /// kInvalidValue with the template's or the interpreter's message.
  Result<MarkedString> render(const std::vector<Variable>& variables,
                              const RenderOptions& options = {}) const;

  /// For questions about the source (does it loop over message.content, does it mention `developer`).
  const TemplateAst& ast() const { return *ast_; }

 private:
  Template(std::unique_ptr<const TemplateAst> ast, const Limits& limits);
  std::unique_ptr<const TemplateAst> ast_;
  Limits limits_;
};

}  // namespace barg::text::jinja
