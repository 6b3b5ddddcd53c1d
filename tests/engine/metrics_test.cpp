#include "engine/metrics.h"

#include <gtest/gtest.h>

#include <vector>

namespace barg::metrics_test {
namespace {

TEST(Histogram, BoundsAreInclusive) {
  const double bounds[] = {1, 2, 5};
  Histogram h(bounds);
  for (const double v : {0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 5.1}) h.observe(v);
  h.observe(100, 3);
  EXPECT_EQ(std::vector(h.counts().begin(), h.counts().end()), (std::vector<std::uint64_t>{2, 2, 2, 4}));
  EXPECT_EQ(h.count(), 10U);
  EXPECT_DOUBLE_EQ(h.sum(), 0.5 + 1 + 1.5 + 2 + 2.5 + 5 + 5.1 + 300);
}

TEST(EngineMetrics, TokenBucketsAreOneTwoFive) {
  const EngineMetrics m(4096);
  const auto bounds = m.request_prompt_tokens.bounds();
  EXPECT_EQ(std::vector(bounds.begin(), bounds.end()),
            (std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}));
  EXPECT_EQ(m.time_to_first_token.bounds().size(), 22U);
  EXPECT_EQ(m.inter_token_latency.bounds().size(), 19U);
  EXPECT_EQ(m.e2e_request_latency.bounds().size(), 21U);
  EXPECT_EQ(m.request_params_n.bounds().size(), 5U);
}

}  // namespace
}  // namespace barg::metrics_test
