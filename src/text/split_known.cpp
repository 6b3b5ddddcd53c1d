// The published split patterns as code. Each walks the text once; the comment of a function quotes the
// alternatives it stands for, in the order in which they are tried.
#include <array>
#include <memory>

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
  void find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      matches.push_back({i, end});
      i = end;
    }
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

struct WordPattern {
  bool marks_are_letters = false;  // [\p{L}\p{M}]+ for \p{L}+
  bool by_case = false;            // o200k: upper* lower+ | upper+ lower*
  bool contractions_first = false; // (?i:'s|...) as an alternative of its own
  bool contractions_after = false; // (?i:'s|...)? after a word
  int digits = 1;                  // \p{N}{1,digits}
  bool slash = false;              // [\r\n/]* after symbols
};

// Llama 3, Qwen and o200k: one frame, WordPattern says what differs.
class WordMatcher final : public Matcher {
 public:
  explicit WordMatcher(const WordPattern& p)
      : p_(p), word_(static_cast<CharBits>(p.marks_are_letters ? kLetter | kMark : kLetter)) {}

  void find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      matches.push_back({i, end});
      i = end;
    }
  }

 private:
  std::size_t next(std::string_view s, std::size_t i) const {
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
  static std::size_t upper_lower(std::string_view s, std::size_t i) {
    std::size_t end = i, after_caseless = 0;
    for (;;) {
      const ClassAt c = class_at(s, end);
      if (!(c.bits & kUpper)) break;
      end += c.bytes;
      if (c.bits & kLower) after_caseless = end;
    }
    const std::size_t lower_end = run_of(s, end, kLower);
    return lower_end > end ? lower_end : after_caseless;
  }

  // upper+lower* once upper*lower+ has failed: there is no lower-case letter to take.
  static std::size_t upper_only(std::string_view s, std::size_t i) {
    const std::size_t end = run_of(s, i, kUpper);
    return end > i ? end : 0;
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
    while (i < s.size() && (s[i] == '\r' || s[i] == '\n' || (p_.slash && s[i] == '/'))) ++i;
    return i;
  }

  WordPattern p_;
  CharBits word_;
};

// The third pattern of DeepSeek V3, which matches neither numbers (cut out before) nor control characters.
class DeepSeekMatcher final : public Matcher {
 public:
  void find_all(std::string_view s, std::vector<Span>& matches) const override {
    for (std::size_t i = 0; i < s.size();) {
      const std::size_t end = next(s, i);
      if (end > i) matches.push_back({i, end});
      i = end > i ? end : i + class_at(s, i).bytes;
    }
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
  void find_all(std::string_view s, std::vector<Span>& matches) const override {
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
  }

 private:
  CharBits bits_;
  bool space_;
  std::size_t limit_;
};

struct Known {
  const char* pattern;
  WordPattern word;
};

const std::array<Known, 5> kKnown = {{
    {patterns::kLlama3, {.contractions_first = true, .digits = 3}},
    {patterns::kQwen2, {.contractions_first = true}},
    {patterns::kQwen35, {.marks_are_letters = true, .contractions_first = true}},
    {patterns::kO200k, {.by_case = true, .contractions_after = true, .digits = 3, .slash = true}},
    {patterns::kTekken, {.by_case = true, .slash = true}},
}};

}  // namespace

std::unique_ptr<Matcher> known_matcher(std::string_view pattern) {
  constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
  if (pattern == patterns::kGpt2) return std::make_unique<Gpt2Matcher>();
  if (pattern == patterns::kDeepSeekV3 || pattern == patterns::kDeepSeekV3Raw) return std::make_unique<DeepSeekMatcher>();
  if (pattern == patterns::kDigits3) return std::make_unique<RunMatcher>(kNumber, false, 3);
  if (pattern == patterns::kSpaceLetters) return std::make_unique<RunMatcher>(kLetter, true, kNoLimit);
  if (pattern == patterns::kSpacePunctuation) return std::make_unique<RunMatcher>(kPunctuation, true, kNoLimit);
  for (const Known& k : kKnown) {
    if (pattern == k.pattern) return std::make_unique<WordMatcher>(k.word);
  }
  return nullptr;
}

}  // namespace barg::text
