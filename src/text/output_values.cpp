#include "text/output_values.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"

namespace barg::text {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Digits at `at`, at least one; moves behind them.
bool skip_digits(std::string_view s, std::size_t& at) {
  const std::size_t begin = at;
  while (at < s.size() && is_digit(s[at])) ++at;
  return at > begin;
}

bool is_json_number(std::string_view s) {
  std::size_t at = s.starts_with('-') ? 1 : 0;
  const bool zero = at < s.size() && s[at] == '0';
  const std::size_t begin = at;
  if (!skip_digits(s, at) || (zero && at > begin + 1)) return false;
  if (at < s.size() && s[at] == '.') {
    ++at;
    if (!skip_digits(s, at)) return false;
  }
  if (at < s.size() && (s[at] == 'e' || s[at] == 'E')) {
    ++at;
    if (at < s.size() && (s[at] == '+' || s[at] == '-')) ++at;
    if (!skip_digits(s, at)) return false;
  }
  return at == s.size();
}

/// Python's ways with numbers: 1_000, +1, .5, 5.
std::string python_number(std::string_view word) {
  std::string s(word);
  std::erase(s, '_');
  if (s.starts_with('+')) s.erase(0, 1);
  const std::size_t sign = s.starts_with('-') ? 1 : 0;
  if (s.size() > sign && s[sign] == '.') s.insert(sign, "0");
  const std::size_t point = s.find('.');
  if (point != s.npos && (point + 1 == s.size() || !is_digit(s[point + 1]))) s.insert(point + 1, "0");
  return s;
}

/// A number that no integer or double of ours can hold is kept, digit by digit, as a string.
std::string held_number(std::string number) {
  const bool small = number.size() <= 15 && number.find_first_of("eE") == number.npos;
  return small || parse_json(number) ? number : json_quote(number);
}

bool is_word_byte(Symbol s) {
  return s < 128 && (std::isalnum(static_cast<int>(s)) != 0 || s == '_' || s == '-' || s == '+' || s == '.');
}

/// Of a key without quotes: also what parameters are called elsewhere.
bool is_key_byte(Symbol s) { return !is_token(s) && (is_word_byte(s) || s >= 128 || s == '$' || s == '/' || s == '@'); }

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::optional<std::string> word_as_json(std::string_view word, Lexis lexis) {
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  if (is_json_number(word)) return held_number(std::string(word));
  if (lexis == Lexis::kJson) return std::nullopt;
  if (std::string number = python_number(word); is_json_number(number)) return held_number(std::move(number));
  if (lexis == Lexis::kGemma) return json_quote(word);
  return std::nullopt;
}

void append_json_byte(std::string& out, char c) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    out += c;
    return;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[static_cast<unsigned char>(c) >> 4U];
  out += kHex[static_cast<unsigned char>(c) & 15U];
}

void ValueReader::begin(Lexis lexis, Top top) {
  lexis_ = lexis;
  top_ = top;
  stack_.clear();
  pending_.clear();
  word_.clear();
  escape_.clear();
  high_ = 0;
  state_ = State::kValue;
  if (top == Top::kKeywords) {
    stack_.push_back({.closer = ')', .emits = '}', .keys = true});
    pending_ = "{";
    state_ = State::kKeyOrEnd;
  }
}

ValueReader::Status ValueReader::push(Symbol s, std::string& out) {
  if (state_ == State::kString) return string_symbol(s, out);
  if (state_ == State::kWord) {
    if (is_word_byte(s)) return word_symbol(s);
    if (!end_word(out)) return Status::kBad;
    if (stack_.empty()) return Status::kBefore;
  } else if (state_ == State::kBareKey) {
    if (is_key_byte(s)) return word_symbol(s);
    state_ = State::kColon;
    gap_.clear();
  }
  return structure(s, out);
}

ValueReader::Status ValueReader::word_symbol(Symbol s) {
  if (word_.size() == kMaxWord) return Status::kBad;
  word_ += static_cast<char>(s);
  return Status::kMore;
}

std::string ValueReader::undecided() const {
  switch (state_) {
    case State::kWord:
    case State::kBareKey: return word_;
    case State::kColon: return word_.empty() ? std::string() : word_ + gap_;
    case State::kString: break;
    default: return {};
  }
  if (!escape_.empty()) return escape_;
  if (quotes_ > 0) return std::string(static_cast<std::size_t>(quotes_), static_cast<char>(delimiter_));
  std::string out;
  for (std::size_t i = 0; !at_start_ && i < delimiter_at_; ++i) dialect_->append(out, dialect_->quote()[i]);
  return out;
}

ValueReader::Status ValueReader::structure(Symbol s, std::string& out) {
  if (is_space(s)) {
    const bool kept = lexis_ == Lexis::kJson && !stack_.empty() && pending_.size() < kMaxWord;
    if (kept) (pending_.empty() ? out : pending_) += static_cast<char>(s);
    if (state_ == State::kColon && gap_.size() < kMaxWord) gap_ += static_cast<char>(s);
    return Status::kMore;
  }
  if (is_token(s) && !starts_string(s)) return Status::kBad;
  switch (state_) {
    case State::kValueOrEnd:
      if (closes(s)) return close_frame(out);
      return open_value(s, out);
    case State::kValue: return open_value(s, out);
    case State::kKeyOrEnd:
      if (closes(s)) return close_frame(out);
      return open_key(s, out);
    case State::kKey: return open_key(s, out);
    case State::kColon:
      if (s != (stack_.back().closer == ')' ? '=' : ':')) return Status::kBad;
      if (!word_.empty()) {
        settle_pending(out);
        out += json_quote(std::exchange(word_, {}));
      }
      out += lexis_ == Lexis::kJson ? ":" : ": ";
      state_ = State::kValue;
      return Status::kMore;
    case State::kNext:
      if (closes(s)) return close_frame(out);
      if (s != ',') return Status::kBad;
      pending_ = lexis_ == Lexis::kJson ? "," : ", ";
      state_ = stack_.back().keys ? State::kKeyOrEnd : State::kValueOrEnd;
      return Status::kMore;
    default: return Status::kBad;
  }
}

void ValueReader::settle_pending(std::string& out) {
  out += pending_;
  pending_.clear();
}

bool ValueReader::starts_string(Symbol s) const {
  if (s == '"') return true;
  if (s == '\'') return lexis_ == Lexis::kPython;
  return lexis_ == Lexis::kGemma && !dialect_->quote().empty() && same(s, dialect_->quote()[0]);
}

ValueReader::Status ValueReader::open_value(Symbol s, std::string& out) {
  if (top_ == Top::kObject && stack_.empty() && s != '{') return Status::kBad;
  if (s == '{') return open_frame({.closer = '}', .emits = '}', .keys = true}, '{', out);
  if (s == '[') return open_frame({.closer = ']', .emits = ']', .keys = false}, '[', out);
  if (s == '(' && lexis_ == Lexis::kPython) return open_frame({.closer = ')', .emits = ']', .keys = false}, '[', out);
  if (starts_string(s)) return begin_string(s, false, out);
  if (!is_word_byte(s)) return Status::kBad;
  settle_pending(out);
  word_.assign(1, static_cast<char>(s));
  state_ = State::kWord;
  return Status::kMore;
}

ValueReader::Status ValueReader::open_key(Symbol s, std::string& out) {
  const bool keyword = stack_.back().closer == ')';
  if (!keyword && starts_string(s)) return begin_string(s, true, out);
  // A dictionary of Python may have numbers for keys.
  if (lexis_ == Lexis::kJson || !is_key_byte(s)) return Status::kBad;
  word_.assign(1, static_cast<char>(s));
  state_ = State::kBareKey;
  return Status::kMore;
}

ValueReader::Status ValueReader::open_frame(Frame frame, char emits, std::string& out) {
  if (stack_.size() >= kMaxDepth) return Status::kBad;
  settle_pending(out);
  out += emits;
  stack_.push_back(frame);
  state_ = frame.keys ? State::kKeyOrEnd : State::kValueOrEnd;
  return Status::kMore;
}

ValueReader::Status ValueReader::close_frame(std::string& out) {
  if (pending_ == "{") out += '{';
  pending_.clear();  // a trailing comma
  out += stack_.back().emits;
  stack_.pop_back();
  return value_done();
}

ValueReader::Status ValueReader::value_done() {
  state_ = State::kNext;
  return stack_.empty() ? Status::kDone : Status::kMore;
}

bool ValueReader::end_word(std::string& out) {
  const auto json = word_as_json(word_, lexis_);
  if (!json) return false;
  word_.clear();
  out += *json;
  state_ = State::kNext;
  return true;
}

ValueReader::Status ValueReader::begin_string(Symbol s, bool key, std::string& out) {
  settle_pending(out);
  out += '"';
  is_key_ = key;
  escape_.clear();
  high_ = 0;
  triple_ = false;
  quotes_ = 0;
  at_start_ = lexis_ == Lexis::kPython;
  delimiter_ = s == '"' || s == '\'' ? s : 0;
  state_ = State::kString;
  delimiter_at_ = 0;
  if (delimiter_ == 0 && dialect_->quote().size() > 1) {
    // The rest of the quote must follow; until then this is not yet content.
    delimiter_at_ = 1;
    at_start_ = true;
  }
  return Status::kMore;
}

ValueReader::Status ValueReader::end_string(std::string& out) {
  settle_surrogate(out);
  out += '"';
  if (!is_key_) return value_done();
  state_ = State::kColon;
  return Status::kMore;
}

ValueReader::Status ValueReader::string_symbol(Symbol s, std::string& out) {
  if (delimiter_ == 0) return gemma_symbol(s, out);
  if (!escape_.empty()) return escape_symbol(s, out);
  Status status = Status::kMore;
  if (lexis_ == Lexis::kPython && quote_symbol(s, out, status)) return status;
  if (lexis_ != Lexis::kPython && s == delimiter_) return end_string(out);
  return plain_symbol(s, out);
}

/// Python's quotes: '' is an empty string unless a third follows. True: the symbol is dealt with.
bool ValueReader::quote_symbol(Symbol s, std::string& out, Status& status) {
  if (at_start_) {
    if (s == delimiter_ && quotes_ == 0) {
      quotes_ = 1;
      return true;
    }
    at_start_ = false;
    if (quotes_ == 1) {
      quotes_ = 0;
      triple_ = s == delimiter_;
      if (triple_) return true;
      status = end_string(out);
      if (status == Status::kDone) {
        status = Status::kBefore;
      } else {
        status = structure(s, out);
      }
      return true;
    }
  }
  if (s != delimiter_) {
    for (; quotes_ > 0; --quotes_) append_json_byte(out, static_cast<char>(delimiter_));
    return false;
  }
  if (triple_ && ++quotes_ < 3) return true;
  status = end_string(out);
  return true;
}

/// Between <|"|> stands anything, as it is.
ValueReader::Status ValueReader::gemma_symbol(Symbol s, std::string& out) {
  const Literal& quote = dialect_->quote();
  if (at_start_) {  // still inside the opening quote
    if (!same(s, quote[delimiter_at_])) return Status::kBad;
    if (++delimiter_at_ == quote.size()) {
      at_start_ = false;
      delimiter_at_ = 0;
    }
    return Status::kMore;
  }
  if (same(s, quote[delimiter_at_])) {
    if (++delimiter_at_ < quote.size()) return Status::kMore;
    delimiter_at_ = 0;
    return end_string(out);
  }
  if (delimiter_at_ > 0) {
    std::string text;
    for (std::size_t i = 0; i < delimiter_at_; ++i) dialect_->append(text, quote[i]);
    for (const char c : text) append_json_byte(out, c);
    delimiter_at_ = 0;
    return gemma_symbol(s, out);  // once: nothing is matched now
  }
  if (s == '\\') {
    out += "\\\\";
    return Status::kMore;
  }
  return plain_symbol(s, out);
}

ValueReader::Status ValueReader::plain_symbol(Symbol s, std::string& out) {
  if (s == '\\') {
    escape_ = "\\";
    return Status::kMore;
  }
  settle_surrogate(out);
  if (!is_token(s)) {
    append_json_byte(out, static_cast<char>(s));
    return Status::kMore;
  }
  std::string text;
  dialect_->append(text, s);
  for (const char c : text) append_json_byte(out, c);
  return Status::kMore;
}

bool ValueReader::simple_escape(char c, std::string& out) {
  switch (c) {
    case 'n': case 't': case 'r': case 'b': case 'f':
      out += '\\';
      out += c;
      return true;
    case '"': case '\\': append_json_byte(out, c); return true;
    case '\'': case '/': out += c; return true;
    case 'a': case 'v': case '0':
      if (lexis_ != Lexis::kPython) return false;
      append_json_byte(out, c == 'a' ? '\a' : c == 'v' ? '\v' : '\0');
      return true;
    case '\n': return lexis_ == Lexis::kPython;  // the line goes on
    default: return false;
  }
}

ValueReader::Status ValueReader::escape_symbol(Symbol s, std::string& out) {
  const char c = is_token(s) ? '\0' : static_cast<char>(s);
  if (escape_.size() == 1) {
    const bool coded = !is_token(s) && (c == 'u' || (lexis_ == Lexis::kPython && (c == 'x' || c == 'U')));
    if (coded) {
      escape_ += c;
      return Status::kMore;
    }
    escape_.clear();
    settle_surrogate(out);
    if (!is_token(s) && simple_escape(c, out)) return Status::kMore;
    out += "\\\\";  // unknown: the backslash was meant
    return plain_symbol(s, out);
  }
  if (!is_token(s) && std::isxdigit(static_cast<unsigned char>(c)) != 0) {
    escape_ += c;
    const std::size_t digits = escape_[1] == 'x' ? 2 : escape_[1] == 'u' ? 4 : 8;
    if (escape_.size() < 2 + digits) return Status::kMore;
    const auto cp = static_cast<char32_t>(std::stoul(escape_.substr(2), nullptr, 16));
    escape_.clear();
    code_point(cp, out);
    return Status::kMore;
  }
  settle_surrogate(out);
  out += "\\\\" + escape_.substr(1);
  escape_.clear();
  return string_symbol(s, out);  // once: no escape is open now
}

void ValueReader::code_point(char32_t cp, std::string& out) {
  if (high_ != 0 && cp >= 0xDC00 && cp <= 0xDFFF) {
    append_utf8(out, 0x10000 + ((std::exchange(high_, 0) - 0xD800) << 10U) + (cp - 0xDC00));
    return;
  }
  settle_surrogate(out);
  if (cp >= 0xD800 && cp <= 0xDBFF) {
    high_ = cp;
  } else if (cp < 0x80) {
    append_json_byte(out, static_cast<char>(cp));
  } else if ((cp >= 0xDC00 && cp <= 0xDFFF) || cp > 0x10FFFF) {
    out += kReplacement;
  } else {
    append_utf8(out, cp);
  }
}

void ValueReader::settle_surrogate(std::string& out) {
  if (std::exchange(high_, 0) != 0) out += kReplacement;
}

std::optional<std::string> value_as_json(const BoundDialectImpl& dialect, std::string_view text, Lexis lexis,
                                         ValueReader::Top top) {
  ValueReader reader(dialect);
  reader.begin(lexis, top);
  std::string out;
  ValueReader::Status status = ValueReader::Status::kMore;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const Symbol s = i < text.size() ? byte_symbol(text[i]) : byte_symbol('\n');  // what ends a number
    if (status == ValueReader::Status::kMore) {
      status = reader.push(s, out);
      if (status == ValueReader::Status::kBad) return std::nullopt;
      if (status == ValueReader::Status::kMore || status == ValueReader::Status::kDone) continue;
    }
    if (!is_space(s)) return std::nullopt;
  }
  if (status == ValueReader::Status::kMore) return std::nullopt;
  return out;
}

}  // namespace barg::text
