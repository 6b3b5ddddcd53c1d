// The engine's own behaviour, on a runner without a model: what happens between steps, at the edges, at the
// end.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "engine/engine_impl.h"
#include "support/engine_client.h"
#include "support/engine_fake.h"
#include "support/token_language.h"

namespace barg::engine::engine_test {
namespace {

using test::Answer;
using test::EngineClient;
using test::Gate;
using test::GatedRunner;

Request request_of(std::size_t prompt, std::int32_t max_tokens, std::uint64_t seed = 1) {
  Request r;
  for (std::size_t i = 0; i < prompt; ++i)
    r.prompt.push_back(static_cast<TokenId>(100 + (i * 7 + seed) % 800));
  r.sampling.max_tokens = max_tokens;
  r.sampling.seed = seed;
  return r;
}

std::vector<TokenId> expected(const Request& r, std::int32_t choice = 0) {
  const auto info = test::fake_info();
  FinishReason why{};
  test::Truth truth(std::make_shared<const Request>(r), choice, info.vocab_size);
  return truth.outputs(info.max_model_len, info.end_ids, why);
}

class EngineTest : public ::testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override { config_.scheduler.pipeline_depth = GetParam(); }

  Engine& start(runtime::RunnerInfo info = test::fake_info()) {
    auto engine = make_engine(config_, std::make_unique<GatedRunner>(std::move(info), gate_), clock_);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    engine_ = std::move(*engine);
    return *engine_;
  }

  /// Spins until the engine thread has settled (it publishes after every step); no time is involved.
  template <class F>
  void until(F condition) {
    while (!condition()) std::this_thread::yield();
  }
  void wait_idle() {
    until([&] { return engine_->active() == 0 && gate_->registered() == 0; });
  }

  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  test::SharedClock clock_;
  Config config_;
  std::unique_ptr<Engine> engine_;
};

class EngineDepthZeroTest : public EngineTest {};

TEST_P(EngineTest, AnswersAndForgets) {
  auto& engine = start();
  EngineClient client(engine);
  const auto r = request_of(40, 10);
  const Answer a = client.run(r);
  EXPECT_EQ(a.ids(), expected(r));
  EXPECT_EQ(a.finish, FinishReason::kLength);
  EXPECT_EQ(a.stats.prompt_tokens, 40);
  EXPECT_EQ(a.stats.seed, 1U);
  wait_idle();
  const auto m = engine.metrics();
  EXPECT_EQ(m.kv.active_blocks, 0);
  EXPECT_EQ(m.kv.fenced_blocks, 0);
  EXPECT_EQ(m.num_requests_running, 0);
  EXPECT_EQ(m.generation_tokens, 10U);
  EXPECT_EQ(m.prompt_tokens, 40U);
  EXPECT_EQ(m.finished[static_cast<std::size_t>(FinishReason::kLength)], 1U);
}

TEST_P(EngineTest, ManyChoicesEachEndOnce) {
  auto& engine = start(test::fake_info(512));
  EngineClient client(engine);
  auto r = request_of(33, 7);
  r.n = 20;
  const auto answers = client.wait(client.submit(r));
  for (std::int32_t k = 0; k < 20; ++k) EXPECT_EQ(answers[static_cast<std::size_t>(k)].ids(), expected(r, k));
  EXPECT_EQ(engine.metrics().finished[static_cast<std::size_t>(FinishReason::kLength)], 20U);
  EXPECT_EQ(engine.metrics().request_params_n.count(), 1U);
}

TEST_P(EngineTest, TokensLeaveInTheStepThatMadeThem) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId id = client.submit(request_of(20, 50));
  for (std::size_t n = 1; n <= 6; ++n) {
    gate_->let_through(1);
    client.wait_tokens(id, n);  // no later result comes: a token that waited for one would never leave
    EXPECT_EQ(client.progress(id).first, n);
  }
  gate_->open();
  EXPECT_EQ(client.wait(id)[0].tokens.size(), 50U);
}

TEST_P(EngineTest, CancelDuringAStepEndsWithinIt) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId id = client.submit(request_of(20, 100));
  gate_->wait_launched(1);
  engine.cancel(id);
  engine.cancel(id);
  gate_->open();
  const auto a = client.wait(id);
  EXPECT_EQ(a[0].finish, FinishReason::kAbort);
  EXPECT_LE(a[0].tokens.size(), static_cast<std::size_t>(1 + GetParam()));
  wait_idle();
  EXPECT_EQ(engine.metrics().kv.active_blocks, 0);
  EXPECT_EQ(engine.metrics().kv.fenced_blocks, 0);
  engine.cancel(id);
  engine.cancel(RequestId{987654});
  EXPECT_EQ(client.run(request_of(5, 3)).tokens.size(), 3U);
}

TEST_P(EngineTest, CancelBeforeTheFirstStep) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId first = client.submit(request_of(20, 4));
  gate_->wait_launched(1);
  // The engine thread may be inside collect(): these two are seen in one drain, in order.
  const RequestId second = client.submit(request_of(20, 4, 5));
  engine.cancel(second);
  gate_->open();
  EXPECT_EQ(client.wait(second)[0].finish, FinishReason::kAbort);
  EXPECT_EQ(client.wait(first)[0].finish, FinishReason::kLength);
}

TEST_P(EngineTest, FinishAtEndsWithStop) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const auto r = request_of(20, 200);
  const RequestId id = client.submit(r);
  gate_->let_through(5);
  client.wait_tokens(id, 3);
  engine.finish_at(id, 0, 2);
  gate_->open();
  const Answer a = client.wait(id)[0];
  EXPECT_EQ(a.finish, FinishReason::kStop);
  EXPECT_LT(a.tokens.size(), 20U);
  wait_idle();
  EXPECT_EQ(engine.metrics().finished[static_cast<std::size_t>(FinishReason::kStop)], 1U);
}

TEST_P(EngineTest, ThePausedWaitForTheirReaders) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const auto r = request_of(20, 30);
  const RequestId id = client.submit(r);
  gate_->wait_launched(1);
  engine.pause(id, true);
  engine.pause(RequestId{987654}, true);
  gate_->open();
  EXPECT_EQ(client.run(request_of(5, 60)).tokens.size(), 60U);
  EXPECT_EQ(engine.metrics().num_requests_paused, 1);
  until([&] { return engine.active() == 1; });
  engine.pause(id, false);
  EXPECT_EQ(client.wait(id)[0].ids(), expected(r));
  EXPECT_EQ(engine.metrics().num_requests_paused, 0);
}

TEST_P(EngineTest, ThePausedEndLikeAllOthers) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 4; ++i) ids.push_back(client.submit(request_of(20, 200, i)));
  gate_->wait_launched(1);
  for (const RequestId id : ids) engine.pause(id, true);
  gate_->open();
  until([&] { return engine.metrics().num_requests_paused == 4; });
  engine.cancel(ids[0]);
  EXPECT_EQ(client.wait(ids[0])[0].finish, FinishReason::kAbort);
  engine.finish_at(ids[1], 0, 1);
  EXPECT_EQ(client.wait(ids[1])[0].finish, FinishReason::kStop);
  until([&] { return engine.active() == 2; });
  EXPECT_EQ(engine.metrics().num_requests_paused, 2);
  engine_.reset();
  for (const RequestId id : {ids[2], ids[3]}) EXPECT_EQ(client.wait(id)[0].finish, FinishReason::kAbort);
}

TEST_P(EngineTest, ThePausedFailWithTheDevice) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId paused = client.submit(request_of(20, 200, 1));
  gate_->wait_launched(1);
  engine.pause(paused, true);
  gate_->open();
  until([&] { return engine.metrics().num_requests_paused == 1; });
  gate_->fail_device();
  EXPECT_EQ(client.run(request_of(20, 10, 2)).finish, FinishReason::kError);
  const Answer a = client.wait(paused)[0];
  EXPECT_EQ(a.finish, FinishReason::kError);
  ASSERT_TRUE(a.error);
  EXPECT_EQ(a.error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(a.error->message, "the engine has stopped after a device error") << "whatever the device says of itself";
  engine.pause(paused, false);
  until([&] { return engine.active() == 0; });
  EXPECT_EQ(engine.metrics().num_requests_paused, 0);
}

TEST_P(EngineTest, AStormOfCancelsLeavesNothing) {
  auto& engine = start(test::fake_info(40));
  EngineClient client(engine);
  Rng rng(5);
  std::vector<RequestId> ids;
  for (int i = 0; i < 400; ++i) {
    auto r = request_of(1 + rng.below(100), static_cast<std::int32_t>(1 + rng.below(50)), rng.next());
    r.n = rng.below(5) == 0 ? 3 : 1;
    if (auto id = client.try_submit(std::move(r))) ids.push_back(*id);
    if (!ids.empty() && rng.below(2) == 0) engine.cancel(ids[rng.below(ids.size())]);
    if (!ids.empty() && rng.below(10) == 0) client.wait_tokens(ids.back(), rng.below(4));
  }
  for (std::size_t i = 0; i < ids.size(); i += 2) engine.cancel(ids[i]);
  for (const RequestId id : ids) client.wait(id);
  wait_idle();
  const auto m = engine.metrics();
  EXPECT_EQ(m.kv.active_blocks, 0);
  EXPECT_EQ(m.kv.fenced_blocks, 0);
  EXPECT_EQ(m.kv.free_blocks + m.kv.cached_blocks, 40);
  EXPECT_EQ(m.num_requests_running + m.num_requests_waiting, 0);
  EXPECT_TRUE(engine.admissible(1));
  EXPECT_LE(gate_->most_rows(), 64);
}

TEST_P(EngineTest, FullQueueRefusesWithRetryAfter) {
  config_.scheduler.max_num_seqs = 1;
  config_.scheduler.max_num_queued_reqs = 2;
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  std::vector<RequestId> ids{client.submit(request_of(20, 10))};
  gate_->wait_launched(1);
  ids.push_back(client.submit(request_of(20, 10, 2)));
  ids.push_back(client.submit(request_of(20, 10, 3)));
  const auto verdict = engine.admissible(5);
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, ErrorCode::kRateLimited);
  EXPECT_GE(verdict.error().retry_after_s, 1);
  EXPECT_FALSE(client.try_submit(request_of(20, 10, 4)));
  EXPECT_EQ(engine.metrics().num_requests_waiting, 2) << "also what the engine thread has not seen";
  gate_->open();
  for (const RequestId id : ids) EXPECT_EQ(client.wait(id)[0].finish, FinishReason::kLength);
  wait_idle();
  EXPECT_TRUE(engine.admissible(5)) << "places are given back";
  EXPECT_EQ(engine.metrics().rejections[static_cast<std::size_t>(Rejection::kQueueRequests)], 2U);
}

TEST_P(EngineTest, DrainRefusesNewOnesAndFinishesTheRest) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId id = client.submit(request_of(20, 10));
  gate_->wait_launched(1);
  engine.drain();
  EXPECT_EQ(engine.admissible(1).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(client.try_submit(request_of(1, 1)).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(engine.active(), 1);
  gate_->open();
  EXPECT_EQ(client.wait(id)[0].finish, FinishReason::kLength);
  until([&] { return engine.active() == 0; });
}

TEST_P(EngineTest, DestructionEndsEveryRequestOnce) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 8; ++i) ids.push_back(client.submit(request_of(30, 200, i)));
  gate_->wait_launched(1);
  gate_->open();
  engine_.reset();
  for (const RequestId id : ids) {
    const auto finish = client.wait(id)[0].finish;
    EXPECT_TRUE(finish == FinishReason::kAbort || finish == FinishReason::kLength);
  }
}

TEST_P(EngineTest, NaNRowsFailOneRequest) {
  auto& engine = start();
  EngineClient client(engine);
  auto bad = request_of(20, 10);
  bad.prompt[4] = Gate::kNanToken;
  const auto good = request_of(20, 10, 3);
  const RequestId b = client.submit(bad), g = client.submit(good);
  EXPECT_EQ(client.wait(g)[0].ids(), expected(good));
  const Answer failed = client.wait(b)[0];
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.error->code, ErrorCode::kBadNumbers);
  wait_idle();
  EXPECT_EQ(engine.metrics().corrupted_requests, 1U);
  EXPECT_EQ(engine.metrics().kv.active_blocks, 0);
}

TEST_P(EngineTest, LostDeviceFailsAllAndRefusesFurther) {
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 5; ++i) ids.push_back(client.submit(request_of(20, 10, i)));
  gate_->let_through(3);
  gate_->wait_launched(4);  // whatever the depth, planned after all five were taken from the inbox
  gate_->fail_device();
  gate_->open();
  for (const RequestId id : ids) {
    const Answer a = client.wait(id)[0];
    EXPECT_EQ(a.finish, FinishReason::kError);
    EXPECT_EQ(a.error->code, ErrorCode::kUnavailable) << "in a step, waiting, or still in the inbox";
    EXPECT_EQ(a.error->message, "the engine has stopped after a device error");
  }
  until([&] { return engine.active() == 0; });
  EXPECT_EQ(engine.admissible(1).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(client.try_submit(request_of(20, 10)));
  engine.cancel(ids[0]);
  EXPECT_EQ(engine.metrics().finished[static_cast<std::size_t>(FinishReason::kError)], 5U);
  EXPECT_TRUE(engine.failed());
}

TEST_P(EngineTest, QueueTimeoutEndsWhatNeverStarted) {
  config_.scheduler.max_num_seqs = 1;
  config_.server.queue_timeout_s = 60;
  auto& engine = start();
  EngineClient client(engine);
  gate_->close();
  const RequestId running = client.submit(request_of(20, 50));
  gate_->wait_launched(1);
  const RequestId waiting = client.submit(request_of(20, 10, 2));
  gate_->let_through(3);
  client.wait_tokens(running, 2);
  clock_.advance(61);
  gate_->let_through(3);
  const Answer a = client.wait(waiting)[0];
  EXPECT_EQ(a.finish, FinishReason::kError);
  EXPECT_EQ(a.error->code, ErrorCode::kTimeout);
  EXPECT_GE(a.error->retry_after_s, 1);
  gate_->open();
  EXPECT_EQ(client.wait(running)[0].finish, FinishReason::kLength) << "what runs is not touched";
  EXPECT_EQ(engine.metrics().queue_timeouts, 1U);
}

TEST_P(EngineTest, MissingSeedIsDrawnOnce) {
  auto& engine = start();
  EngineClient client(engine);
  auto r = request_of(20, 6);
  r.sampling.seed.reset();
  r.n = 2;
  const auto answers = client.wait(client.submit(r));
  EXPECT_EQ(answers[0].stats.seed, answers[1].stats.seed);
  r.sampling.seed = answers[0].stats.seed;
  EXPECT_EQ(answers[0].ids(), expected(r, 0));
  EXPECT_EQ(answers[1].ids(), expected(r, 1));
}

TEST_P(EngineTest, IdInUseIsRefused) {
  auto& engine = start();
  gate_->close();
  std::atomic<int> first{0}, second{0};
  Error error;
  auto r = request_of(20, 3);
  r.id = engine.next_request_id();
  ASSERT_TRUE(engine.submit(r, [&](TokenEvent&& e) { first += e.finish == FinishReason::kLength; }));
  gate_->wait_launched(1);
  ASSERT_TRUE(engine.submit(r, [&](TokenEvent&& e) {
    error = *e.error;
    second += e.finish == FinishReason::kError;
  }));
  gate_->open();
  until([&] { return engine.active() == 0; });
  EXPECT_EQ(first.load(), 1);
  EXPECT_EQ(second.load(), 1);
  EXPECT_EQ(error.code, ErrorCode::kInvalidValue);
}

TEST_P(EngineTest, RefusesWhatCannotBe) {
  auto& engine = start();
  EngineClient client(engine);
  EXPECT_EQ(client.try_submit(request_of(300, 1)).error().code, ErrorCode::kContextLengthExceeded);
  auto r = request_of(3, 1);
  r.sampling.top_p = 7;
  EXPECT_EQ(client.try_submit(r).error().param, "top_p");
  EXPECT_EQ(engine.active(), 0);
  const auto refused = engine.metrics().rejections;
  EXPECT_EQ(refused[static_cast<std::size_t>(Rejection::kTooLong)], 1U);
  EXPECT_EQ(refused[static_cast<std::size_t>(Rejection::kInvalid)], 1U);
}

TEST_P(EngineTest, RefusesWhatWouldCutOrProlongAConstrainedOutput) {
  auto& engine = start();
  EngineClient client(engine);
  std::vector<test::TokenLanguage::State> states(4);
  for (std::size_t i = 0; i < 3; ++i) states[i].next = {{static_cast<TokenId>(10 + i), i + 1}};
  states[3].accepting = true;
  auto r = request_of(3, 3);
  r.sampling.constraint =
      std::make_shared<test::TokenLanguage>(engine.info().vocab_size, states, engine.info().end_ids);
  EXPECT_TRUE(client.try_submit(r));
  const auto refused = [&](const Request& bad, const char* param, const char* part) {
    const auto id = client.try_submit(bad);
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().param, param);
    EXPECT_NE(id.error().message.find(part), std::string::npos) << id.error().message;
  };
  auto bad = r;
  bad.sampling.max_tokens = 2;
  refused(bad, "max_tokens", "at least 3");
  bad.sampling.max_tokens = 4;
  bad.sampling.reasoning = ReasoningLimit{.budget = 5, .open = true, .begin = {}, .close = {7, 8}};
  refused(bad, "max_tokens", "at least 5");
  bad.sampling.max_tokens = 5;
  EXPECT_TRUE(client.try_submit(bad));
  bad = r;
  bad.sampling.ignore_eos = true;
  refused(bad, "ignore_eos", "structured output");
  bad = r;
  bad.sampling.min_tokens = 1;
  refused(bad, "min_tokens", "structured output");
  bad = request_of(static_cast<std::size_t>(engine.info().max_model_len) - 2, 3);
  bad.sampling.constraint = r.sampling.constraint;
  refused(bad, "prompt", "leaves 2");
}

TEST_P(EngineTest, SubmitFromManyThreads) {
  auto& engine = start(test::fake_info(200));
  EngineClient client(engine);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 25; ++i) {
        const auto r = request_of(10 + i, 5, t * 100 + i);
        if (client.run(r).ids() != expected(r)) ++wrong;
        (void)engine.metrics();
        (void)engine.admissible(10);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(engine.metrics().generation_tokens, 500U);
}

/// The share of allocated KV that holds nothing is the analytic one, (slots - tokens) / slots, and small for
/// lengths like those of ShareGPT conversations.
/// Depth 0: with steps in flight the moment of a snapshot is not defined.
TEST_P(EngineDepthZeroTest, KvWasteIsTheAnalyticValue) {
  config_.kv.enable_prefix_caching = false;
  config_.scheduler.max_num_batched_tokens = 4096;
  config_.scheduler.itl_target_ms = 1e6;
  auto& engine = start(test::fake_info(4096, 4096, 4096));
  EngineClient client(engine);
  gate_->close();
  Rng rng(3);
  std::vector<std::pair<RequestId, std::int64_t>> requests;
  for (int i = 0; i < 32; ++i) {
    // Log-uniform in 16..1024: mean some 240 tokens.
    const auto length = [&] { return static_cast<std::int32_t>(16 * std::pow(64.0, rng.uniform())); };
    const auto prompt = length();
    requests.emplace_back(client.submit(request_of(static_cast<std::size_t>(prompt), length(), rng.next())),
                          prompt);
  }
  // The first steps were launched before all had arrived: go on until everyone holds blocks.
  std::uint64_t launched = 1;
  const auto steps = [&](std::uint64_t n) {
    gate_->let_through(static_cast<int>(n));
    gate_->wait_launched(launched += n);
  };
  steps(5);
  for (int i = 0; i < 30 && engine.metrics().num_requests_waiting > 0; ++i) steps(1);
  double sum = 0;
  int snapshots = 0;
  for (int i = 0; i < 40; ++i) {
    steps(5);
    // The next step is launched, so the last one's effects are published, and nothing moves now.
    std::int64_t slots = 0, tokens = 0;
    for (const auto& [id, prompt] : requests) {
      const auto [count, finished] = client.progress(id);
      if (count == 0 || finished) continue;
      const std::int64_t stored =
          prompt + static_cast<std::int64_t>(count) - 1;  // the last token's KV comes next
      tokens += stored;
      slots += (stored + 15) / 16 * 16;
    }
    const auto m = engine.metrics();
    EXPECT_EQ(m.num_requests_waiting, 0);
    EXPECT_EQ(m.kv.active_blocks * 16, slots);
    EXPECT_DOUBLE_EQ(m.kv.waste_tail, static_cast<double>(slots - tokens) / static_cast<double>(slots));
    EXPECT_EQ(m.kv.waste_reserved, 0);
    sum += m.kv.waste_tail;
    ++snapshots;
  }
  EXPECT_LT(sum / snapshots, 0.04);
  gate_->open();
  for (const auto& [id, prompt] : requests) client.wait(id);
}

INSTANTIATE_TEST_SUITE_P(Depth, EngineTest, ::testing::Values(0, 1, 2));
INSTANTIATE_TEST_SUITE_P(Depth, EngineDepthZeroTest, ::testing::Values(0));

TEST(MakeEngine, RefusesValuesOutOfRange) {
  const test::SharedClock clock;
  const auto param = [&](auto change) {
    Config c;
    change(c);
    auto engine =
        make_engine(c, std::make_unique<GatedRunner>(test::fake_info(), std::make_shared<Gate>()), clock);
    return engine ? std::string("none") : engine.error().param;
  };
  EXPECT_EQ(param([](Config&) {}), "none");
  EXPECT_EQ(param([](Config& c) { c.scheduler.pipeline_depth = 3; }), "scheduler.pipeline_depth");
  EXPECT_EQ(param([](Config& c) { c.scheduler.max_num_seqs = 0; }), "scheduler.max_num_seqs");
  EXPECT_EQ(param([](Config& c) { c.scheduler.watermark = 1; }), "scheduler.watermark");
  EXPECT_EQ(param([](Config& c) { c.scheduler.max_num_queued_reqs = 0; }), "scheduler.max_num_queued_reqs");
}

}  // namespace
}  // namespace barg::engine::engine_test
