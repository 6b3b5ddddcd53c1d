// Embedding models: states and vectors of transformers in float32 (../shared/data), what makes a directory or a GGUF file
// one, and what is refused by name.
#include <gmock/gmock.h>

#include <cmath>

#include "model/golden_checks.h"
#include "model/hf_builder.h"
#include "model/inspect.h"
#include "model/pooling.h"

namespace barg::model::test {
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
}  // namespace barg::model::test
