// Embeddings through the engine: the same bits alone and amid load, in chunks and from the cache; NaN fails one
// request; what a model does not do is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/env.h"
#include "engine/engine_impl.h"
#include "support/engine_client.h"
#include "support/engine_fake.h"
#include "support/tiny_model.h"

namespace barg::engine::embedding_test {
namespace {

using test::Answer;
using test::EngineClient;

const SteadyClock kClock;

Request embedding_of(std::vector<TokenId> prompt) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = 0;
  r.embeds = true;
  return r;
}

/// Prompts of 1 to 200 tokens; most begin as another one does.
std::vector<Request> make_requests(std::size_t count, std::uint64_t seed, std::uint64_t vocab) {
  Rng rng(seed);
  std::vector<TokenId> instruction;
  while (instruction.size() < 120) instruction.push_back(static_cast<TokenId>(rng.below(vocab)));
  std::vector<Request> out;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<TokenId> ids(instruction.begin(), instruction.begin() + static_cast<std::ptrdiff_t>(rng.below(121)));
    for (std::uint64_t more = 1 + rng.below(80); more > 0; --more) ids.push_back(static_cast<TokenId>(rng.below(vocab)));
    out.push_back(embedding_of(std::move(ids)));
    out.back().priority = static_cast<Priority>(rng.below(3));
  }
  out.push_back(out[0]);  // a prompt that is in the cache as a whole
  return out;
}

class ExactEmbeddings : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = test::shared_data(std::string("models/") + GetParam());
    if (path_.empty()) GTEST_SKIP() << test::kNoShared;
  }
  std::unique_ptr<Engine> engine(const Config& config) {
    auto loaded = test::load_tiny(config);
    auto engine = make_engine(config, std::move(loaded.runner), kClock);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    return std::move(*engine);
  }
  /// Every token sees its whole prompt.
  bool encoder() const { return std::string(GetParam()) == "bert"; }
  std::string path_;
};

TEST_P(ExactEmbeddings, AloneAmidLoadCachedAndChunked) {
  Config plain = test::tiny_config(path_);
  plain.kv.enable_prefix_caching = false;
  const auto requests = make_requests(40, 7, encoder() ? 544 : 600);
  std::vector<std::vector<float>> alone;
  {
    const auto engine = this->engine(plain);
    EngineClient client(*engine);
    for (const Request& r : requests) {
      const Answer a = client.run(r);
      ASSERT_EQ(a.finish, FinishReason::kStop);
      ASSERT_EQ(a.embedding.size(), 64U);
      EXPECT_TRUE(a.tokens.empty());
      alone.push_back(a.embedding);
    }
    EXPECT_EQ(engine->metrics().prefix_cache_hits, 0U);
    EXPECT_EQ(engine->metrics().finished[static_cast<std::size_t>(FinishReason::kStop)], requests.size());
  }
  for (const int depth : {0, 1, 2}) {
    Config loaded = test::tiny_config(path_);
    loaded.scheduler.pipeline_depth = depth;
    loaded.scheduler.max_num_batched_tokens = encoder() ? 256 : 48;
    loaded.model.max_model_len = 256;
    loaded.kv.memory_bytes = 600 << 10;  // about 400 tokens: of 41 prompts most must wait, and blocks are evicted
    const auto engine = this->engine(loaded);
    EngineClient client(*engine);
    for (int round = 0; round < 2; ++round) {
      std::vector<RequestId> ids;
      for (const Request& r : requests) ids.push_back(client.submit(r));
      for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(client.wait(ids[i])[0].embedding, alone[i]) << i;
    }
    const EngineMetrics m = engine->metrics();
    if (encoder()) {
      EXPECT_EQ(m.prefix_cache_hits, 0U) << "the KV of a prompt is that of no other";
      EXPECT_EQ(m.kv.cached_blocks, 0);
      EXPECT_LT(m.steps, 2 * requests.size()) << "several prompts a step";
    } else {
      EXPECT_GT(m.prefix_cache_hits, 0U);
      EXPECT_GT(m.steps, 60U) << "prompts were cut";
    }
    EXPECT_EQ(m.generation_tokens, 0U);
    EXPECT_EQ(m.prompt_tokens, m.prompt_tokens_cached + m.prompt_tokens_computed);
    EXPECT_EQ(m.corrupted_requests, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExactEmbeddings, ::testing::Values("qwen3-embedding", "bert"), [](const auto& info) {
  return std::string(info.param).substr(0, 4);
});

TEST_P(ExactEmbeddings, OnlyWhatTheModelDoes) {
  const auto engine = this->engine(test::tiny_config(path_));
  EXPECT_EQ(engine->info().embedding.size, 64);
  const auto refused = [&](const Request& r) {
    const auto ok = engine->check(r);
    return ok ? std::string() : ok.error().param;
  };
  EXPECT_EQ(refused(embedding_of({1, 2})), "");
  Request r = embedding_of({1, 2});
  r.embeds = false;
  r.sampling.max_tokens = 5;
  EXPECT_EQ(refused(r), "model");
  r = embedding_of({1, 2});
  r.n = 2;
  EXPECT_EQ(refused(r), "n");
  r = embedding_of({1, 2});
  r.sampling.max_tokens = 1;
  EXPECT_EQ(refused(r), "max_tokens");
  EXPECT_EQ(refused(embedding_of({1, engine->info().vocab_size})), "prompt");
  const std::size_t longest = encoder() ? 256 : 1024;
  EXPECT_EQ(refused(embedding_of(std::vector<TokenId>(longest, 1))), "") << "the whole context is for the prompt";
  EXPECT_EQ(refused(embedding_of(std::vector<TokenId>(longest + 1, 1))), "prompt");
}

TEST(Embeddings, APromptThatIsComputedAsAWholeFitsAStep) {
  const std::string path = test::shared_data("models/bert");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  Config config = test::tiny_config(path);
  config.scheduler.max_num_batched_tokens = 100;
  auto loaded = test::load_tiny(config);
  EXPECT_EQ(loaded.plan.max_model_len, 100);
  config.model.max_model_len = 101;
  const auto files = model::ModelFiles::open(path);
  const auto refused = runtime::load_runner(config, *files);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "model.max_model_len");
  auto engine = make_engine(config, std::move(loaded.runner), kClock);
  ASSERT_TRUE(engine);
  EngineClient client(**engine);
  const RequestId a = client.submit(embedding_of(std::vector<TokenId>(100, 7))), b = client.submit(embedding_of({7}));
  EXPECT_EQ(client.wait(a)[0].embedding.size(), 64U);
  EXPECT_EQ(client.wait(b)[0].embedding.size(), 64U);
}

TEST(Embeddings, AModelThatGeneratesEmbedsNothing) {
  auto gate = std::make_shared<test::Gate>();
  auto engine = make_engine(Config(), std::make_unique<test::GatedRunner>(test::fake_info(), gate), kClock);
  ASSERT_TRUE(engine);
  const auto ok = (*engine)->check(embedding_of({1, 2}));
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(ok.error().param, "model");
}

TEST(Embeddings, NumbersThatAreNoneFailOneRequest) {
  for (const int depth : {0, 1, 2}) {
    auto gate = std::make_shared<test::Gate>();
    auto info = test::fake_info();
    info.embedding.size = 1;
    Config config;
    config.scheduler.pipeline_depth = depth;
    config.scheduler.max_num_batched_tokens = 16;
    auto engine = make_engine(config, std::make_unique<test::GatedRunner>(info, gate), kClock);
    ASSERT_TRUE(engine);
    EngineClient client(**engine);
    std::vector<TokenId> bad(40, 5);
    bad[30] = test::Gate::kNanToken;
    const RequestId b = client.submit(embedding_of(bad)), g = client.submit(embedding_of(std::vector<TokenId>(40, 6)));
    EXPECT_EQ(client.wait(g)[0].embedding.size(), 1U);
    const Answer failed = client.wait(b)[0];
    EXPECT_EQ(failed.finish, FinishReason::kError);
    EXPECT_TRUE(failed.embedding.empty());
    EXPECT_EQ(failed.error->code, ErrorCode::kBadNumbers);
    EXPECT_EQ((*engine)->metrics().corrupted_requests, 1U);
  }
}

}  // namespace
}  // namespace barg::engine::embedding_test
