#include "base/utf8.h"

#include <gtest/gtest.h>

namespace barg::utf8_test {
namespace {

TEST(Utf8, RepairsMaximalSubpartsLikePython) {
  // bytes.decode("utf-8", "replace") of each.
  EXPECT_EQ(repair_utf8("a\xF0\x9F\x98z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(repair_utf8("\xE2\x82"), "\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8("é😀"), "é😀");
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t cp = 0; cp <= 0x10FFFF; ++cp) {
    if (cp >= 0xD800 && cp < 0xE000) continue;
    std::string s;
    append_utf8(s, cp);
    ASSERT_TRUE(is_valid_utf8(s)) << static_cast<unsigned>(cp);
    std::size_t i = 0;
    ASSERT_EQ(next_code_point(s, i), cp);
    ASSERT_EQ(i, s.size());
    for (std::size_t cut = 1; cut < s.size(); ++cut) {
      ASSERT_EQ(complete_utf8_prefix("ab" + s.substr(0, cut)), 2U) << static_cast<unsigned>(cp);
    }
    ASSERT_EQ(complete_utf8_prefix("ab" + s), 2 + s.size());
  }
}

TEST(Utf8, AnInvalidTailIsComplete) {
  EXPECT_EQ(complete_utf8_prefix("a\xFF"), 2U);
  EXPECT_EQ(complete_utf8_prefix("a\x80\x80"), 3U);
}

}  // namespace
}  // namespace barg::utf8_test
