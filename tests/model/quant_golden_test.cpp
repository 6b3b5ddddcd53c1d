// Every ggml type inside a model: GGUF files against transformers on their dequantised weights (recipe f32),
// and equal bits for every way to compute the same rows, in both recipes.
#include "model/golden_checks.h"

namespace barg::model::test::quant_golden_test {
namespace {

std::string plain_name(const char* name) {
  std::string s = name;
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
}

class QuantisedFile : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantisedFile, LogitsAndGreedyTokensEqualTransformersOnDequantisedWeights) {
  const std::string base = std::string("gguf/") + GetParam();
  check_against_goldens(base + ".gguf", base + ".goldens.safetensors");
}

INSTANTIATE_TEST_SUITE_P(Files, QuantisedFile,
                         ::testing::Values("llama-q5_1", "llama-256-iq1_m", "llama-256-iq1_s",
                                           "llama-256-iq2_s", "llama-256-iq2_xs", "llama-256-iq2_xxs",
                                           "llama-256-iq3_s", "llama-256-iq3_xxs", "llama-256-iq4_nl",
                                           "llama-256-iq4_xs", "llama-256-mxfp4", "llama-256-nvfp4",
                                           "llama-256-q2_k", "llama-256-q3_k", "llama-256-q4_k",
                                           "llama-256-q4_k_m", "llama-256-q5_k", "llama-256-q6_k",
                                           "llama-256-tq1_0", "llama-256-tq2_0", "qwen2-q5_0", "qwen2-q8_0",
                                           "qwen2-q4_1", "qwen2-bf16", "qwen3-f32", "qwen3-q5_0",
                                           "qwen3-q8_0", "qwen3-mxfp4", "gemma3-1b-f16", "gemma3-1b-q4_0",
                                           "gemma3-1b-q5_1", "gemma3-1b-q8_0", "llama-yarn-q8_0"),
                         [](const auto& info) { return plain_name(info.param); });

class ConvertedBits : public ::testing::TestWithParam<const char*> {};

TEST_P(ConvertedBits, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const std::string base = std::string("gguf/") + GetParam(), file = barg::test::shared_data(base + ".gguf");
  if (file.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(barg::test::shared_data(base + ".goldens.safetensors"));
  const auto ids = longest_prompt(g, 257);
  check_bits(open_or_throw(file), ids, Recipe::kInt8, DType::kF16);
  check_bits(open_or_throw(file), ids, Recipe::kF32, DType::kF16);
  if (ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16))
    check_bits(open_or_throw(file), ids, Recipe::kBF16, DType::kF16);
}

TEST_P(ConvertedBits, Int8StaysNearF32) {
  const std::string base = std::string("gguf/") + GetParam(), file = barg::test::shared_data(base + ".gguf");
  if (file.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(barg::test::shared_data(base + ".goldens.safetensors"));
  const double distance = int8_distance(open_or_throw(file), longest_prompt(g, 257));
  EXPECT_LT(distance, 0.05);
  EXPECT_GT(distance, 0) << "int8 is not f32";
}

INSTANTIATE_TEST_SUITE_P(Files, ConvertedBits,
                         ::testing::Values("llama-q5_1", "llama-256-q2_k", "llama-256-q3_k",
                                           "llama-256-q4_k_m", "llama-256-q6_k", "llama-256-iq4_xs",
                                           "llama-256-mxfp4", "llama-256-nvfp4"),
                         [](const auto& info) { return plain_name(info.param); });

}  // namespace
}  // namespace barg::model::test::quant_golden_test
