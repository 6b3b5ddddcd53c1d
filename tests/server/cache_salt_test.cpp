#include "server/cache_salt.h"

#include <gtest/gtest.h>

#include <set>

namespace barg::server::cache_salt_test {
namespace {

TEST(CacheSalt, ProcessesWithOneSecretAgreeAndNobodyElse) {
  EXPECT_EQ(derived_salt("secret", "key", "a"), derived_salt("secret", "key", "a"));
  EXPECT_EQ(derived_salt("secret", "key", "").size(), 32U);
  std::set<std::string> all;
  for (const char* secret : {"secret", "other"}) {
    for (const char* key : {"", "key", "keya"}) {
      for (const char* salt : {"", "a", "aa", "shared", "ya"}) all.insert(derived_salt(secret, key, salt));
    }
  }
  EXPECT_EQ(all.size(), 30U) << "two of these share blocks";
}

TEST(CacheSalt, TenantsShareOnlyWhatBothNameShared) {
  EXPECT_EQ(derived_salt("s", "key 1", "shared:faq"), derived_salt("s", "key 2", "shared:faq"));
  EXPECT_NE(derived_salt("s", "key 1", "shared:faq"), derived_salt("s", "key 2", "shared:other"));
  EXPECT_NE(derived_salt("s", "key 1", "faq"), derived_salt("s", "key 2", "faq"));
  EXPECT_NE(derived_salt("s", "key 1", "shared:faq"), derived_salt("t", "key 1", "shared:faq"));
}

}  // namespace
}  // namespace barg::server::cache_salt_test
