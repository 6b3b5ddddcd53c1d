// Counts every operator new while a stream goes token by token: text in which nothing is to be read costs none. Its own
// binary, because it replaces the global operators. Skipped in sanitizer builds, which bring their own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fake_tokenizer.h"
#include "server/response_stream.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
namespace {
std::atomic<std::int64_t> allocations{0};
}
#else
constexpr bool kSanitized = false;
namespace {
std::atomic<std::int64_t> allocations{0};

void* allocate(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
#endif

namespace barg::server {
namespace {

/// Allocations of ResponseStream for each of 100 tokens, once its memory is there.
std::int64_t per_hundred_tokens(const OutputSpec& spec) {
  const test::FakeTokenizer tokenizer;
  ResponseStream rs({.id = "x", .model = "m", .fingerprint = "f", .created = 1}, spec, 1,
                    {PromptInfo{.ids = {1}, .text = {}}}, tokenizer);
  std::string out = rs.begin();
  out.reserve(1 << 16);
  std::int64_t counted = 0;
  for (int i = 0; i < 200; ++i) {
    TokenEvent event;
    event.tokens.reserve(1);
    event.tokens.push_back({.id = i % 3 == 0 ? test::kHello : test::kWorld, .logprobs = std::nullopt});
    out.clear();
    const std::int64_t before = allocations;
    rs.push(0, std::move(event), out);
    if (i >= 100) counted += allocations - before;
  }
  EXPECT_NE(out.find("\"finish_reason\":null"), std::string::npos);
  return counted;
}

TEST(ServerAllocation, TextCostsNone) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has its own operators";
  OutputSpec spec;
  spec.stream = true;
  EXPECT_EQ(per_hundred_tokens(spec), 0);
  spec.api = Api::kCompletions;
  EXPECT_EQ(per_hundred_tokens(spec), 0);
}

}  // namespace
}  // namespace barg::server
