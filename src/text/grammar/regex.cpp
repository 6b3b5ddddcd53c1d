#include "text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/utf8.h"
#include "text/grammar/concat.h"
#include "text/grammar/expression.h"

namespace barg::text::grammar {
namespace {

constexpr std::size_t kMaxPatternBytes = std::size_t{64} << 10;
constexpr int kMaxGroups = 200;     // one inside the other
constexpr int kMaxProperties = 32;  // \p{..} of one pattern: each may be a walk over all code points
constexpr std::int64_t kMaxBound = 1'000'000'000;  // of a quantifier; far beyond what an automaton can count

using Kind = Expression::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The grammar of ECMA-262 with the `u` flag. From its Annex B only what has one meaning in all dialects:
// braces and `]` that stand alone, escapes of punctuation, and `-` beside a class. After an error everything
// returns at once, with any value.
class RegexParser {
 public:
  RegexParser(std::string_view pattern, Expressions& expressions) : s_(pattern), e_(expressions) {}

  Result<ExpressionId> parse() {
    const ExpressionId root = disjunction();
    if (!error_ && !at_end()) invalid("unmatched ')'", i_);
    // "[]a]" is a class with ']' in some dialects and here one that nothing matches, then "a]".
    if (!error_ && empty_class_ && lone_bracket_)
      invalid("']' must be written \\] where an empty class is used", *lone_bracket_);
    if (error_) return std::unexpected(*error_);
    return root;
  }

 private:
  bool at_end() const { return i_ >= s_.size(); }
  char peek(std::size_t ahead = 0) const { return i_ + ahead < s_.size() ? s_[i_ + ahead] : '\0'; }
  bool looking_at(std::string_view what) const { return s_.substr(i_).starts_with(what); }
  bool take(char c) {
    if (at_end() || s_[i_] != c) return false;
    ++i_;
    return true;
  }

  ExpressionId invalid(std::string_view what, std::size_t offset) {
    return set_error(ErrorCode::kInvalidValue, what, offset);
  }
  ExpressionId unsupported(std::string_view what, std::size_t offset) {
    return set_error(ErrorCode::kUnsupported, concat(what, " cannot be enforced"), offset);
  }
  ExpressionId set_error(ErrorCode code, std::string_view what, std::size_t offset) {
    if (!error_) error_ = Error{code, concat(what, " (offset ", offset, " of the pattern)"), {}, 0};
    return 0;
  }

  ExpressionId disjunction() {
    Expression choice{.kind = Kind::kChoice};
    do {
      choice.parts.push_back(alternative());
    } while (!error_ && take('|'));
    return choice.parts.size() == 1 ? choice.parts[0] : e_.add(std::move(choice));
  }

  ExpressionId alternative() {
    Expression sequence{.kind = Kind::kSequence};
    while (!error_ && !at_end() && peek() != '|' && peek() != ')') sequence.parts.push_back(term());
    return sequence.parts.size() == 1 ? sequence.parts[0] : e_.add(std::move(sequence));
  }

  ExpressionId term() {
    const std::size_t offset = i_;
    if (take('^')) return anchor(Kind::kTextStart);
    if (take('$')) return anchor(Kind::kTextEnd);
    const ExpressionId item = atom();
    if (error_) return 0;
    const auto bounds = quantifier();
    if (error_ || !bounds) return item;
    if (take('+')) return unsupported("a possessive quantifier", offset);
    take('?');  // lazy: the same texts
    return e_.add({.kind = Kind::kRepeat, .parts = {item}, .min = bounds->first, .max = bounds->second});
  }

  ExpressionId anchor(Kind kind) {
    const std::size_t offset = i_;
    if (quantifier()) return invalid("nothing to repeat", offset);
    return e_.add({.kind = kind});
  }

  // nullopt: there is none.
  std::optional<std::pair<std::int64_t, std::int64_t>> quantifier() {
    if (take('*')) return std::pair{0, -1};
    if (take('+')) return std::pair{1, -1};
    if (take('?')) return std::pair{0, 1};
    if (peek() != '{') return std::nullopt;
    const std::size_t offset = i_++;
    const auto min = number();
    std::optional<std::int64_t> max = min;
    const bool comma = take(',');
    if (comma) max = number();
    if (!take('}') || (!min && !comma) || (!min && !max)) {
      i_ = offset;  // a brace that stands for itself
      return std::nullopt;
    }
    if (!min) {
      invalid("a quantifier needs its lower bound: {0,n}", offset);
    } else if (max && *max < *min) {
      invalid("the bounds of a quantifier are out of order", offset);
    }
    return std::pair{min.value_or(0), max.value_or(-1)};
  }

  std::optional<std::int64_t> number() {
    if (!is_digit(peek())) return std::nullopt;
    std::int64_t value = 0;
    for (; is_digit(peek()); ++i_) value = std::min(value * 10 + (peek() - '0'), kMaxBound);
    return value;
  }

  ExpressionId atom() {
    const std::size_t offset = i_;
    switch (peek()) {
      case '(':
        return group();
      case '[':
        return e_.chars(char_class());
      case '.':
        ++i_;
        return e_.chars(line_break_set().negated());
      case '\\':
        return e_.chars(set_of(escape(false)));
      case '*':
      case '+':
      case '?':
        return invalid("nothing to repeat", offset);
      case '{':
        if (quantifier()) return invalid("nothing to repeat", offset);
        break;
      case ']':
        lone_bracket_ = offset;
        break;
      default:
        break;
    }
    return e_.chars(CodeSet::of(next_code_point(s_, i_)));
  }

  ExpressionId group() {
    const std::size_t offset = i_++;
    if (++groups_ > kMaxGroups)
      return unsupported(concat("nesting deeper than ", kMaxGroups, " groups"), offset);
    if (take('?')) group_kind(offset);
    if (error_) return 0;
    const ExpressionId inside = disjunction();
    if (!error_ && !take(')')) return invalid("a group without its ')'", offset);
    --groups_;
    return inside;
  }

  // What stands behind "(?".
  void group_kind(std::size_t offset) {
    if (take(':')) return;
    if (looking_at("=") || looking_at("!")) {
      unsupported("look-ahead", offset);
    } else if (looking_at("<=") || looking_at("<!")) {
      unsupported("look-behind", offset);
    } else if (looking_at(">")) {
      unsupported("an atomic group", offset);
    } else if (looking_at("P<")) {
      invalid("a named group is written (?<name>...)", offset);
    } else if (is_letter(peek()) || peek() == '-') {
      unsupported("a group with flags", offset);
    } else if (!take('<') || !group_name()) {
      invalid("unknown kind of group", offset);
    }
  }

  bool group_name() {
    const std::size_t first = i_;
    const auto in_name = [](char c) {
      return is_letter(c) || is_digit(c) || c == '_' || c == '$' || static_cast<unsigned char>(c) >= 0x80;
    };
    while (!at_end() && in_name(peek())) ++i_;
    return i_ > first && !is_digit(s_[first]) && take('>');
  }

  // One character of a class or behind a backslash: a code point (surrogates too, which no text has), or a
  // set.
  using Atom = std::variant<char32_t, CodeSet>;

  static CodeSet set_of(const Atom& atom) {
    const auto* cp = std::get_if<char32_t>(&atom);
    return cp != nullptr ? CodeSet::of(*cp) : std::get<CodeSet>(atom);
  }

  CodeSet char_class() {
    const std::size_t offset = i_++;
    const bool negated = take('^');
    std::vector<CodeSet::Range> ranges;
    if (peek() == ']') empty_class_ = true;
    while (!error_ && !take(']')) {
      if (at_end()) {
        invalid("a class without its ']'", offset);
        break;
      }
      const std::size_t item = i_;
      const Atom first = class_atom();
      if (peek() != '-' || peek(1) == ']' || i_ + 1 >= s_.size()) {
        append(ranges, set_of(first));
        continue;
      }
      ++i_;
      const Atom last = class_atom();
      class_range(first, last, item, ranges);
    }
    const CodeSet set(std::move(ranges));
    return negated ? set.negated() : set;
  }

  void class_range(const Atom& first, const Atom& last, std::size_t offset,
                   std::vector<CodeSet::Range>& ranges) {
    const auto* a = std::get_if<char32_t>(&first);
    const auto* b = std::get_if<char32_t>(&last);
    if (a != nullptr && b != nullptr) {
      if (*a > *b) {
        invalid("the ends of a range are out of order", offset);
        return;
      }
      ranges.push_back({*a, *b});
      return;
    }
    append(ranges, set_of(first));
    append(ranges, set_of(last));
    ranges.push_back({'-', '-'});
  }

  static void append(std::vector<CodeSet::Range>& ranges, const CodeSet& set) {
    ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
  }

  Atom class_atom() {
    if (peek() == '\\') return escape(true);
    if (looking_at("[:")) {
      const std::size_t end = s_.find_first_not_of("abcdefghijklmnopqrstuvwxyz^", i_ + 2);
      if (end != std::string_view::npos && end > i_ + 2 && s_.substr(end).starts_with(":]")) {
        unsupported("a POSIX class", i_);
      }
    }
    return next_code_point(s_, i_);
  }

  Atom escape(bool in_class) {
    const std::size_t offset = i_++;
    if (at_end()) return Atom{invalid("a backslash at the end", offset)};
    const char c = s_[i_++];
    switch (c) {
      case 'd':
        return digit_set();
      case 'D':
        return digit_set().negated();
      case 'w':
        return word_set();
      case 'W':
        return word_set().negated();
      case 's':
        return space_set();
      case 'S':
        return space_set().negated();
      case 'p':
      case 'P':
        return property(c == 'P', offset);
      case 't':
        return U'\t';
      case 'n':
        return U'\n';
      case 'v':
        return U'\v';
      case 'f':
        return U'\f';
      case 'r':
        return U'\r';
      case 'c':
        if (!is_letter(peek())) return Atom{invalid("\\c needs a letter", offset)};
        return static_cast<char32_t>(s_[i_++] & 0x1F);
      case 'x':
        return hex(2, offset);
      case 'u':
        return unicode_escape(offset);
      case '0':
        if (is_digit(peek())) return Atom{invalid("an octal escape", offset)};
        return U'\0';
      default:
        return other_escape(c, in_class, offset);
    }
  }

  Atom other_escape(char c, bool in_class, std::size_t offset) {
    if (c == 'b' && in_class) return U'\b';
    if (!in_class && (c == 'b' || c == 'B')) {
      return Atom{unsupported(concat("\\", c, " (word boundary)"), offset)};
    }
    if (!in_class && (is_digit(c) || c == 'k')) return Atom{unsupported("a back-reference", offset)};
    if (is_letter(c) || is_digit(c)) return Atom{invalid(concat("unknown escape \\", c), offset)};
    if (static_cast<unsigned char>(c) < 0x80) return static_cast<char32_t>(c);
    return Atom{invalid("a backslash before a character that needs none", offset)};
  }

  char32_t hex(int digits, std::size_t offset) {
    char32_t value = 0;
    for (int k = 0; k < digits; ++k) {
      const int digit = hex_value(peek());
      if (digit < 0)
        return invalid(concat("an escape of ", digits, " hexadecimal digits is cut short"), offset);
      value = value * 16 + static_cast<char32_t>(digit);
      ++i_;
    }
    return value;
  }

  char32_t unicode_escape(std::size_t offset) {
    if (take('{')) {
      char32_t value = 0;
      const std::size_t first = i_;
      for (; hex_value(peek()) >= 0 && value <= kLastCodePoint; ++i_) {
        value = value * 16 + static_cast<char32_t>(hex_value(peek()));
      }
      if (i_ == first || value > kLastCodePoint || !take('}')) return invalid("a bad \\u{...}", offset);
      return value;
    }
    const char32_t unit = hex(4, offset);
    if (unit < 0xD800 || unit > 0xDBFF || !looking_at("\\u")) return unit;
    const std::size_t back = i_;
    i_ += 2;
    char32_t low = 0;
    for (int k = 0; k < 4 && hex_value(peek()) >= 0; ++k)
      low = low * 16 + static_cast<char32_t>(hex_value(s_[i_++]));
    if (i_ == back + 6 && low >= 0xDC00 && low <= 0xDFFF)
      return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    i_ = back;
    return unit;
  }

  Atom property(bool negated, std::size_t offset) {
    const std::size_t end = s_.find('}', i_);
    if (peek() != '{' || end == std::string_view::npos) return Atom{invalid("\\p needs {property}", offset)};
    const std::string_view name = s_.substr(i_ + 1, end - i_ - 1);
    if (++properties_ > kMaxProperties) {
      return Atom{unsupported(concat("more than ", kMaxProperties, " properties in a pattern"), offset)};
    }
    const auto set = property_set(name);
    if (!set) return Atom{invalid(concat("unknown property \\p{", name.substr(0, 60), "}"), offset)};
    i_ = end + 1;
    return negated ? set->negated() : *set;
  }

  std::string_view s_;
  std::size_t i_ = 0;
  Expressions& e_;
  std::optional<Error> error_;
  int groups_ = 0;
  int properties_ = 0;
  bool empty_class_ = false;
  std::optional<std::size_t> lone_bracket_;
};

}  // namespace

Result<Dfa> regex_dfa(std::string_view pattern, const RegexOptions& options) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kUnsupported, concat("too large: a pattern of over ", kMaxPatternBytes, " bytes"));
  }
  if (!is_valid_utf8(pattern)) return fail(ErrorCode::kInvalidValue, "the pattern is not valid UTF-8");
  Expressions expressions;
  const auto root = RegexParser(pattern, expressions).parse();
  if (!root) return std::unexpected(root.error());
  return expression_dfa(expressions, *root, options.search, options.limits);
}

}  // namespace barg::text::grammar
