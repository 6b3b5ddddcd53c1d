#include "text/jinja/lexer.h"

#include <array>
#include <charconv>

#include "base/utf8.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace barg::text::jinja {

namespace {

bool word_char(std::string_view s, std::size_t& i) {
  std::size_t next = i;
  const char32_t c = decode(s, next);
  if (c != '_' && !is_alnum(c)) return false;
  i = next;
  return true;
}

bool digit(char c) { return c >= '0' && c <= '9'; }

// Newlines become "\n", and one at the very end is dropped.
std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(normalised(source)) {}

  std::vector<Token> run() {
    while (pos_ < s_.size()) root();
    push(Tok::kEof, "");
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view text, std::size_t pos) const { return s_.compare(pos, text.size(), text) == 0; }
  bool at(std::string_view text) const { return at(text, pos_); }

  Token& push(Tok type, std::string text) {
    Token& t = tokens_.emplace_back();
    t.type = type;
    t.line = line_;
    t.text = std::move(text);
    return t;
  }

  void advance(std::size_t to) {
    for (; pos_ < to; ++pos_) line_ += s_[pos_] == '\n';
    line_starting_ = to > 0 && s_[to - 1] == '\n';
  }

  std::size_t skip_space(std::size_t i) const {
    while (i < s_.size()) {
      std::size_t next = i;
      if (!is_space(decode(s_, next))) break;
      i = next;
    }
    return i;
  }

  bool all_space(std::size_t begin, std::size_t end) const { return begin < end && skip_space(begin) >= end; }

  std::size_t rskip_space(std::size_t begin, std::size_t end) const {
    while (end > begin) {
      std::size_t i = end - 1;
      while (i > begin && (static_cast<unsigned char>(s_[i]) & 0xC0) == 0x80) --i;
      std::size_t next = i;
      if (!is_space(decode(s_, next))) break;
      end = i;
    }
    return end;
  }

  // Emits the text up to `tag`, stripped as the sign behind the tag's opening says.
  void data(std::size_t tag, char sign, bool is_variable) {
    std::size_t end = tag;
    if (sign == '-') {
      end = rskip_space(pos_, tag);
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = tag == pos_ ? s_.npos : s_.rfind('\n', tag - 1);
      const bool in_text = newline != s_.npos && newline >= pos_;
      const std::size_t line = in_text ? newline + 1 : pos_;
      if ((in_text || line_starting_) && all_space(line, tag)) end = line;
    }
    if (end > pos_) push(Tok::kData, s_.substr(pos_, end - pos_));
  }

  char sign_at(std::size_t i) const { return i < s_.size() && (s_[i] == '-' || s_[i] == '+') ? s_[i] : '\0'; }

  // End of a raw block's opening `{% raw %}` at `tag`, or npos if it is another tag.
  std::size_t raw_begin_end(std::size_t tag) const {
    std::size_t i = tag + 2;
    if (sign_at(i) != '\0') ++i;
    i = skip_space(i);
    if (!at("raw", i)) return s_.npos;
    i = skip_space(i + 3);
    if (at("-%}", i)) return skip_space(i + 3);
    return at("%}", i) ? i + 2 : s_.npos;
  }

  void root() {
    std::size_t tag = pos_;
    while (tag < s_.size() && !(s_[tag] == '{' && tag + 1 < s_.size() &&
                                (s_[tag + 1] == '%' || s_[tag + 1] == '{' || s_[tag + 1] == '#'))) {
      ++tag;
    }
    if (tag == s_.size()) {
      push(Tok::kData, s_.substr(pos_));
      pos_ = tag;
      return;
    }
    const char kind = s_[tag + 1];
    const char sign = sign_at(tag + 2);
    data(tag, sign, kind == '{');
    const std::size_t raw = kind == '%' ? raw_begin_end(tag) : s_.npos;
    if (raw != s_.npos) {
      advance(raw);
      raw_block();
      return;
    }
    advance(tag + 2 + (sign != '\0'));
    if (kind == '#') {
      comment();
    } else {
      push(kind == '{' ? Tok::kVariableBegin : Tok::kBlockBegin, "");
      inside(kind == '{');
    }
  }

  // `close` is "%}" or "#}" at i, with its sign before it: returns the end including what it swallows, or
  // npos.
  std::size_t close_end(std::string_view close, std::size_t i) const {
    if (i < s_.size() && s_[i] == '+' && at(close, i + 1)) return i + 3;
    if (i < s_.size() && s_[i] == '-' && at(close, i + 1)) return skip_space(i + 3);
    if (!at(close, i)) return s_.npos;
    return i + 2 < s_.size() && s_[i + 2] == '\n' ? i + 3 : i + 2;
  }

  void comment() {
    for (std::size_t i = pos_; i < s_.size(); ++i) {
      const std::size_t end = close_end("#}", i);
      if (end != s_.npos) {
        advance(end);
        return;
      }
    }
    // Jinja2 forgives an opening at the very end.
    if (pos_ < s_.size()) syntax_error(line_, "Missing end of comment tag");
  }

  void raw_block() {
    for (std::size_t tag = s_.find("{%", pos_); tag != s_.npos; tag = s_.find("{%", tag + 1)) {
      std::size_t i = tag + 2;
      const char sign = sign_at(i);
      i = skip_space(i + (sign != '\0'));
      if (!at("endraw", i)) continue;
      const std::size_t end = close_end("%}", skip_space(i + 6));
      if (end == s_.npos) continue;
      data(tag, sign, false);
      advance(end);
      return;
    }
    if (pos_ < s_.size()) syntax_error(line_, "Missing end of raw directive");
  }

  void inside(bool variable) {
    std::vector<char> open;
    while (pos_ < s_.size()) {
      if (open.empty()) {
        std::size_t end = s_.npos;
        if (!variable) {
          end = close_end("%}", pos_);
        } else if (at("-}}")) {
          end = skip_space(pos_ + 3);
        } else if (at("}}")) {
          end = pos_ + 2;
        }
        if (end != s_.npos) {
          push(variable ? Tok::kVariableEnd : Tok::kBlockEnd, "");
          advance(end);
          return;
        }
      }
      const std::size_t space = skip_space(pos_);
      if (space != pos_) {
        advance(space);
      } else if (!number() && !name() && !string()) {
        operators(open);
      }
    }
  }

  // (\d+_)*\d+ at i; npos if none.
  std::size_t digits_end(std::size_t i) const {
    if (i >= s_.size() || !digit(s_[i])) return s_.npos;
    while (i < s_.size() && (digit(s_[i]) || (s_[i] == '_' && i + 1 < s_.size() && digit(s_[i + 1])))) ++i;
    return i;
  }

  std::size_t exponent_end(std::size_t i) const {
    if (i >= s_.size() || (s_[i] != 'e' && s_[i] != 'E')) return s_.npos;
    if (i + 1 < s_.size() && (s_[i + 1] == '+' || s_[i + 1] == '-')) ++i;
    return digits_end(i + 1);
  }

  std::size_t float_end() const {
    if (pos_ > 0 && s_[pos_ - 1] == '.') return s_.npos;
    const std::size_t whole = digits_end(pos_);
    if (whole == s_.npos) return s_.npos;
    std::size_t fraction = whole < s_.size() && s_[whole] == '.' ? digits_end(whole + 1) : s_.npos;
    const std::size_t exponent = exponent_end(fraction == s_.npos ? whole : fraction);
    return exponent != s_.npos ? exponent : fraction;
  }

  bool number() {
    if (!digit(s_[pos_])) return false;
    if (const std::size_t end = float_end(); end != s_.npos) {
      std::string text;
      for (std::size_t i = pos_; i < end; ++i) {
        if (s_[i] != '_') text += s_[i];
      }
      double d = 0;
      const auto r = std::from_chars(text.data(), text.data() + text.size(), d);
      // Python reads 1e999 as inf; nothing sensible uses it.
      if (r.ec != std::errc()) syntax_error(line_, "number out of range");
      push(Tok::kFloat, "").real = d;
      advance(end);
      return true;
    }
    integer();
    return true;
  }

  void integer() {
    int base = 10;
    std::size_t i = pos_;
    if (s_[i] == '0' && i + 1 < s_.size()) {
      const char prefix = static_cast<char>(s_[i + 1] | 0x20);
      const int wanted = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
      const std::size_t first = i + 2 + (i + 2 < s_.size() && s_[i + 2] == '_');
      if (wanted != 0 && first < s_.size() && value_of(s_[first]) < wanted) {
        base = wanted;
        i += 2;
      }
    }
    const bool zeros = base == 10 && s_[i] == '0';
    Int value = 0;
    for (; i < s_.size(); ++i) {
      const bool gap = s_[i] == '_' && i + 1 < s_.size() && value_of(s_[i + 1]) < (zeros ? 1 : base);
      if (gap) continue;
      const int d = value_of(s_[i]);
      if (d >= (zeros ? 1 : base)) break;
      if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Int>(d), &value)) {
        syntax_error(line_, "integer too large");
      }
    }
    push(Tok::kInteger, "").integer = value;
    advance(i);
  }

  static int value_of(char c) {
    if (digit(c)) return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
  }

  bool name() {
    std::size_t end = pos_;
    while (end < s_.size() && word_char(s_, end)) {
    }
    if (end == pos_) return false;
    push(Tok::kName, s_.substr(pos_, end - pos_));
    advance(end);
    return true;
  }

  bool string() {
    const char quote = s_[pos_];
    if (quote != '\'' && quote != '"') return false;
    std::size_t i = pos_ + 1;
    while (i < s_.size() && s_[i] != quote) i += s_[i] == '\\' ? 2 : 1;
    if (i >= s_.size()) return false;
    const std::string raw = s_.substr(pos_ + 1, i - pos_ - 1);
    push(Tok::kString, unescape(raw));
    advance(i + 1);
    return true;
  }

  std::string unescape(const std::string& raw) const;

  void operators(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string op;
    for (std::string_view candidate : kLong) {
      if (at(candidate)) op = candidate;
    }
    if (op.empty() && kShort.find(s_[pos_]) != kShort.npos) op = s_[pos_];
    if (op.empty()) syntax_error(line_, "unexpected character in a tag");
    const char c = op[0];
    if (c == '{' || c == '(' || c == '[') {
      open.push_back(c == '{' ? '}' : c == '(' ? ')' : ']');
    } else if (c == '}' || c == ')' || c == ']') {
      if (open.empty()) syntax_error(line_, "unexpected '" + op + "'");
      if (open.back() != c) syntax_error(line_, "unexpected '" + op + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    const std::size_t size = op.size();
    push(Tok::kOperator, std::move(op));
    advance(pos_ + size);
  }

  std::string s_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

// Jinja2 decodes literals as .encode("ascii", "backslashreplace").decode("unicode-escape"), so a backslash
// before a non-ASCII letter escapes the backslash of that letter's own escape.
std::string ascii_backslashed(const std::string& raw) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < raw.size();) {
    const char32_t c = decode(raw, i);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
    for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
  }
  return out;
}

std::string Lexer::unescape(const std::string& raw) const {
  if (raw.find('\\') == raw.npos) return raw;
  const std::string s = ascii_backslashed(raw);
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    const char c = s[i++];
    if (c != '\\') {
      out += c;
      continue;
    }
    if (i == s.size()) syntax_error(line_, "\\ at end of string");
    const char e = s[i++];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t k = kFrom.find(e); k != kFrom.npos) {
      out += kTo[k];
    } else if (e == '\n') {
      continue;
    } else if (e >= '0' && e <= '7') {
      char32_t v = static_cast<char32_t>(e - '0');
      for (int n = 0; n < 2 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n)
        v = v * 8 + static_cast<char32_t>(s[i++] - '0');
      append_utf8(out, v);
    } else if (e == 'x' || e == 'u' || e == 'U') {
      const int digits = e == 'x' ? 2 : e == 'u' ? 4 : 8;
      std::uint32_t v = 0;
      for (int n = 0; n < digits; ++n, ++i) {
        if (i >= s.size() || value_of(s[i]) > 15) syntax_error(line_, "truncated escape in a string");
        v = v * 16 + static_cast<std::uint32_t>(value_of(s[i]));
      }
      if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) syntax_error(line_, "illegal code point in a string");
      append_utf8(out, v);
    } else if (e == 'N') {
      syntax_error(line_, "\\N{...} escapes are not supported");
    } else {
      out += '\\';
      out += e;
    }
  }
  return out;
}

}  // namespace

void syntax_error(int line, const std::string& message) {
  raise(RenderError::Type::kTemplate, "line " + std::to_string(line) + ": " + message);
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace barg::text::jinja
