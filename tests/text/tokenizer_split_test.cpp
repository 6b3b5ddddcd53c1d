// The hand-written splitters against PCRE2 on the same pattern, and the steps of a pre-tokenizer.
#include "text/split.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/unicode.h"

namespace barg::text::tokenizer_split_test {
namespace {

const char* const kPatterns[] = {patterns::kGpt2,      patterns::kLlama3,     patterns::kQwen2,
                                 patterns::kQwen35,    patterns::kO200k,      patterns::kTekken,
                                 patterns::kDeepSeekV3, patterns::kDeepSeekV3Raw, patterns::kDigits3,
                                 patterns::kSpaceLetters, patterns::kSpacePunctuation,
                                 patterns::kKimi, patterns::kSeedCoder, patterns::kTrailingSpaces};

// Every class and every border between classes that a pattern speaks of; nothing newer than Unicode 13, which
// PCRE2 may not know.
const char32_t kAlphabet[] = {'a',    'b',    's',    't',    'r',    'e',    'v',   'm',    'l',    'd',    'A',    'S',
                              'L',    'E',    '0',    '7',    ' ',    ' ',    ' ',   '\n',   '\r',   '\t',   '\'',   '\'',
                              '/',    '.',    '!',    '$',    '_',    0,      0x1F,  0x85,   0xA0,   0xB2,   0xC9,   0xE9,
                              0x17F,  0x1C5,  0x2B0,  0x301,  0x4E2D, 0x5D0,  0x661, 0x903,  0x2028, 0x2019, 0x20AC, 0x3000,
                              0x180E, 0x200B, 0x200D, 0xE000, 0x1F600, 0x10400, 0x3005, 0x3007, 0x2E80, 0x20000};

std::string random_text(std::mt19937& rng) {
  std::string s;
  for (unsigned n = rng() % 24; n > 0; --n) {
    const char32_t c = kAlphabet[rng() % std::size(kAlphabet)];
    for (unsigned k = rng() % 4 == 0 ? 1 + rng() % 4 : 1; k > 0; --k) append_utf8(s, c);
  }
  return s;
}

std::vector<Span> find(const Matcher& m, std::string_view s) {
  std::vector<Span> out;
  EXPECT_TRUE(m.find_all(s, out));
  return out;
}

std::string show(std::string_view s, const std::vector<Span>& spans) {
  std::string out;
  for (const Span& x : spans) out += "[" + std::string(s.substr(x.begin, x.size())) + "]";
  return out;
}

TEST(Split, HandWrittenSplittersEqualTheirPatterns) {
  std::mt19937 rng(17);
  for (const char* pattern : kPatterns) {
    const auto known = known_matcher(pattern);
    const auto regex = regex_matcher(pattern);
    ASSERT_TRUE(known) << pattern;
    ASSERT_TRUE(regex) << regex.error().message;
    for (int round = 0; round < 6000; ++round) {
      const std::string s = random_text(rng);
      const auto want = find(**regex, s), got = find(*known, s);
      ASSERT_EQ(got, want) << pattern << "\ntext " << s << "\nours " << show(s, got) << "\nPCRE2 " << show(s, want);
    }
  }
}

TEST(Split, UnknownPatternsAreNotGuessed) {
  EXPECT_FALSE(known_matcher(std::string(patterns::kLlama3) + " "));
  EXPECT_FALSE(known_matcher(""));
}

// The oracle's Unicode is 16.0; utf8proc 2.8 and PCRE2 10.42 do not have these.
TEST(Split, ClassesOfUnicode16) {
  EXPECT_EQ(char_class(0x1C89), kLetter | kUpper);
  EXPECT_EQ(char_class(0x1C8A), kLetter | kLower);
  EXPECT_EQ(char_class(0x2EBF0), kLetter | kUpper | kLower);
  EXPECT_EQ(char_class(0x897), kMark | kUpper | kLower);
  EXPECT_EQ(char_class(0x16D70), kNumber | kDigitStep);
  EXPECT_EQ(char_class(0x11DE0), kDigitStep) << "Unicode 17: a digit to the Digits step only";
  EXPECT_EQ(char_class(0x1FAE9), kSymbol);
  EXPECT_EQ(char_class(0x10FFFF), 0);
  EXPECT_EQ(char_class(0x180E), 0) << "not White_Space";
  EXPECT_EQ(char_class(0x85), kSpace);
}

std::vector<std::string> run(const SplitStep& step, std::string_view s) {
  std::vector<Span> out;
  EXPECT_TRUE(step.run(s, {{0, s.size()}}, out));
  std::vector<std::string> texts;
  for (const Span& x : out) texts.emplace_back(s.substr(x.begin, x.size()));
  return texts;
}

TEST(Split, Behaviors) {
  using B = SplitBehavior;
  using V = std::vector<std::string>;
  const auto step = [](B behavior, bool invert) { return SplitStep(literal_matcher("-"), behavior, invert); };
  const std::string_view s = "the-final--countdown";  // the example of tokenizers' documentation
  EXPECT_EQ(run(step(B::kRemoved, false), s), (V{"the", "final", "countdown"}));
  EXPECT_EQ(run(step(B::kIsolated, false), s), (V{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(run(step(B::kMergedWithPrevious, false), s), (V{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(run(step(B::kMergedWithNext, false), s), (V{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(run(step(B::kContiguous, false), s), (V{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(run(step(B::kRemoved, true), s), (V{"-", "-", "-"}));
}

TEST(Split, WhatPcre2CannotSayIsRefused) {
  for (const char* pattern : {"[a&&b]", "[[a]b]", "[a&&[b]c]", "[^a&&[b]]", "[&&[b]]", "[a&&[b", "[a&&[b]", "[\\S]", "\\h", "(", "a\\", "\\u12", "[\\b]", "\\O"}) {
    const auto m = regex_matcher(pattern);
    ASSERT_FALSE(m) << pattern;
    EXPECT_EQ(m.error().code, ErrorCode::kUnsupported);
  }
  EXPECT_FALSE(regex_matcher(std::string(20'000, 'a')));
}

TEST(Split, WordCharactersAreThoseOfOniguruma) {
  const auto m = regex_matcher(R"(\w+|[^\w\s]+)");
  ASSERT_TRUE(m);
  const auto pieces = [&](std::string_view s) { return show(s, find(**m, s)); };
  EXPECT_EQ(pieces("a\u0301_\u2167 \u24B6"), "[a\u0301_\u2167][\u24B6]") << "marks, letter numbers, circled letters";
  EXPECT_EQ(pieces("\u00B2"), "[\u00B2]");
  EXPECT_EQ(pieces(".\u00B2."), "[.\u00B2.]") << "a superscript is a word character outside a class only";
  EXPECT_EQ(pieces("a\u180Eb"), "[a][\u180E][b]") << "not white space";
  const auto border = regex_matcher(R"(\b)");
  ASSERT_TRUE(border);
  EXPECT_EQ(find(**border, "a b").size(), 4u);
}

TEST(Split, IntersectionsOfClasses) {
  const auto pieces = [](const char* pattern, std::string_view s) {
    const auto m = regex_matcher(pattern);
    return m ? show(s, find(**m, s)) : m.error().message;
  };
  EXPECT_EQ(pieces(R"([\p{L}&&[^a]]+)", "bcadé a"), "[bc][dé]");
  EXPECT_EQ(pieces(R"([a-z&&[^aeiou]]|\d)", "xa1"), "[x][1]");
  EXPECT_EQ(pieces(R"([a-z&&[c-x&&[^e]]]+)", "abcdefyz"), "[cd][f]");
  EXPECT_EQ(pieces(R"([]a&&[]]]+)", "a]]b"), "[]]]") << "a ] in front is a character";
}

// Which text it is that hurts is found by trying, when the file is loaded.
TEST(Split, CatastrophicPatternsAreRefused) {
  for (const char* pattern : {"(a+)+b", "(?:a|aa)+$", "(?:[xy]+)*[bc]", "(?:ab|a|b)+c", "(\\s*)*x", "(a*)*(a*)*b", "(中+)+b"}) {
    const auto m = regex_matcher(pattern);
    ASSERT_FALSE(m) << pattern;
    EXPECT_EQ(m.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(m.error().message.find("catastrophic"), std::string::npos) << m.error().message;
  }
  for (const char* pattern : {"a*[bc]", "(?:a|b)+[cd]", R"(\d{1,3}(?=(?:\d{3})*\b))", R"(\s+$|(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+)", "(?=a*[bc])x|y"}) {
    EXPECT_TRUE(regex_matcher(pattern)) << pattern;
  }
}

// The pattern takes the fourth power of a run: the probes are too short for it to show.
TEST(Split, GivingUpIsSaid) {
  const auto m = regex_matcher("q*(?:xa*a*a*a*b|y)");
  ASSERT_TRUE(m) << m.error().message;
  std::vector<Span> out;
  EXPECT_FALSE((*m)->find_all("yx" + std::string(2000, 'a'), out));
  EXPECT_EQ(out.size(), 1u) << "what came before";
  EXPECT_EQ((*m)->pattern(), "q*(?:xa*a*a*a*b|y)");
  EXPECT_EQ(find(**m, "yx" + std::string(20, 'a') + "by").size(), 3u);
}

TEST(Split, LongRunsAreNoReasonToGiveUp) {
  for (const char* pattern : {R"(\p{L}+|\s+)", "(?:a|b)+", "(?:a|b)+(?=c|$)"}) {
    const auto words = regex_matcher(pattern);
    ASSERT_TRUE(words) << pattern;
    EXPECT_EQ(find(**words, std::string(1 << 18, 'a')).size(), 1u) << pattern;
  }
}

// A long try at every place of a long run: by the square of the text, which it is not given the steps for.
TEST(Split, LongTriesEverywhereAreGivenUp) {
  const auto m = regex_matcher("(?:a|b)+[cd]");
  ASSERT_TRUE(m) << m.error().message;
  const std::string run(300'000, 'a');
  std::vector<Span> out;
  EXPECT_FALSE((*m)->find_all("ac" + run + "xc", out));
  EXPECT_EQ(out, (std::vector<Span>{{0, 2}}));
  EXPECT_EQ(find(**m, run + "cxac").size(), 2u) << "once is no harm";
}

TEST(Split, TrailingSpacesInOneWalk) {
  const auto known = known_matcher(patterns::kTrailingSpaces);
  const std::string s = std::string(1 << 20, ' ') + "x";  // by backtracking: 2^39 steps
  EXPECT_TRUE(find(*known, s).empty());
}

}  // namespace
}  // namespace barg::text::tokenizer_split_test
