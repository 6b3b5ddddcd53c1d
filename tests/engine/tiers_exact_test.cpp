// A tier never changes an answer: hundreds of prompts, each cut somewhere, give the bits that they give cold, wherever
// their prefix came from. That the tier really served is asserted each time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "engine/tiers_support.h"
#include "store/redis_support.h"
#include "support/temp_dir.h"

namespace barg::engine::tiers_exact_test {
namespace {

using test::Answer;
using test::answer_bits;
using test::TieredEngine;

struct Subject {
  const char* name;
  const char* path;  ///< nullptr: SmolLM2, where it is cached, with few prompts
  const char* dtype;
};
void PrintTo(const Subject& s, std::ostream* os) { *os << s.name; }

constexpr Subject kSubjects[] = {{"llama_f32", "models/llama", "f32"},
                                 {"llama_f16", "models/llama", "f16"},
                                 {"llama_bf16", "models/llama", "bf16"},
                                 {"llama_fp8", "models/llama", "fp8"},
                                 {"llama_int8", "models/llama", "int8"},
                                 {"mistral_window_f32", "models/mistral", "f32"},
                                 {"mistral_window_bf16", "models/mistral", "bf16"},
                                 {"mistral_window_int8", "models/mistral", "int8"},
                                 {"deepseek_f32", "models/deepseek-v3", "f32"},
                                 {"deepseek_fp8", "models/deepseek-v3", "fp8"},
                                 {"bamba_recurrent_f32", "models/bamba", "f32"},
                                 {"qwen3_moe_f16", "models/qwen3-moe", "f16"},
                                 {"smollm2_f16", nullptr, "f16"}};

enum Place : std::size_t { kDevice, kDram, kDisk, kRemote };

class TiersExactTest : public ::testing::TestWithParam<Subject> {
 protected:
  static constexpr std::size_t kLength = 272;

  void SetUp() override {
    const bool real = GetParam().path == nullptr;
    if (std::getenv("BARG_TEST_LONG") == nullptr && !turn()) GTEST_SKIP() << "skipped: long, see scripts/test --full";
    path_ = real ? test::smollm2_gguf() : test::shared_data(GetParam().path);
    if (path_.empty()) GTEST_SKIP() << (real ? "skipped: no SmolLM2 in the cache" : test::kNoShared);
    if (real) num_prompts_ = 5, num_cuts_ = 2, least_tokens_ = 64;
    Rng rng(2024);
    for (std::size_t p = 0; p < num_prompts_; ++p) {
      prompts_.push_back(test::request_for(test::random_prompt(rng, kLength)));
      for (std::size_t c = 0; c < num_cuts_; ++c) {
        auto prompt = prompts_.back().prompt;
        prompt.resize(17 + rng.below(kLength - 17));
        const auto own = test::random_prompt(rng, 1 + rng.below(20));
        prompt.insert(prompt.end(), own.begin(), own.end());
        cuts_.push_back(test::request_for(std::move(prompt)));
      }
    }
    for (std::size_t i = cuts_.size(); i > 1; --i) std::swap(cuts_[i - 1], cuts_[rng.below(i)]);
    Config cold = config(20000);
    cold.kv.enable_prefix_caching = false;
    expected_ = answers(TieredEngine(cold).run(cuts_));
  }

  /// Whether it is the turn of this test and subject: two subjects of five a test, each subject in some tests.
  static bool turn() {
    const auto& info = *::testing::UnitTest::GetInstance()->current_test_info();
    std::size_t place = 0;
    for (const char c : std::string_view(info.name())) {
      if (c == '/') break;
      place += static_cast<unsigned char>(c);
    }
    std::size_t subject = 0;
    while (std::string_view(kSubjects[subject].name) != GetParam().name) ++subject;
    return (place + subject) % std::size(kSubjects) < 2;
  }

  /// Room for so many tokens.
  Config config(std::int64_t tokens) const {
    Config c = test::tiny_config(path_);
    c.model.numerics = "auto";
    c.kv.dtype = GetParam().dtype;
    c.model.max_model_len = 320;
    const auto files = model::ModelFiles::open(c.model.path);
    c.kv.memory_bytes = 0;
    const auto plan = runtime::plan_memory(c, **files);
    c.kv.memory_bytes = static_cast<std::uint64_t>(tokens) * plan->kv_bytes_per_token;
    c.scheduler.max_num_batched_tokens = 96;
    return c;
  }
  Config small(const char* restore = "reload") const {
    Config c = config(700);
    c.kv.restore = restore;
    return c;
  }
  bool named(const char* word) const { return std::string(GetParam().name).find(word) != std::string::npos; }
  /// Groups that keep few blocks of a prompt: those of a window, or a state every so often.
  bool sparse() const { return named("window") || named("recurrent"); }
  /// Behind so many tokens there is a state in the tiers.
  std::int32_t interval() const { return named("recurrent") ? 128 : 16; }
  std::string disk() const { return "disk:path=" + dir_.path() + "/kv,size=256MiB,admit=all"; }

  static std::vector<std::string> answers(const std::vector<Answer>& all) {
    std::vector<std::string> out;
    for (const Answer& a : all) out.push_back(answer_bits(a));
    return out;
  }

  /// The cut prompts, some at a time, are answered as when they were cold, and `place` served some of their tokens.
  void expect_served(TieredEngine& e, Place place, std::int64_t least_tokens = 0) {
    constexpr std::size_t kAtOnce = 12;
    std::int64_t served = 0;
    for (std::size_t first = 0; first < cuts_.size(); first += kAtOnce) {
      const auto begin = cuts_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = cuts_.begin() + static_cast<std::ptrdiff_t>(std::min(first + kAtOnce, cuts_.size()));
      const auto got = e.run({begin, end});
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(answer_bits(got[i]), expected_[first + i]) << "request " << first + i;
        const auto& by = got[i].stats.cached_by_place;
        EXPECT_EQ(by[0] + by[1] + by[2] + by[3], got[i].stats.cached_tokens);
      }
      served += test::places_of(got)[place];
    }
    const auto m = e.engine->metrics();
    std::printf("[ served   ] %s: %lld of their tokens, %llu restored, plans %llu recompute %llu reload %llu both\n",
                place_name(static_cast<sched::Place>(place)), static_cast<long long>(served),
                static_cast<unsigned long long>(m.tiers.restore.tokens_restored),
                static_cast<unsigned long long>(m.tiers.restore.plans[0]),
                static_cast<unsigned long long>(m.tiers.restore.plans[1]),
                static_cast<unsigned long long>(m.tiers.restore.plans[2]));
    EXPECT_GE(served, least_tokens > 0 ? least_tokens : least_tokens_);
    if (place == kDevice) return;
    EXPECT_GT(m.tiers.stack.kinds[place - 1].bytes_read, 0U);
    EXPECT_GT(m.tiers.stack.verify_ok, 0U);
    EXPECT_EQ(m.tiers.stack.verify_failed, 0U);
  }

  const test::TempDir dir_;
  std::string path_;
  std::size_t num_prompts_ = 24, num_cuts_ = 10;
  std::int64_t least_tokens_ = 320;
  std::vector<Request> prompts_, cuts_;
  std::vector<std::string> expected_;
};

TEST_P(TiersExactTest, Device) {
  TieredEngine e(config(20000));
  e.run(prompts_);
  expect_served(e, kDevice);
}

TEST_P(TiersExactTest, Dram) {
  for (const char* restore : {"reload", "both", "auto"}) {
    TieredEngine e(small(restore), {"dram:size=256MiB"});
    e.run(prompts_);
    expect_served(e, kDram);
  }
}

TEST_P(TiersExactTest, DiskAlsoAfterARestartAndShared) {
  TieredEngine e(small(), {disk()});
  e.run(prompts_);
  ASSERT_TRUE(e.flush());
  expect_served(e, kDisk);
  // Another process on the same directory, while the first still has it open.
  TieredEngine other(small("both"), {disk()});
  ASSERT_TRUE(other.wait_stored(prompts_[0].prompt, interval()));
  expect_served(other, kDisk);
  other.stop();
  e.stop();
  e.start();
  expect_served(e, kDisk);
}

TEST_P(TiersExactTest, DramAboveDisk) {
  const bool real = GetParam().path == nullptr;
  TieredEngine e(small(), {real ? "dram:size=8MiB" : "dram:size=1MiB", disk()});
  for (const Request& r : prompts_) {  // so small a DRAM would drop what comes all at once
    e.run({r});
    ASSERT_TRUE(e.flush());
  }
  expect_served(e, kDisk, 16);
  EXPECT_GT(e.engine->metrics().tiers.stack.kinds[kDram - 1].bytes_read, 0U);
}

TEST_P(TiersExactTest, RedisBetweenTwoEngines) {
  test::RealRedis redis;
  const std::string spec = "redis:url=" + redis.url();
  {
    TieredEngine writer(small(), {"dram:size=256MiB", spec});
    ASSERT_TRUE(writer.wait_up());
    // A second use takes them to the pool: of a window, the blocks that are in it.
    const std::uint64_t most = sparse() ? num_prompts_ : num_prompts_ * kLength / 20;
    const auto writes = [&] { return writer.stack->stats().kinds[kRemote - 1].writes; };
    for (int round = 0; round < 20 && writes() < most; ++round) {
      writer.run(prompts_);
      ASSERT_TRUE(writer.flush());
    }
    EXPECT_GE(writes(), most);
  }
  TieredEngine reader(small(), {spec});
  ASSERT_TRUE(reader.wait_up());
  expect_served(reader, kRemote);
}

INSTANTIATE_TEST_SUITE_P(All, TiersExactTest, ::testing::ValuesIn(kSubjects),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace barg::engine::tiers_exact_test
