// Tensors of a file that the decoder has no use for are said, a sentence a kind.
#include "model/unread_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/golden_kit.h"
#include "model/hf_builder.h"
#include "model/inspect.h"
#include "support/temp_dir.h"

namespace barg::model::test::unread_tensors_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> notes(const std::vector<F32Tensor>& more, const std::string& config = tiny_hf_config()) {
  barg::test::TempDir dir;
  dir.write("config.json", config);
  auto tensors = tiny_hf_tensors();
  tensors.insert(tensors.end(), more.begin(), more.end());
  dir.write("model.safetensors", safetensors_of(tensors));
  const auto model = open_or_throw(dir.path());
  return unread_notes(model->spec().value(), *model);
}

TEST(UnreadTensors, OfAWholeModelThereAreNone) {
  EXPECT_THAT(notes({}), IsEmpty());
  EXPECT_THAT(notes({{"model.layers.0.self_attn.rotary_emb.inv_freq", {2}}, {"model.embeddings.position_ids", {4}}}),
              IsEmpty());
}

TEST(UnreadTensors, ThreeAreNamed) {
  EXPECT_THAT(notes({{"zzz.unknown", {1}}}), ElementsAre("1 tensor that no part of the model names: zzz.unknown"));
  EXPECT_THAT(notes({{"model.layers.0.self_attn.q_norm.weight", {4}}, {"model.layers.0.self_attn.q_proj.bias", {8}}}),
              ElementsAre("2 tensors that no part of the model names: model.layers.0.self_attn.q_proj.bias, "
                          "model.layers.0.self_attn.q_norm.weight"));
  EXPECT_THAT(notes({{"a", {1}}, {"b", {1}}, {"c", {1}}, {"d", {1}}}),
              ElementsAre("4 tensors that no part of the model names: a, b, c, ..."));
}

TEST(UnreadTensors, KnownKindsAreSaidAsSuch) {
  EXPECT_THAT(notes({{"vision_tower.x.weight", {1}},
                     {"model.visual.blocks.0.norm.weight", {1}},
                     {"multi_modal_projector.linear.weight", {1}}}),
              ElementsAre("3 tensors of images and sound"));
  EXPECT_THAT(notes({{"mtp.layers.0.x.weight", {1}}, {"model.layers.1.input_layernorm.weight", {8}},
                     {"model.layers.1.eh_proj.weight", {8}}}),
              ElementsAre("3 tensors of layers for the prediction of further tokens"));
  EXPECT_THAT(notes({{"lm_head.weight", {4, 8}}}, tiny_hf_config("\"tie_word_embeddings\":true")),
              ElementsAre("1 tensor of an output matrix, which the config says is the embedding"));
}

TEST(UnreadTensors, InspectSaysThem) {
  barg::test::TempDir dir;
  dir.write("config.json", tiny_hf_config());
  auto tensors = tiny_hf_tensors();
  tensors.push_back({"zzz.unknown", {1}});
  dir.write("model.safetensors", safetensors_of(tensors));
  const auto model = open_or_throw(dir.path());
  EXPECT_THAT(to_text(inspect(*model).value(), *model, DType::kF16, false),
              HasSubstr("not read: 1 tensor that no part of the model names: zzz.unknown\n"));
}

TEST(UnreadTensors, OfStoredCheckpointsThereAreNone) {
  for (const char* name : {"llama", "gemma3n", "gemma4", "deepseek-v3", "glm4-moe", "qwen35-moe", "bamba"}) {
    const std::string path = barg::test::shared_data(std::string("models/") + name);
    if (path.empty()) continue;
    const auto model = open_or_throw(path);
    const auto spec = model->spec();
    if (spec) EXPECT_THAT(unread_notes(*spec, *model), IsEmpty()) << name;
  }
  const std::string bert = barg::test::shared_data("models/bert");
  if (bert.empty()) return;
  const auto model = open_or_throw(bert);
  EXPECT_THAT(unread_notes(model->spec().value(), *model), ElementsAre("2 tensors of BERT's pooler and heads"));
}

}  // namespace
}  // namespace barg::model::test::unread_tensors_test
