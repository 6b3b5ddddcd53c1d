// The published split patterns as code. Each walks the text once; the comment of a function quotes the
// alternatives it stands for, in the order in which they are tried.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "text/split.h"
#include "text/unicode.h"

namespace barg::text {

namespace patterns {
const char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen35[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kDeepSeekV3[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The published file has CR and LF themselves where others write \r and \n.
const char kDeepSeekV3Raw[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+"
    R"(|\s+(?!\S)|\s+)";
const char kDigits3[] = R"(\p{N}{1,3})";
const char kSpaceLetters[] = R"(\s?\p{L}+)";
const char kSpacePunctuation[] = R"(\s?\p{P}+)";
// tokenization_kimi.py.
const char kKimi[] =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// CR and LF themselves in the published file.
const char kSeedCoder[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const char kTrailingSpaces[] = R"(\s+$)";
// Cased letters of Unicode 11, by ranges. Some ends are singletons, which NFC would make other characters.
const char kDeepSeekLetters[] =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
    "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    "\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
    "\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
    "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
const char kDeepSeekPunctuation[] = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
}  // namespace patterns

namespace {

// End of the run of code points at i that have a bit of `any` (or, below, none of `none`).
std::size_t run_of(std::string_view s, std::size_t i, CharBits any) {
  for (;;) {
    const ClassAt c = class_at(s, i);
    if (c.bytes == 0 || !(c.bits & any)) return i;
    i += c.bytes;
  }
}

std::size_t run_without(std::string_view s, std::size_t i, CharBits none) {
  for (;;) {
    const ClassAt c = class_at(s, i);
    if (c.bytes == 0 || (c.bits & none)) return i;
    i += c.bytes;
  }
}

// 's 't 're 've 'm 'll 'd at i, bytes matched or 0. Ignoring case, U+017F is an s.
std::size_t contraction(std::string_view s, std::size_t i, bool ignore_case) {
  if (i + 1 >= s.size() || s[i] != '\'') return 0;
  const auto at = [&](std::size_t k) -> char {
    if (k >= s.size()) return 0;
    const char c = s[k];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = at(i + 1), b = at(i + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (ignore_case && s.substr(i + 1, 2) == "\xC5\xBF") return 3;
  return 0;
}

// (\s*[\r\n]+|)\s+(?!\S)|\s+ at i, which is a space; the first group only with `newlines`.
std::size_t space_run(std::string_view s, std::size_t i, bool newlines) {
  std::size_t end = i, last = i, after_newline = 0;
  for (;;) {
    const ClassAt c = class_at(s, end);
    if (!(c.bits & kSpace)) break;
    last = end;
    end += c.bytes;
    if (c.bits & kNewline) after_newline = end;
  }
  if (newlines && after_newline != 0) return after_newline;
  if (end == s.size() || last == i) return end;
  return last;  // the last space belongs to what follows
}

class Gpt2Matcher final : public Matcher {
 public:
  bool find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      matches.push_back({i, end});
      i = end;
    }
    return true;
  }

 private:
  static constexpr CharBits kWordy = kLetter | kNumber | kSpace;
  // 's|...| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static std::size_t next(std::string_view s, std::size_t i) {
    if (const std::size_t n = contraction(s, i, false)) return i + n;
    std::size_t start = i;
    ClassAt c = class_at(s, i);
    if (s[i] == ' ' && i + 1 < s.size()) c = class_at(s, ++start);
    if (c.bits & kLetter) return run_of(s, start, kLetter);
    if (c.bits & kNumber) return run_of(s, start, kNumber);
    if (!(c.bits & kSpace)) return run_without(s, start, kWordy);
    return space_run(s, i, false);
  }
};

// \p{Han} of Unicode 16.
bool is_han(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
      {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
      {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
      {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
      {0x30000, 0x3134A}, {0x31350, 0x323AF}};
  if (c < kRanges[0].first) return false;
  const auto* next = std::ranges::upper_bound(kRanges, c, {}, &std::pair<char32_t, char32_t>::first);
  return c <= (next - 1)->second;
}

std::size_t han_run(std::string_view s, std::size_t i) {
  while (i < s.size()) {
    const CodePoint c = decode_utf8(s, i);
    if (!is_han(c.value)) break;
    i += c.bytes;
  }
  return i;
}

struct WordPattern {
  bool marks_are_letters = false;  // [\p{L}\p{M}]+ for \p{L}+
  bool by_case = false;            // o200k: upper* lower+ | upper+ lower*
  bool contractions_first = false; // (?i:'s|...) as an alternative of its own
  bool contractions_after = false; // (?i:'s|...)? after a word
  int digits = 1;                  // \p{N}{1,digits}
  bool slash = false;              // [\r\n/]* after symbols
  bool line_ends = true;           // [\r\n]* after symbols
  bool han_apart = false;          // [\p{Han}]+ first, and no such character in a word
};

// Llama 3, Qwen and o200k: one frame, WordPattern says what differs.
class WordMatcher final : public Matcher {
 public:
  explicit WordMatcher(const WordPattern& p)
      : p_(p), word_(static_cast<CharBits>(p.marks_are_letters ? kLetter | kMark : kLetter)) {}

  bool find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      matches.push_back({i, end});
      i = end;
    }
    return true;
  }

 private:
  std::size_t next(std::string_view s, std::size_t i) const {
    if (p_.han_apart) {
      if (const std::size_t end = han_run(s, i); end > i) return end;
    }
    if (p_.contractions_first) {
      if (const std::size_t n = contraction(s, i, true)) return i + n;
    }
    const ClassAt c = class_at(s, i);
    const bool may_lead = !(c.bits & (kLetter | kNumber | kNewline));  // [^\r\n\p{L}\p{N}]?
    if (const std::size_t end = p_.by_case ? cased_word(s, i, c, may_lead) : plain_word(s, i, c, may_lead)) {
      return end;
    }
    if (c.bits & kNumber) return numbers(s, i);
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    const CharBits no_symbol = kSpace | kNumber | word_;
    const std::size_t start = s[i] == ' ' ? i + 1 : i;
    const std::size_t end = run_without(s, start, no_symbol);
    if (end > start) return line_ends(s, end);
    return space_run(s, i, true);
  }

  std::size_t plain_word(std::string_view s, std::size_t i, ClassAt c, bool may_lead) const {
    if (c.bits & word_) return run_of(s, i, word_);
    if (!may_lead) return 0;
    const std::size_t end = run_of(s, i + c.bytes, word_);
    return end > i + c.bytes ? end : 0;
  }

  // Both alternatives try the leading character first and do without it on failure; only a mark can be either.
  std::size_t cased_word(std::string_view s, std::size_t i, ClassAt c, bool may_lead) const {
    std::size_t end = may_lead ? upper_lower(s, i + c.bytes) : 0;
    if (end == 0) end = upper_lower(s, i);
    if (end == 0 && may_lead) end = upper_only(s, i + c.bytes);
    if (end == 0) end = upper_only(s, i);
    if (end == 0) return 0;
    return p_.contractions_after ? end + contraction(s, end, true) : end;
  }

  // upper*lower+: if no lower-case letter follows the run, its last case-less one serves as it.
  std::size_t upper_lower(std::string_view s, std::size_t i) const {
    std::size_t end = i, after_caseless = 0;
    for (;;) {
      const ClassAt c = cased_at(s, end);
      if (!(c.bits & kUpper)) break;
      end += c.bytes;
      if (c.bits & kLower) after_caseless = end;
    }
    const std::size_t lower_end = cased_run(s, end, kLower);
    return lower_end > end ? lower_end : after_caseless;
  }

  // upper+lower* once upper*lower+ has failed: there is no lower-case letter to take.
  std::size_t upper_only(std::string_view s, std::size_t i) const {
    const std::size_t end = cased_run(s, i, kUpper);
    return end > i ? end : 0;
  }

  ClassAt cased_at(std::string_view s, std::size_t i) const {
    const ClassAt c = class_at(s, i);
    const bool han = p_.han_apart && (c.bits & kUpper) && is_han(decode_utf8(s, i).value);
    return han ? ClassAt{0, c.bytes} : c;
  }

  std::size_t cased_run(std::string_view s, std::size_t i, CharBits bits) const {
    for (;;) {
      const ClassAt c = cased_at(s, i);
      if (!(c.bits & bits)) return i;
      i += c.bytes;
    }
  }

  std::size_t numbers(std::string_view s, std::size_t i) const {
    for (int k = 0; k < p_.digits; ++k) {
      const ClassAt c = class_at(s, i);
      if (!(c.bits & kNumber)) break;
      i += c.bytes;
    }
    return i;
  }

  std::size_t line_ends(std::string_view s, std::size_t i) const {
    while (p_.line_ends && i < s.size() && (s[i] == '\r' || s[i] == '\n' || (p_.slash && s[i] == '/'))) ++i;
    return i;
  }

  WordPattern p_;
  CharBits word_;
};

// The third pattern of DeepSeek V3, which matches neither numbers (cut out before) nor control characters.
class DeepSeekMatcher final : public Matcher {
 public:
  bool find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      if (end > i) matches.push_back({i, end});
      i = end > i ? end : i + class_at(s, i).bytes;
    }
    return true;
  }

 private:
  static constexpr CharBits kWord = kLetter | kMark;
  static constexpr CharBits kSign = kPunctuation | kSymbol;

  static std::size_t next(std::string_view s, std::size_t i) {
    const ClassAt c = class_at(s, i);
    const std::size_t after = i + c.bytes;
    // [!"#...~][A-Za-z]+
    if (c.bytes == 1 && (c.bits & kSign)) {
      std::size_t end = after;
      while (end < s.size() && ((s[end] >= 'a' && s[end] <= 'z') || (s[end] >= 'A' && s[end] <= 'Z'))) ++end;
      if (end > after) return end;
    }
    // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
    if (c.bits & kWord) return run_of(s, i, kWord);
    if (!(c.bits & (kNewline | kSign))) {
      const std::size_t end = run_of(s, after, kWord);
      if (end > after) return end;
    }
    // ` ?[\p{P}\p{S}]+[\r\n]*`
    const std::size_t start = s[i] == ' ' ? after : i;
    std::size_t end = run_of(s, start, kSign);
    if (end > start) {
      while (end < s.size() && (s[end] == '\r' || s[end] == '\n')) ++end;
      return end;
    }
    return c.bits & kSpace ? space_run(s, i, true) : i;
  }
};

// \s?X+ for a class X, and X{1,limit}.
class RunMatcher final : public Matcher {
 public:
  RunMatcher(CharBits bits, bool space, std::size_t limit) : bits_(bits), space_(space), limit_(limit) {}
  bool find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const ClassAt c = class_at(s, i);
      const std::size_t start = space_ && (c.bits & kSpace) ? i + c.bytes : i;
      std::size_t end = start;
      for (std::size_t k = 0; k < limit_; ++k) {
        const ClassAt x = class_at(s, end);
        if (!(x.bits & bits_)) break;
        end += x.bytes;
      }
      if (end > start) matches.push_back({i, end});
      i = end > start ? end : i + c.bytes;
    }
    return true;
  }

 private:
  CharBits bits_;
  bool space_;
  std::size_t limit_;
};

// \s+$ at a line's end or the text's, in one walk: of a run of spaces, what comes before its last LF, or all of the last.
class TrailingSpacesMatcher final : public Matcher {
 public:
  bool find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      ClassAt c = class_at(s, i);
      const std::size_t begin = i;
      std::size_t line_end = begin;
      for (; c.bits & kSpace; c = class_at(s, i)) {
        if (s[i] == '\n') line_end = i;
        i += c.bytes;
      }
      if (i == begin) {
        i += c.bytes;
      } else if (i == s.size() || line_end > begin) {
        matches.push_back({begin, i == s.size() ? i : line_end});
      }
    }
    return true;
  }
};

struct Known {
  const char* pattern;
  WordPattern word;
};

const std::array<Known, 7> kKnown = {{
    {patterns::kLlama3, {.contractions_first = true, .digits = 3}},
    {patterns::kQwen2, {.contractions_first = true}},
    {patterns::kQwen35, {.marks_are_letters = true, .contractions_first = true}},
    {patterns::kO200k, {.by_case = true, .contractions_after = true, .digits = 3, .slash = true}},
    {patterns::kTekken, {.by_case = true, .slash = true}},
    {patterns::kSeedCoder, {.contractions_first = true, .line_ends = false}},
    {patterns::kKimi, {.by_case = true, .contractions_after = true, .digits = 3, .han_apart = true}},
}};

}  // namespace

std::unique_ptr<Matcher> known_matcher(std::string_view pattern) {
  constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
  if (pattern == patterns::kGpt2) return std::make_unique<Gpt2Matcher>();
  if (pattern == patterns::kDeepSeekV3 || pattern == patterns::kDeepSeekV3Raw) return std::make_unique<DeepSeekMatcher>();
  if (pattern == patterns::kTrailingSpaces) return std::make_unique<TrailingSpacesMatcher>();
  if (pattern == patterns::kDigits3) return std::make_unique<RunMatcher>(kNumber, false, 3);
  if (pattern == patterns::kSpaceLetters) return std::make_unique<RunMatcher>(kLetter, true, kNoLimit);
  if (pattern == patterns::kSpacePunctuation) return std::make_unique<RunMatcher>(kPunctuation, true, kNoLimit);
  for (const Known& k : kKnown) {
    if (pattern == k.pattern) return std::make_unique<WordMatcher>(k.word);
  }
  return nullptr;
}

}  // namespace barg::text
