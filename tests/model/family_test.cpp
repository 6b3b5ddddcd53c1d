// Every dense family against transformers, from Hugging Face checkpoints and from GGUF files of the same
// weights.
#include <filesystem>

#include "model/golden_checks.h"
#include "model/rope.h"
#include "support/temp_dir.h"

namespace barg::model::test::family_test {
namespace {

using barg::test::TempDir;

struct Row {
  const char* name;
  GoldenOptions options = {};
  bool hidden = true;  ///< the goldens have hidden states
};

const Row kRows[] = {
    {"smollm2"},
    {"llama-bias"},
    // Its context. transformers rounds angles to f32, which a prompt of 700 tokens sees.
    {"llama-yarn", {.longest = 257}},
    {"mistral-nemo"},
    {"ministral3"},
    {"smollm3"},
    {"qwen2"},
    {"qwen2-yarn"},
    {"qwen3"},
    {"gemma"},
    {"gemma2"},
    {"gemma3"},
    {"gemma3-1b"},
    {"phi3", {.set = "fixed_long."}, false},
    {"phi3-window"},
    {"olmo2"},
    {"olmo3"},
    {"granite"},
    {"cohere"},
    {"cohere2"},
    {"glm4"},
    {"stablelm"},
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

/// What ../shared/data has no goldens of (generated_models.py --write).
TEST(CommittedGoldens, GlmWithoutNormsBehindTheHalves) {
  check_against_goldens("models/glm", "models/glm/goldens.safetensors");
}

/// dynamic decides once, from the context that is served: goldens of 128 tokens.
TEST(CommittedGoldens, DynamicRopeBeyondTheModelsContext) {
  const std::string model = "models/llama-dynamic", goldens = model + "/goldens.safetensors";
  check_against_goldens(model, goldens, {.context = 128});
  const Goldens g(barg::test::shared_data(goldens));
  const auto worst = [&](std::int32_t context) {
    Harness h(open_or_throw(barg::test::shared_data(model)), {.context = context});
    const auto ids = g.ids("p65.input_ids");
    return worst_of(g, "p65", h.logits(h.prefill(h.new_sequence(65), ids, {65})), h.vocab());
  };
  EXPECT_LE(worst(128), kBar);
  EXPECT_GT(worst(127), 10 * kBar) << "another context has another theta";
}

/// transformers rounds frequencies and angles to f32; with both in double it is 2e-5 away (generated_models.py).
TEST(LlamaYarn, PromptsOfSevenHundredTokensAreAsFarAsRoundedAnglesTakeThem) {
  const std::string path = barg::test::shared_data("models/llama-yarn");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_file_against_goldens(path, path + "/goldens.safetensors", {.set = "p700", .bar = 2.5e-4f});
}

/// The ramp of Llama 2's sizes runs from 20.94 to 45.03 of 64 frequencies, rounded outwards.
TEST(LlamaYarn, RampBeginsAndEndsAtWholeFrequencies) {
  RopeSpec yarn;
  yarn.kind = RopeSpec::Kind::kYarn;
  yarn.theta = 10000;
  yarn.rotary_dim = 128;
  yarn.factor = 4;
  yarn.original_max_positions = 4096;
  yarn.beta_fast = 32;
  yarn.beta_slow = 1;
  const auto got = rope_frequencies(yarn);
  ASSERT_EQ(got.size(), 64u);
  for (const int i : {0, 20, 21, 45, 46, 63}) {
    const double ramp = std::clamp((i - 20) / 26.0, 0.0, 1.0), whole = std::pow(10000.0, -i / 64.0);
    EXPECT_NEAR(got[static_cast<std::size_t>(i)], whole * (1 - ramp + ramp / 4), 1e-6 * whole) << i;
  }
}

/// A config.json with one value changed.
struct Change {
  const char* model;
  const char* path;  ///< dotted
  const char* value;
  const char* set = "";  ///< GoldenOptions::set
};

const Change kChanges[] = {
    {"llama-yarn", "rope_scaling.factor", "4.1"},
    {"llama-yarn", "rope_scaling.original_max_position_embeddings", "250"},
    {"mistral-nemo", "rope_theta", "1010000.0"},
    {"ministral3", "rope_parameters.llama_4_scaling_beta", "0.11"},
    {"ministral3", "rope_parameters.mscale_all_dim", "1.1"},
    {"smollm3", "no_rope_layers", "[1,1,1,1,1]"},
    {"qwen2", "rope_theta", "1010000.0"},
    {"qwen2-yarn", "rope_scaling.factor", "4.1"},
    {"qwen3", "rms_norm_eps", "1e-5"},
    {"gemma", "rope_theta", "10100.0"},
    {"gemma2", "attn_logit_softcapping", "5.1"},
    {"gemma2", "final_logit_softcapping", "0.51"},
    {"gemma2", "query_pre_attn_scalar", "24.5"},
    {"gemma2", "sliding_window", "25"},
    {"gemma3", "rope_local_base_freq", "10100.0"},
    {"gemma3", "rope_scaling.factor", "8.1"},
    {"gemma3-1b", "sliding_window_pattern", "7"},
    {"gemma3n", "altup_correct_scale", "false"},
    {"gemma3n", "activation_sparsity_pattern", "[0.91,0.9,0.0,0.0,0.0,0.0]"},
    {"gemma3n", "final_logit_softcapping", "3.0"},
    {"gemma3n", "rms_norm_eps", "1e-4"},
    {"gemma3n", "rope_parameters.sliding_attention.rope_theta", "10100.0"},
    {"gemma3n", "sliding_window", "17"},
    {"gemma4", "final_logit_softcapping", "0.51"},
    {"gemma4", "rope_parameters.full_attention.partial_rotary_factor", "0.5"},
    {"gemma4", "rope_parameters.full_attention.rope_theta", "1010000.0"},
    {"gemma4", "rope_parameters.sliding_attention.rope_theta", "10100.0"},
    {"gemma4", "sliding_window", "17"},
    {"gemma4-moe", "top_k_experts", "3"},
    {"phi3", "rope_scaling.long_factor", "[1.0,1.31,2.0,3.1,4.7,6.0]", "fixed_long."},
    {"phi3-window", "sliding_window", "23"},
    {"olmo2", "rope_theta", "510000.0"},
    {"olmo3", "rope_parameters.full_attention.attention_factor", "1.21"},
    {"olmo3", "rope_parameters.sliding_attention.rope_theta", "510000.0"},
    {"granite", "embedding_multiplier", "12.1"},
    {"granite", "attention_multiplier", "0.126"},
    {"granite", "residual_multiplier", "0.221"},
    {"granite", "logits_scaling", "0.251"},
    {"cohere", "logit_scale", "0.251"},
    {"cohere", "layer_norm_eps", "1e-4"},
    {"cohere2", "sliding_window", "23"},
    {"glm4", "partial_rotary_factor", "0.25"},
    {"stablelm", "partial_rotary_factor", "0.5"},
    {"stablelm", "rope_theta", "10100.0"},
    {"qwen3-next", "partial_rotary_factor", "0.5"},
    {"qwen3-next", "norm_topk_prob", "false"},
    {"qwen3-next", "num_experts_per_tok", "3"},
    {"qwen35", "rope_parameters.partial_rotary_factor", "0.5"},
    {"qwen35-moe", "num_experts_per_tok", "1"},
    {"qwen35-moe", "rms_norm_eps", "1e-3"},
    {"mamba2", "layer_norm_epsilon", "1e-3"},
    {"mamba2", "time_step_limit", "[0.0,0.5]"},
    {"bamba", "partial_rotary_factor", "1.0"},
    {"granite-hybrid", "embedding_multiplier", "6.1"},
    {"granite-hybrid", "attention_multiplier", "0.126"},
    {"granite-hybrid", "residual_multiplier", "0.31"},
    {"granite-hybrid", "logits_scaling", "0.31"},
    {"granite-hybrid", "num_experts_per_tok", "1"},
    {"granite-hybrid", "position_embedding_type", "\"rope\""},
    {"falcon-h1", "ssm_multipliers", "[0.7,0.9,1.1,0.8,1.21]"},
    {"falcon-h1", "ssm_out_multiplier", "0.91"},
    {"falcon-h1", "key_multiplier", "0.61"},
    {"falcon-h1", "attention_out_multiplier", "0.91"},
    {"falcon-h1", "mlp_multipliers", "[0.81,0.7]"},
    {"falcon-h1", "lm_head_multiplier", "0.51"},
    {"falcon-h1", "mamba_norm_before_gate", "true"},
    {"lfm2", "rope_theta", "1010000.0"},
    {"lfm2", "norm_eps", "1e-3"},
    {"mixtral", "num_experts_per_tok", "1"},
    {"mixtral", "rope_theta", "1010000.0"},
    {"mixtral", "sliding_window", "100"},
    {"mixtral", "rms_norm_eps", "1e-3"},
    {"qwen3-moe", "num_experts_per_tok", "2"},
    {"qwen3-moe", "norm_topk_prob", "false"},
    {"qwen3-moe", "rope_theta", "1010000.0"},
    {"qwen3-moe", "rms_norm_eps", "1e-3"},
    {"gpt-oss", "num_experts_per_tok", "1"},
    {"gpt-oss", "sliding_window", "25"},
    {"gpt-oss", "swiglu_alpha", "1.75"},
    {"gpt-oss", "swiglu_limit", "1.5"},
    {"gpt-oss", "rope_theta", "151000.0"},
    {"gpt-oss", "rope_scaling.factor", "8.1"},
    {"gpt-oss", "rope_scaling.beta_fast", "5.0"},
    {"gpt-oss", "rope_scaling.beta_slow", "1.1"},
    {"gpt-oss", "rope_scaling.truncate", "true"},
    {"gpt-oss", "rope_scaling.original_max_position_embeddings", "65"},
    {"minimax-m2", "num_experts_per_tok", "1"},
    {"minimax-m2", "partial_rotary_factor", "1.0"},
    {"minimax-m2", "rope_theta", "5100000.0"},
    {"minimax-m2", "rms_norm_eps", "1e-3"},
    {"glm4-moe", "num_experts_per_tok", "2"},
    {"glm4-moe", "norm_topk_prob", "false"},
    {"glm4-moe", "routed_scaling_factor", "1.51"},
    {"glm4-moe", "n_group", "2"},
    {"glm4-moe", "partial_rotary_factor", "1.0"},
    {"glm4-moe", "rope_theta", "1010000.0"},
    {"deepseek-v2", "num_experts_per_tok", "2"},
    {"deepseek-v2", "norm_topk_prob", "true"},
    {"deepseek-v2", "routed_scaling_factor", "1.01"},
    {"deepseek-v2", "rope_theta", "10100.0"},
    {"deepseek-v3", "num_experts_per_tok", "2"},
    {"deepseek-v3", "n_group", "2"},
    {"deepseek-v3", "topk_group", "3"},
    {"deepseek-v3", "norm_topk_prob", "false"},
    {"deepseek-v3", "routed_scaling_factor", "2.51"},
    {"deepseek-v3", "rope_interleave", "false"},
    {"deepseek-v3", "rope_scaling.mscale_all_dim", "1.01"},
    {"deepseek-v3", "rope_scaling.factor", "4.1"},
    {"deepseek-v3", "rope_theta", "10100.0"},
};

void set(Json& root, std::string path, const char* value) {
  Json* at = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    at = at->find(path.substr(0, dot));
    ASSERT_NE(at, nullptr) << path;
    if (dot == path.npos) break;
    path.erase(0, dot + 1);
  }
  *at = parse_json(value).value();
}

/// What the goldens would see if a field were read a little wrong: ten times the bar at least.
TEST(Goldens, SeeEveryFieldOfEveryFamily) {
  if (barg::test::shared_data("models/stablelm").empty()) GTEST_SKIP() << barg::test::kNoShared;
  for (const Change& c : kChanges) {
    SCOPED_TRACE(std::string(c.model) + ": " + c.path + " = " + c.value);
    const std::string path = barg::test::shared_data(std::string("models/") + c.model);
    Json config = parse_json(read_file(path + "/config.json", 1 << 20).value()).value();
    set(config, c.path, c.value);
    TempDir dir;
    dir.write("config.json", dump_json(config));
    std::filesystem::create_symlink(std::filesystem::absolute(path + "/model.safetensors"),
                                    dir.path() + "/model.safetensors");
    const Goldens g(path + "/goldens.safetensors");
    Harness h(open_or_throw(dir.path()), {});
    const std::string p = std::string(c.set) + "p200";
    const auto ids = g.ids(p + ".input_ids");
    const auto hidden = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()});
    EXPECT_GE(worst_of(g, p, h.logits(hidden), h.vocab()), 10 * kBar);
  }
}

}  // namespace
}  // namespace barg::model::test::family_test
