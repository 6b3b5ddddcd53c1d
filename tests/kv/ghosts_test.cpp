// Digests of what left not long ago, against a list.
#include "kv/ghosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/env.h"

namespace barg::kv::ghosts_test {
namespace {

/// Many of them with equal low bits, so that they meet in the table.
Digest digest(std::uint64_t n) {
  Digest d{};
  const std::uint64_t first = (n % 3) | (n << 40);
  std::memcpy(d.data(), &first, sizeof first);
  return d;
}

TEST(Ghosts, EqualAListOfTheYoungest) {
  for (const std::int64_t capacity : {0, 1, 2, 7, 64}) {
    Rng rng(11);
    Ghosts ghosts(capacity);
    std::deque<std::uint64_t> places;  // 0 = left; a place is used again after `capacity` insertions
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t n = 1 + rng.below(static_cast<std::uint64_t>(3 * capacity + 2));
      const auto it = std::find(places.begin(), places.end(), n);
      if (rng.below(2) == 0) {
        ASSERT_EQ(ghosts.erase(digest(n)), it != places.end());
        if (it != places.end()) *it = 0;
      } else {
        ghosts.insert(digest(n));
        if (it == places.end()) places.push_back(n);
        if (static_cast<std::int64_t>(places.size()) > capacity) places.pop_front();
      }
      ASSERT_EQ(ghosts.size(),
                static_cast<std::int64_t>(places.size()) - std::count(places.begin(), places.end(), 0U));
    }
  }
}

}  // namespace
}  // namespace barg::kv::ghosts_test
