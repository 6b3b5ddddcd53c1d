// Every dense family as GGUF: a checkpoint of ../shared/data written again by the rules of llama.cpp's
// converter (names, rows of q and k in interleaved order, 1 + w, heads' norms in one tensor, metadata) must
// give the bits of the Hugging Face directory, hidden states and logits alike.
#include "model/family.h"
#include "model/golden_checks.h"
#include "model/twin_file.h"

namespace barg::model::test::gguf_twin_test {
namespace {

struct Twin {
  const char* model;
  const char* architecture;
  bool interleaved = false;  ///< the converter reorders q and k
  bool one_more = false;     ///< the converter adds 1 to norms
  /// What the architecture has beyond the usual keys: GGUF key, path in config.json.
  std::vector<std::pair<const char*, const char*>> more = {};
  bool exact = true;  ///< false: the file holds yarn's magnitude in two factors, rounded
};

const Twin kTwins[] = {
    {"llama-bias", "llama", true},
    {"mistral", "llama", true, false, {{"attention.sliding_window", "sliding_window"}}},
    {"ministral3",
     "mistral3",
     true,
     false,
     {{"rope.freq_base", "rope_parameters.rope_theta"},
      {"rope.scaling.factor", "rope_parameters.factor"},
      {"rope.scaling.original_context_length", "rope_parameters.original_max_position_embeddings"},
      {"rope.scaling.yarn_log_multiplier", "rope_parameters.mscale_all_dim"},
      {"attention.temperature_scale", "rope_parameters.llama_4_scaling_beta"}}},
    {"smollm3", "smollm3", true},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"gemma", "gemma", false, true},
    {"gemma2",
     "gemma2",
     false,
     true,
     {{"attention.sliding_window", "sliding_window"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"}}},
    {"gemma3-1b",
     "gemma3",
     false,
     true,
     {{"attention.sliding_window", "sliding_window"}, {"rope.freq_base_swa", "rope_local_base_freq"}}},
    {"phi3-window", "phi3", false, false, {{"attention.sliding_window", "sliding_window"}}},
    {"phi3",
     "phi3",
     false,
     false,
     {{"rope.scaling.original_context_length", "original_max_position_embeddings"}}},
    {"olmo2", "olmo2"},
    {"olmo3",
     "olmo2",
     false,
     false,
     {{"attention.sliding_window", "sliding_window"},
      {"rope.freq_base", "rope_parameters.full_attention.rope_theta"},
      {"rope.scaling.factor", "rope_parameters.full_attention.factor"},
      {"rope.scaling.original_context_length",
       "rope_parameters.full_attention.original_max_position_embeddings"}},
     false},
    {"granite",
     "granite",
     true,
     false,
     {{"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"attention.scale", "attention_multiplier"},
      {"logit_scale", "logits_scaling"}}},
    {"cohere", "command-r", false, false, {{"logit_scale", "logit_scale"}}},
    {"cohere2",
     "cohere2",
     false,
     false,
     {{"logit_scale", "logit_scale"}, {"attention.sliding_window", "sliding_window"}}},
    {"glm4", "glm4"},
    {"stablelm", "stablelm"},
};

/// A number of config.json by its dotted path.
std::optional<double> number(const Json& config, std::string path) {
  const Json* at = &config;
  while (at != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    at = at->find(path.substr(0, dot));
    path.erase(0, std::min(dot + 1, path.size()));
  }
  if (at == nullptr || !at->is_number()) return std::nullopt;
  return at->as_double();
}

/// What a converter writes.
class Converter {
 public:
  Converter(const Twin& twin, const ModelFiles& hf, const Json& config)
      : twin_(twin),
        hf_(hf),
        config_(config),
        spec_(hf.spec().value()),
        out_(twin.architecture, twin.model) {}

  std::string file() {
    metadata();
    for (const RequiredTensor& t : required_tensors(spec_)) {
      if (t.name.ends_with("_norm.0.weight")) stack(t.name);
      if (!of_one_head(t.name)) add(t.name);
    }
    if (spec_.ropes[0].kind == RopeSpec::Kind::kLongRope) {
      const auto half = static_cast<std::int64_t>(spec_.ropes[0].long_divisors.size());
      put("rope_factors_long.weight", {spec_.ropes[0].long_divisors, {half}});
      put("rope_factors_short.weight", {spec_.ropes[0].short_divisors, {half}});
    }
    return out_.bytes();
  }

 private:
  void u32(const char* name, double v) { out_.u32(name, static_cast<std::int64_t>(v)); }
  void f32(const char* name, double v) { out_.f32(name, v); }

  void metadata() {
    for (const auto& [to, from] : std::initializer_list<std::pair<const char*, const char*>>{
             {"block_count", "num_hidden_layers"},
             {"context_length", "max_position_embeddings"},
             {"embedding_length", "hidden_size"},
             {"feed_forward_length", "intermediate_size"},
             {"attention.head_count", "num_attention_heads"},
             {"attention.head_count_kv", "num_key_value_heads"}}) {
      u32(to, number(config_, from).value());
    }
    u32("attention.key_length", spec_.head_dim);
    u32("attention.value_length", spec_.head_dim);
    u32("rope.dimension_count", spec_.head_dim * number(config_, "partial_rotary_factor").value_or(1.0));
    if (const auto eps = number(config_, "rms_norm_eps")) f32("attention.layer_norm_rms_epsilon", *eps);
    if (const auto eps = number(config_, "layer_norm_eps")) f32("attention.layer_norm_epsilon", *eps);
    if (const auto theta = number(config_, "rope_theta")) f32("rope.freq_base", *theta);
    if (const auto scale = number(config_, "query_pre_attn_scalar"))
      f32("attention.scale", 1 / std::sqrt(*scale));
    for (const auto& [to, from] : twin_.more) f32_or_u32(to, number(config_, from).value());
    if (spec_.ropes[0].kind == RopeSpec::Kind::kYarn) {
      out_.builder.str(out_.key("rope.scaling.type"), "yarn");
      // What ggml multiplies with 1 + 0.1 ln(factor).
      const double m = spec_.ropes[0].attention_factor / (1 + 0.1 * std::log(spec_.ropes[0].factor));
      if (std::string_view(twin_.architecture) != "mistral3") f32("rope.scaling.attn_factor", m);
    }
  }

  void f32_or_u32(const char* name, double v) {
    const bool whole =
        std::string_view(name).ends_with("_length") || std::string_view(name).ends_with("window");
    whole ? u32(name, v) : f32(name, v);
  }

  /// "blk.1.attn_q_norm.3.weight"
  static bool of_one_head(const std::string& name) {
    const std::size_t at = name.find("_norm.");
    return at != name.npos && name[at + 6] >= '0' && name[at + 6] <= '9';
  }

  /// The norms of the heads, one below the other.
  void stack(const std::string& first) {
    const std::size_t at = first.rfind(".0.");
    Floats all{{}, {0, spec_.head_dim}};
    for (int h = 0; hf_.find(first.substr(0, at) + "." + std::to_string(h) + ".weight") != nullptr; ++h) {
      const Floats one = floats_of(*hf_.find(first.substr(0, at) + "." + std::to_string(h) + ".weight"));
      all.values.insert(all.values.end(), one.values.begin(), one.values.end());
      ++all.shape[0];
    }
    put(first.substr(0, at) + ".weight", all);
  }

  void add(const std::string& name) {
    Floats t = floats_of(*hf_.find(name));
    const bool qk = name.find(".attn_q.") != name.npos || name.find(".attn_k.") != name.npos;
    if (twin_.interleaved && qk) interleave(t, spec_.head_dim);
    if (twin_.one_more && name.find("norm.weight") != name.npos) {
      for (float& v : t.values) v = v + 1.0f;
    }
    put(name, t);
  }

  void put(const std::string& name, const Floats& t) { out_.put(name, t); }

  const Twin& twin_;
  const ModelFiles& hf_;
  const Json& config_;
  DecoderSpec spec_;
  TwinFile out_;
};

class GgufTwin : public ::testing::TestWithParam<Twin> {};

TEST_P(GgufTwin, GivesTheBitsOfTheCheckpoint) {
  const std::string path = barg::test::shared_data(std::string("models/") + GetParam().model);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto hf = open_or_throw(path);
  const Json config = parse_json(read_file(path + "/config.json", 1 << 20).value()).value();
  TempDir dir;
  const auto gguf = open_or_throw(dir.write("twin.gguf", Converter(GetParam(), *hf, config).file()));
  const auto spec = gguf->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 200);
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness a(hf, {}), b(gguf, {});
  const auto want = a.prefill(a.new_sequence(n), ids, {150, 50}),
             got = b.prefill(b.new_sequence(n), ids, {64});
  if (!GetParam().exact) {
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << i;
    return;
  }
  EXPECT_TRUE(same_bits(got, want));
  EXPECT_TRUE(same_bits(b.logits(got), a.logits(want)));
}

INSTANTIATE_TEST_SUITE_P(Dense, GgufTwin, ::testing::ValuesIn(kTwins), [](const auto& info) {
  std::string s = info.param.model;
  std::replace(s.begin(), s.end(), '-', '_');
  return s;
});

}  // namespace
}  // namespace barg::model::test::gguf_twin_test
