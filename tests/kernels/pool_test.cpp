// The worker pool: every item once, results visible to the caller, many short regions, more threads than
// cores.
#include "cpu/pool.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu/cpu.h"

namespace barg::ops {
namespace {

struct Counts {
  std::vector<int> hits;
};

TEST(WorkerPool, RunsEveryItemOnceAndPublishesTheResults) {
  for (const int threads : {1, 2, 3, 8}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 2000; ++round) {
      Counts counts{std::vector<int>(static_cast<std::size_t>(round % 37), 0)};
      pool.run(
          static_cast<int>(counts.hits.size()),
          [](void* context, int i) { ++static_cast<Counts*>(context)->hits[static_cast<std::size_t>(i)]; },
          &counts);
      for (const int hits : counts.hits) ASSERT_EQ(hits, 1) << threads << " threads, round " << round;
    }
  }
}

TEST(WorkerPool, PoolsAreIndependentAndMayBeIdleOrNeverUsed) {
  WorkerPool never_used(4);
  WorkerPool a(2);
  WorkerPool b(3);
  std::atomic<int> sum{0};
  for (int i = 0; i < 100; ++i) {
    for (WorkerPool* pool : {&a, &b}) {
      pool->run(
          5, [](void* s, int item) { static_cast<std::atomic<int>*>(s)->fetch_add(item); }, &sum);
    }
  }
  EXPECT_EQ(sum.load(), 100 * 2 * 10);
}

TEST(CpuDevice, SaysWhatItIs) {
  const CpuDevice scalar({.threads = 3, .isa = Isa::kScalar});
  EXPECT_EQ(scalar.threads(), 3);
  EXPECT_STREQ(scalar.isa_name(), "scalar");
  EXPECT_STREQ(scalar.ops().name, "cpu-scalar");
  const CpuDevice best;
  EXPECT_EQ(best.threads(), cores_available());
  EXPECT_NE(best.isa(), Isa::kAuto);
  EXPECT_STREQ(best.ops().layout_id, scalar.ops().layout_id);
  EXPECT_TRUE(isa_supported(Isa::kScalar));
}

}  // namespace
}  // namespace barg::ops
