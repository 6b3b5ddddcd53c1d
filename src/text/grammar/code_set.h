// CodeSet: a set of code points as sorted ranges; surrogates are never in it (texts are UTF-8). And the sets
// that patterns name: \d \w \s and Unicode properties. Values; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace barg::text::grammar {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

class CodeSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
    auto operator<=>(const Range&) const = default;
  };

  CodeSet() = default;
  /// Ranges in any order, overlapping or not; first <= last <= kLastCodePoint.
  explicit CodeSet(std::vector<Range> ranges);
  CodeSet(std::initializer_list<Range> ranges) : CodeSet(std::vector<Range>(ranges)) {}
  static CodeSet of(char32_t cp) { return {{cp, cp}}; }
  static CodeSet all() { return {{0, kLastCodePoint}}; }

  const std::vector<Range>& ranges() const { return ranges_; }  ///< ascending, with gaps between them
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t cp) const;
  CodeSet negated() const;
  bool operator==(const CodeSet&) const = default;
  auto operator<=>(const CodeSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

CodeSet digit_set();       ///< \d of ECMA-262: 0-9
CodeSet word_set();        ///< \w of ECMA-262: A-Z a-z 0-9 _
CodeSet space_set();       ///< \s of ECMA-262: WhiteSpace and LineTerminator
CodeSet line_break_set();  ///< what `.` does not match

/// \p{expression}: a general category, Script=, Script_Extensions= or a binary property, by the names of
/// ECMA-262; nullopt: no such. The first use of a script or binary property takes some milliseconds.
std::optional<CodeSet> property_set(std::string_view expression);

}  // namespace barg::text::grammar
