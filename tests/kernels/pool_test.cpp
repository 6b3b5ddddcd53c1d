// The worker pool: every item once, results visible to the caller, many short regions, more threads than
// cores, sleeping and waking on both sides, regions inside items.
#include "cpu/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "cpu/cpu.h"

namespace barg::ops::pool_test {
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
      const auto claims = round % 2 == 0 ? WorkerPool::Claims::kInOrder : WorkerPool::Claims::kBothEnds;
      pool.run(
          static_cast<int>(counts.hits.size()),
          [](void* context, int i) { ++static_cast<Counts*>(context)->hits[static_cast<std::size_t>(i)]; },
          &counts, claims);
      for (const int hits : counts.hits) ASSERT_EQ(hits, 1) << threads << " threads, round " << round;
    }
  }
}

TEST(WorkerPool, MoreItemsThanAreSharedOut) {
  WorkerPool pool(3);
  for (const auto claims : {WorkerPool::Claims::kInOrder, WorkerPool::Claims::kBothEnds}) {
    Counts counts{std::vector<int>((1 << 20) + 1000, 0)};
    pool.run(
        static_cast<int>(counts.hits.size()),
        [](void* context, int i) { ++static_cast<Counts*>(context)->hits[static_cast<std::size_t>(i)]; }, &counts, claims);
    EXPECT_EQ(counts.hits, std::vector<int>(counts.hits.size(), 1));
  }
}

TEST(WorkerPool, BothEndsMeet) {
  WorkerPool pool(2);
  struct Seen {
    std::thread::id caller = std::this_thread::get_id();
    std::vector<int> by_caller, by_worker;
  };
  for (int round = 0; round < 200; ++round) {
    Seen seen;
    pool.run(
        64,
        [](void* context, int i) {
          auto& s = *static_cast<Seen*>(context);
          (std::this_thread::get_id() == s.caller ? s.by_caller : s.by_worker).push_back(i);
        },
        &seen, WorkerPool::Claims::kBothEnds);
    ASSERT_EQ(seen.by_caller.size() + seen.by_worker.size(), 64U);
    for (std::size_t i = 0; i < seen.by_caller.size(); ++i) ASSERT_EQ(seen.by_caller[i], static_cast<int>(i));
    for (std::size_t i = 0; i < seen.by_worker.size(); ++i) ASSERT_EQ(seen.by_worker[i], 63 - static_cast<int>(i));
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

template <class F>
void run(WorkerPool& pool, int items, F&& f) {
  pool.run(
      items, [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f);
}

/// Long enough for every thread that waits to have gone to sleep.
void let_them_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

TEST(WorkerPool, SleepingWorkersComeWhenThereIsWork) {
  for (const int threads : {2, 5}) {
    WorkerPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      let_them_sleep();
      if (round % 2 == 1) pool.wake();
      if (round % 4 == 3) let_them_sleep();
      std::atomic<int> here{0};
      run(pool, threads, [&](int) {  // ends only when every thread has come
        ++here;
        while (here.load() < threads) std::this_thread::yield();
      });
      EXPECT_EQ(here.load(), threads);
    }
  }
}

TEST(WorkerPool, TheCallerSleepsUntilTheLastItemHasFinished) {
  WorkerPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> here{0}, finished{0};
    const auto caller = std::this_thread::get_id();
    run(pool, 3, [&](int) {
      ++here;
      while (here.load() < 3) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) let_them_sleep();
      ++finished;
    });
    ASSERT_EQ(finished.load(), 3);
  }
}

TEST(WorkerPool, MoreThreadsThanCoresAndMoreItemsThanThreads) {
  WorkerPool pool(cores_available() * 4 + 1);
  std::int64_t sum = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<int> items(static_cast<std::size_t>(100 + round), 0);
    run(pool, static_cast<int>(items.size()), [&](int i) { items[static_cast<std::size_t>(i)] = i; });
    for (const int i : items) sum += i;
  }
  std::int64_t want = 0;
  for (std::int64_t n = 100; n < 400; ++n) want += n * (n - 1) / 2;
  EXPECT_EQ(sum, want);
}

TEST(WorkerPool, StartsAndStopsInAnyState) {
  for (int round = 0; round < 300; ++round) {
    auto pool = std::make_unique<WorkerPool>(1 + round % 5);
    if (round % 60 == 0) let_them_sleep();
    std::atomic<int> sum{0};
    for (int r = 0; r < round % 4; ++r) run(*pool, 7, [&](int i) { sum += i; });
    EXPECT_EQ(sum.load(), round % 4 * 21);
    if (round % 60 == 1) let_them_sleep();
    if (round % 3 == 0) pool->wake();
  }
}

TEST(WorkerPool, RegionsInsideItemsRunOnTheThreadOfTheItem) {
  WorkerPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> sum{0};
    run(pool, 5, [&](int i) {
      const auto me = std::this_thread::get_id();
      run(pool, 4, [&](int j) {
        EXPECT_EQ(std::this_thread::get_id(), me);
        sum += 10 * i + j;
      });
    });
    ASSERT_EQ(sum.load(), 10 * 4 * 10 + 5 * 6);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need the address space

/// Leaves address space for a few stacks; asks for far more threads; does the work and ends the process.
[[noreturn]] void work_where_threads_run_out() {
  alarm(60);  // a pool that waits for ever is a failure too
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + (100u << 20);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
  constexpr int kAsked = 500;
  {
    WorkerPool pool(kAsked);
    if (pool.threads() >= kAsked) _exit(3);
    let_them_sleep();
    std::atomic<int> sum{0};
    run(pool, 1000, [&](int i) { sum += i; });
    if (sum.load() != 1000 * 999 / 2) _exit(4);
  }
  if (CpuDevice device({.threads = kAsked}); device.threads() != device.stream().pool.threads()) _exit(5);
  _exit(0);
}

TEST(WorkerPoolDeathTest, WorksWithTheThreadsThatTheSystemAllows) {
  EXPECT_EXIT(work_where_threads_run_out(), ::testing::ExitedWithCode(0), "");
}

#endif

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
}  // namespace barg::ops::pool_test
