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
                                 patterns::kSpaceLetters, patterns::kSpacePunctuation};

// Every class and every border between classes that a pattern speaks of; nothing newer than Unicode 13, which
// PCRE2 may not know.
const char32_t kAlphabet[] = {'a',    'b',    's',    't',    'r',    'e',    'v',   'm',    'l',    'd',    'A',    'S',
                              'L',    'E',    '0',    '7',    ' ',    ' ',    ' ',   '\n',   '\r',   '\t',   '\'',   '\'',
                              '/',    '.',    '!',    '$',    '_',    0,      0x1F,  0x85,   0xA0,   0xB2,   0xC9,   0xE9,
                              0x17F,  0x1C5,  0x2B0,  0x301,  0x4E2D, 0x5D0,  0x661, 0x903,  0x2028, 0x2019, 0x20AC, 0x3000,
                              0x180E, 0x200B, 0x200D, 0xE000, 0x1F600, 0x10400};

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
  m.find_all(s, out);
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
  step.run(s, {{0, s.size()}}, out);
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
  for (const char* pattern : {"[a&&b]", "[[a]b]", "[\\S]", "\\h", "(", "a\\", "\\u12", "[\\b]", "\\O"}) {
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

TEST(Split, HostileTextOnAHostilePatternEnds) {
  const auto m = regex_matcher("(a+)+b");
  ASSERT_TRUE(m);
  EXPECT_TRUE(find(**m, std::string(64, 'a') + "cb").empty()) << "the match limit stops it; the text stays whole";
  const auto words = regex_matcher(R"(\p{L}+|\s+)");
  ASSERT_TRUE(words);
  EXPECT_EQ(find(**words, std::string(1 << 20, 'a')).size(), 1u) << "long runs are no reason to give up";
}

}  // namespace
}  // namespace barg::text::tokenizer_split_test
