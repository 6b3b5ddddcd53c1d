// Counts every operator new of the engine thread and of the device thread while streams decode: none may
// happen between two steps in the steady state, also when blocks fill. Its own binary, because it replaces
// the global operators. Skipped in sanitizer builds, which bring their own.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>

#include "engine/engine_impl.h"
#include "runtime/tier_service.h"
#include "support/tiny_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
namespace {
std::atomic<bool> counting{false};
std::atomic<std::int64_t> allocations{0};
std::atomic<std::size_t> first_size{0};
thread_local bool exempt = false;  // the test's own thread

void* allocate(std::size_t size, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed) && !exempt) {
    if (allocations.fetch_add(1) == 0) first_size = size;
  }
  size = (size + alignment - 1) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, size == 0 ? alignment : size)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size, 16); }
void* operator new[](std::size_t size) { return allocate(size, 16); }
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif

namespace barg::engine {
namespace {

/// Pipeline depth; whether there are tiers, which have nothing to do while nothing leaves the pool.
struct Case {
  std::int32_t depth;
  bool tiers;
};
class AllocationTest : public ::testing::TestWithParam<Case> {};

/// Streams of every kind of sampling that a step can do without log-probabilities.
SamplingParams sampling(int i) {
  SamplingParams p;
  p.seed = static_cast<std::uint64_t>(i);
  p.temperature = i % 6 == 0 ? 0.0F : 0.9F;
  if (i % 6 == 2) p.top_k = 20;
  if (i % 6 == 3) p.top_p = 0.9F;
  if (i % 6 == 4) p.min_p = 0.02F;
  if (i % 6 == 5) {
    p.repetition_penalty = 1.1F;
    p.frequency_penalty = 0.3F;
    p.logit_bias = {{3, 1.0F}};
    p.banned_token_ids = {5};
  }
  p.ignore_eos = true;
  return p;
}

TEST_P(AllocationTest, NoneWhileStreamsDecode) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring their own allocator";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  exempt = true;
  auto config = test::tiny_config(test::shared_data("models/llama"));
  config.scheduler.pipeline_depth = GetParam().depth;
  auto loaded = test::load_tiny(config);
  const SteadyClock clock;
  std::shared_ptr<store::TierStack> stack;
  if (GetParam().tiers) {
    stack = std::make_shared<store::TierStack>(runtime::domain_of(loaded.runner->info(), "test"),
                                               std::vector<std::unique_ptr<store::Tier>>{},
                                               store::StackOptions{.dram_bytes = 16 << 20}, clock);
  }
  auto engine = make_engine(config, std::move(loaded.runner), clock, {.tiers = stack});
  ASSERT_TRUE(engine);

  constexpr int kStreams = 12;
  constexpr std::int64_t kWarmUp = 24, kSteps = 80;  // tokens of each stream; blocks of 16 fill in both
  std::mutex mutex;
  std::condition_variable done;
  int finished = 0;
  std::int64_t tokens = 0, seen = -1;  // engine thread only, until `finished`
  for (int i = 0; i < kStreams; ++i) {
    Request r;
    r.id = (*engine)->next_request_id();
    for (int t = 0; t < 5 + i; ++t) r.prompt.push_back(static_cast<TokenId>(7 + 11 * i + t));
    r.sampling = sampling(i);
    r.sampling.max_tokens = static_cast<std::int32_t>(kWarmUp + kSteps + 40);
    const auto ok = (*engine)->submit(std::move(r), [&](TokenEvent&& e) {
      tokens += static_cast<std::int64_t>(e.tokens.size());
      if (tokens == kStreams * kWarmUp) counting = true;
      if (tokens == kStreams * (kWarmUp + kSteps)) {
        counting = false;
        seen = allocations.exchange(0);
      }
      if (e.finish == FinishReason::kNone) return;
      EXPECT_EQ(e.finish, FinishReason::kLength);
      std::lock_guard lock(mutex);
      ++finished;
      done.notify_one();
    });
    ASSERT_TRUE(ok) << ok.error().message;
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished == kStreams; });
  EXPECT_EQ(seen, 0) << "the first of them had " << first_size.load() << " bytes";
#endif
}

INSTANTIATE_TEST_SUITE_P(Depths, AllocationTest,
                         ::testing::Values(Case{0, false}, Case{1, false}, Case{2, false}, Case{0, true},
                                           Case{1, true}, Case{2, true}),
                         [](const auto& i) {
                           return std::to_string(i.param.depth) + (i.param.tiers ? "_tiers" : "");
                         });

}  // namespace
}  // namespace barg::engine
