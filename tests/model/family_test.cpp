// Every dense family against transformers, from Hugging Face checkpoints and from GGUF files of the same
// weights.
#include "model/golden_checks.h"

namespace barg::model::test {
namespace {

struct Row {
  const char* name;
  GoldenOptions options = {};
  bool hidden = true;  ///< the goldens have hidden states
};

const Row kRows[] = {
    {"smollm2"},     {"llama-bias"},
    {"llama-yarn"},  {"mistral-nemo"},
    {"ministral3"},  {"smollm3"},
    {"qwen2"},       {"qwen2-yarn"},
    {"qwen3"},       {"gemma"},
    {"gemma2"},      {"gemma3"},
    {"gemma3-1b"},   {"phi3", {.set = "fixed_long."}, false},
    {"phi3-window"}, {"olmo2"},
    {"olmo3"},       {"granite"},
    {"cohere"},      {"cohere2"},
    {"glm4"},        {"stablelm"},
};

std::string test_name(const ::testing::TestParamInfo<Row>& info) {
  std::string s = info.param.name;
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

class FamilyGoldens : public ::testing::TestWithParam<Row> {
 protected:
  void SetUp() override {
    path_ = barg::test::shared_data(std::string("models/") + GetParam().name);
    if (path_.empty()) GTEST_SKIP() << barg::test::kNoShared;
  }
  std::string goldens() const { return path_ + "/goldens.safetensors"; }
  std::string path_;
};

TEST_P(FamilyGoldens, LogitsAndGreedyTokensEqualTransformers) {
  check_file_against_goldens(path_, goldens(), GetParam().options);
}

TEST_P(FamilyGoldens, HiddenStatesEqualTransformers) {
  if (GetParam().hidden) check_hidden_states(path_, GetParam().options);
}

TEST_P(FamilyGoldens, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const auto ids = longest_prompt(Goldens(goldens()), 200);
  const auto files = open_or_throw(path_);
  check_bits(files, ids, Recipe::kF32, DType::kF32);
  check_bits(files, ids, Recipe::kF32, DType::kI8);
  if (ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16))
    check_bits(files, ids, Recipe::kBF16, DType::kF16);
}

INSTANTIATE_TEST_SUITE_P(Dense, FamilyGoldens, ::testing::ValuesIn(kRows), test_name);

/// longrope decides once, from the context that is served.
TEST(LongRope, ShortFactorsServeContextsUpToTheOriginal) {
  const std::string path = barg::test::shared_data("models/phi3");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  // transformers takes the short factors while a sequence has at most 64 tokens.
  check_file_against_goldens(path, path + "/goldens.safetensors", {.longest = 17, .context = 64});
}

}  // namespace
}  // namespace barg::model::test
