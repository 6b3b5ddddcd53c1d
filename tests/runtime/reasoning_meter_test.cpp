#include "runtime/reasoning_meter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/env.h"

namespace barg::runtime::reasoning_meter_test {
namespace {

bool ends_with(const std::vector<TokenId>& list, const std::vector<TokenId>& tail) {
  return !tail.empty() && list.size() >= tail.size() && std::equal(tail.rbegin(), tail.rend(), list.rbegin());
}

/// The definition, from the start every time.
TokenId naive_forced(const ReasoningLimit& limit, const std::vector<TokenId>& outputs) {
  bool inside = limit.open;
  std::size_t spent = 0;  // in blocks that have ended
  std::vector<TokenId> block;
  for (const TokenId id : outputs) {
    block.push_back(id);
    if (!ends_with(block, inside ? limit.close : limit.begin)) continue;
    if (inside) spent += block.size() - limit.close.size();
    inside = !inside;
    block.clear();
  }
  if (!inside || spent + block.size() < static_cast<std::size_t>(limit.budget)) return kNoToken;
  for (std::size_t k = std::min(block.size(), limit.close.size() - 1); k > 0; --k) {
    if (ends_with(block, {limit.close.begin(), limit.close.begin() + static_cast<std::ptrdiff_t>(k)})) return limit.close[k];
  }
  return limit.close[0];
}

std::vector<TokenId> random_ids(Rng& rng, std::size_t count) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(rng.below(3)));
  return ids;
}

TEST(ReasoningMeter, EqualsTheDefinitionForMarkersThatOverlapThemselves) {
  Rng rng(5);
  int forced = 0, free = 0;
  for (int round = 0; round < 3000; ++round) {
    ReasoningLimit limit{.budget = static_cast<std::int32_t>(rng.below(12)), .open = rng.below(2) == 0};
    limit.begin = random_ids(rng, rng.below(4));
    limit.close = random_ids(rng, 1 + rng.below(4));
    ReasoningMeter meter(limit);
    std::vector<TokenId> outputs;
    for (int i = 0; i < 40; ++i) {
      const TokenId want = naive_forced(limit, outputs);
      ASSERT_EQ(meter.forced(), want) << "round " << round << ", output " << i;
      (want == kNoToken ? free : forced) += 1;
      outputs.push_back(want == kNoToken ? static_cast<TokenId>(rng.below(3)) : want);
      meter.push(outputs.back());
    }
    // Any earlier state can be taken up again.
    outputs.resize(rng.below(outputs.size()));
    meter.replay(outputs);
    ASSERT_EQ(meter.forced(), naive_forced(limit, outputs));
  }
  EXPECT_GT(forced, 1000);
  EXPECT_GT(free, 1000);
}

TEST(ReasoningMeter, ABudgetOfNothingClosesAtOnce) {
  const ReasoningLimit limit{.budget = 0, .open = true, .begin = {7}, .close = {8, 9}};
  ReasoningMeter meter(limit);
  EXPECT_EQ(meter.forced(), 8);
  meter.push(8);
  EXPECT_EQ(meter.forced(), 9);
  meter.push(9);
  EXPECT_EQ(meter.forced(), kNoToken);
  meter.push(7);  // a block that opens again has nothing left either
  EXPECT_EQ(meter.forced(), 8);
}

}  // namespace
}  // namespace barg::runtime::reasoning_meter_test
