#include "runtime/cpu_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "support/runner_driver.h"
#include "support/tiny_model.h"

namespace barg::runtime::cpu_runner_test {
namespace {

using test::RunnerDriver;

Request request_of(std::vector<TokenId> prompt) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 64;
  r.sampling.logprobs = 3;
  return r;
}

std::vector<TokenId> ids(const std::vector<OutputToken>& tokens) {
  std::vector<TokenId> out;
  for (const auto& t : tokens) out.push_back(t.id);
  return out;
}

void expect_equal_bits(const TokenLogprobs& a, const TokenLogprobs& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(a.logprob), std::bit_cast<std::uint32_t>(b.logprob));
  ASSERT_EQ(a.top.size(), b.top.size());
  for (std::size_t i = 0; i < a.top.size(); ++i) {
    EXPECT_EQ(a.top[i].id, b.top[i].id);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a.top[i].logprob), std::bit_cast<std::uint32_t>(b.top[i].logprob));
  }
}

void expect_equal_bits(const std::vector<OutputToken>& a, const std::vector<OutputToken>& b) {
  ASSERT_EQ(ids(a), ids(b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].logprobs.has_value(), b[i].logprobs.has_value());
    if (a[i].logprobs) expect_equal_bits(*a[i].logprobs, *b[i].logprobs);
  }
}

class CpuRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = test::shared_data("models/llama");
    if (path_.empty()) GTEST_SKIP() << test::kNoShared;
    goldens_ = test::read_goldens(path_);
    ASSERT_FALSE(goldens_.empty());
  }
  const std::vector<TokenId>& prompt(const std::string& name) const {
    for (const auto& g : goldens_) {
      if (g.name == name) return g.prompt;
    }
    std::abort();
  }
  std::string path_;
  std::vector<test::Golden> goldens_;
};

TEST_F(CpuRunnerTest, GreedyTokensAreThoseOfTransformers) {
  auto loaded = test::load_tiny(test::tiny_config(path_));
  RunnerDriver driver(*loaded.runner);
  for (const auto& golden : goldens_) {
    const auto out = driver.generate(driver.add(request_of(golden.prompt)),
                                     static_cast<std::int32_t>(golden.greedy.size()));
    EXPECT_EQ(ids(out), golden.greedy) << golden.name;
  }
}

TEST_F(CpuRunnerTest, ChunksBlocksAndMatesDoNotChangeABit) {
  auto loaded = test::load_tiny(test::tiny_config(path_));
  RunnerDriver driver(*loaded.runner);
  const auto alone = driver.generate(driver.add(request_of(prompt("p65"))), 16);
  for (const std::int32_t chunk : {1, 7, 16, 33}) {
    const auto out = driver.generate(driver.add(request_of(prompt("p65")), 0, 100, -1), 16, chunk);
    expect_equal_bits(alone, out);
  }
  // In one batch with another sequence, the other ahead of it and longer.
  const SeqId mate = driver.add(request_of(prompt("p200")), 0, 200);
  const SeqId seq = driver.add(request_of(prompt("p65")), 0, 50);
  std::vector<OutputToken> out;
  driver.run({{.seq = mate, .start = 0, .count = 150}, {.seq = seq, .start = 0, .count = 40}});
  auto r = driver.run({{.seq = mate, .start = 150, .count = 50, .sample = true},
                       {.seq = seq, .start = 40, .count = 25, .sample = true}});
  out.push_back(r.items[1].tokens.at(0));
  for (std::int32_t i = 1; i < 16; ++i) {
    r = driver.run({{.seq = seq, .start = 64 + i, .count = 1, .sample = true},
                    {.seq = mate, .start = 199 + i, .count = 1, .sample = true}});
    out.push_back(r.items[0].tokens.at(0));
  }
  expect_equal_bits(alone, out);
}

TEST_F(CpuRunnerTest, PendingTokensAreResolvedOnTheDevice) {
  auto loaded = test::load_tiny(test::tiny_config(path_));
  RunnerDriver driver(*loaded.runner);
  auto sampled = request_of(prompt("p17"));
  sampled.sampling.temperature = 1;
  sampled.sampling.repetition_penalty = 1.3F;
  const auto one_by_one = driver.generate(driver.add(sampled), 8);
  const SeqId seq = driver.add(sampled, 0, 20);
  driver.launch({{.seq = seq, .start = 0, .count = 17, .sample = true}});
  for (std::int32_t i = 1; i < 8; ++i)
    driver.launch({{.seq = seq, .start = 16 + i, .count = 1, .sample = true}});
  std::vector<OutputToken> out;
  for (std::int32_t i = 0; i < 8; ++i) out.push_back(driver.collect().items[0].tokens.at(0));
  expect_equal_bits(one_by_one, out);
  EXPECT_FALSE(loaded.runner->collect(true).has_value()) << "nothing is outstanding";
}

TEST_F(CpuRunnerTest, RecomputationRewindsTheSampler) {
  auto loaded = test::load_tiny(test::tiny_config(path_));
  RunnerDriver driver(*loaded.runner);
  auto sampled = request_of(prompt("p17"));
  sampled.sampling.temperature = 1.2F;
  sampled.sampling.frequency_penalty = 0.7F;
  const SeqId seq = driver.add(sampled);
  const auto first = driver.generate(seq, 10);
  // As after a preemption that lost the last 4 tokens' results.
  auto r = driver.run({{.seq = seq, .start = 0, .count = 22, .sample = true, .output_index = 5}});
  ASSERT_EQ(r.items[0].tokens.size(), 1U);
  std::vector<OutputToken> again{r.items[0].tokens[0]};
  for (std::int32_t i = 23; i < 27; ++i) {
    r = driver.run({{.seq = seq, .start = i - 1, .count = 1, .sample = true}});
    again.push_back(r.items[0].tokens.at(0));
  }
  expect_equal_bits({first.begin() + 5, first.begin() + 10}, again);
}

TEST_F(CpuRunnerTest, PromptLogprobsWhateverTheSubBatch) {
  auto config = test::tiny_config(path_);
  auto loaded = test::load_tiny(config);
  auto scored = request_of(prompt("p200"));
  scored.sampling.prompt_logprobs = 2;
  RunnerDriver driver(*loaded.runner);
  const SeqId whole = driver.add(scored);
  const auto at_once =
      driver.run({{.seq = whole, .start = 0, .count = 200, .sample = true, .logits_begin = 0}});
  ASSERT_EQ(at_once.items[0].prompt_logprobs.size(), 199U) << "more rows than one sub-batch of logits";
  const SeqId parts = driver.add(scored, 0, 40);
  std::vector<TokenLogprobs> pieces;
  for (std::int32_t start = 0; start < 200; start += 37) {
    const std::int32_t count = std::min(37, 200 - start);
    auto r = driver.run(
        {{.seq = parts, .start = start, .count = count, .sample = start + count == 200, .logits_begin = 0}});
    for (auto& p : r.items[0].prompt_logprobs) pieces.push_back(p);
    if (start + count == 200) {
      expect_equal_bits(at_once.items[0].tokens, r.items[0].tokens);
    }
  }
  ASSERT_EQ(pieces.size(), 199U);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].id, scored.prompt[i + 1]);
    expect_equal_bits(at_once.items[0].prompt_logprobs[i], pieces[i]);
  }
}

TEST_F(CpuRunnerTest, NaNFailsItsOwnItemOnly) {
  constexpr TokenId kPoison = 333;
  const test::PoisonedModel poisoned(path_, kPoison, 64);
  auto loaded = test::load_tiny(test::tiny_config(poisoned.path()));
  RunnerDriver driver(*loaded.runner);
  const SeqId good = driver.add(request_of({5, 6, 7}));
  const SeqId bad = driver.add(request_of({5, kPoison, 7}), 0, 20);
  driver.launch({{.seq = bad, .start = 0, .count = 3, .sample = true},
                 {.seq = good, .start = 0, .count = 3, .sample = true}});
  driver.launch({{.seq = good, .start = 3, .count = 1, .sample = true},
                 {.seq = bad, .start = 3, .count = 1, .sample = true}});
  auto r = driver.collect();
  EXPECT_EQ(r.items[0].status, sched::ItemStatus::kBadLogits);
  EXPECT_TRUE(r.items[0].tokens.empty());
  EXPECT_EQ(r.items[1].status, sched::ItemStatus::kOk);
  EXPECT_EQ(r.items[1].tokens.size(), 1U);
  r = driver.collect();
  EXPECT_EQ(r.items[0].status, sched::ItemStatus::kOk);
  EXPECT_EQ(r.items[1].status, sched::ItemStatus::kBadLogits) << "its pending token does not exist";
  // Rows that are only scored, not sampled.
  auto scored = request_of({5, kPoison, 7, 8});
  scored.sampling.prompt_logprobs = 0;
  r = driver.run({{.seq = driver.add(scored, 0, 40), .start = 0, .count = 3, .logits_begin = 0}});
  EXPECT_EQ(r.items[0].status, sched::ItemStatus::kBadLogits);
}

TEST_F(CpuRunnerTest, TokenBudgetOfOne) {
  auto config = test::tiny_config(path_);
  config.scheduler.max_num_batched_tokens = 1;
  auto loaded = test::load_tiny(config);
  RunnerDriver driver(*loaded.runner);
  const auto out = driver.generate(driver.add(request_of(prompt("p17"))), 4);
  for (const auto& g : goldens_) {
    if (g.name == "p17") {
      EXPECT_EQ(ids(out), std::vector(g.greedy.begin(), g.greedy.begin() + 4));
    }
  }
}

TEST_F(CpuRunnerTest, KeyRootNamesEverythingABlockDependsOn) {
  const auto root = [&](auto change) {
    auto config = test::tiny_config(path_);
    change(config);
    return test::load_tiny(config).runner->info();
  };
  const auto base = root([](Config&) {});
  EXPECT_EQ(base.key_root.size(), 32U);
  EXPECT_EQ(base.model_digest.size(), 64U);
  EXPECT_EQ(base.numerics_id, "f32-t32-s256-k1-kvf32-cpu");
  EXPECT_EQ(base.vocab_size, 704);
  EXPECT_EQ(base.end_ids, std::vector<TokenId>{2});
  EXPECT_EQ(base.max_model_len, 1024);
  EXPECT_EQ(root([](Config& c) {
              c.runtime.threads = 1;
              c.runtime.isa = "scalar";
            }).key_root,
            base.key_root);
  EXPECT_NE(root([](Config& c) { c.kv.block_size = 32; }).key_root, base.key_root);
  std::set<std::string> domains{base.key_root}, numerics{base.numerics_id};
  for (const char* dtype : {"f16", "bf16", "fp8", "int8"}) {
    const auto info = root([&](Config& c) { c.kv.dtype = dtype; });
    EXPECT_TRUE(domains.insert(info.key_root).second) << dtype;
    EXPECT_TRUE(numerics.insert(info.numerics_id).second) << dtype;
  }
  EXPECT_TRUE(numerics.contains("f32-t32-s256-k1-kvfp8-cpu"));
  EXPECT_NE(root([](Config& c) { c.model.numerics = "int8"; }).key_root, base.key_root);
  const test::PoisonedModel other(path_, 3, 64);
  EXPECT_NE(root([&](Config& c) { c.model.path = other.path(); }).key_root, base.key_root);
}

TEST_F(CpuRunnerTest, TheTokenizersEndIdsStopGeneration) {
  const Config config = test::tiny_config(path_);
  auto files = model::ModelFiles::open(path_);
  ASSERT_TRUE(files) << files.error().message;
  const auto plain = runtime::load_runner(config, *files, {});
  ASSERT_TRUE(plain) << plain.error().message;
  const auto more =
      runtime::load_runner(config, *files, {.progress = {}, .vocab_size = 0, .end_ids = {700, 5}});
  ASSERT_TRUE(more) << more.error().message;
  std::vector<TokenId> want = plain->runner->info().end_ids;
  ASSERT_FALSE(want.empty());
  want.insert(want.end(), {5, 700});
  std::sort(want.begin(), want.end());
  EXPECT_EQ(more->runner->info().end_ids, want);
}

TEST_F(CpuRunnerTest, RefusesUnknownNames) {
  const auto error = [&](auto change) {
    auto config = test::tiny_config(path_);
    change(config);
    auto files = model::ModelFiles::open(path_);
    auto loaded = load_runner(config, *files);
    return loaded ? std::string("none") : loaded.error().param;
  };
  for (const char* dtype : {"f8", "fp8_e5m2", "q8_0", "INT8"})
    EXPECT_EQ(error([&](Config& c) { c.kv.dtype = dtype; }), "kv.dtype") << dtype;
  EXPECT_EQ(error([](Config& c) { c.model.numerics = "f64"; }), "model.numerics");
  EXPECT_EQ(error([](Config& c) { c.runtime.isa = "sse"; }), "runtime.isa");
  EXPECT_EQ(error([](Config& c) { c.runtime.threads = -1; }), "runtime.threads");
  EXPECT_EQ(error([](Config& c) { c.kv.memory_bytes = 10; }), "kv.memory_bytes");
}

TEST_F(CpuRunnerTest, AnInstructionSetThatTheMachineLacksIsRefusedInOneSentence) {
  for (const ops::Isa isa : {ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    auto config = test::tiny_config(path_);
    config.runtime.isa = ops::isa_name(isa);
    auto files = model::ModelFiles::open(path_);
    const auto loaded = load_runner(config, *files);
    EXPECT_EQ(loaded.has_value(), ops::isa_supported(isa));
    if (loaded) {
      EXPECT_EQ(loaded->device, "cpu-" + config.runtime.isa);
    } else {
      EXPECT_EQ(loaded.error().message, "runtime.isa is " + config.runtime.isa +
                                            ", which this machine cannot run; its best is " +
                                            ops::isa_name(ops::best_isa()));
    }
  }
}

/// By what the machine has; where bf16 runs, its bits are not those of f32, and chunks do not change them.
TEST_F(CpuRunnerTest, Bf16RunsWhereItCanAndIsRefusedElsewhereInOneSentence) {
  auto files = model::ModelFiles::open(path_);
  for (const char* isa : {"auto", "scalar", "avx2", "avx512"}) {
    auto config = test::tiny_config(path_);
    config.model.numerics = "bf16";
    config.runtime.isa = isa;
    const std::string name = isa;
    if (name == "avx2" && !ops::isa_supported(ops::Isa::kAvx2)) continue;
    if (name == "avx512" && !ops::isa_supported(ops::Isa::kAvx512)) continue;
    const bool can =
        name != "avx2" && (name == "scalar" || ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16));
    const auto loaded = load_runner(config, *files);
    const auto plan = plan_memory(config, **files);
    ASSERT_EQ(loaded.has_value(), can) << isa;
    ASSERT_EQ(plan.has_value(), can) << isa;
    if (!can) {
      EXPECT_EQ(loaded.error().param, "model.numerics");
      EXPECT_EQ(loaded.error().message,
                "model.numerics is bf16, which needs AVX512-BF16, and " +
                    std::string(name == "avx2" ? "runtime.isa is avx2" : "this machine has none") +
                    "; f32 and int8 are possible");
      continue;
    }
    EXPECT_EQ(loaded->runner->info().numerics_id, "bf16-t32-s256-k1-kvf16-cpu");
    EXPECT_EQ(plan->weight_bytes, loaded->plan.weight_bytes);
    EXPECT_EQ(plan->workspace_bytes, loaded->plan.workspace_bytes);
    RunnerDriver driver(*loaded->runner);
    const auto alone = driver.generate(driver.add(request_of(prompt("p65"))), 8);
    expect_equal_bits(alone, driver.generate(driver.add(request_of(prompt("p65")), 0, 100, -1), 8, 7));
  }
}

TEST_F(CpuRunnerTest, MemoryOfTiersIsNotThePools) {
  auto config = test::tiny_config(path_);
  const auto files = model::ModelFiles::open(path_);
  ASSERT_TRUE(files);
  ASSERT_GT(plan_memory(config, **files)->available_bytes, 0U);
  config.kv.tiers = {"dram:size=512TiB"};
  EXPECT_EQ(plan_memory(config, **files)->available_bytes, 0U);
  config.kv.tiers = {"dram:size=lots"};
  EXPECT_EQ(plan_memory(config, **files).error().param, "kv.tiers[0]");
}

TEST_F(CpuRunnerTest, Bf16WeightsTakeTwoBytesInThePlan) {
  const std::string path = test::shared_data("gguf/llama-q4_0.gguf");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  auto config = test::tiny_config(path);
  config.runtime.isa = "scalar";  // plans for it anywhere
  const auto bytes = [&](const char* numerics) {
    config.model.numerics = numerics;
    auto files = model::ModelFiles::open(path);
    const auto plan = plan_memory(config, **files);
    return plan ? plan->weight_bytes : 0;
  };
  EXPECT_EQ(bytes("int8"), bytes("f32"));
  EXPECT_GT(bytes("bf16"), 2 * bytes("int8"));
}

TEST_F(CpuRunnerTest, PlanOfInspectIsThatOfLoading) {
  auto config = test::tiny_config(path_);
  auto files = model::ModelFiles::open(path_);
  ASSERT_TRUE(files);
  for (const auto& [dtype, head_bytes] : {std::pair{"auto", 16U * 4}, {"f16", 16U * 2}, {"fp8", 16U + 4},
                                          {"int8", 16U + 4}}) {
    config.kv.dtype = dtype;
    const auto plan = plan_memory(config, **files);
    ASSERT_TRUE(plan);
    const auto loaded = test::load_tiny(config);
    EXPECT_EQ(plan->weight_bytes, loaded.plan.weight_bytes);
    EXPECT_EQ(plan->num_blocks, loaded.plan.num_blocks);
    EXPECT_EQ(plan->kv_bytes, loaded.plan.kv_bytes);
    EXPECT_EQ(plan->workspace_bytes, loaded.plan.workspace_bytes);
    EXPECT_EQ(plan->kv_bytes_per_token, 3U * 2 * 2 * head_bytes) << dtype;
    EXPECT_EQ(plan->block_bytes, loaded.runner->info().block_bytes);
    EXPECT_EQ(plan->block_bytes[0], config.kv.block_size * std::int64_t{3 * 2 * 2} * head_bytes) << dtype;
  }
}

}  // namespace
}  // namespace barg::runtime::cpu_runner_test
