// Vectors of the runner: those of transformers, whatever the chunks and the mates; and the arithmetic of pooling.
#include "runtime/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/golden_kit.h"
#include "support/runner_driver.h"
#include "support/tiny_model.h"

namespace barg::runtime::pooling_test {
namespace {

using model::Pooling;
using test::RunnerDriver;

TEST(Pooling, FirstLastMean) {
  const std::vector<float> states = {1, 2, 3, 4, 8, 12};  // three rows of two
  const auto of = [&](Pooling kind) {
    std::vector<float> out(2);
    EXPECT_TRUE(pool(kind, states, out));
    return out;
  };
  EXPECT_EQ(of(Pooling::kFirst), (std::vector<float>{1, 2}));
  EXPECT_EQ(of(Pooling::kLast), (std::vector<float>{8, 12}));
  EXPECT_EQ(of(Pooling::kMean), (std::vector<float>{4, 6}));
}

TEST(Pooling, NumbersThatAreNoneAreFound) {
  std::vector<float> out(2);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_FALSE(pool(Pooling::kMean, std::vector<float>{1, 2, 3, bad}, out));
    EXPECT_FALSE(pool(Pooling::kLast, std::vector<float>{1, 2, bad, 4}, out));
    EXPECT_TRUE(pool(Pooling::kLast, std::vector<float>{bad, bad, 3, 4}, out)) << "of a row that nobody asks for";
  }
  EXPECT_TRUE(pool(Pooling::kMean, std::vector<float>{3e38F, 0, 3e38F, 0}, out)) << "the sum has room";
}

Request embedding_of(std::vector<TokenId> prompt) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = 0;
  r.embeds = true;
  return r;
}

class EmbeddingRunner : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = test::shared_data(std::string("models/") + GetParam());
    if (path_.empty()) GTEST_SKIP() << test::kNoShared;
    goldens_ = std::make_unique<model::test::Goldens>(path_ + "/goldens.safetensors");
  }
  std::vector<float> vector_of(RunnerDriver& driver, const std::vector<TokenId>& ids, std::int32_t chunk, BlockId block = 0) {
    const auto n = static_cast<std::int32_t>(ids.size());
    const SeqId seq = driver.add(embedding_of(ids), 0, block);
    for (std::int32_t at = 0;; at += chunk) {
      const std::int32_t count = std::min(chunk, n - at);
      const bool last = at + count == n;
      auto result = driver.run({{.seq = seq, .start = at, .count = count, .logits_begin = whole() ? 0 : -1, .pooled = last}});
      EXPECT_EQ(result.items[0].pooled.empty(), !last);
      if (last) return std::move(result.items[0].pooled);
    }
  }
  /// Rows of whole prompts are all wanted.
  bool whole() const { return std::string(GetParam()) == "bert"; }
  std::string path_;
  std::unique_ptr<model::test::Goldens> goldens_;
};

TEST_P(EmbeddingRunner, VectorsAreThoseOfTransformers) {
  auto loaded = test::load_tiny(test::tiny_config(path_));
  EXPECT_EQ(loaded.runner->info().embedding.size, 64);
  EXPECT_TRUE(loaded.runner->info().embedding.normalise);
  EXPECT_EQ(loaded.runner->info().whole_prompts, whole());
  EXPECT_EQ(loaded.plan.logits_bytes, 0U);
  RunnerDriver driver(*loaded.runner);
  for (const std::string& p : goldens_->prompts()) {
    const auto ids = goldens_->ids(p + ".input_ids");
    const auto got = vector_of(driver, ids, 256);
    const auto want = goldens_->floats(p + ".embedding");
    ASSERT_EQ(got.size(), want.size());
    double square = 0;
    for (const float x : got) square += static_cast<double>(x) * x;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i] / std::sqrt(square), want[i], 1e-5) << p << " number " << i;  // they have 1/8 on average
  }
}

TEST_P(EmbeddingRunner, ChunksBlocksAndMatesDoNotChangeABit) {
  Config config = test::tiny_config(path_);
  config.scheduler.max_num_batched_tokens = 300;  // both prompts as wholes
  auto loaded = test::load_tiny(config);
  RunnerDriver driver(*loaded.runner);
  const auto ids = goldens_->ids("p65.input_ids"), other = goldens_->ids("p200.input_ids");
  const auto alone = vector_of(driver, ids, 65);
  for (const std::int32_t chunk : whole() ? std::vector{65} : std::vector{1, 7, 16, 33})
    EXPECT_EQ(vector_of(driver, ids, chunk, 50), alone) << chunk;
  const SeqId mate = driver.add(embedding_of(other), 0, 100), seq = driver.add(embedding_of(ids), 0, 20);
  const std::int32_t of_mate = whole() ? 0 : 190, of_seq = whole() ? 0 : 40, begin = whole() ? 0 : -1;
  if (!whole()) driver.run({{.seq = mate, .start = 0, .count = of_mate}, {.seq = seq, .start = 0, .count = of_seq}});
  const auto both =
      driver.run({{.seq = mate, .start = of_mate, .count = 200 - of_mate, .logits_begin = begin, .pooled = true},
                  {.seq = seq, .start = of_seq, .count = 65 - of_seq, .logits_begin = begin, .pooled = true}});
  EXPECT_EQ(both.items[1].pooled, alone);
  EXPECT_EQ(both.items[0].pooled, vector_of(driver, other, 200));
}

INSTANTIATE_TEST_SUITE_P(Models, EmbeddingRunner, ::testing::Values("qwen3-embedding", "bert"), [](const auto& info) {
  return std::string(info.param).substr(0, 4);
});

}  // namespace
}  // namespace barg::runtime::pooling_test
