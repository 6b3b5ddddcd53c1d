// What a config.json leaves out means what transformers' configuration classes make of it. The oracle is
// tests/data/configs, which tests/tools/config_classes.py writes with transformers itself.
#include "model/class_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/mapped_file.h"
#include "model/family.h"
#include "model/hf_builder.h"
#include "model/model_files.h"
#include "support/data.h"
#include "support/temp_dir.h"

namespace barg::model::test::class_defaults_test {
namespace {

using barg::test::TempDir;

Json read_json(const std::string& path) {
  const auto text = read_file(path, 4 << 20);
  if (!text) throw std::runtime_error(text.error().message);
  auto json = parse_json(*text, {.max_members = 0});
  if (!json) throw std::runtime_error(json.error().message);
  return std::move(*json);
}

Json oracle(const std::string& file) {
  return read_json(std::string(BARG_SOURCE_DIR) + "/tests/data/configs/" + file);
}

/// No files, but what builders look for before they read on: an output matrix, and experts as stacks.
class NoFiles final : public ModelFiles {
 public:
  NoFiles() {
    std::vector<std::string> names{"output.weight"};
    for (int i = 0; i < 64; ++i) names.push_back("blk." + std::to_string(i) + ".ffn_gate_up_exps.weight");
    tensors_.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) tensors_[i].name = names[i];
    if (!index_tensors(names)) throw std::runtime_error("two tensors of one name");
  }
  std::string_view container() const override { return "safetensors"; }
  std::string architecture() const override { return ""; }
  std::string display_name() const override { return ""; }
  Result<DecoderSpec> spec() const override { return fail(ErrorCode::kUnsupported, ""); }
  Result<VocabData> vocab() const override { return fail(ErrorCode::kUnsupported, ""); }
  Result<GenerationDefaults> generation_defaults() const override { return GenerationDefaults{}; }
  void drop(const Tensor&, std::span<const std::byte>) const override {}
};

/// What the class's family makes of a config, before it is compared with tensors.
Result<DecoderSpec> spec_of(const Family& family, const Json& config) {
  static const NoFiles files;
  const Json whole = with_class_defaults(config, family.hf_class);
  JsonFieldReader fields(whole, "");
  return family.from_hf({fields, files, &whole, nullptr});
}

void expect_same(const Family& family, const Json& left_out, const Json& said, int& read) {
  const auto a = spec_of(family, left_out), b = spec_of(family, said);
  if (a && b) {
    ++read;
    EXPECT_TRUE(*a == *b);
    return;
  }
  EXPECT_EQ(a ? "it is read" : a.error().message, b ? "it is read" : b.error().message);
}

const Family* family_of_class(std::string_view model_type) {
  for (const Family& f : families()) {
    if (f.hf_class == model_type) return &f;
  }
  return nullptr;
}

TEST(ClassDefaults, AreThoseOfEveryClass) {
  // What classes' code falls back on, and not their fields; the next test compares what becomes of it.
  const std::set<std::string> in_code{"rope_theta",
                                      "rope_local_base_freq",
                                      "rope_parameters",
                                      "partial_rotary_factor",
                                      "full_attention_interval",
                                      "global_head_dim",
                                      "sliding_window_pattern"};
  const Json all = oracle("classes.json");
  for (const auto& [type, of] : all.as_object()) {
    const Json row = class_defaults(type);
    ASSERT_TRUE(row.is_object()) << type;
    const Json& fields = *of.find("fields");
    for (const auto& [key, value] : fields.as_object()) {
      if (key == "tie_word_embeddings" && value == Json(false)) continue;  // said beside the table
      ASSERT_NE(row.find(key), nullptr) << type << ": " << key;
      EXPECT_EQ(dump_json(*row.find(key)), dump_json(value)) << type << ": " << key;
    }
    for (const auto& [key, value] : row.as_object())
      EXPECT_TRUE(fields.find(key) != nullptr || in_code.contains(key)) << type << ": " << key;
  }
}

TEST(ClassDefaults, EveryFamilyHasAClass) {
  for (const Family& f : families()) {
    if (f.hf_architecture == nullptr) continue;
    ASSERT_NE(f.hf_class, nullptr) << f.hf_architecture;
    EXPECT_TRUE(class_defaults(f.hf_class).is_object()) << f.hf_architecture;
  }
}

TEST(ClassDefaults, AConfigOfNothingIsTheClasssOwn) {
  int read = 0;
  const Json all = oracle("classes.json");
  for (const auto& [type, of] : all.as_object()) {
    SCOPED_TRACE(type);
    const Family* family = family_of_class(type);
    ASSERT_NE(family, nullptr);
    expect_same(*family, Json::object(), *of.find("whole"), read);
  }
  EXPECT_GE(read, 35);
}

/// As published: text_config says only what its class does not.
std::string gemma3_config(const std::string& sizes) {
  return R"({"architectures":["Gemma3ForConditionalGeneration"],"boi_token_index":255999,"eoi_token_index":256000,
    "eos_token_id":[1,106],"image_token_index":262144,"initializer_range":0.02,"mm_tokens_per_image":256,
    "model_type":"gemma3","text_config":{)" +
         sizes + R"("model_type":"gemma3_text","rope_scaling":{"factor":8.0,"rope_type":"linear"},
    "sliding_window":1024},"torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0",
    "vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,"model_type":"siglip_vision_model",
    "num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,"vision_use_head":false}})";
}

TEST(ClassDefaults, PublishedGemma3IsRead) {
  struct Case {
    const char* sizes;
    std::int32_t hidden, layers, heads, kv_heads, head_dim, ffn;
    float scale;
  };
  const Case cases[] = {
      {R"("hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,)", 2560, 34, 8, 4, 256, 10240,
       1 / 16.f},
      {R"("hidden_size":3840,"intermediate_size":15360,"num_attention_heads":16,"num_hidden_layers":48,
          "num_key_value_heads":8,)",
       3840, 48, 16, 8, 256, 15360, 1 / 16.f},
      {R"("head_dim":128,"hidden_size":5376,"intermediate_size":21504,"num_attention_heads":32,"num_hidden_layers":62,
          "num_key_value_heads":16,"query_pre_attn_scalar":168,)",
       5376, 62, 32, 16, 128, 21504, 0.0771516749810f},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.sizes);
    TempDir dir;
    dir.write("config.json", gemma3_config(c.sizes));
    dir.write("model.safetensors", safetensors_of({{"language_model.model.norm.weight", {8}}}));
    const auto model = ModelFiles::open(dir.path());
    ASSERT_TRUE(model) << model.error().message;
    // No file holds the rest: what the config says of it is said where it is missed.
    EXPECT_THAT((*model)->spec().error().message,
                ::testing::HasSubstr("layers but there are only 1 tensors"));
    Json config = parse_json(gemma3_config(c.sizes)).value();
    const auto s = spec_of(*find_hf_family("Gemma3ForConditionalGeneration"), *config.find("text_config"));
    ASSERT_TRUE(s) << s.error().message;
    EXPECT_EQ(s->hidden, c.hidden);
    EXPECT_EQ(s->num_layers, c.layers);
    EXPECT_EQ(s->num_q_heads, c.heads);
    EXPECT_EQ(s->num_kv_heads, c.kv_heads);
    EXPECT_EQ(s->head_dim, c.head_dim);
    EXPECT_EQ(s->ffn, c.ffn);
    EXPECT_EQ(s->vocab_rows, 262208);
    EXPECT_EQ(s->max_positions, 131072);
    EXPECT_FLOAT_EQ(s->attention_scale, c.scale);
    EXPECT_TRUE(s->tied);
    EXPECT_EQ(s->layers[4].window, 1024);
    EXPECT_EQ(s->layers[5].window, 0);
    EXPECT_EQ(s->ropes[0].theta, 1e6);
    EXPECT_EQ(s->ropes[0].factor, 8);
    EXPECT_EQ(s->ropes[1].theta, 1e4);
  }
}

/// What a file says of the whole, and of the text, goes before what the class says; the rest of what stands
/// outside is about images.
TEST(ClassDefaults, TextConfigsHaveTheirOwnClass) {
  const auto spec = [](const std::string& outer, const std::string& text) {
    TempDir dir;
    dir.write("config.json",
              R"({"architectures":["Mistral3ForConditionalGeneration"],"model_type":"mistral3",)" + outer +
                  R"("rms_norm_eps":0.5,"text_config":{"num_hidden_layers":1,"hidden_size":8,
      "num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":8,"vocab_size":4,"head_dim":4)" +
                  text + "}}");
    auto tensors = tiny_hf_tensors();
    tensors.push_back({"lm_head.weight", {4, 8}});
    dir.write("model.safetensors", safetensors_of(tensors));
    auto s = ModelFiles::open(dir.path()).value()->spec();
    if (!s) throw std::runtime_error(s.error().message);
    return std::move(*s);
  };
  const DecoderSpec mistral = spec("", R"(,"model_type":"mistral")"),
                    ministral = spec("", R"(,"model_type":"ministral3")");
  EXPECT_EQ(mistral.norm.eps, 1e-6f);
  EXPECT_EQ(mistral.layers[0].window, 4096);
  EXPECT_EQ(mistral.query_scale.beta, 0);
  EXPECT_EQ(ministral.norm.eps, 1e-5f);
  EXPECT_EQ(ministral.layers[0].window, 0);
  EXPECT_EQ(ministral.ropes[0].kind, RopeSpec::Kind::kYarn);
  EXPECT_EQ(ministral.ropes[0].theta, 1e6);
  EXPECT_EQ(ministral.query_scale.beta, 0.1);
  EXPECT_EQ(ministral.query_scale.length, 16384);
  EXPECT_TRUE(spec("", "") == spec("", R"(,"model_type":"mistral")"));
  EXPECT_FALSE(mistral.tied) << "there is an output matrix";
  EXPECT_TRUE(spec(R"("tie_word_embeddings":true,)", "").tied);
}

TEST(ClassDefaults, TheWholeSaysThatAnOutputMatrixIsItsOwn) {
  const auto error = [](const std::string& outer) {
    TempDir dir;
    dir.write("config.json", R"({"architectures":["Gemma3ForConditionalGeneration"],)" + outer +
                                 R"("text_config":{"num_hidden_layers":1,"hidden_size":8,"vocab_size":4}})");
    dir.write("model.safetensors", safetensors_of(tiny_hf_tensors()));
    return ModelFiles::open(dir.path()).value()->spec().error().message;
  };
  EXPECT_THAT(error(R"("tie_word_embeddings":false,)"), ::testing::HasSubstr("output.weight is missing"));
  EXPECT_THAT(error(""), ::testing::Not(::testing::HasSubstr("output.weight"))) << "the class ties them";
}

TEST(ClassDefaults, AKeyUnderAnotherNameIsThere) {
  const auto mixtral =
      spec_of(*find_hf_family("MixtralForCausalLM"), parse_json(R"({"num_experts":16})").value());
  const auto gpt =
      spec_of(*find_hf_family("GptOssForCausalLM"), parse_json(R"({"experts_per_token":2})").value());
  ASSERT_TRUE(mixtral && gpt);
  EXPECT_EQ(mixtral->experts.count, 16);
  EXPECT_EQ(mixtral->experts.chosen, 2);
  EXPECT_EQ(gpt->experts.chosen, 2);
}

/// The same settings as transformers 4 and 5 spell them.
TEST(ClassDefaults, MinistralsQueriesGrowInEitherSpelling) {
  const std::string rope = R"({"rope_type":"yarn","factor":8.0,"llama_4_scaling_beta":0.2,
    "original_max_position_embeddings":64)";
  const Family& family = *find_hf_family("Ministral3ForCausalLM");
  const auto v4 = spec_of(family, parse_json(R"({"rope_theta":5e5,"rope_scaling":)" + rope + "}}").value());
  const auto v5 =
      spec_of(family, parse_json(R"({"rope_parameters":)" + rope + R"(,"rope_theta":5e5}})").value());
  ASSERT_TRUE(v4 && v5);
  EXPECT_EQ(v4->query_scale.beta, 0.2);
  EXPECT_EQ(v4->query_scale.length, 64);
  EXPECT_TRUE(*v4 == *v5);
}

/// Of an odd number of dimensions transformers rotates one more, at frequencies of the odd number.
TEST(ClassDefaults, AnOddShareOfAHeadRotatesAsInTransformers) {
  const auto rope = [](const char* share) {
    const Family& family = *find_hf_family("GlmForCausalLM");
    return spec_of(family, parse_json(R"({"head_dim":32,"rope_theta":1e4,"partial_rotary_factor":)" +
                                      std::string(share) + "}")
                               .value());
  };
  const auto even = rope("0.4"), odd = rope("0.35");
  ASSERT_TRUE(even && odd);
  EXPECT_EQ(even->ropes[0].rotary_dim, 12);
  EXPECT_EQ(even->ropes[0].theta, 1e4);
  EXPECT_EQ(odd->ropes[0].rotary_dim, 12);
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(std::pow(odd->ropes[0].theta, -2.0 * i / 12), std::pow(1e4, -2.0 * i / 11), 1e-12);
  EXPECT_FALSE(rope("0.01"));
}

/// Heads of each layer as transformers 5 writes them.
TEST(ClassDefaults, Gemma4SaysItsHeadsInEitherSpelling) {
  const Family& family = *find_hf_family("Gemma4ForCausalLM");
  const auto spec = [&](const char* text) { return spec_of(family, parse_json(text).value()); };
  const auto published = spec(R"({"num_hidden_layers":6,"global_head_dim":128})");
  const auto saved = spec(R"({"num_hidden_layers":6,"per_layer_config":{"5":{"head_dim":128}}})");
  ASSERT_TRUE(published && saved);
  EXPECT_EQ(shape_of(*saved, saved->layers[5]).head_dim, 128);
  EXPECT_EQ(shape_of(*saved, saved->layers[4]).head_dim, 256);
  EXPECT_EQ(saved->ropes[0].rotary_dim, 128);
  EXPECT_TRUE(*published == *saved);
  for (const char* bad :
       {R"({"per_layer_config":{"x":{}}})", R"({"per_layer_config":{"99":{}}})",
        R"({"per_layer_config":{"5":3}})", R"({"per_layer_config":{"05":{"sliding_window":3}}})",
        R"({"per_layer_config":{"0":{"head_dim":128}}})", R"({"per_layer_config":{"5":{"head_dim":128}}})",
        R"({"per_layer_config":{"5":{"head_dim":7000}}})"}) {
    const auto s = spec(bad);
    ASSERT_FALSE(s) << bad;
    EXPECT_THAT(s.error().message, ::testing::HasSubstr("per_layer_config")) << bad;
  }
}

/// Erases what a dotted path names.
void erase(Json& root, std::string path) {
  Json* at = &root;
  for (std::size_t dot; (dot = path.find('.')) != path.npos; path.erase(0, dot + 1)) {
    at = at->find(path.substr(0, dot));
    ASSERT_NE(at, nullptr) << path;
  }
  std::erase_if(at->as_object(), [&](const Json::Member& m) { return m.first == path; });
}

TEST(ClassDefaults, EachKeyLeftOutIsWhatTransformersMakesOfIt) {
  int read = 0, seen = 0;
  const Json all = oracle("left_out.json");
  for (const auto& [name, keys] : all.as_object()) {
    const std::string path = barg::test::shared_data("models/" + name + "/config.json");
    if (path.empty()) continue;
    const Json config = read_json(path);
    const Family* family = find_hf_family(config.find("architectures")->as_array()[0].as_string());
    ASSERT_NE(family, nullptr) << name;
    for (const auto& [key, becomes] : keys.as_object()) {
      SCOPED_TRACE(name + " without " + key);
      Json left_out = config;
      erase(left_out, key);
      Json said = left_out;
      for (const auto& [member, value] : becomes.as_object()) said.set(member, value);
      expect_same(*family, left_out, said, read);
      ++seen;
    }
  }
  EXPECT_GT(seen, 100);
  EXPECT_GT(read, seen * 3 / 4);
}

}  // namespace
}  // namespace barg::model::test::class_defaults_test
