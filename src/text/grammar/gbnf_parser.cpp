#include "text/grammar/gbnf_parser.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/grammar/concat.h"

namespace barg::text::grammar {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{512} << 10;
constexpr int kMaxGroups = 200;    // one inside the other
constexpr int kMaxOperators = 16;  // behind one item
constexpr std::int64_t kMaxBound = 1'000'000;

using Kind = Expression::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '_';
}

// A rule ends where the next begins, so line breaks mean nothing. After an error everything returns at once,
// with any value.
class GbnfParser {
 public:
  explicit GbnfParser(std::string_view source) : s_(source) {}

  Result<GbnfRules> parse() {
    for (skip_blanks(); !error_ && i_ < s_.size(); skip_blanks()) rule();
    if (!error_) check_names();
    if (error_) return std::unexpected(*error_);
    return std::move(result_);
  }

 private:
  struct Mention {
    std::size_t rule, offset;
  };

  char peek(std::size_t ahead = 0) const { return i_ + ahead < s_.size() ? s_[i_ + ahead] : '\0'; }
  bool take(char c) {
    if (i_ >= s_.size() || s_[i_] != c) return false;
    ++i_;
    return true;
  }

  ExpressionId invalid(std::string_view what, std::size_t offset) {
    return set_error(ErrorCode::kInvalidValue, what, offset);
  }
  ExpressionId set_error(ErrorCode code, std::string_view what, std::size_t offset) {
    if (error_) return 0;
    const std::string_view before = s_.substr(0, offset);
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::string_view in_line = before.substr(before.rfind('\n') + 1);  // npos + 1 is 0
    const auto column = std::ranges::count_if(in_line, [](char c) { return (c & 0xC0) != 0x80; }) + 1;
    error_ = Error{code, concat("line ", line, ", column ", column, ": ", what), {}, 0};
    return 0;
  }

  void skip_blanks() {
    while (i_ < s_.size()) {
      if (s_[i_] == '#') {
        i_ = std::min(s_.find_first_of("\r\n", i_), s_.size());
      } else if (s_[i_] == ' ' || s_[i_] == '\t' || s_[i_] == '\n' || s_[i_] == '\r') {
        ++i_;
      } else {
        return;
      }
    }
  }

  std::string_view name() {
    const std::size_t first = i_;
    while (is_name(peek())) ++i_;
    return s_.substr(first, i_ - first);
  }

  bool at_rule() {
    const std::size_t back = i_;
    if (name().empty()) return false;
    skip_blanks();
    const bool found = s_.substr(i_).starts_with("::=");
    i_ = back;
    return found;
  }

  std::size_t rule_named(std::string_view name) {
    const auto [at, is_new] = names_.emplace(name, result_.rules.size());
    if (is_new) {
      result_.rules.push_back({std::string(name), result_.expressions.add({.kind = Kind::kRef})});
      defined_.push_back(false);
    }
    return at->second;
  }

  void rule() {
    const std::size_t offset = i_;
    if (!at_rule()) {
      invalid("expected a rule: name ::= ...", offset);
      return;
    }
    const std::size_t rule = rule_named(name());
    if (defined_[rule]) {
      invalid(concat("rule '", result_.rules[rule].name, "' is defined twice"), offset);
      return;
    }
    defined_[rule] = true;
    skip_blanks();
    i_ += 3;  // ::=
    const ExpressionId body = choice();
    if (!error_ && peek() == ')') invalid("unmatched ')'", i_);
    result_.expressions.set_target(result_.rules[rule].node, body);
  }

  ExpressionId choice() {
    Expression choice{.kind = Kind::kChoice};
    do {
      choice.parts.push_back(sequence());
    } while (!error_ && take('|'));
    return choice.parts.size() == 1 ? choice.parts[0] : result_.expressions.add(std::move(choice));
  }

  ExpressionId sequence() {
    Expression sequence{.kind = Kind::kSequence};
    for (skip_blanks(); !error_ && i_ < s_.size(); skip_blanks()) {
      if (peek() == '|' || peek() == ')' || at_rule()) break;
      ExpressionId part = item();
      skip_blanks();
      int operators = 0;
      for (auto bounds = repetition(); !error_ && bounds.some; bounds = repetition()) {
        if (++operators > kMaxOperators) return invalid("too many repetitions of one item", i_);
        part = result_.expressions.add(
            {.kind = Kind::kRepeat, .parts = {part}, .min = bounds.min, .max = bounds.max});
        skip_blanks();
      }
      sequence.parts.push_back(part);
    }
    return sequence.parts.size() == 1 ? sequence.parts[0] : result_.expressions.add(std::move(sequence));
  }

  ExpressionId item() {
    const std::size_t offset = i_;
    switch (peek()) {
      case '"':
        return literal();
      case '[':
        return char_class();
      case '(':
        return group();
      case '.':
        ++i_;
        return result_.expressions.chars(CodeSet::all());
      case '*':
      case '+':
      case '?':
      case '{':
        return invalid("nothing to repeat", offset);
      case '<':
      case '!':
        return set_error(ErrorCode::kUnsupported, "tokens by name cannot be enforced", offset);
      default:
        break;
    }
    if (!is_name(peek())) {
      return invalid("expected a literal, a class, a group, '.' or the name of a rule", offset);
    }
    const std::size_t rule = rule_named(name());
    mentions_.push_back({rule, offset});
    return result_.rules[rule].node;
  }

  ExpressionId group() {
    const std::size_t offset = i_++;
    if (peek() == '=') return set_error(ErrorCode::kUnsupported, "look-ahead cannot be enforced", offset);
    if (++groups_ > kMaxGroups) {
      return set_error(ErrorCode::kUnsupported, concat("nesting deeper than ", kMaxGroups, " groups"),
                       offset);
    }
    const ExpressionId inside = choice();
    --groups_;
    if (!error_ && !take(')')) return invalid("a group without its ')'", offset);
    return inside;
  }

  struct Repetition {
    bool some = false;  // false: there is none, or an error
    std::int64_t min = 0, max = 0;
  };

  Repetition repetition() {
    const std::size_t offset = i_;
    if (take('*')) return {true, 0, -1};
    if (take('+')) return {true, 1, -1};
    if (take('?')) return {true, 0, 1};
    if (!take('{')) return {};
    const auto min = bound();
    auto max = min;
    const bool comma = take(',');
    if (comma) max = bound();
    if (!take('}') || (!min && !max)) {
      invalid("expected {n}, {n,}, {n,m} or {,m}", offset);
    } else if (max && *max < min.value_or(0)) {
      invalid("the bounds of a repetition are out of order", offset);
    } else if (std::max(min.value_or(0), max.value_or(0)) > kMaxBound) {
      set_error(ErrorCode::kUnsupported, concat("a repetition of over ", kMaxBound, " items"), offset);
    }
    return {true, min.value_or(0), max.value_or(-1)};
  }

  std::optional<std::int64_t> bound() {
    skip_blanks();
    std::optional<std::int64_t> value;
    for (; is_digit(peek()); ++i_) value = std::min(value.value_or(0) * 10 + (peek() - '0'), kMaxBound + 1);
    skip_blanks();
    return value;
  }

  ExpressionId literal() {
    const std::size_t offset = i_++;
    Expression text{.kind = Kind::kSequence};
    while (!error_ && !take('"')) {
      if (i_ >= s_.size()) return invalid("a literal without its closing quote", offset);
      text.parts.push_back(result_.expressions.chars(CodeSet::of(character())));
    }
    return result_.expressions.add(std::move(text));
  }

  ExpressionId char_class() {
    const std::size_t offset = i_++;
    const bool negated = take('^');
    std::vector<CodeSet::Range> ranges;
    while (!error_ && !take(']')) {
      if (i_ >= s_.size()) return invalid("a class without its ']'", offset);
      const std::size_t item = i_;
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++i_;
        if (i_ >= s_.size()) return invalid("a class without its ']'", offset);
        last = character();
      }
      if (last < first) return invalid("the ends of a range are out of order", item);
      ranges.push_back({first, last});
    }
    const CodeSet set(std::move(ranges));
    return result_.expressions.chars(negated ? set.negated() : set);
  }

  // One of a literal or a class. REQUIRES i_ < s_.size().
  char32_t character() {
    if (s_[i_] != '\\') return next_code_point(s_, i_);
    const std::size_t offset = i_++;
    const char c = peek();
    ++i_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'f':
        return U'\f';
      case 'v':
        return U'\v';
      case 'b':
        return U'\b';
      case 'x':
        return hex(2, offset);
      case 'u':
        return hex(4, offset);
      case 'U':
        return hex(8, offset);
      default:
        break;
    }
    constexpr std::string_view kThemselves = "\\\"'[]^-/";
    if (kThemselves.find(c) == std::string_view::npos) return invalid("unknown escape", offset);
    return static_cast<char32_t>(c);
  }

  char32_t hex(int digits, std::size_t offset) {
    std::uint64_t value = 0;
    for (int k = 0; k < digits; ++k, ++i_) {
      const char c = peek();
      const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!letter && !is_digit(c)) {
        return invalid(concat("an escape of ", digits, " hexadecimal digits is cut short"), offset);
      }
      value = value * 16 + static_cast<std::uint64_t>(letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    if (value > kLastCodePoint || (value >= 0xD800 && value <= 0xDFFF))
      return invalid("no such character", offset);
    return static_cast<char32_t>(value);
  }

  void check_names() {
    for (const Mention& m : mentions_) {
      if (defined_[m.rule]) continue;
      invalid(concat("rule '", result_.rules[m.rule].name, "' is not defined"), m.offset);
      return;
    }
    const auto root = names_.find("root");
    if (root == names_.end()) {
      invalid("there is no rule 'root'", s_.size());
      return;
    }
    result_.root = root->second;
  }

  std::string_view s_;
  std::size_t i_ = 0;
  GbnfRules result_;
  std::map<std::string, std::size_t, std::less<>> names_;
  std::vector<bool> defined_;
  std::vector<Mention> mentions_;
  std::optional<Error> error_;
  int groups_ = 0;
};

}  // namespace

Result<GbnfRules> parse_gbnf_rules(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return fail(ErrorCode::kUnsupported, concat("too large: a grammar of over ", kMaxSourceBytes, " bytes"));
  }
  if (!is_valid_utf8(source)) return fail(ErrorCode::kInvalidValue, "the grammar is not valid UTF-8");
  return GbnfParser(source).parse();
}

}  // namespace barg::text::grammar
