// Families with experts and with latent attention against transformers; equal bits for every way to cut the same
// tokens into steps; and the files that hold experts in other ways.
#include "math.h"
#include "model/family.h"
#include "model/golden_checks.h"
#include "model/hf_builder.h"

namespace barg::model::test::experts_test {
namespace {

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string s = info.param;
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

class ExpertModel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = barg::test::shared_data(std::string("models/") + GetParam());
    if (path_.empty()) GTEST_SKIP() << barg::test::kNoShared;
  }
  std::string goldens() const { return path_ + "/goldens.safetensors"; }
  std::string path_;
};

TEST_P(ExpertModel, LogitsAndGreedyTokensEqualTransformers) { check_file_against_goldens(path_, goldens(), {}); }

TEST_P(ExpertModel, HiddenStatesEqualTransformers) { check_hidden_states(path_, {}); }

TEST_P(ExpertModel, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const Goldens g(goldens());
  const auto files = open_or_throw(path_);
  check_bits(files, longest_prompt(g, 257), Recipe::kF32, DType::kF32);  // beyond a split of 256 keys, where there is one
  const auto ids = longest_prompt(g, 65);
  check_bits(files, ids, Recipe::kF32, DType::kF8E4M3);
  if (ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16)) check_bits(files, ids, Recipe::kBF16, DType::kF16);
}

TEST_P(ExpertModel, BatchMatesDoNotChangeABit) { check_batch_mates(open_or_throw(path_), Goldens(goldens())); }

/// What the last layer leaves out for rows that nobody wants is not missed by those that are.
TEST_P(ExpertModel, WantedRowsAloneHaveTheirBits) {
  const auto ids = longest_prompt(Goldens(goldens()), 65);
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness h(open_or_throw(path_), {});
  const auto all = h.prefill(h.new_sequence(n), ids, {ids.size()});
  h.free_all();
  const std::int32_t a = h.new_sequence(n), b = h.new_sequence(n);
  const auto some = h.step({{a, 0, ids, 2}, {b, 0, ids, 0}, {h.new_sequence(1), 0, {ids[0]}, 1}});
  ASSERT_EQ(some.size(), 3 * h.hidden());
  EXPECT_TRUE(same_bits(h.row(some, 0), h.row(all, ids.size() - 2)));
  EXPECT_TRUE(same_bits(h.row(some, 1), h.row(all, ids.size() - 1)));
  EXPECT_TRUE(same_bits(h.row(some, 2), h.row(all, 0)));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertModel,
                         ::testing::Values("mixtral", "qwen3-moe", "gpt-oss", "minimax-m2", "glm4-moe",
                                           "deepseek-v2", "deepseek-v3"),
                         test_name);

TEST(LatentState, IsOneVectorAToken) {
  const std::string path = barg::test::shared_data("models/deepseek-v3");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto spec = open_or_throw(path)->spec().value();
  const auto groups = layer_groups(spec);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].kind, StateKind::kLatent);
  EXPECT_EQ(groups[0].num_kv_heads, 1);
  EXPECT_EQ(groups[0].head_dim, 48);
  EXPECT_EQ(kv_bytes_per_token(spec, DType::kF16), 3u * 48 * 2);
  EXPECT_EQ(kv_bytes_per_token(spec, DType::kI8), 3u * (48 + 8));
}

}  // namespace
}  // namespace barg::model::test::experts_test
