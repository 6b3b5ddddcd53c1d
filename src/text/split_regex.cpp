// PCRE2 as the general matcher of split patterns. Published patterns are written for Oniguruma (Ruby syntax);
// translate() rewrites what means something else in PCRE2 and refuses what has no counterpart.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/split.h"
#include "text/unicode.h"

namespace barg::text {
namespace {

constexpr std::size_t kMaxPatternBytes = 16 * 1024;
constexpr std::uint32_t kMatchLimit = 2'000'000;  // steps of one match; a published pattern needs a few per byte
constexpr std::uint32_t kMatchLimitPerByte = 16;
constexpr std::uint32_t kFreeSteps = 1024;          // of the interpreter at one place
constexpr std::uint64_t kSlowSteps = 16'000'000;    // for all that goes beyond: about a second
constexpr std::uint64_t kSlowStepsPerByte = 64;
constexpr std::uint32_t kHeapLimitKiB = 256 * 1024;
constexpr std::size_t kJitStackBytes = 1024 * 1024;

// Oniguruma's sets. PCRE2's own \s has U+180E in addition, its \w lacks marks and much else.
const std::string kWhiteSpace =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
const std::string kWordInClass =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9})"
    R"(\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
// Outside a class it asks a Latin-1 table, where superscripts and fractions are word characters.
const std::string kWord = kWordInClass + R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

std::unexpected<Error> unsupported(const std::string& what) {
  return fail(ErrorCode::kUnsupported, "split pattern: " + what + " is not supported");
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (i_ < in_.size()) {
      if (in_[i_] == '\\') {
        if (auto r = escape(); !r) return std::unexpected(r.error());
      } else if (in_class_) {
        if (auto r = class_char(); !r) return std::unexpected(r.error());
      } else {
        plain_char();
      }
    }
    return std::move(out_);
  }

 private:
  Result<void> escape() {
    if (i_ + 1 >= in_.size()) return unsupported("a backslash at the end");
    const char c = in_[i_ + 1];
    if (c == 'u') return code_point();
    if (const std::string set = replacement(c); !set.empty()) {
      out_ += set;
    } else if (std::string_view("SWBbhHOyY").find(c) != std::string_view::npos) {
      return unsupported(std::string("\\") + c + (in_class_ ? " in a class" : ""));
    } else {
      out_ += '\\';
      out_ += c;
    }
    class_start_ = false;
    i_ += 2;
    return {};
  }

  std::string replacement(char c) const {
    const std::string in = "[" + kWord + "]";
    if (in_class_) return c == 's' ? kWhiteSpace : c == 'w' ? kWordInClass : "";
    switch (c) {
      case 's': return "[" + kWhiteSpace + "]";
      case 'S': return "[^" + kWhiteSpace + "]";
      case 'w': return in;
      case 'W': return "[^" + kWord + "]";
      case 'b': return "(?:(?<=" + in + ")(?!" + in + ")|(?<!" + in + ")(?=" + in + "))";
      case 'B': return "(?:(?<=" + in + ")(?=" + in + ")|(?<!" + in + ")(?!" + in + "))";
      default: return "";
    }
  }

  // \uHHHH -> \x{HHHH}
  Result<void> code_point() {
    const std::string_view hex = in_.substr(i_ + 2, 4);
    if (hex.size() != 4 || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return unsupported("\\u without four hexadecimal digits");
    }
    out_ += "\\x{";
    out_ += hex;
    out_ += '}';
    class_start_ = false;
    i_ += 6;
    return {};
  }

  Result<void> class_char() {
    const char c = in_[i_];
    if (c == ']' && !class_start_) {
      in_class_ = false;
    } else if (c == '[') {
      return unsupported("a class inside a class");
    } else if (c == '&' && in_.substr(i_, 2) == "&&") {
      return intersection();
    }
    class_start_ = class_start_ && c == '^' && out_.back() == '[';
    out_ += c;
    ++i_;
    return {};
  }

  // [A&&[B]], a class that ends so -> (?:(?=[B])[A])
  Result<void> intersection() {
    std::string left = out_.substr(class_begin_) + ']';
    if (in_.substr(i_ + 2, 1) != "[" || left.starts_with("[^") || left == "[]") {
      return unsupported("such an intersection of classes (&&)");
    }
    out_.resize(class_begin_);
    out_ += "(?:(?=";
    i_ += 2;
    plain_char();
    while (in_class_ && i_ < in_.size()) {
      if (auto r = in_[i_] == '\\' ? escape() : class_char(); !r) return r;
    }
    if (in_.substr(i_, 1) != "]") return unsupported("such an intersection of classes (&&)");
    ++i_;
    out_ += ')' + left + ')';
    return {};
  }

  void plain_char() {
    if (in_[i_] == '[') {
      in_class_ = class_start_ = true;
      class_begin_ = out_.size();
    }
    out_ += in_[i_++];
  }

  std::string_view in_;
  std::string out_;
  std::size_t i_ = 0;
  bool in_class_ = false;
  bool class_start_ = false;  // a ] here is a literal
  std::size_t class_begin_ = 0;
};

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

struct Limits {
  std::uint32_t steps;
  std::uint32_t heap_kib;
};

class RegexMatcher final : public Matcher {
 public:
  RegexMatcher(std::unique_ptr<pcre2_code, FreeCode> code, std::string_view pattern)
      : code_(std::move(code)), pattern_(pattern) {
    // Without a JIT for this machine the interpreter runs: slower, equal results.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  bool find_all(std::string_view text, std::vector<Span>& matches) const override {
    const std::uint64_t steps = kMatchLimit + kMatchLimitPerByte * std::uint64_t{text.size()};
    return find_all(text, matches, {static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)), kHeapLimitKiB});
  }
  std::string_view pattern() const override { return pattern_; }

  // As onig's find_iter: an empty match right after a match is skipped. False on a limit (or no memory).
  bool find_all(std::string_view text, std::vector<Span>& matches, Limits limits) const {
    const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
    if (!data || !context) return false;
    pcre2_set_match_limit(context.get(), limits.steps);
    pcre2_set_heap_limit(context.get(), limits.heap_kib);
    std::unique_ptr<pcre2_jit_stack, FreeStack> stack;
    if (text.size() > kShortText) {
      stack.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    }
    std::size_t at = 0, last_end = static_cast<std::size_t>(-1);
    std::uint64_t budget = kSlowSteps + kSlowStepsPerByte * std::uint64_t{text.size()};
    while (at <= text.size()) {
      int rc = match(text, at, 0, data.get(), context.get());
      // Machine code has a small stack; what does not fit goes to the interpreter, which takes from the heap.
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = slow_match(text, at, limits.steps, budget, data.get(), context.get());
      if (rc == PCRE2_ERROR_NOMATCH) return true;
      if (rc < 0) return false;
      const std::size_t* v = pcre2_get_ovector_pointer(data.get());
      if (v[1] < v[0] || v[0] < at) return false;  // \K inside a look-around
      const bool empty = v[0] == v[1];
      if (!(empty && v[1] == last_end)) {
        matches.push_back({v[0], v[1]});
        last_end = v[1];
        at = v[1];
        if (!empty) continue;
      }
      at += at < text.size() ? decode_utf8(text, at).bytes : 1;
    }
    return true;
  }

 private:
  int match(std::string_view text, std::size_t at, std::uint32_t options, pcre2_match_data* data,
            pcre2_match_context* context) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       PCRE2_NO_UTF_CHECK | options, data, context);
  }

  // The interpreter, one place after the other. A place where it needs many steps is paid for from `budget`, as much
  // as has been tried: it is there for a few long matches, not for a long try at every place of a long run.
  int slow_match(std::string_view text, std::size_t at, std::uint32_t most, std::uint64_t& budget,
                 pcre2_match_data* data, pcre2_match_context* context) const {
    int rc = PCRE2_ERROR_NOMATCH;
    while (at <= text.size() && rc == PCRE2_ERROR_NOMATCH) {
      pcre2_set_offset_limit(context, at);
      for (std::uint32_t steps = kFreeSteps;; steps *= 4) {
        pcre2_set_match_limit(context, std::min(steps, most));
        rc = match(text, at, PCRE2_NO_JIT, data, context);
        if (rc != PCRE2_ERROR_MATCHLIMIT || steps >= most || budget < steps) break;
        budget -= steps;
      }
      at += at < text.size() ? decode_utf8(text, at).bytes : 1;
    }
    pcre2_set_offset_limit(context, PCRE2_UNSET);
    pcre2_set_match_limit(context, most);
    return rc;
  }

  // Up to here no pattern can outgrow the 32 KiB of machine stack that the JIT takes by itself.
  static constexpr std::size_t kShortText = 256;
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::string pattern_;
};

// Characters of the pattern itself, and some that its classes may have.
std::vector<std::string> probe_characters(std::string_view pattern) {
  std::vector<std::string> out = {"a", "1", " ", "\n", ".", "\u4E2D", "\u0301"};
  constexpr std::size_t kMost = 20;
  for (std::size_t i = 0; i < pattern.size() && out.size() < kMost;) {
    const std::size_t bytes = decode_utf8(pattern, i).bytes;
    std::string c(pattern.substr(i, bytes));
    i += bytes;
    if (std::ranges::find(out, c) == out.end()) out.push_back(std::move(c));
  }
  return out;
}

// A pattern that tries all ways to cut a run in parts does so on a short one. What is quadratic passes.
bool is_catastrophic(const RegexMatcher& matcher, std::string_view pattern) {
  constexpr Limits kProbe{100'000, 4096};
  const std::vector<std::string> characters = probe_characters(pattern);
  std::vector<Span> matches;
  for (const std::string& a : characters) {
    for (const std::string& b : characters) {
      std::string text;
      for (int k = 0; k < 32; ++k) text += a + b;
      matches.clear();
      if (!matcher.find_all(text + '\x01', matches, kProbe)) return true;
    }
  }
  return false;
}

Result<std::unique_ptr<RegexMatcher>> compile(const std::string& translated, std::string_view pattern,
                                              std::uint32_t options) {
  int code = 0;
  std::size_t offset = 0;
  std::unique_ptr<pcre2_code, FreeCode> compiled(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT | options, &code, &offset, nullptr));
  if (!compiled) {
    char reason[256] = "";
    pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    return fail(ErrorCode::kUnsupported, "split pattern cannot be compiled: " + std::string(reason));
  }
  return std::make_unique<RegexMatcher>(std::move(compiled), pattern);
}

}  // namespace

Result<std::unique_ptr<Matcher>> regex_matcher(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) return unsupported("a pattern above 16 KiB");
  auto translated = Translator(pattern).run();
  if (!translated) return std::unexpected(translated.error());
  // Without the short cut that a text which lacks some character cannot match: hostile text has it at the end.
  const auto probed = compile(*translated, pattern, PCRE2_NO_START_OPTIMIZE);
  if (!probed) return std::unexpected(probed.error());
  if (is_catastrophic(**probed, pattern)) {
    return unsupported("a pattern that takes 100000 steps at one place of a hundred characters (catastrophic backtracking)");
  }
  return compile(*translated, pattern, 0);
}

}  // namespace barg::text
