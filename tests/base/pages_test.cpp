// Pages: zero, aligned, huge where the kernel has huge pages, and gone when the owner goes.
#include "base/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace barg::pages_test {
namespace {

/// A field of the mapping that holds `address`, in bytes.
std::uint64_t smaps_bytes(const void* address, const std::string& key) {
  std::ifstream in("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const std::size_t dash = line.find('-');
    if (dash != std::string::npos && line.find(' ') > dash &&
        std::isxdigit(static_cast<unsigned char>(line[0]))) {
      inside = std::stoull(line.substr(0, dash), nullptr, 16) <= wanted &&
               wanted < std::stoull(line.substr(dash + 1), nullptr, 16);
    } else if (inside && line.starts_with(key + ":")) {
      return std::stoull(line.substr(key.size() + 1)) * 1024;
    }
  }
  return 0;
}

TEST(Pages, AreZeroAndAligned) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, Pages::kHuge - 1,
                                  Pages::kHuge, 3 * Pages::kHuge + 17}) {
    auto pages = Pages::map(bytes, true);
    ASSERT_TRUE(pages);
    EXPECT_GE(pages->size(), bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(pages->data());
    EXPECT_EQ(address % (bytes >= Pages::kHuge ? Pages::kHuge : 4096), 0U);
    EXPECT_TRUE(
        std::all_of(pages->data(), pages->data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(pages->data(), 1, pages->size());
  }
  EXPECT_FALSE(Pages::map(std::numeric_limits<std::size_t>::max(), false));
  EXPECT_FALSE(Pages::map(std::size_t{1} << 60, false));
}

TEST(Pages, MovingKeepsTheMemory) {
  auto a = *Pages::map(4096, true);
  a.data()[7] = std::byte{9};
  const std::byte* where = a.data();
  Pages b = std::move(a);
  EXPECT_EQ(b.data(), where);
  EXPECT_EQ(b.data()[7], std::byte{9});
  Pages c;
  c = std::move(b);
  EXPECT_EQ(c.data(), where);
}

TEST(Pages, AreHugeWhereTheKernelHasHugePages) {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(in, modes);
  if (modes.find("[madvise]") == std::string::npos && modes.find("[always]") == std::string::npos)
    GTEST_SKIP() << "transparent huge pages are off here: '" << modes << "'";
  auto pages = Pages::map(32 * Pages::kHuge, true);
  ASSERT_TRUE(pages);
  std::memset(pages->data(), 1, pages->size());
  EXPECT_GT(smaps_bytes(pages->data(), "AnonHugePages"), 0U);
}

TEST(Pages, UntouchedOnesCostNothing) {
  auto pages = Pages::map(std::size_t{64} << 20, false);
  ASSERT_TRUE(pages);
  pages->data()[0] = std::byte{1};
  EXPECT_LE(smaps_bytes(pages->data(), "Rss"), Pages::kHuge);
}

}  // namespace
}  // namespace barg::pages_test
