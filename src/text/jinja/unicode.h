// What Python's str knows about Unicode: predicates and full case mappings. Tables are generated from Python
// 3.11 (Unicode 14), the oracle's own. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace barg::text::jinja {

struct CodeRange {
  char32_t first, last;
};
struct CaseRun {
  char32_t first, last;
  std::uint8_t stride;
  std::int32_t delta;
};
struct CaseSpecial {
  char32_t code;
  char32_t to[3];
};

bool is_alpha(char32_t c);
bool is_numeric(char32_t c);
bool is_digit(char32_t c);
bool is_decimal(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_space(char32_t c);
inline bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }
/// str.splitlines() breaks here.
bool is_line_break(char32_t c);

enum class CaseMap { kLower, kUpper, kTitle, kFold };
/// Appends the mapping of one code point (up to three).
void append_mapped(std::string& out, char32_t c, CaseMap map);

/// REQUIRES valid UTF-8.
std::size_t count_code_points(std::string_view s);
/// Decodes at s[i] and advances i. REQUIRES valid UTF-8 and i < s.size().
char32_t decode(std::string_view s, std::size_t& i);

}  // namespace barg::text::jinja
