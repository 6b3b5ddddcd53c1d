// KvMemory: where a block's planes lie, and that a large pool costs only what is used of it.
#include "runtime/kv_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/pages.h"

namespace barg::runtime::kv_memory_test {
namespace {

model::LayerGroup two_layers() {
  model::LayerGroup group;
  group.num_kv_heads = 2;
  group.head_dim = 64;
  group.layers = {0, 1};
  return group;
}

std::size_t resident_bytes(const std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  EXPECT_EQ(mincore(const_cast<std::byte*>(begin), bytes, pages.data()), 0);
  return 4096 * static_cast<std::size_t>(
                    std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(KvMemory, ABlockIsOneRunOfLayersAndHeads) {
  const model::LayerGroup group = two_layers();
  const KvMemory::GroupSpec spec{.group = &group, .num_blocks = 3, .head_bytes = 4096, .block_tokens = 16};
  const auto kv = KvMemory::create({&spec, 1}, DType::kF16);
  ASSERT_TRUE(kv);
  EXPECT_EQ(kv->block_stride(0), 4 * 4096);
  ASSERT_EQ(kv->layers(0).size(), 2U);
  EXPECT_EQ(kv->layers(0)[1].base - kv->base(0), 2 * 4096);
  EXPECT_EQ(kv->layers(0)[1].head_stride, 4096);
  EXPECT_EQ(kv->layers(0)[1].v_offset, 2048);
}

TEST(KvMemory, ABlockOfStatesIsOneRunOfLayers) {
  model::LayerGroup group;
  group.kind = model::StateKind::kRecurrent;
  group.layers = {0, 1, 3};
  group.state_bytes = 640;
  const KvMemory::GroupSpec spec{.group = &group, .num_blocks = 4, .head_bytes = 0, .block_tokens = 128};
  const auto kv = KvMemory::create({&spec, 1}, DType::kF16);
  ASSERT_TRUE(kv);
  EXPECT_EQ(kv->block_stride(0), 3 * 640);
  EXPECT_EQ(kv->block_tokens(0), 128);
  EXPECT_TRUE(kv->layers(0).empty());
  ASSERT_EQ(kv->states(0).size(), 3U);
  EXPECT_EQ(kv->states(0)[2].base - kv->base(0), 2 * 640);
  EXPECT_EQ(kv->states(0)[2].block_stride, 3 * 640);
  EXPECT_EQ(kv->states(0)[2].block_tokens, 128);
}

TEST(KvMemory, AnIdlePoolCostsWhatItsFirstBlocksTake) {
  const model::LayerGroup group = two_layers();
  const KvMemory::GroupSpec spec{.group = &group, .num_blocks = 4000, .head_bytes = 64 << 10, .block_tokens = 16};  // 1 GB
  const auto kv = KvMemory::create({&spec, 1}, DType::kF16);
  ASSERT_TRUE(kv);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kv->base(0)) % Pages::kHuge, 0U);
  std::memset(kv->base(0), 1, static_cast<std::size_t>(kv->block_stride(0)) * 9);
  const std::size_t resident = resident_bytes(kv->base(0), std::size_t{4000} * (256 << 10));
  EXPECT_GE(resident, std::size_t{9} * (256 << 10));
  EXPECT_LE(resident, std::size_t{9} * (256 << 10) + Pages::kHuge);
}

TEST(KvMemory, SizesThatCannotBeAreRefused) {
  const model::LayerGroup group = two_layers();
  for (const std::int64_t blocks : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max() / 4096}) {
    const KvMemory::GroupSpec spec{.group = &group, .num_blocks = blocks, .head_bytes = 64 << 10, .block_tokens = 16};
    const auto kv = KvMemory::create({&spec, 1}, DType::kF16);
    ASSERT_FALSE(kv);
    EXPECT_EQ(kv.error().code, ErrorCode::kOutOfMemory);
  }
}

}  // namespace
}  // namespace barg::runtime::kv_memory_test
