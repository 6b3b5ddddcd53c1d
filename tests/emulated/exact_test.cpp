// The whole engine on the emulated CUDA device: whatever happens around a request, it gets the bytes it gets alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "emulated/emulated_kit.h"
#include "support/exact_requests.h"

namespace barg::test::exact_test {
namespace {


constexpr std::uint64_t kIds = 570;  ///< that prompts are made of

struct ExactModel {
  const char* name;
  RandomModel model;
};
void PrintTo(const ExactModel& m, std::ostream* os) { *os << m.name; }

class EmulatedExact : public ::testing::TestWithParam<ExactModel> {
 protected:
  void SetUp() override { path_ = dir_.write("m.gguf", GetParam().model.build()); }

  Config config(std::int64_t tokens) const { return emulated_config(path_, tokens, GetParam().model.token_bytes()); }

  /// What each request gets alone: whole prompts, no cache, no graphs, nothing in flight beside it.
  std::vector<std::vector<std::string>> alone(const std::vector<Request>& requests) const {
    Config c = config(4000);
    c.kv.enable_prefix_caching = false;
    c.scheduler.max_num_batched_tokens = 512;
    c.scheduler.pipeline_depth = 0;
    const auto e = emulated_engine(c, false);
    EngineClient client(*e.engine);
    std::vector<std::vector<std::string>> out;
    for (const auto& r : requests) {
      out.emplace_back();
      for (const auto& a : client.wait(client.submit(r))) {
        EXPECT_FALSE(a.error) << a.error->message;
        out.back().push_back(bits(a));
      }
    }
    return out;
  }

  TempDir dir_;
  std::string path_;
};

TEST_P(EmulatedExact, ManyAtOnceInASmallPoolEqualEachAlone) {
  const bool all = std::getenv("BARG_TEST_LONG") != nullptr;
  const bool deep = GetParam().model.layers > 2;
  const bool short_run = GetParam().name == std::string_view("qwen3_q8_0");  // norms of heads, blocks of weights
  if (!all && !short_run) GTEST_SKIP() << "skipped: long, see scripts/test --full";
  auto requests = make_requests(all && !deep ? 32 : 10, 7, all ? 120 : 90, kIds);
  const auto whole = constrain(requests, emulated_engine(config(500)).engine->info(), 8);
  const auto expected = alone(requests);
  std::uint64_t preemptions = 0, hits = 0, mixed = 0, aborts = 0;
  runtime::CudaRunner::Counts counts;
  for (const std::int32_t depth : {0, 1, 2}) {
    Config c = config(all && !deep ? 400 : 250);
    c.scheduler.max_num_batched_tokens = 40 + 30 * depth;
    c.scheduler.pipeline_depth = depth;
    c.kv.block_size = depth == 1 ? 32 : 16;
    const auto e = emulated_engine(c, true, {.streams = emu::Order::kRandom, .seed = static_cast<std::uint64_t>(depth)});
    EngineClient client(*e.engine);
    Rng rng(static_cast<std::uint64_t>(depth));
    std::vector<RequestId> ids, victims;
    for (const auto& r : requests) {
      ids.push_back(client.submit(r));
      if (rng.below(4) == 0) victims.push_back(client.submit(r));
    }
    for (const RequestId id : victims) {
      client.wait_tokens(id, rng.below(3));
      e.engine->cancel(id);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto answers = client.wait(ids[i]);
      ASSERT_EQ(answers.size(), expected[i].size());
      for (std::size_t k = 0; k < answers.size(); ++k) {
        ASSERT_FALSE(answers[k].error) << answers[k].error->message;
        EXPECT_EQ(bits(answers[k]), expected[i][k]) << "request " << i << " choice " << k << ", depth " << depth;
        if (whole[i]) {
          EXPECT_TRUE(whole[i](answers[k].ids())) << "request " << i << " choice " << k;
        }
      }
    }
    for (const RequestId id : victims) client.wait(id);
    const auto m = e.engine->metrics();
    preemptions += m.num_preemptions;
    hits += m.prefix_cache_hits;
    mixed += m.mixed_steps;
    aborts += m.finished[static_cast<std::size_t>(FinishReason::kAbort)];
    const auto now = e.runner->counts();
    counts.graph_steps += now.graph_steps;
    counts.captures += now.captures;
    counts.ahead += now.ahead;
    if (depth > 0) {
      EXPECT_GT(now.ahead, 0);
    }
  }
  EXPECT_GT(preemptions, 0U);
  EXPECT_GT(hits, 0U);
  EXPECT_GT(mixed, 0U);
  EXPECT_GT(aborts, 0U);
  EXPECT_GT(counts.graph_steps, counts.captures);
  EXPECT_GT(counts.captures, 0);
}

/// Prompts whose blocks have left the device's pool come back from DRAM, with the same bytes.
TEST_P(EmulatedExact, TiersChangeNoAnswer) {
  Rng rng(5);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    Request r;
    while (r.prompt.size() < 70) r.prompt.push_back(static_cast<TokenId>(3 + rng.below(kIds)));
    r.sampling.seed = rng.next();
    r.sampling.max_tokens = 4;
    r.sampling.logprobs = 2;
    requests.push_back(std::move(r));
  }
  const auto expected = alone(requests);
  Config c = config(120);
  c.kv.restore = "reload";
  const auto e = emulated_engine(c, true, {}, {"dram:size=16MiB"});
  EngineClient client(*e.engine);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Answer a = client.run(requests[i]);
      ASSERT_FALSE(a.error) << a.error->message;
      EXPECT_EQ(bits(a), expected[i][0]) << "request " << i << ", round " << round;
    }
  }
  EXPECT_GE(e.engine->metrics().tiers.restore.tokens_restored, 6U * 48);
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedExact,
                         ::testing::Values(ExactModel{"llama_bf16", {}},
                                           ExactModel{"qwen3_q8_0", {.architecture = "qwen3", .type = Stored::kQ8_0}},
                                           ExactModel{"gemma3_bf16", {.architecture = "gemma3", .layers = 6, .tied = true}},
                                           ExactModel{"qwen2_q4_1", {.architecture = "qwen2", .type = Stored::kQ4_1, .tied = true}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace barg::test::exact_test
