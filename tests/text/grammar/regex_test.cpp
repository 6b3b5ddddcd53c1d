// Regular expressions against PCRE2, whose matching owes nothing to automata.
#include "text/grammar/regex.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>
#include <memory>
#include <random>

#include "base/utf8.h"
#include "text/grammar/code_set.h"

namespace barg::text::grammar::regex_test {
namespace {

// A pattern in ECMA-262's notation, and what means the same to PCRE2 (without UCP, `$` at the very end only).
struct Pattern {
  std::string ecma, pcre;
};

class Generator {
 public:
  explicit Generator(std::mt19937& rng) : rng_(rng) {}

  Pattern disjunction(int depth) {
    Pattern p = alternative(depth);
    for (std::uint32_t n = pick(4) == 0 ? 1 + pick(2) : 0; n > 0; --n)
      p = join(join(p, same("|")), alternative(depth));
    return p;
  }

 private:
  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(rng_() % n); }
  static Pattern same(const std::string& text) { return {text, text}; }
  static Pattern join(const Pattern& a, const Pattern& b) { return {a.ecma + b.ecma, a.pcre + b.pcre}; }

  Pattern alternative(int depth) {
    Pattern p;
    for (std::uint32_t n = pick(4); n > 0; --n) {
      if (pick(10) == 0) p = join(p, same("^"));
      p = join(p, join(atom(depth), quantifier()));
      if (pick(10) == 0) p = join(p, same("$"));
    }
    return p;
  }

  Pattern quantifier() {
    static const std::vector<std::string> kinds = {"*",    "+",   "?",  "{2}", "{0,2}", "{1,3}",
                                                   "{2,}", "{0}", "*?", "+?",  "{1,2}?"};
    return pick(2) == 0 ? Pattern{} : same(kinds[pick(static_cast<std::uint32_t>(kinds.size()))]);
  }

  Pattern atom(int depth) {
    if (depth > 0 && pick(3) == 0) {
      const Pattern inside = disjunction(depth - 1);
      static const std::vector<std::string> opens = {"(", "(?:", "(?<name>"};
      // PCRE2 wants every name once.
      const std::string open = opens[pick(3)];
      return {open + inside.ecma + ")", "(?:" + inside.pcre + ")"};
    }
    static const std::vector<Pattern> atoms = {
        {"a", "a"},
        {"b", "b"},
        {"b", "b"},
        {"c", "c"},
        {"0", "0"},
        {"-", "-"},
        {"\xC3\xA9", "\xC3\xA9"},
        {"\\u4e2d", "\\x{4e2d}"},
        {"\\u{1D4B3}", "\\x{1D4B3}"},
        {"\\uD835\\uDCB3", "\\x{1D4B3}"},
        {"\\xe9", "\\xe9"},
        {"\\cJ", "\\n"},
        {"\\n", "\\n"},
        {"\\-", "\\-"},
        {"\\.", "\\."},
        {".", "[^\\n\\r\\x{2028}\\x{2029}]"},
        {"\\d", "[0-9]"},
        {"\\D", "[^0-9]"},
        {"\\w", "[A-Za-z0-9_]"},
        {"\\W", "[^A-Za-z0-9_]"},
        {"\\s", space("")},
        {"\\S", space("^")},
        {"[\\s\\S]", "[\\x00-\\x{10FFFF}]"},
        {"\\p{Lu}", "\\p{Lu}"},
        {"\\P{L}", "\\P{L}"},
        {"\\p{Script=Han}", "\\p{sc:Han}"},
        {"[^]", "[\\x00-\\x{10FFFF}]"},
        {"[]", "(?!)"},
    };
    if (pick(3) == 0) return char_class();
    return atoms[pick(static_cast<std::uint32_t>(atoms.size()))];
  }

  static std::string space(const std::string& negation) {
    return "[" + negation +
           "\\t\\n\\x0b\\x0c\\r "
           "\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}]";
  }

  Pattern char_class() {
    static const std::vector<Pattern> items = {{"a", "a"},
                                               {"a-b", "a-b"},
                                               {"0-9", "0-9"},
                                               {"A-Z", "A-Z"},
                                               {"\\d", "0-9"},
                                               {"\\w", "A-Za-z0-9_"},
                                               {"\\W", "\\W"},
                                               {"\\-", "\\-"},
                                               {"_", "_"},
                                               {"\\n", "\\n"},
                                               {"\\u00e0-\\u4e2d", "\\x{e0}-\\x{4e2d}"},
                                               {"\\u{10000}-\\u{10FFFF}", "\\x{10000}-\\x{10FFFF}"},
                                               {"\\b", "\\x08"},
                                               {"\xC3\xA9", "\xC3\xA9"},
                                               {"\\p{L}", "\\p{L}"},
                                               {"\\0-\\x1f", "\\x00-\\x1f"},
                                               {"(", "("},
                                               {"$", "$"}};
    Pattern p = pick(3) == 0 ? same("[^") : same("[");
    for (std::uint32_t n = 1 + pick(3); n > 0; --n)
      p = join(p, items[pick(static_cast<std::uint32_t>(items.size()))]);
    return join(p, same("]"));
  }

  std::mt19937& rng_;
};

struct CodeFree {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct MatchFree {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

class Oracle {
 public:
  explicit Oracle(const std::string& pattern) {
    int error = 0;
    std::size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
    if (code_) match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }
  bool compiled() const { return code_ != nullptr; }
  bool matches(const std::string& text) const {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                               match_.get(), nullptr);
    EXPECT_TRUE(rc >= 0 || rc == PCRE2_ERROR_NOMATCH) << rc;
    return rc >= 0;
  }

 private:
  std::unique_ptr<pcre2_code, CodeFree> code_;
  std::unique_ptr<pcre2_match_data, MatchFree> match_;
};

std::string random_text(std::mt19937& rng) {
  static const std::vector<std::string> letters = {"a",
                                                   "b",
                                                   "a",
                                                   "b",
                                                   "c",
                                                   "A",
                                                   "0",
                                                   "7",
                                                   "_",
                                                   "-",
                                                   " ",
                                                   "\n",
                                                   ".",
                                                   "(",
                                                   "$",
                                                   "\r",
                                                   "\xC3\xA9",
                                                   "\xE4\xB8\xAD",
                                                   "\xF0\x9D\x92\xB3",
                                                   "\xE2\x80\xA8",
                                                   "\x08"};
  std::string text;
  for (std::uint32_t n = static_cast<std::uint32_t>(rng() % 8); n > 0; --n)
    text += letters[rng() % letters.size()];
  return text;
}

// A text of the language, by a random way through the automaton that turns to shortest ways after some steps.
std::string random_word(const Dfa& dfa, std::mt19937& rng) {
  std::string word;
  Dfa::State s = dfa.start();
  for (int steps = 0; !(dfa.accepting(s) && (steps > 12 || rng() % 4 == 0)); ++steps) {
    std::vector<std::uint8_t> ways;
    for (int b = 0; b < 256; ++b) {
      const Dfa::State t = dfa.next(s, static_cast<std::uint8_t>(b));
      if (t != Dfa::kDead && (steps < 12 || dfa.min_bytes(t) < dfa.min_bytes(s)))
        ways.push_back(static_cast<std::uint8_t>(b));
    }
    if (ways.empty()) break;
    const std::uint8_t byte = ways[rng() % ways.size()];
    word.push_back(static_cast<char>(byte));
    s = dfa.next(s, byte);
  }
  return word;
}

TEST(Regex, RandomPatternsAgreeWithPcre) {
  std::mt19937 rng(11);
  Generator generator(rng);
  int compared = 0, accepted = 0, words = 0;
  for (int i = 0; i < 4000; ++i) {
    const Pattern p = generator.disjunction(3);
    const bool search = rng() % 2 == 0;
    const Oracle oracle(search ? p.pcre : "\\A(?:" + p.pcre + ")\\z");
    ASSERT_TRUE(oracle.compiled()) << p.pcre;
    const auto dfa = regex_dfa(p.ecma, {.search = search});
    ASSERT_TRUE(dfa) << p.ecma << ": " << dfa.error().message;
    for (int k = 0; k < 25; ++k) {
      const std::string text = random_text(rng);
      const bool expected = oracle.matches(text);
      ASSERT_EQ(dfa->matches(text), expected)
          << p.ecma << (search ? " in " : " is ") << testing::PrintToString(text);
      ++compared;
      accepted += expected ? 1 : 0;
    }
    for (int k = 0; k < 5 && !dfa->empty(); ++k) {
      const std::string word = random_word(*dfa, rng);
      ASSERT_TRUE(dfa->matches(word));
      ASSERT_TRUE(is_valid_utf8(word)) << p.ecma;
      // Newer letters than PCRE2 knows are no error.
      if (p.ecma.find("\\p") == std::string::npos && p.ecma.find("\\P") == std::string::npos) {
        ASSERT_TRUE(oracle.matches(word)) << p.ecma << ": " << testing::PrintToString(word);
        ++words;
      }
    }
  }
  EXPECT_GT(accepted, compared / 10);
  EXPECT_GT(words, 5000);
}

TEST(Regex, AnchorsWhereverTheyStand) {
  const auto texts = [](const char* pattern, std::vector<std::string> in, std::vector<std::string> out) {
    const auto dfa = regex_dfa(pattern);
    ASSERT_TRUE(dfa) << pattern;
    for (const std::string& t : in) EXPECT_TRUE(dfa->matches(t)) << pattern << " in " << t;
    for (const std::string& t : out) EXPECT_FALSE(dfa->matches(t)) << pattern << " in " << t;
  };
  texts("^abc$", {"abc"}, {"abc\n", "xabc", "abcx"});
  texts("^a|b$", {"ax", "xb"}, {"xa", "bx", ""});
  texts("(^|,)a(,|$)", {"a", "b,a", "a,b", "b,a,c"}, {"ba", "ab", ""});
  texts("a^b|a$b", {}, {"ab", "a\nb", ""});
  texts("^(?:^a$)*$", {"", "a"}, {"aa"});
  texts("$^", {""}, {"a"});
  texts("", {"", "anything"}, {});
  texts("(^a|b)c", {"ac", "xbc", "bc"}, {"xac"});
}

TEST(Regex, WholeTextsNeedNoAnchors) {
  EXPECT_EQ(*regex_dfa("^a+$", {.search = false}), *regex_dfa("a+", {.search = false}));
  EXPECT_FALSE(regex_dfa("a+", {.search = false})->matches("ba"));
  EXPECT_EQ(*regex_dfa("^[^]*$"), dfa_valid_utf8());
}

TEST(Regex, AnnexBWhereAllDialectsAgree) {
  EXPECT_TRUE(regex_dfa("^\\@\\_\\ \\\"\\:$")->matches("@_ \":"));
  EXPECT_TRUE(regex_dfa("^{a}]$")->matches("{a}]"));
  EXPECT_TRUE(regex_dfa("^[\\w-.]+$")->matches("a-b.c"));
  EXPECT_FALSE(regex_dfa("^[\\w-.]+$")->matches("a,b"));
  EXPECT_TRUE(regex_dfa("^x{,}$")->matches("x{,}"));
}

TEST(Regex, LoneSurrogatesMatchNothing) {
  EXPECT_TRUE(regex_dfa("\\uD800")->empty());
  EXPECT_TRUE(regex_dfa("^[\\uD800-\\uDBFF][\\uDC00-\\uDFFF]$")->empty());
  EXPECT_TRUE(regex_dfa("^[^\\uD800-\\uDFFF]$")->matches("\xF0\x9F\x98\x80"));
  EXPECT_TRUE(regex_dfa("^\\uD83D\\uDC32*$")->matches("\xF0\x9F\x90\xB2\xF0\x9F\x90\xB2"));
}

TEST(Regex, Properties) {
  const auto set = [](const char* name) { return property_set(name).value_or(CodeSet{}); };
  EXPECT_TRUE(set("Lu").contains(U'A'));
  EXPECT_FALSE(set("Lu").contains(U'a'));
  EXPECT_EQ(set("Lu"), set("General_Category=Uppercase_Letter"));
  EXPECT_EQ(set("digit"), set("gc=Nd"));
  EXPECT_TRUE(set("Script=Greek").contains(U'\u03B1'));
  EXPECT_EQ(set("sc=Grek"), set("Script=Greek"));
  EXPECT_FALSE(set("Script=Greek").contains(U'\u0342')) << "inherited";
  EXPECT_TRUE(set("Script_Extensions=Greek").contains(U'\u0342'));
  EXPECT_TRUE(set("Emoji").contains(0x1F600));
  EXPECT_EQ(set("Any"), CodeSet::all());
  EXPECT_EQ(set("ASCII").ranges(), (std::vector<CodeSet::Range>{{0, 0x7F}}));
  EXPECT_EQ(set("White_Space").negated().negated(), set("White_Space"));
  for (const char* name : {"", "lu", "Letters", "Script", "Script=", "Script=greek", "sc=Nothing",
                           "Block=Basic_Latin", "L=Lu", "IsGreek", "Greek", "Script=Greek}x", "sc= Greek"}) {
    EXPECT_FALSE(property_set(name)) << name;
  }
}

TEST(Regex, RefusalsNameWhatIsMissing) {
  struct Refusal {
    const char* pattern;
    ErrorCode code;
    const char* words;
  };
  constexpr auto kBad = ErrorCode::kInvalidValue, kCannot = ErrorCode::kUnsupported;
  const Refusal refusals[] = {
      {"a(?=b)", kCannot, "look-ahead"},
      {"(?!b)", kCannot, "look-ahead"},
      {"(?<=b)a", kCannot, "look-behind"},
      {"(?<!b)a", kCannot, "look-behind"},
      {"(a)\\1", kCannot, "back-reference"},
      {"(?<n>a)\\k<n>", kCannot, "back-reference"},
      {"\\bword", kCannot, "\\b"},
      {"a\\B", kCannot, "\\B"},
      {"(?i)a", kCannot, "flags"},
      {"(?i:a)", kCannot, "flags"},
      {"(?>a)", kCannot, "atomic"},
      {"a++", kCannot, "possessive"},
      {"[[:alpha:]]", kCannot, "POSIX"},
      {"(?P<n>a)", kBad, "(?<name>"},
      {"(", kBad, "offset 0"},
      {"ab)", kBad, "offset 2"},
      {"[a", kBad, "']'"},
      {"*a", kBad, "nothing to repeat"},
      {"a**", kBad, "nothing to repeat"},
      {"^*", kBad, "nothing to repeat"},
      {"a{2}{3}", kBad, "nothing to repeat"},
      {"{2}", kBad, "nothing to repeat"},
      {"a{3,2}", kBad, "out of order"},
      {"a{,2}", kBad, "lower bound"},
      {"[b-a]", kBad, "out of order"},
      {"\\a", kBad, "unknown escape"},
      {"\\Z", kBad, "unknown escape"},
      {"[\\B]", kBad, "unknown escape"},
      {"\\01", kBad, "octal"},
      {"\\c1", kBad, "letter"},
      {"\\x4", kBad, "hexadecimal"},
      {"\\u12", kBad, "hexadecimal"},
      {"\\u{110000}", kBad, "\\u{"},
      {"\\u{}", kBad, "\\u{"},
      {"\\p{Nope}", kBad, "Nope"},
      {"\\pL", kBad, "\\p"},
      {"a\\", kBad, "backslash"},
      {"[]a]", kBad, "\\]"},
      {"(?<1a>b)", kBad, "group"},
      {"\xFF", kBad, "UTF-8"},
      {"(a{1000}){1000}", kCannot, "too large"},
      {"((a{100}){100}){100}", kCannot, "too large"},
      {"a{0,2147483648}", kCannot, "too large"},
      {"^.*a.{30}$", kCannot, "too large"},
      {"(a?){900}a{900}(a?){900}b(.*c){9}.{99}", kCannot, "too large"},
      {"(x+x+)+y.{20000}", kCannot, "too large"},
  };
  for (const Refusal& r : refusals) {
    const auto start = std::chrono::steady_clock::now();
    const auto dfa = regex_dfa(r.pattern);
    ASSERT_FALSE(dfa) << r.pattern;
    EXPECT_EQ(dfa.error().code, r.code) << r.pattern << ": " << dfa.error().message;
    EXPECT_NE(dfa.error().message.find(r.words), std::string::npos)
        << r.pattern << ": " << dfa.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << r.pattern;
  }
  // All of many classes alive together, none like another.
  std::string classes = "(?:(?:a";
  for (int i = 0; i < 2'000; ++i) {
    classes += "|[^";
    append_utf8(classes, static_cast<char32_t>(0x4E00 + i));
    classes += "]";
  }
  EXPECT_FALSE(regex_dfa(classes + ")?){60}b"));
  EXPECT_FALSE(regex_dfa(std::string(100'000, 'a')));
  EXPECT_FALSE(regex_dfa(std::string(300, '(') + std::string(300, ')')));
  EXPECT_TRUE(regex_dfa(std::string(150, '(') + "a" + std::string(150, ')')));
}

TEST(Regex, WhatPeopleWriteFits) {
  for (const char* pattern :
       {"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "^.{1,1024}$",
        "^\\p{L}[\\p{L}\\p{N} _-]{0,30}$", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        "^\\+?[1-9]\\d{1,14}$", "^(25[0-5]|2[0-4]\\d|1?\\d?\\d)(\\.(25[0-5]|2[0-4]\\d|1?\\d?\\d)){3}$",
        "^#([0-9a-fA-F]{3}){1,2}$",
        "^(0|[1-9]\\d*)\\.(0|[1-9]\\d*)\\.(0|[1-9]\\d*)(-[0-9A-Za-z.-]+)?(\\+[0-9A-Za-z.-]+)?$",
        "^\\S+@\\S+\\.\\S+$", "^[\\s\\S]{0,500}$", "(foo|bar)+baz", "^(a|aa)+$",
        "^(([^<>()\\[\\]\\.,;:\\s@\"]+)|(\".+\"))$"}) {
    const auto dfa = regex_dfa(pattern);
    ASSERT_TRUE(dfa) << pattern << ": " << dfa.error().message;
    EXPECT_FALSE(dfa->empty()) << pattern;
  }
}

}  // namespace
}  // namespace barg::text::grammar::regex_test
