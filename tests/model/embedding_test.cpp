// Embedding models: states and vectors of transformers in float32 (../shared/data), what makes a directory or a GGUF file
// one, and what is refused by name.
#include <gmock/gmock.h>

#include <cmath>

#include "model/golden_checks.h"
#include "model/hf_builder.h"
#include "model/inspect.h"
#include "model/family.h"
#include "model/pooling.h"
#include "model/tensor_floats.h"

namespace barg::model::test::embedding_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kQwen3 = "models/qwen3-embedding";

double deviation(const std::vector<float>& v) {
  double sum = 0, square = 0;
  for (const float x : v) sum += x;
  const double mean = sum / static_cast<double>(v.size());
  for (const float x : v) square += (x - mean) * (x - mean);
  return std::sqrt(square / static_cast<double>(v.size()));
}

/// Largest |difference| over the standard deviation of what is wanted.
double worst_of(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
  return worst / deviation(want);
}

std::vector<float> last_rows(const std::vector<float>& rows, std::size_t numbers) {
  return {rows.end() - static_cast<std::ptrdiff_t>(numbers), rows.end()};
}

std::vector<float> normalised(std::vector<float> v) {
  double square = 0;
  for (const float x : v) square += static_cast<double>(x) * x;
  for (float& x : v) x = static_cast<float>(x / std::sqrt(square));
  return v;
}

TEST(Qwen3Embedding, StatesAndVectorsEqualTransformers) {
  const std::string path = barg::test::shared_data(kQwen3);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path + "/goldens.safetensors");
  Harness h(open_or_throw(path), {});
  EXPECT_EQ(h.decoder().spec().pooling.kind, Pooling::kLast);
  EXPECT_FALSE(h.decoder().spec().generates());
  for (const std::string& p : g.prompts()) {
    const auto ids = g.ids(p + ".input_ids");
    h.free_all();
    const auto states = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()});
    const auto want = g.floats(p + ".hidden");
    EXPECT_LE(worst_of(last_rows(states, want.size()), want), kBar) << p;
    const auto vector = normalised(last_rows(states, h.hidden()));
    EXPECT_LE(worst_of(vector, g.floats(p + ".embedding")), kBar) << p;
  }
}

TEST(Qwen3Embedding, LayersEqualTransformers) {
  const std::string path = barg::test::shared_data(kQwen3);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_hidden_states(path, {});
}

TEST(Qwen3Embedding, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const std::string path = barg::test::shared_data(kQwen3);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto files = open_or_throw(path);
  const auto ids = Goldens(path + "/goldens.safetensors").ids("p200.input_ids");
  std::vector<float> first;
  for (const auto& [options, chunks] : std::vector<std::pair<HarnessOptions, std::vector<std::size_t>>>{
           {{}, {200}},
           {{.cpu = {.threads = 1}}, {1}},
           {{.block_tokens = 64, .cpu = {.threads = 3}}, {7, 64}},
           {{.block_tokens = 32, .cpu = {.threads = 2, .isa = ops::Isa::kScalar}}, {150, 3}}}) {
    Harness h(files, options);
    const auto last = last_rows(h.prefill(h.new_sequence(200), ids, chunks), h.hidden());
    if (first.empty()) first = last;
    EXPECT_TRUE(same_bits(last, first));
  }
}

// ---- an encoder

constexpr const char* kBert = "models/bert";

TEST(Bert, StatesAndVectorsEqualTransformers) {
  const std::string path = barg::test::shared_data(kBert);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path + "/goldens.safetensors");
  Harness h(open_or_throw(path), {});
  EXPECT_EQ(h.decoder().spec().pooling.kind, Pooling::kMean);
  for (const std::string& p : g.prompts()) {
    const auto ids = g.ids(p + ".input_ids");
    h.free_all();
    const auto states = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {ids.size()});
    const auto want = g.floats(p + ".hidden");
    EXPECT_LE(worst_of(last_rows(states, want.size()), want), kBar) << p;
    std::vector<float> mean(h.hidden());
    for (std::size_t i = 0; i < states.size(); ++i) mean[i % h.hidden()] += states[i] / static_cast<float>(ids.size());
    EXPECT_LE(worst_of(normalised(mean), g.floats(p + ".embedding")), kBar) << p;
  }
}

TEST(Bert, LayersEqualTransformers) {
  const std::string path = barg::test::shared_data(kBert);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  check_hidden_states(path, {});
}

TEST(Bert, BlocksThreadsIsaAndMatesDoNotChangeABit) {
  const std::string path = barg::test::shared_data(kBert);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto files = open_or_throw(path);
  const Goldens g(path + "/goldens.safetensors");
  const auto ids = g.ids("p200.input_ids"), other = g.ids("p65.input_ids");
  for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8}) {
    std::vector<float> first;
    for (const HarnessOptions& options : std::vector<HarnessOptions>{
             {.recipe = recipe},
             {.recipe = recipe, .cpu = {.threads = 1}},
             {.recipe = recipe, .block_tokens = 64, .cpu = {.threads = 3}},
             {.recipe = recipe, .block_tokens = 32, .cpu = {.threads = 2, .isa = ops::Isa::kScalar}}}) {
      Harness h(files, options);
      const auto alone = h.prefill(h.new_sequence(200), ids, {200});
      if (first.empty()) first = alone;
      EXPECT_TRUE(same_bits(alone, first));
      h.free_all();
      const std::int32_t mate = h.new_sequence(65), seq = h.new_sequence(200);
      const auto both = h.step({{mate, 0, other}, {seq, 0, ids}});
      EXPECT_TRUE(same_bits(last_rows(both, first.size()), first));
    }
  }
}

/// The checkpoint's tensors under the names that llama.cpp's converter gives them.
std::string bert_gguf(const ModelFiles& hf, std::uint32_t pooling) {
  const DecoderSpec s = hf.spec().value();
  GgufBuilder b;
  b.str("general.architecture", "bert").str("general.name", "bert");
  const auto u32 = [&](const char* key, std::int32_t v) { b.u32(std::string("bert.") + key, static_cast<std::uint32_t>(v)); };
  u32("block_count", s.num_layers);
  u32("context_length", s.max_positions);
  u32("embedding_length", s.hidden);
  u32("feed_forward_length", s.ffn);
  u32("attention.head_count", s.num_q_heads);
  b.f32("bert.attention.layer_norm_epsilon", 1e-12f);
  b.u32("bert.pooling_type", pooling);
  std::vector<Floats> values;
  for (const RequiredTensor& t : required_tensors(s)) {
    values.push_back(floats_of(*hf.find(t.name)));
    b.tensor(t.name, {values.back().shape.rbegin(), values.back().shape.rend()});
  }
  std::string bytes = b.build();
  const std::size_t data = (b.header_bytes + b.alignment - 1) / b.alignment * b.alignment;
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(bytes.data() + data + b.tensors[i].offset, values[i].values.data(), values[i].values.size() * 4);
  return bytes;
}

TEST(Bert, GgufGivesTheBitsOfTheCheckpoint) {
  const std::string path = barg::test::shared_data(kBert);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto hf = open_or_throw(path);
  TempDir dir;
  const auto gguf = open_or_throw(dir.write("bert.gguf", bert_gguf(*hf, 2)));
  const auto spec = gguf->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->pooling.kind, Pooling::kFirst);
  EXPECT_EQ(parameter_count(*spec), parameter_count(*hf->spec()));
  const auto ids = Goldens(path + "/goldens.safetensors").ids("p200.input_ids");
  Harness a(hf, {}), b(gguf, {});
  EXPECT_TRUE(same_bits(b.prefill(b.new_sequence(200), ids, {200}), a.prefill(a.new_sequence(200), ids, {200})));
  EXPECT_THAT(open_or_throw(dir.write("none.gguf", bert_gguf(*hf, 0)))->spec().error().message,
              HasSubstr("names no pooling of its tokens"));
}

TEST(Bert, WhatWouldChangeAVectorIsRefusedByName) {
  const std::string path = barg::test::shared_data(kBert);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const std::string config = read_file(path + "/config.json", 1 << 20).value();
  TempDir dir;
  std::filesystem::create_symlink(path + "/model.safetensors", dir.path() + "/model.safetensors");
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    EXPECT_NE(changed.find(from), std::string::npos) << from;
    dir.write("config.json", changed.replace(changed.find(from), from.size(), to));
    const auto spec = open_or_throw(dir.path())->spec();
    return spec ? "" : spec.error().message;
  };
  EXPECT_EQ(error("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"gelu\""), "");
  EXPECT_THAT(error("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\""), HasSubstr("hidden_act: \"relu\" is not supported yet"));
  EXPECT_THAT(error("\"is_decoder\": false", "\"is_decoder\": true"), HasSubstr("is_decoder: true is not supported yet"));
  EXPECT_THAT(error("\"use_cache\"", "\"position_embedding_type\": \"relative_key\", \"use_cache\""), HasSubstr("position_embedding_type"));
  EXPECT_THAT(error("\"num_attention_heads\": 4", "\"num_attention_heads\": 5"), HasSubstr("5 attention heads do not divide 64"));
  EXPECT_THAT(error("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 512"), HasSubstr("position_embeddings"));
}

// ---- what the files say

constexpr const char* kModules = R"([{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
  {"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"})";
constexpr const char* kNormalize = R"(,{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";

/// A tiny llama with the files of sentence-transformers.
struct Directory {
  TempDir dir;
  explicit Directory(const std::string& modules, const std::string& pooling, const std::string& config = "") {
    dir.write("config.json", tiny_hf_config(config));
    dir.write("model.safetensors", safetensors_of(tiny_hf_tensors()));
    dir.write("tokenizer.json", "{}");
    if (!modules.empty()) dir.write("modules.json", modules);
    std::filesystem::create_directory(dir.path() + "/1_Pooling");
    if (!pooling.empty()) dir.write("1_Pooling/config.json", pooling);
  }
  Result<DecoderSpec> spec() const { return open_or_throw(dir.path())->spec(); }
  std::string error() const {
    const auto s = spec();
    return s ? "" : s.error().message;
  }
};

constexpr const char* kLastToken = R"({"word_embedding_dimension":8,"pooling_mode_cls_token":false,"pooling_mode_lasttoken":true})";

TEST(EmbeddingFiles, SentenceTransformersDecide) {
  EXPECT_TRUE(Directory("", "").spec()->generates());
  const auto plain = Directory(std::string(kModules) + "]", kLastToken).spec();
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->pooling.kind, Pooling::kLast);
  EXPECT_FALSE(plain->pooling.normalise);
  EXPECT_FALSE(plain->pooling.matryoshka);
  EXPECT_EQ(parameter_count(*plain), parameter_count(*Directory("", "").spec())) << "tied: there was no output matrix";
  const auto whole = Directory(std::string(kModules) + kNormalize, R"({"pooling_mode":"lasttoken"})",
                               R"("matryoshka_dimensions":[8,4])").spec();
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_TRUE(whole->pooling.normalise);
  EXPECT_TRUE(whole->pooling.matryoshka);
  EXPECT_EQ(whole->pooling.sizes, (std::vector<std::int32_t>{4, 8}));
  const Directory shortened(std::string(kModules) + kNormalize, kLastToken, R"("is_matryoshka":true)");
  shortened.dir.write("sentence_bert_config.json", R"({"max_seq_length":17,"do_lower_case":false})");
  EXPECT_EQ(shortened.spec()->max_positions, 17);
  EXPECT_TRUE(shortened.spec()->pooling.sizes.empty());
  const auto i = inspect(*open_or_throw(shortened.dir.path()));
  ASSERT_TRUE(i) << i.error().message;
  EXPECT_THAT(to_text(*i, *open_or_throw(shortened.dir.path()), DType::kF32, false),
              HasSubstr("embeddings: 8 numbers, last token, normalised, may be cut to fewer\n"));
}

TEST(EmbeddingFiles, WhatWouldChangeAVectorIsRefusedByName) {
  const std::string both = std::string(kModules) + kNormalize;
  EXPECT_THAT(Directory(std::string(kModules) + R"(,{"path":"2_Dense","type":"sentence_transformers.models.Dense"}])", kLastToken).error(),
              HasSubstr("a module of type \"sentence_transformers.models.Dense\" is not supported yet"));
  EXPECT_THAT(Directory("{}", kLastToken).error(), HasSubstr("it is not a list of modules"));
  EXPECT_THAT(Directory("[]", kLastToken).error(), HasSubstr("it has no Pooling module"));
  EXPECT_THAT(Directory("[3]", kLastToken).error(), HasSubstr("a module has no type and path"));
  EXPECT_THAT(Directory("[", kLastToken).error(), HasSubstr("modules.json"));
  EXPECT_THAT(Directory(both, "").error(), HasSubstr("1_Pooling/config.json is not there"));
  EXPECT_THAT(Directory(R"([{"path":"../1_Pooling","type":"Pooling"}])", kLastToken).error(), HasSubstr("not a folder beside it"));
  EXPECT_THAT(Directory(both, "{}").error(), HasSubstr("none of the known modes"));
  EXPECT_THAT(Directory(both, R"({"pooling_mode_max_tokens":true})").error(), HasSubstr("pooling_mode_max_tokens is not supported yet"));
  EXPECT_THAT(Directory(both, R"({"pooling_mode_cls_token":true,"pooling_mode_lasttoken":true})").error(), HasSubstr("more than one mode"));
  EXPECT_THAT(Directory(both, R"({"pooling_mode_mean_tokens":true})").error(),
              HasSubstr("pooling by mean is not supported yet for llama models"));
  EXPECT_THAT(Directory(both, kLastToken, R"("is_causal":false)").error(), HasSubstr("is_causal: false is not supported yet"));
  EXPECT_THAT(Directory(both, kLastToken, R"("matryoshka_dimensions":[0])").error(), HasSubstr("matryoshka_dimensions"));
  EXPECT_THAT(Directory(both, kLastToken, R"("matryoshka_dimensions":[9])").error(), HasSubstr("but vectors have 8 numbers"));
  const Directory lower(both, kLastToken);
  lower.dir.write("sentence_bert_config.json", R"({"max_seq_length":17,"do_lower_case":true})");
  EXPECT_THAT(lower.error(), HasSubstr("do_lower_case: true is not supported yet"));
  lower.dir.write("sentence_bert_config.json", R"({"max_seq_length":0})");
  EXPECT_THAT(lower.error(), HasSubstr("max_seq_length"));
}

TEST(EmbeddingFiles, GgufNamesItsPooling) {
  TempDir dir;
  const auto kind = [&](std::uint32_t type) {
    GgufBuilder b = tiny_llama();
    b.u32("llama.pooling_type", type);
    return open_or_throw(dir.write("m.gguf", b.build()))->spec();
  };
  EXPECT_TRUE(kind(0)->generates());
  EXPECT_EQ(kind(3)->pooling.kind, Pooling::kLast);
  EXPECT_TRUE(kind(3)->pooling.normalise);
  EXPECT_THAT(kind(1).error().message, HasSubstr("pooling by mean"));
  EXPECT_THAT(kind(4).error().message, HasSubstr("a reranker is not supported yet"));
  EXPECT_FALSE(kind(5));
}

}  // namespace
}  // namespace barg::model::test::embedding_test
