// CudaBatch in memory of every size: it fits, or says that it does not; it never writes beside it.
#include "runtime/cuda_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace barg::runtime::batch_test {
namespace {

TEST(CudaBatch, SaysWhenTheMemoryIsTooSmall) {
  const model::LayerGroup group{.num_kv_heads = 1, .head_dim = 64, .layers = {0}};
  sched::StepPlan plan;
  plan.block_ids = {3, 1, 2};
  const std::vector<std::int32_t> tokens(40, 5), positions(40, 0), wanted{10, 20, 30, 39};
  const ops::Segment segment{0, 40, 0, plan.block_ids.data()}, last{0, 4, 36, plan.block_ids.data()};
  model::ForwardBatch built;
  built.rows = 40;
  built.tokens = tokens.data();
  built.positions = positions.data();
  built.wanted = wanted;
  built.groups.push_back({.layers = {}, .states = {}, .segments = {&segment, 1}, .wanted_segments = {&last, 1}});
  CudaBatch batch({.kv_dtype = DType::kF16, .num_q_heads = 3, .workers = 1, .slot_floats = 1 << 20, .groups = {group}});
  constexpr std::size_t kRoom = 8192, kGuard = 256;
  std::size_t needed = 0;
  for (std::size_t bytes = 0; bytes <= kRoom; bytes += 4) {
    alignas(16) std::byte memory[kRoom + kGuard];
    std::fill(std::begin(memory), std::end(memory), std::byte{0x5a});
    StagedMemory staged(memory, memory, bytes);
    const model::ForwardBatch& step = batch.stage(built, plan, 0, staged);
    EXPECT_TRUE(std::all_of(memory + bytes, std::end(memory), [](std::byte b) { return b == std::byte{0x5a}; })) << bytes;
    if (staged.full()) {
      EXPECT_EQ(needed, 0U) << "more memory suffices where less did: " << bytes;
      continue;
    }
    if (needed == 0) needed = bytes;
    EXPECT_EQ(staged.used(), needed);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), step.wanted.begin(), step.wanted.end()));
    EXPECT_EQ(step.groups[0].segments[0].block_table[1], 1);
    EXPECT_EQ(batch.samples().size(), wanted.size());
  }
  EXPECT_GT(needed, 40U * 8);
}

}  // namespace
}  // namespace barg::runtime::batch_test
