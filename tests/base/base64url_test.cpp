#include "base/base64url.h"

#include <gtest/gtest.h>

#include "base/env.h"

namespace barg::base64url_test {
namespace {

TEST(Base64Url, KnownTexts) {
  EXPECT_EQ(to_base64url(""), "");
  EXPECT_EQ(to_base64url("f"), "Zg");
  EXPECT_EQ(to_base64url("fo"), "Zm8");
  EXPECT_EQ(to_base64url("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64url("\xFB\xFF"), "-_8");
}

TEST(Base64Url, ComesBackForEveryLength) {
  Rng rng(1);
  for (std::size_t n = 0; n < 100; ++n) {
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(rng.below(256));
    EXPECT_EQ(from_base64url(to_base64url(bytes)), bytes);
  }
}

TEST(Base64Url, NothingElseIsRead) {
  for (const char* text : {"=", "Zg==", "Z", "Zh", "Zm9=", "+/", "Zm 8", "Zm8\n"})
    EXPECT_FALSE(from_base64url(text)) << text;
}

}  // namespace
}  // namespace barg::base64url_test
