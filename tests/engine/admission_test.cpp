#include "engine/admission.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/validate.h"

namespace barg::engine::admission_test {
namespace {

SchedulerOptions limits(std::int32_t requests, std::int64_t tokens) {
  SchedulerOptions o;
  o.max_num_queued_reqs = requests;
  o.max_num_queued_tokens = tokens;
  return o;
}

TEST(Admission, BoundsRequestsAndTokens) {
  Admission a(limits(2, 100));
  EXPECT_TRUE(a.enter(1000)) << "a lone request enters, however long";
  auto full = a.check(10);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kRateLimited);
  EXPECT_GE(full.error().retry_after_s, 1);
  a.leave(1000);
  EXPECT_TRUE(a.enter(60));
  EXPECT_FALSE(a.enter(41));
  EXPECT_TRUE(a.enter(40));
  EXPECT_FALSE(a.enter(0)) << "two requests wait";
  a.leave(60);
  EXPECT_TRUE(a.check(60));
  const auto refused = a.rejections();
  EXPECT_EQ(refused[static_cast<std::size_t>(Rejection::kQueueTokens)], 2U);
  EXPECT_EQ(refused[static_cast<std::size_t>(Rejection::kQueueRequests)], 1U);
}

TEST(Admission, FollowersEnterWhateverWaits) {
  Admission a(limits(1, 10));
  ASSERT_TRUE(a.enter(5));
  EXPECT_TRUE(a.enter(100, /*follows=*/true));
  EXPECT_FALSE(a.enter(1)) << "they count for everybody else";
  a.leave(5);
  EXPECT_FALSE(a.enter(1));
  a.leave(100);
  EXPECT_TRUE(a.enter(1));
  a.drain();
  EXPECT_EQ(a.enter(1, /*follows=*/true).error().code, ErrorCode::kUnavailable);
}

TEST(Admission, RetryAfterIsBacklogOverSpeed) {
  Admission a(limits(2, 1'000'000));
  ASSERT_TRUE(a.enter(700));
  ASSERT_TRUE(a.enter(300));
  a.set_speed(/*tokens_per_second=*/50, /*output_tokens=*/25);
  // (1000 prompt tokens + 2 answers of 25) / 50 per second.
  EXPECT_EQ(a.check(1).error().retry_after_s, 21);
  a.set_speed(1e9, 25);
  EXPECT_EQ(a.check(1).error().retry_after_s, 1);
  a.set_speed(1e-9, 25);
  EXPECT_EQ(a.check(1).error().retry_after_s, 600);
}

TEST(Admission, DrainingAndFailed) {
  Admission a(limits(10, 100));
  a.drain();
  EXPECT_EQ(a.enter(1).error().code, ErrorCode::kUnavailable);
  Admission b(limits(10, 100));
  b.fail();
  EXPECT_EQ(b.check(1).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(b.rejections()[static_cast<std::size_t>(Rejection::kFailed)], 1U);
}

TEST(Admission, NeverMoreThanTheLimitUnderContention) {
  Admission a(limits(5, 1'000'000));
  std::atomic<int> inside{0}, most{0}, entered{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        if (!a.enter(3)) continue;
        ++entered;
        const int now = ++inside;
        for (int seen = most.load(); now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
        a.leave(3);
      }
    });
  }
  threads.clear();
  EXPECT_LE(most.load(), 5);
  EXPECT_GT(entered.load(), 0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(a.enter(1)) << "every place was given back";
  EXPECT_FALSE(a.enter(1));
}

EngineInfo info() {
  EngineInfo i;
  i.vocab_size = 100;
  i.max_model_len = 50;
  return i;
}

Request good() {
  Request r;
  r.prompt = {1, 2, 3};
  return r;
}

struct BadCase {
  const char* param;
  void (*break_it)(Request&);
};

TEST(Validate, EveryRange) {
  EXPECT_TRUE(validate_request(good(), info()));
  constexpr float kNan = __builtin_nanf("");
  const BadCase cases[] = {
      {"prompt", [](Request& r) { r.prompt.clear(); }},
      {"prompt", [](Request& r) { r.prompt[1] = 100; }},
      {"prompt", [](Request& r) { r.prompt[1] = -1; }},
      {"n", [](Request& r) { r.n = 0; }},
      {"n", [](Request& r) { r.n = 129; }},
      {"messages", [](Request& r) { r.spans.push_back({}); }},
      {"temperature", [](Request& r) { r.sampling.temperature = 2.1F; }},
      {"temperature", [](Request& r) { r.sampling.temperature = kNan; }},
      {"top_p", [](Request& r) { r.sampling.top_p = 0; }},
      {"top_p", [](Request& r) { r.sampling.top_p = kNan; }},
      {"min_p", [](Request& r) { r.sampling.min_p = -0.1F; }},
      {"top_k", [](Request& r) { r.sampling.top_k = -2; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = 0; }},
      {"repetition_penalty", [](Request& r) { r.sampling.repetition_penalty = __builtin_inff(); }},
      {"frequency_penalty", [](Request& r) { r.sampling.frequency_penalty = 3; }},
      {"presence_penalty", [](Request& r) { r.sampling.presence_penalty = -3; }},
      {"max_tokens", [](Request& r) { r.sampling.max_tokens = -1; }},
      {"max_tokens", [](Request& r) { r.sampling.max_tokens = 0; }},
      {"min_tokens", [](Request& r) { r.sampling.min_tokens = 17; }},
      {"logprobs", [](Request& r) { r.sampling.logprobs = 21; }},
      {"prompt_logprobs", [](Request& r) { r.sampling.prompt_logprobs = -1; }},
      {"logit_bias",
       [](Request& r) {
         r.sampling.logit_bias = {{100, 1.0F}};
       }},
      {"logit_bias",
       [](Request& r) {
         r.sampling.logit_bias = {{1, 101.0F}};
       }},
      {"allowed_token_ids", [](Request& r) { r.sampling.allowed_token_ids = {100}; }},
      {"banned_token_ids", [](Request& r) { r.sampling.banned_token_ids = {-1}; }},
      {"stop_token_ids", [](Request& r) { r.sampling.stop_token_ids = {1000}; }},
  };
  for (const auto& c : cases) {
    Request r = good();
    c.break_it(r);
    const auto verdict = validate_request(r, info());
    ASSERT_FALSE(verdict) << c.param;
    EXPECT_EQ(verdict.error().param, c.param) << verdict.error().message;
  }
}

TEST(Validate, Length) {
  Request r = good();
  r.prompt.assign(49, 1);
  EXPECT_TRUE(validate_request(r, info()));
  r.prompt.assign(50, 1);
  EXPECT_EQ(validate_request(r, info()).error().code, ErrorCode::kContextLengthExceeded);
  r.sampling.max_tokens = 0;
  r.sampling.prompt_logprobs = 0;
  EXPECT_TRUE(validate_request(r, info())) << "scoring needs no room for output";
}

}  // namespace
}  // namespace barg::engine::admission_test
