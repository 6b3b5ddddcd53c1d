// Bitwise equality as the oracle: whatever happens around a request, it gets the bytes it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>

#include "base/env.h"
#include "engine/engine_impl.h"
#include "support/engine_client.h"
#include "support/exact_requests.h"
#include "support/tiny_model.h"

namespace barg::engine::exact_test {
namespace {

using test::Answer;
using test::bits;
using test::constrain;
using test::EngineClient;
using test::make_requests;

const SteadyClock kClock;

std::unique_ptr<Engine> engine_for(const Config& config) {
  auto loaded = test::load_tiny(config);
  auto engine = make_engine(config, std::move(loaded.runner), kClock);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  return std::move(*engine);
}

std::string key_of(const Config& c) {
  return c.runtime.isa + ", threads " + std::to_string(c.runtime.threads) + ", budget " +
         std::to_string(c.scheduler.max_num_batched_tokens) + ", block " + std::to_string(c.kv.block_size) +
         ", cache " + std::to_string(c.kv.enable_prefix_caching) + ", depth " +
         std::to_string(c.scheduler.pipeline_depth) + ", kv " + c.kv.dtype;
}

struct TestModel {
  const char* name;
  const char* path;
  const char* numerics;
  std::uint64_t ids = 570;     ///< that prompts are made of
  std::int32_t interval = 16;  ///< hits are multiples of it
};
void PrintTo(const TestModel& m, std::ostream* os) { *os << m.name; }
constexpr TestModel kLlama{"llama", "models/llama", "f32"};
constexpr TestModel kWindow{"mistral", "models/mistral", "f32"};  // a window of 24 tokens in every layer
constexpr TestModel kInt8{"llama_q4_0_int8", "gguf/llama-q4_0.gguf", "int8"};
// Layers with a state beside one of attention: Mamba-2; gated delta rule and experts.
constexpr TestModel kMamba{"bamba", "models/bamba", "f32", 540, 128};
constexpr TestModel kDelta{"qwen3_next", "models/qwen3-next", "f32", 570, 64};
constexpr TestModel kBf16{"llama_bf16", "models/llama", "bf16"};
constexpr TestModel kExperts{"qwen3_moe", "models/qwen3-moe", "f32"};
constexpr TestModel kSinks{"gpt_oss", "models/gpt-oss", "f32"};  // and experts, and every other layer with a window
constexpr TestModel kLatent{"deepseek_v3", "models/deepseek-v3", "f32"};
constexpr TestModel kSharedKv{"gemma4", "models/gemma4",
                              "f32"};  // layers that read others' K and V, two groups

class ExactTest : public ::testing::TestWithParam<TestModel> {
 protected:
  void SetUp() override {
    path_ = test::shared_data(GetParam().path);
    if (path_.empty()) GTEST_SKIP() << test::kNoShared;
    if (!computes_on(test::test_cpu(2).isa))
      GTEST_SKIP() << "skipped: this machine has no AVX512-BF16, or is told not to use it";
  }
  /// Whether that instruction set has the model's recipe.
  static bool computes_on(ops::Isa isa) {
    return GetParam().numerics != kBf16.numerics || ops::recipe_supported(isa, Recipe::kBF16);
  }

  static std::vector<Request> requests_of(std::size_t count, std::uint64_t seed, std::int32_t longest) {
    return make_requests(count, seed, longest, GetParam().ids);
  }

  /// Room for `tokens` tokens of KV, whatever block size and dtype.
  Config config(std::int64_t tokens = 20000) const {
    Config c = test::tiny_config(path_);
    c.model.numerics = GetParam().numerics;
    c.kv.dtype = "f32";
    c.model.max_model_len = 512;
    pool(c, tokens);
    return c;
  }
  static void pool(Config& c, std::int64_t tokens) {
    const auto files = model::ModelFiles::open(c.model.path);
    ASSERT_TRUE(files);
    c.kv.memory_bytes = 0;
    const auto plan = runtime::plan_memory(c, **files);
    ASSERT_TRUE(plan) << plan.error().message;
    c.kv.memory_bytes = static_cast<std::uint64_t>(tokens) * plan->kv_bytes_per_token;
  }

  /// What each request gets alone: one thread, whole prompts, no cache, one request at a time.
  std::vector<std::vector<std::string>> alone(const std::vector<Request>& requests,
                                              const std::string& dtype) const {
    Config c = config();
    c.kv.dtype = dtype;
    c.kv.enable_prefix_caching = false;
    c.runtime.threads = 1;
    c.scheduler.max_num_batched_tokens = 512;
    pool(c, 20000);
    auto engine = engine_for(c);
    EngineClient client(*engine);
    std::vector<std::vector<std::string>> out;
    for (const auto& r : requests) {
      out.emplace_back();
      for (const auto& a : client.wait(client.submit(r))) out.back().push_back(bits(a));
    }
    return out;
  }

  std::string path_;
};

/// Tests that need goldens or a file to poison.
class ExactDirectoryTest : public ExactTest {};

TEST_P(ExactTest, SixtyFourAtOnceInASmallPoolEqualEachAlone) {
  auto requests = requests_of(64, 7, 300);
  const auto whole = constrain(requests, engine_for(config())->info(), 8);
  const auto expected = alone(requests, "f32");
  std::uint64_t preemptions = 0, hits = 0, mixed = 0, aborts = 0, for_length = 0;
  for (const std::int32_t depth : {0, 1, 2}) {
    const std::int32_t tokens = GetParam().name == kWindow.name ? 300 : GetParam().name == kDelta.name ? 600 : 900;
    Config c = config(tokens);  // about two of the longest
    c.scheduler.max_num_batched_tokens = 40 + 60 * depth;
    c.scheduler.pipeline_depth = depth;
    c.scheduler.itl_target_ms = depth == 1 ? 0.5 : 100;  // chunks shrink to what the clock says: random sizes
    auto engine = engine_for(c);
    EngineClient client(*engine);
    Rng rng(static_cast<std::uint64_t>(depth));
    std::vector<RequestId> ids, victims;
    for (const auto& r : requests) {
      ids.push_back(client.submit(r));
      // A twin that is aborted at a random moment.
      if (rng.below(3) == 0) victims.push_back(client.submit(r));
      if (!victims.empty() && rng.below(2) == 0) {
        client.wait_tokens(victims.back(), rng.below(3));
        engine->cancel(victims.back());
      }
    }
    for (const RequestId id : victims) engine->cancel(id);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto answers = client.wait(ids[i]);
      ASSERT_EQ(answers.size(), expected[i].size());
      for (std::size_t k = 0; k < answers.size(); ++k) {
        EXPECT_EQ(bits(answers[k]), expected[i][k])
            << "request " << i << " choice " << k << ", depth " << depth;
        if (!whole[i]) continue;
        EXPECT_TRUE(whole[i](answers[k].ids())) << "request " << i << " choice " << k;
        for (const auto& t : answers[k].tokens) for_length += t.for_length ? 1 : 0;
      }
    }
    for (const RequestId id : victims) client.wait(id);
    const auto m = engine->metrics();
    EXPECT_EQ(m.corrupted_requests, 0U) << "steps behind an end token find a token too";
    preemptions += m.num_preemptions;
    hits += m.prefix_cache_hits;
    mixed += m.mixed_steps;
    aborts += m.finished[static_cast<std::size_t>(FinishReason::kAbort)];
  }
  // A sequence in a window holds a constant number of blocks once it runs: nothing forces it out. Where states or
  // blocks of windows are what few sequences fit into, outputs of this length do not outgrow the others
  // (ExactGrowthTest).
  if (GetParam().name != kWindow.name && GetParam().name != kMamba.name && GetParam().name != kSharedKv.name) {
    EXPECT_GT(preemptions, 0U);
  }
  EXPECT_GT(hits, 0U);
  EXPECT_GT(mixed, 0U);
  EXPECT_GT(aborts, 0U);
  EXPECT_GT(for_length, 0U);
}

/// Models whose windows or states bound the number of running sequences before the blocks that grow do.
class ExactGrowthTest : public ExactTest {};

TEST_P(ExactGrowthTest, OutputsThatOutgrowThePoolEqualEachAlone) {
  if (std::getenv("BARG_TEST_LONG") == nullptr) GTEST_SKIP() << "skipped: long, see scripts/test --full";
  auto requests = requests_of(6, 21, 40);
  for (Request& r : requests) {
    r.prompt.resize(20, 17);
    r.n = 1;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = 400;
    r.sampling.prompt_logprobs.reset();
  }
  const auto expected = alone(requests, "f32");
  for (const std::int32_t depth : {0, 2}) {
    Config c = config(900);
    c.scheduler.max_num_batched_tokens = 64;
    c.scheduler.pipeline_depth = depth;
    auto engine = engine_for(c);
    EngineClient client(*engine);
    std::vector<RequestId> ids;
    for (const auto& r : requests) ids.push_back(client.submit(r));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(bits(client.wait(ids[i])[0]), expected[i][0]) << "request " << i << ", depth " << depth;
    }
    EXPECT_GT(engine->metrics().num_preemptions, 0U) << "depth " << depth;
  }
}

TEST_P(ExactTest, Matrix) {
  const auto requests = requests_of(12, 99, 280);
  std::map<std::string, std::vector<std::vector<std::string>>> expected;
  for (const char* dtype : {"f32", "f16", "bf16", "fp8", "int8"}) expected[dtype] = alone(requests, dtype);
  EXPECT_NE(expected["f32"], expected["f16"]) << "the KV dtype is part of the numerics";
  EXPECT_NE(expected["fp8"], expected["int8"]);
  Rng rng(1);
  const auto pick = [&rng](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[rng.below(sizeof...(values))];
  };
  const bool every_triple = std::getenv("BARG_TEST_LONG") != nullptr;
  for (int round = 0; round < 27; ++round) {
    Config c = config();
    // Threads, block size and depth run through all 27 triples; the rest is drawn.
    c.runtime.threads = 1 + round % 3;
    c.kv.block_size = 16 << (round / 3 % 3);
    c.scheduler.pipeline_depth = round / 9;
    c.scheduler.max_num_batched_tokens = pick(1, 17, 64, 255, 512);
    c.kv.enable_prefix_caching = pick(0, 1) == 1;
    c.kv.dtype = pick("f32", "f16", "bf16", "fp8", "int8");
    // Each with 1, 2 and 3 threads; few rounds are scalar, which is slow (the kernels' own tests compare
    // widely).
    const bool scalar = round == 4 || round == 12 || round == 23;
    const bool avx2 =
        round / 3 % 2 == 1 && ops::isa_supported(ops::Isa::kAvx2) && computes_on(ops::Isa::kAvx2);
    c.runtime.isa = scalar ? "scalar" : avx2 ? "avx2" : "auto";
    pool(c, pick(700, 1500, 20000));
    // A third of the triples has every pair of their values, and the scalar rounds.
    if (!every_triple && (round % 3 + round / 3 + round / 9) % 3 != 2) continue;
    auto engine = engine_for(c);
    EngineClient client(*engine);
    std::vector<RequestId> ids;
    for (const auto& r : requests) ids.push_back(client.submit(r));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto answers = client.wait(ids[i]);
      for (std::size_t k = 0; k < answers.size(); ++k) {
        ASSERT_EQ(bits(answers[k]), expected[c.kv.dtype][i][k])
            << "request " << i << " choice " << k << ": " << key_of(c);
      }
    }
  }
}

TEST_P(ExactDirectoryTest, GreedyIsThatOfTransformers) {
  auto engine = engine_for(config());
  EngineClient client(*engine);
  for (const auto& golden : test::read_goldens(path_)) {
    Request r;
    r.prompt = golden.prompt;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = std::min(static_cast<std::int32_t>(golden.greedy.size()),
                                     512 - static_cast<std::int32_t>(golden.prompt.size()));
    if (r.sampling.max_tokens < 1) continue;
    const std::vector<TokenId> want(golden.greedy.begin(), golden.greedy.begin() + r.sampling.max_tokens);
    EXPECT_EQ(client.run(r).ids(), want) << golden.name;
  }
}

TEST_P(ExactTest, PromptLogprobsWarmEqualCold) {
  auto engine = engine_for(config());
  EngineClient client(*engine);
  Request r = requests_of(1, 5, 300)[0];
  r.n = 1;
  r.sampling.logprobs = 2;
  r.sampling.prompt_logprobs = 2;
  const Answer cold = client.run(r);
  ASSERT_EQ(cold.prompt_logprobs.size(), r.prompt.size());
  EXPECT_EQ(cold.prompt_logprobs[0].rank, 0) << "nothing precedes the first token";
  EXPECT_EQ(cold.prompt_logprobs[0].id, r.prompt[0]);
  EXPECT_EQ(bits(client.run(r)), bits(cold));
  // Scoring only.
  r.sampling.max_tokens = 0;
  const Answer scored = client.run(r);
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.finish, FinishReason::kLength);
  ASSERT_EQ(scored.prompt_logprobs.size(), r.prompt.size());
  for (std::size_t i = 0; i < r.prompt.size(); ++i) {
    EXPECT_EQ(bits(scored.prompt_logprobs[i]), bits(cold.prompt_logprobs[i]));
  }
}

TEST_P(ExactTest, WarmPrefixIsNotComputedAgain) {
  auto engine = engine_for(config());
  EngineClient client(*engine);
  Request r = requests_of(1, 5, 300)[0];
  r.n = 1;
  r.sampling.prompt_logprobs.reset();
  const std::int32_t interval = GetParam().interval, length = interval == 16 ? 100 : 2 * interval + 44;
  r.prompt.resize(static_cast<std::size_t>(length), 17);
  const Answer cold = client.run(r);
  const Answer warm = client.run(r);
  EXPECT_EQ(bits(warm), bits(cold));
  EXPECT_EQ(cold.stats.cached_tokens, 0);
  EXPECT_GE(warm.stats.cached_tokens, length / interval * interval);
  r.cache_salt = "another tenant";
  const Answer salted = client.run(r);
  EXPECT_EQ(bits(salted), bits(cold));
  EXPECT_EQ(salted.stats.cached_tokens, 0) << "salts do not share";
}

TEST_P(ExactTest, ChoiceZeroOfManyIsTheOnlyChoice) {
  auto engine = engine_for(config());
  EngineClient client(*engine);
  Request r = requests_of(1, 11, 100)[0];
  r.n = 1;
  r.sampling.temperature = 1;
  r.sampling.max_tokens = 20;
  const Answer one = client.run(r);
  r.n = 4;
  const auto four = client.wait(client.submit(r));
  ASSERT_EQ(four.size(), 4U);
  EXPECT_EQ(bits(four[0]), bits(one));
  EXPECT_NE(four[1].ids(), four[0].ids());
  EXPECT_NE(four[2].ids(), four[1].ids());
}

TEST_P(ExactTest, DrawnSeedIsReportedAndReproduces) {
  auto engine = engine_for(config());
  EngineClient client(*engine);
  Request r = requests_of(1, 11, 100)[0];
  r.n = 1;
  r.sampling.temperature = 1;
  r.sampling.max_tokens = 20;
  r.sampling.seed.reset();
  const Answer first = client.run(r);
  const Answer second = client.run(r);
  EXPECT_NE(first.stats.seed, second.stats.seed);
  EXPECT_NE(first.ids(), second.ids());
  r.sampling.seed = first.stats.seed;
  EXPECT_EQ(client.run(r).ids(), first.ids());
}

TEST_P(ExactDirectoryTest, TwoModelsInOneProcess) {
  const std::string other = test::shared_data("models/smollm2");
  if (other.empty()) GTEST_SKIP() << test::kNoShared;
  auto first = engine_for(config());
  Config c = test::tiny_config(other);
  c.scheduler.pipeline_depth = 1;
  auto second = engine_for(c);
  EXPECT_NE(first->info().model_digest, second->info().model_digest);
  EngineClient a(*first), b(*second);
  const auto goldens_a = test::read_goldens(path_);
  const auto goldens_b = test::read_goldens(other);
  const auto run = [](EngineClient& client, const test::Golden& g) {
    Request r;
    r.prompt = g.prompt;
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.sampling.max_tokens = 16;
    return client.submit(r);
  };
  std::vector<RequestId> ids_a, ids_b;
  for (std::size_t i = 0; i < 3; ++i) {
    ids_a.push_back(run(a, goldens_a[i]));
    ids_b.push_back(run(b, goldens_b[i]));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto first16 = [](const std::vector<TokenId>& v) { return std::vector(v.begin(), v.begin() + 16); };
    EXPECT_EQ(a.wait(ids_a[i])[0].ids(), first16(goldens_a[i].greedy));
    EXPECT_EQ(b.wait(ids_b[i])[0].ids(), first16(goldens_b[i].greedy));
  }
}

TEST_P(ExactDirectoryTest, NaNFailsOneRequest) {
  constexpr TokenId kPoison = 333;
  const test::PoisonedModel poisoned(path_, kPoison, 64);
  for (const auto& [depth, dtype] : {std::pair{0, "f32"}, {2, "f32"}, {2, "f16"}, {1, "fp8"}, {2, "int8"}}) {
    SCOPED_TRACE(dtype);
    Config c = config();
    c.model.path = poisoned.path();
    c.scheduler.pipeline_depth = depth;
    c.kv.dtype = dtype;
    auto engine = engine_for(c);
    EngineClient client(*engine);
    Request good = requests_of(1, 3, 60)[0];
    std::replace(good.prompt.begin(), good.prompt.end(), kPoison, 5);
    good.n = 1;
    good.sampling.banned_token_ids = {kPoison};
    good.sampling.max_tokens = 12;
    Request bad = good;
    bad.prompt[bad.prompt.size() / 2] = kPoison;
    const Answer before = client.run(good);
    const RequestId g = client.submit(good), b = client.submit(bad);
    EXPECT_EQ(bits(client.wait(g)[0]), bits(before));
    const Answer failed = client.wait(b)[0];
    EXPECT_EQ(failed.finish, FinishReason::kError);
    EXPECT_TRUE(failed.tokens.empty());
    EXPECT_EQ(bits(client.run(good)), bits(before)) << "a corrupt prefix must not be shared";
    EXPECT_EQ(engine->metrics().corrupted_requests, 1U);
  }
}

constexpr auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Models, ExactTest,
                         ::testing::Values(kLlama, kWindow, kInt8, kBf16, kSinks, kLatent, kMamba, kDelta,
                                           kSharedKv),
                         kName);
INSTANTIATE_TEST_SUITE_P(Models, ExactGrowthTest, ::testing::Values(kMamba, kSharedKv), kName);
INSTANTIATE_TEST_SUITE_P(Models, ExactDirectoryTest,
                         ::testing::Values(kLlama, kWindow, kExperts, kSinks, kLatent, kMamba), kName);

}  // namespace
}  // namespace barg::engine::exact_test
