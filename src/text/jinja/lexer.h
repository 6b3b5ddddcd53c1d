// Lexer: template source to tokens, with Jinja2's whitespace rules (trim_blocks, lstrip_blocks, `-` and `+`,
// no trailing newline, newlines normalised) applied to the data between tags. Comments and raw blocks are
// gone. Raises RenderError with "line N: ..." (the module's exception, see runtime.h). Pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace barg::text::jinja {

enum class Tok : std::uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEof
};

struct Token {
  Tok type = Tok::kEof;
  int line = 1;
  std::string text;  ///< data, name, decoded string or operator
  Int integer = 0;
  double real = 0;
};

/// Ends with one kEof. REQUIRES valid UTF-8.
std::vector<Token> tokenize(std::string_view source);

[[noreturn]] void syntax_error(int line, const std::string& message);

}  // namespace barg::text::jinja
