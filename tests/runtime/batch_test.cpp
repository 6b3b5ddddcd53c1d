#include "runtime/batch.h"

#include <gtest/gtest.h>

#include "cpu/cpu.h"

namespace barg::runtime::batch_test {
namespace {

struct Fixture {
  explicit Fixture(std::int32_t block = 16) {
    for (std::size_t g = 0; g < 2; ++g) {
      model::LayerGroup group;
      group.num_kv_heads = 2;
      group.head_dim = 16;
      group.layers = g == 0 ? std::vector<std::int32_t>{0, 2} : std::vector<std::int32_t>{1};
      groups.push_back(group);
    }
    const std::int64_t head = 2 * 4 * block * 16;
    const KvMemory::GroupSpec specs[] = {{&groups[0], 8, head, block}, {&groups[1], 4, head, block}};
    kv = std::move(*KvMemory::create(specs, DType::kF32));
  }
  std::vector<model::LayerGroup> groups;
  KvMemory kv;
};

TEST(KvMemory, PartsAreContiguousAndDoNotOverlap) {
  Fixture f;
  const auto& layers = f.kv.layers(0);
  ASSERT_EQ(layers.size(), 2U);
  const std::int64_t head = 2 * 4 * 16 * 16;
  EXPECT_EQ(f.kv.block_stride(0), 2 * 2 * head);  // layers x heads x planes
  EXPECT_EQ(layers[0].head_stride, head);
  EXPECT_EQ(layers[0].v_offset, head / 2);
  EXPECT_EQ(layers[1].base - layers[0].base, 2 * head);
  EXPECT_EQ(layers[0].base, f.kv.base(0));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(f.kv.base(0)) % 64, 0U);
  // The last byte of the last head of the last layer of the last block is inside the mapping.
  std::byte* last = layers[1].base + 7 * f.kv.block_stride(0) + 2 * head - 1;
  *last = std::byte{1};
  EXPECT_EQ(last, f.kv.base(0) + 8 * f.kv.block_stride(0) - 1);
}

sched::StepPlan two_items() {
  sched::StepPlan plan;
  plan.id = StepId{1};
  plan.num_groups = 2;
  plan.tokens = {10, 11, 12, sched::kPendingToken};
  plan.block_ids = {3, 1, kNoBlock, 2, 5, 0};
  plan.tables = {{0, 1}, {1, 1}, {2, 2}, {4, 2}};
  plan.items = {{.seq = SeqId{7},
                 .start = 0,
                 .count = 3,
                 .token_offset = 0,
                 .table_offset = 0,
                 .want = sched::Want::kLogits,
                 .logits_begin = 1,
                 .sample = true,
                 .output_index = 0},
                {.seq = SeqId{8},
                 .start = 20,
                 .count = 1,
                 .token_offset = 3,
                 .table_offset = 2,
                 .want = sched::Want::kLogits,
                 .logits_begin = 0,
                 .sample = true,
                 .output_index = 4}};
  return plan;
}

TEST(BatchBuilder, FlattensItems) {
  Fixture f;
  // Group 1 has 4 blocks; the second item writes its block 1 (tokens 16..31), which is block 0 there.
  auto plan = two_items();
  BatchBuilder builder;
  const TokenId last[] = {0, 99};
  const auto& batch = builder.build(plan, last, f.kv);
  ASSERT_EQ(batch.rows, 4);
  EXPECT_EQ(std::vector(batch.tokens, batch.tokens + 4), (std::vector<std::int32_t>{10, 11, 12, 99}));
  EXPECT_EQ(std::vector(batch.positions, batch.positions + 4), (std::vector<std::int32_t>{0, 1, 2, 20}));
  ASSERT_EQ(batch.groups.size(), 2U);
  ASSERT_EQ(batch.groups[1].segments.size(), 2U);
  EXPECT_EQ(batch.groups[1].segments[1].row_begin, 3);
  EXPECT_EQ(batch.groups[1].segments[1].pos_begin, 20);
  EXPECT_EQ(batch.groups[1].segments[1].block_table[1], 0);
  EXPECT_EQ(batch.groups[0].segments[1].block_table[0], kNoBlock);
  EXPECT_EQ(batch.groups[0].layers.size(), 2U);

  const auto rows = builder.logits_rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_FALSE(rows[0].sample);
  EXPECT_EQ(rows[1].position, 2);
  EXPECT_TRUE(rows[1].sample);
  EXPECT_EQ(rows[2].item, 1);

  EXPECT_EQ(std::vector(batch.wanted.begin(), batch.wanted.end()), (std::vector<std::int32_t>{1, 2, 3}));
  ASSERT_EQ(batch.groups[1].wanted_segments.size(), 2U);
  EXPECT_EQ(batch.groups[1].wanted_segments[0].row_count, 2);
  EXPECT_EQ(batch.groups[1].wanted_segments[0].pos_begin, 1);
  EXPECT_EQ(batch.groups[1].wanted_segments[1].row_begin, 2);
  EXPECT_EQ(batch.groups[1].wanted_segments[1].pos_begin, 20);
  EXPECT_EQ(batch.groups[1].wanted_segments[1].block_table[1], 0);
}

TEST(BatchBuilder, IsReusable) {
  Fixture f;
  auto plan = two_items();
  BatchBuilder builder;
  const TokenId last[] = {0, 99};
  builder.build(plan, last, f.kv);
  const auto& again = builder.build(plan, last, f.kv);
  EXPECT_EQ(again.rows, 4);
  EXPECT_EQ(again.groups[0].segments.size(), 2U);
  EXPECT_EQ(again.groups[0].wanted_segments.size(), 2U);
  EXPECT_EQ(again.wanted.size(), 3U);
  EXPECT_EQ(builder.logits_rows().size(), 3U);
}

TEST(BatchBuilderDeathTest, RefusesBlocksOutsideTheArena) {
  Fixture f;
  const TokenId last[] = {0, 99};
  auto plan = two_items();
  plan.block_ids[3] = 8;  // group 0 has 8 blocks: 0..7
  EXPECT_DEATH(BatchBuilder().build(plan, last, f.kv), "CHECK failed");
  plan = two_items();
  plan.tables[2].length = 1;  // does not cover position 20
  EXPECT_DEATH(BatchBuilder().build(plan, last, f.kv), "CHECK failed");
}

TEST(CopyBlocks, ChainsInOrder) {
  Fixture f;
  ops::CpuDevice device({.threads = 1, .isa = ops::Isa::kScalar});
  auto* bytes = f.kv.base(0);
  const auto stride = static_cast<std::size_t>(f.kv.block_stride(0));
  std::fill(bytes, bytes + stride, std::byte{7});
  sched::StepPlan plan;
  plan.copies = {{.group = 0, .src = 0, .dst = 3, .tokens = 5},
                 {.group = 0, .src = 3, .dst = 6, .tokens = 5}};
  copy_blocks(plan, f.kv, device.ops(), device.stream());
  EXPECT_EQ(bytes[6 * stride], std::byte{7});
  EXPECT_EQ(bytes[7 * stride - 1], std::byte{7});
  EXPECT_EQ(bytes[7 * stride], std::byte{0});
}

}  // namespace
}  // namespace barg::runtime::batch_test
