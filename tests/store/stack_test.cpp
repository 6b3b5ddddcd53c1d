// TierStack on tiers in memory: what is saved where, what comes back, and every way in which it may not.
#include <gtest/gtest.h>

#include <atomic>

#include "store/stack_support.h"

namespace barg::store {
namespace {

constexpr int kInDram = 0, kOnDisk = 1, kInRemote = 2, kNowhere = 3;

// ---- DRAM alone

TEST_F(StackTest, DramGivesBackWhatWasSaved) {
  open(dram(64));
  for (std::uint64_t id = 0; id < 20; ++id) EXPECT_TRUE(save(id));
  EXPECT_FALSE(save(3)) << "it is there already: nobody need touch the bytes";
  EXPECT_EQ(find({0, 19, 20}), (std::vector<int>{kInDram, kInDram, kNowhere}));
  Loads loads;
  load(loads, {0, 7, 20, 19});
  ASSERT_TRUE(loads.wait(4));
  for (const std::uint64_t id : {0, 7, 19}) expect_bytes(loads, id, TierKind::kDram);
  EXPECT_EQ(loads.end(20).status, Status::kMissing);
  expect_idle();
}

TEST_F(StackTest, DramEvictsTheLeastRecentlyUsed) {
  open(dram(64));  // of which an eighth stands free
  for (std::uint64_t id = 0; id < 100; ++id) EXPECT_TRUE(save(id * 100));
  const StackStats s = stack_->stats();
  EXPECT_EQ(s.kinds[0].entries, 56U);
  EXPECT_EQ(s.kinds[0].evictions, 44U);
  EXPECT_EQ(find({0, 4300, 4400, 9900}), (std::vector<int>{kNowhere, kNowhere, kInDram, kInDram}));
  expect_idle();
}

TEST_F(StackTest, PartsOfSeveralLengthsShareTheArena) {
  const Domain domain{.root = {}, .part_bytes = {4096, 10000}, .label = "test"};
  stack_ = std::make_unique<TierStack>(domain, std::vector<std::unique_ptr<Tier>>{},
                                       StackOptions{.dram_bytes = 40 * 4096}, clock_);
  Loads loads;
  for (std::uint64_t id = 0; id < 400; ++id) {
    const std::uint32_t part = id < 100 ? 0 : id < 200 ? 1 : static_cast<std::uint32_t>(id % 2);
    const SaveItem item{.key = key_of(id, part), .info = {}, .why = SaveWhy::kEvicted, .uses = 0};
    ASSERT_TRUE(stack_->wants(item));
    ASSERT_TRUE(stack_->save(item, [&](Memory to) {
      ASSERT_EQ(to.length, domain.part_bytes[part]);
      const auto bytes = bytes_of(item.key, to.length);
      std::copy(bytes.begin(), bytes.end(), to.address);
    })) << id;
    stack_->load({{item.key, {}, id}}, 0, loads.collector());
    ASSERT_TRUE(loads.wait(id + 1));
    EXPECT_TRUE(loads.end(id).bytes == bytes_of(item.key, domain.part_bytes[part])) << id;
  }
  EXPECT_LE(stack_->stats().kinds[0].used_bytes, 40U * 4096);
  expect_idle();
}

TEST_F(StackTest, DamageInDramIsFoundAndForgotten) {
  StackOptions options = dram(64);
  std::atomic<bool> damage{false};
  options.damage = [&](const Key& key, Memory m) {
    if (damage.load() && key == key_of(5)) m.address[17] ^= std::byte{1};
  };
  open(options);
  for (std::uint64_t id = 4; id < 7; ++id) save(id);
  damage = true;
  Loads loads;
  load(loads, {4, 5, 6});
  ASSERT_TRUE(loads.wait(3));
  expect_bytes(loads, 4, TierKind::kDram);
  EXPECT_EQ(loads.end(5).status, Status::kMissing);
  expect_bytes(loads, 6, TierKind::kDram);
  EXPECT_EQ(find({4, 5, 6}), (std::vector<int>{kInDram, kNowhere, kInDram}));
  EXPECT_EQ(stack_->stats().verify_failed, 1U);
  damage = false;
  EXPECT_TRUE(save(5)) << "it can be saved again";
  expect_idle();
}

}  // namespace
}  // namespace barg::store
