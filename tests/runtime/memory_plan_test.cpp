#include "runtime/memory_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace barg::runtime::memory_plan_test {
namespace {

constexpr std::uint64_t kGiB = 1ULL << 30;

model::LayerGroup group(std::int32_t window, std::int32_t layers, std::int32_t heads = 2,
                        std::int32_t dim = 64) {
  model::LayerGroup g;
  g.kind = window > 0 ? model::StateKind::kSlidingWindow : model::StateKind::kFullAttention;
  g.window = window;
  g.num_kv_heads = heads;
  g.head_dim = dim;
  for (std::int32_t i = 0; i < layers; ++i) g.layers.push_back(i);
  return g;
}

ModelShape shape(std::vector<model::LayerGroup> groups, std::int32_t max_position = 4096) {
  ModelShape s;
  s.groups = std::move(groups);
  s.max_position = max_position;
  s.file_bytes = 100;
  s.weight_bytes = 128;
  s.workspace_bytes = 1000;
  s.hidden = 128;
  s.logits_dim = 1000;
  return s;
}

KvPoolSpec f16(const ModelShape& s, std::int32_t block = 16) {
  KvPoolSpec spec{.dtype = DType::kF16, .block_tokens = block, .head_bytes = {}};
  for (const auto& g : s.groups) spec.head_bytes.push_back(2 * 2 * block * g.head_dim);
  return spec;
}

std::uint64_t sum_kv(const MemoryPlan& p) {
  std::uint64_t sum = 0;
  for (std::size_t g = 0; g < p.num_blocks.size(); ++g) {
    sum += static_cast<std::uint64_t>(p.num_blocks[g] * p.block_bytes[g]);
  }
  return sum;
}

TEST(MemoryPlan, SizesAreExact) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.kv.memory_bytes = 64 << 20;
  const auto p = plan_memory(c, Recipe::kInt8, s, f16(s), 8 * kGiB);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->kv_bytes_per_token, 4U * 2 * 64 * 2 * 2);
  EXPECT_EQ(p->block_bytes, std::vector<std::int64_t>{4 * 2 * 64 * 2 * 2 * 16});
  EXPECT_EQ(p->num_blocks, std::vector<std::int64_t>{(64 << 20) / p->block_bytes[0]});
  EXPECT_EQ(p->activation_bytes, 512U * 128 * 4);
  EXPECT_EQ(p->logits_bytes, 64U * 1000 * 4);
  EXPECT_EQ(p->kv_bytes, sum_kv(*p));
  EXPECT_EQ(p->total_bytes,
            p->weight_bytes + p->kv_bytes + p->activation_bytes + p->workspace_bytes + p->logits_bytes);
  EXPECT_EQ(p->max_model_len, 4096);
  EXPECT_TRUE(p->notes.empty());
}

TEST(MemoryPlan, AutomaticPoolStopsAtFullContextsOrFortyPercent) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.scheduler.max_num_seqs = 8;
  const auto small = plan_memory(c, Recipe::kF32, s, f16(s), 64 * kGiB);
  ASSERT_TRUE(small);
  EXPECT_EQ(small->num_blocks[0], 8 * 4096 / 16);
  c.scheduler.max_num_seqs = 100000;
  const auto large = plan_memory(c, Recipe::kF32, s, f16(s), 10 * kGiB);
  ASSERT_TRUE(large);
  EXPECT_LE(large->kv_bytes, 4 * kGiB);
  EXPECT_GT(large->kv_bytes, 4 * kGiB - (1 << 20));
}

TEST(MemoryPlan, SmallPoolShortensTheContextAndSaysSo) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.kv.memory_bytes = 10 * static_cast<std::uint64_t>(f16(s).head_bytes[0]) * 2 * 4 + 5;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->num_blocks[0], 10);
  EXPECT_EQ(p->max_model_len, 160);
  ASSERT_EQ(p->notes.size(), 1U);
  EXPECT_NE(p->notes[0].find("shortened from 4096 to 160"), std::string::npos) << p->notes[0];
}

TEST(MemoryPlan, APoolAboveWhatIsAvailableIsServedAndSaidSo) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.kv.memory_bytes = 2 * kGiB;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_TRUE(p);
  ASSERT_EQ(p->notes.size(), 1U);
  EXPECT_NE(p->notes[0].find("only 1024.0 MiB are available"), std::string::npos) << p->notes[0];
}

TEST(MemoryPlan, TooSmallIsOneSentence) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.kv.memory_bytes = 1;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(p.error().param, "kv.memory_bytes");
  c.kv.memory_bytes = 0;
  EXPECT_FALSE(plan_memory(c, Recipe::kF32, s, f16(s), 1000));
}

model::LayerGroup states(std::int64_t bytes, std::int32_t layers) {
  model::LayerGroup g;
  g.kind = model::StateKind::kRecurrent;
  g.state_bytes = bytes;
  for (std::int32_t i = 0; i < layers; ++i) g.layers.push_back(i);
  return g;
}

TEST(MemoryPlan, SnapshotsAreAsFarApartAsTheirBytesAreWorth) {
  // 4 layers x 2 heads x 64 x 2 planes x 2 bytes = 2 KiB a token beside states of different sizes.
  for (const auto& [bytes, tokens] :
       {std::pair{64 << 10, 64}, {(2 << 10) * 65, 128}, {(2 << 10) * 200, 256}, {64 << 20, 512}}) {
    const auto s = shape({group(0, 4), states(bytes, 1)});
    Config c;
    c.kv.memory_bytes = 4 * kGiB;
    const auto p = plan_memory(c, Recipe::kF32, s, f16(s), 64 * kGiB);
    ASSERT_TRUE(p) << p.error().message;
    EXPECT_EQ(p->group_tokens, (std::vector<std::int32_t>{16, tokens})) << bytes;
    EXPECT_EQ(p->block_tokens, 16);
    EXPECT_EQ(p->block_bytes[1], bytes);
    EXPECT_EQ(p->kv_bytes_per_token, static_cast<std::uint64_t>(2048 + (bytes + tokens - 1) / tokens));
  }
}

TEST(MemoryPlan, StatesGetAtMostHalfOfThePool) {
  const auto s = shape({group(0, 4), states(1 << 20, 3)});
  Config c;
  c.kv.memory_bytes = 256 << 20;
  c.scheduler.max_num_seqs = 64;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->num_blocks[1], (128 << 20) / (3 << 20));
  EXPECT_LE(sum_kv(*p), c.kv.memory_bytes);
  c.scheduler.max_num_seqs = 2;
  EXPECT_EQ(plan_memory(c, Recipe::kF32, s, f16(s), kGiB)->num_blocks[1], 2 * kStatesPerSequence);
  c.kv.memory_bytes = 2 << 20;  // not one state
  const auto none = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
}

TEST(MemoryPlan, AModelWithoutAttentionHasBlocksAsLongAsItsInterval) {
  const auto s = shape({states(1 << 20, 3)});
  Config c;
  c.kv.memory_bytes = 100 << 20;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->block_tokens, kMostInterval);
  EXPECT_EQ(p->group_tokens, std::vector<std::int32_t>{512});
  EXPECT_EQ(p->num_blocks[0], 33);
  EXPECT_EQ(p->max_model_len, 4096);
}

TEST(MemoryPlan, LongerThanTheModelIsAWarning) {
  const auto s = shape({group(0, 4)}, 256);
  Config c;
  c.model.max_model_len = 1000;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->max_model_len, 1000);
  EXPECT_EQ(p->notes.size(), 1U);
}

TEST(MemoryPlan, EveryGroupHoldsOneWholeSequence) {
  // Property over shapes and pools: whatever the pool, a sequence of max_model_len fits every group, and the
  // sum stays within the pool.
  for (const std::int32_t window : {16, 100, 512, 4000}) {
    for (const std::int32_t rows : {1, 64, 512}) {
      for (std::uint64_t pool = 300'000; pool < 400'000'000; pool = pool * 7 / 4) {
        const auto s = shape({group(window, 5), group(0, 2)}, 8192);
        Config c;
        c.kv.memory_bytes = pool;
        c.scheduler.max_num_batched_tokens = rows;
        const auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
        if (!p) continue;
        EXPECT_LE(p->kv_bytes, pool);
        const std::int64_t all = (p->max_model_len + 15) / 16;
        const std::int64_t windowed = std::min<std::int64_t>(all, (window + rows + 15) / 16 + 2);
        EXPECT_GE(p->num_blocks[0], windowed) << window << " " << rows << " " << pool;
        EXPECT_GE(p->num_blocks[1], all) << window << " " << rows << " " << pool;
      }
    }
  }
}

TEST(MemoryPlan, WindowGroupTakesAtMostHalf) {
  const auto s = shape({group(512, 4), group(0, 4)}, 65536);
  Config c;
  c.kv.memory_bytes = 512 << 20;
  const auto p = plan_memory(c, Recipe::kF32, s, f16(s), 8 * kGiB);
  ASSERT_TRUE(p);
  EXPECT_LE(p->num_blocks[0] * p->block_bytes[0], 256 << 20);
  EXPECT_GE(p->num_blocks[1] * p->block_bytes[1], (256 << 20) - p->block_bytes[1]);
}

TEST(MemoryPlan, RefusesBadOptions) {
  const auto s = shape({group(0, 4)});
  Config c;
  c.kv.block_size = 24;
  auto p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().param, "kv.block_size");
  c = {};
  c.scheduler.max_num_batched_tokens = 0;
  p = plan_memory(c, Recipe::kF32, s, f16(s), kGiB);
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().param, "scheduler.max_num_batched_tokens");
}

/// A made-up root directory with /proc and cgroup files.
class FakeRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        std::filesystem::temp_directory_path() / ("barg_memory_" + std::to_string(getpid()) + info->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(FakeRoot, MeminfoAlone) {
  write("proc/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(available_memory(root_.string()), 5000U * 1024);
}

TEST_F(FakeRoot, CgroupTwoLimitsAlsoFromAbove) {
  write("proc/meminfo", "MemAvailable: 8000000 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/memory.current", "700000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 500000\ninactive_file 150000\n");
  EXPECT_EQ(available_memory(root_.string()), 1000000U - (700000 - 150000));
}

TEST_F(FakeRoot, CgroupOne) {
  write("proc/meminfo", "MemAvailable: 8000000 kB\n");
  write("proc/self/cgroup", "4:cpu,memory:/x\n3:cpuset:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000000\n");
  EXPECT_EQ(available_memory(root_.string()), 0U);
}

TEST(AvailableMemory, ThisMachineHasSome) { EXPECT_GT(available_memory(), 1U << 20); }

}  // namespace
}  // namespace barg::runtime::memory_plan_test
