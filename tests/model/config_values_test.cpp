// Values of configs that Python or other writers put there: numbers that are not finite, lists of ids, flags that say
// that tokens see what comes after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "base/mapped_file.h"
#include "model/golden_kit.h"
#include "model/gguf_builder.h"
#include "model/hf_builder.h"
#include "support/temp_dir.h"

namespace barg::model::test::config_values_test {
namespace {

using ::testing::HasSubstr;

struct Directory {
  barg::test::TempDir dir;
  explicit Directory(const std::string& extra, const std::string& architecture = "LlamaForCausalLM") {
    dir.write("config.json", tiny_hf_config(extra, architecture));
    dir.write("model.safetensors", safetensors_of(tiny_hf_tensors()));
    dir.write("tokenizer.json", "{}");
  }
  std::shared_ptr<const ModelFiles> open() const { return open_or_throw(dir.path()); }
  std::string error() const {
    const auto model = ModelFiles::open(dir.path());
    if (!model) return model.error().message;
    const auto spec = (*model)->spec();
    return spec ? "" : spec.error().message;
  }
};

TEST(ConfigValues, NumbersThatAreNotFiniteAreReadAndRefusedWhereTheyMustBe) {
  EXPECT_EQ(Directory(R"("router_bound":Infinity,"x":[-Infinity,NaN,{"y":NaN}],"z":"a \" Infinity")").error(), "");
  EXPECT_THAT(Directory(R"("rope_theta":Infinity)").error(), HasSubstr("rope_theta is inf, expected"));
  EXPECT_THAT(Directory(R"("rope_theta":-Infinity)").error(), HasSubstr("rope_theta is -inf, expected"));
  EXPECT_THAT(Directory(R"("rope_theta":NaN)").error(), HasSubstr("rope_theta is nan, expected"));
  EXPECT_THAT(Directory(R"("head_dim":NaN)").error(), HasSubstr("head_dim is not an integer"));
  for (const char* bad : {R"("x":Infinit)", R"("x":+Infinity)", R"(NaN:3)", R"("x":InfinityNaN)", R"("x":1NaN)", R"("x":nan)"})
    EXPECT_THAT(Directory(bad).error(), HasSubstr("invalid JSON")) << bad;
  // A string keeps what it says.
  const Directory d("");
  d.dir.write("tokenizer_config.json", R"({"chat_template":"\\\"NaN \" Infinity"})");
  EXPECT_EQ(d.open()->vocab()->chat_template, R"(\"NaN " Infinity)");
  d.dir.write("generation_config.json", R"({"max_time":Infinity,"temperature":0.5})");
  EXPECT_EQ(d.open()->generation_defaults()->temperature, 0.5);
  d.dir.write("generation_config.json", R"({"temperature":Infinity})");
  EXPECT_THAT(d.open()->generation_defaults().error().message, HasSubstr("temperature is inf"));
}

/// transformers writes 10^30 for a tokenizer without a limit.
TEST(ConfigValues, IntegersBeyond64BitsAreNumbers) {
  const Directory d(R"("x":1000000000000000019884624838656,"y":[-1000000000000000019884624838656,1e40])");
  EXPECT_EQ(d.error(), "");
  const std::string text = R"({"model_max_length":1000000000000000019884624838656,"a":"123456789012345678901234"})";
  d.dir.write("tokenizer_config.json", text);
  const auto v = d.open()->vocab();
  ASSERT_TRUE(v) << v.error().message;
  const auto json = parse_json(v->tokenizer_config_json);
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_DOUBLE_EQ(json->find("model_max_length")->as_double(), 1e30);
  EXPECT_EQ(json->find("a")->as_string(), "123456789012345678901234");
  EXPECT_THAT(Directory(R"("head_dim":1000000000000000019884624838656)").error(), HasSubstr("head_dim is not an integer"));
}

TEST(ConfigValues, ATimeStepMayHaveNoUpperBound) {
  const std::string path = barg::test::shared_data("models/bamba");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  barg::test::TempDir dir;
  std::string config = read_file(path + "/config.json", 1 << 20).value();
  const std::size_t at = config.find('[', config.find("time_step_limit")), end = config.find(']', at);
  const auto spec = [&](const char* limit) {
    dir.write("config.json", config.substr(0, at) + limit + config.substr(end + 1));
    dir.write("model.safetensors", read_file(path + "/model.safetensors", 1 << 26).value());
    return open_or_throw(dir.path())->spec();
  };
  const auto bare = spec("[0.0, Infinity]");
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_TRUE(std::isinf(bare->recurrent.dt_max));
  EXPECT_TRUE(*bare == *spec(R"([0.0, {"__float__": "Infinity"}])"));
  EXPECT_THAT(spec("[0.0, NaN]").error().message, HasSubstr("time_step_limit"));
}

TEST(ConfigValues, IdsThatNobodyNeedsMayBeAnything) {
  for (const char* ids : {R"("pad_token_id":[0],"bos_token_id":[1,2])", R"("pad_token_id":-1,"bos_token_id":-1)",
                          R"("pad_token_id":"x","bos_token_id":2.5)", R"("pad_token_id":99999999999)"}) {
    const auto v = Directory(ids).open()->vocab();
    ASSERT_TRUE(v) << ids << ": " << v.error().message;
    EXPECT_FALSE(v->pad.has_value()) << ids;
    EXPECT_FALSE(v->bos.has_value()) << ids;
  }
  const auto v = Directory(R"("pad_token_id":0,"bos_token_id":2)").open()->vocab();
  EXPECT_EQ(v->pad, 0);
  EXPECT_EQ(v->bos, 2);
}

TEST(ConfigValues, AnIntervalBeyondTheLayersLeavesNoneOut) {
  const auto spec = Directory(R"("no_rope_layer_interval":9)", "SmolLM3ForCausalLM").open()->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers[0].rope, 0);
  EXPECT_EQ(Directory(R"("no_rope_layer_interval":1)", "SmolLM3ForCausalLM").open()->spec()->layers[0].rope, -1);
}

TEST(ConfigValues, ADecoderWhoseTokensSeeWhatFollowsIsRefused) {
  EXPECT_THAT(Directory(R"("is_causal":false)").error(), HasSubstr("is_causal: false is not supported yet"));
  EXPECT_EQ(Directory(R"("is_causal":true)").error(), "");
  barg::test::TempDir dir;
  const auto gguf = [&](bool causal) {
    GgufBuilder b = tiny_llama();
    b.set<std::uint8_t>("llama.attention.causal", kMetaBool, causal ? 1 : 0);
    const auto spec = open_or_throw(dir.write("m.gguf", b.build()))->spec();
    return spec ? "" : spec.error().message;
  };
  EXPECT_THAT(gguf(false), HasSubstr("llama.attention.causal: false is not supported yet"));
  EXPECT_EQ(gguf(true), "");
}

}  // namespace
}  // namespace barg::model::test::config_values_test
