// barg bench model on a tiny model: the rows asked for are there, shares are possible, what cannot be is
// refused in one sentence; and the arithmetic behind the shares by hand.
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "bench/model_bench.h"
#include "bench/model_output.h"
#include "support/data.h"

namespace barg::bench::model_test {
namespace {

ModelBenchOptions tiny(const std::string& model) {
  ModelBenchOptions o;
  o.config.model.path = test::shared_data("models/" + model);
  o.config.runtime.threads = 2;
  o.config.scheduler.max_num_batched_tokens = 16;  // a prefill is several steps
  o.prompts = {24};
  o.generated = {8};
  o.batches = {1, 3};
  o.depths = {0, 20};
  o.repetitions = 2;
  o.limits_seconds = 0.05;
  return o;
}

std::vector<std::string> names(const ModelBenchReport& report) {
  std::vector<std::string> out;
  for (const auto& row : report.rows) out.push_back(row.test);
  return out;
}

// llama: full attention. mistral: a sliding window, whose blocks a long context uses again.
TEST(ModelBench, MeasuresTheRowsAskedFor) {
  for (const char* model : {"llama", "mistral"}) {
    if (test::shared_data(std::string("models/") + model).empty()) GTEST_SKIP() << test::kNoShared;
    std::vector<std::string> begun;
    std::int32_t repetitions = 0;
    const auto report = run_model_bench(
        tiny(model), {.loading = {},
                      .begin = [&](const std::string& what) { begun.push_back(what); },
                      .repeated = [&](std::int32_t done, std::int32_t) { repetitions += done > 0 ? 1 : 0; }});
    ASSERT_TRUE(report) << report.error().message;
    const std::vector<std::string> expected{"pp24", "tg8", "tg8 x3", "pp24@d20", "tg8@d20", "tg8@d20 x3"};
    EXPECT_EQ(names(*report), expected);
    ASSERT_EQ(begun.size(), 8U);
    EXPECT_EQ(begun[0], "limits");
    EXPECT_EQ(begun[7], "limits");
    EXPECT_GT(report->limits_agreement, 0);
    EXPECT_LE(report->limits_agreement, 1);
    EXPECT_EQ(repetitions, 12);
    EXPECT_EQ(report->digest.size(), 64U);
    EXPECT_EQ(report->threads, 2);
    EXPECT_TRUE(report->isa.starts_with("cpu-"));
    EXPECT_GT(report->limits.read_gbytes, 0);
    for (const auto& row : report->rows) {
      EXPECT_EQ(row.tokens_per_second.size(), 2U) << row.test;
      EXPECT_GT(row.median, 0) << row.test;
      EXPECT_GT(row.bandwidth, 0) << row.test;
      EXPECT_LT(row.bandwidth, 2) << row.test;
      EXPECT_GT(row.arithmetic, 0) << row.test;
      EXPECT_LT(row.arithmetic, 2) << row.test;
    }
  }
}

TEST(ModelBench, EveryFormatHasEveryRow) {
  ModelBenchOptions o = tiny("llama");
  if (o.config.model.path.empty()) GTEST_SKIP() << test::kNoShared;
  o.depths = {0};
  const auto report = run_model_bench(o);
  ASSERT_TRUE(report) << report.error().message;
  for (const std::string& text :
       {model_table(*report), model_markdown(*report), model_csv(*report), model_json(*report)}) {
    for (const char* test : {"pp24", "tg8", "tg8 x3"}) EXPECT_NE(text.find(test), std::string::npos) << text;
  }
  const auto json = parse_json(model_json(*report));
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->find("digest")->as_string(), report->digest);
  EXPECT_EQ(json->find("numerics")->as_string(), report->numerics);
  EXPECT_EQ(json->find("version")->as_int(), 1);
  EXPECT_EQ(json->find("threads")->as_int(), 2);
  EXPECT_GT(json->find("limits")->find("f32_gflops")->as_double(), 0);
  ASSERT_EQ(json->find("rows")->size(), 3U);
  const Json& row = json->find("rows")->as_array()[2];
  EXPECT_EQ(row.find("batch")->as_int(), 3);
  EXPECT_EQ(row.find("repetitions")->size(), 2U);
  std::istringstream lines(model_csv(*report));
  std::string line;
  std::getline(lines, line);
  const auto columns = std::count(line.begin(), line.end(), ',');
  while (std::getline(lines, line)) EXPECT_EQ(std::count(line.begin(), line.end(), ','), columns) << line;
}

TEST(ModelBench, ABusyMachineIsNamed) {
  ModelBenchReport report;
  EXPECT_EQ(model_table(report).find("something else ran"), std::string::npos);
  report.limits_agreement = 0.5;
  EXPECT_NE(model_table(report).find("differ by 50 %: something else ran"), std::string::npos);
}

TEST(ModelBench, WhatCannotBeIsRefused) {
  ModelBenchOptions o = tiny("llama");
  if (o.config.model.path.empty()) GTEST_SKIP() << test::kNoShared;
  const auto error = [](const ModelBenchOptions& options) {
    const auto report = run_model_bench(options);
    return report ? Error{} : report.error();
  };
  o.depths = {1 << 20};
  EXPECT_EQ(error(o).code, ErrorCode::kInvalidValue);
  EXPECT_EQ(error(o).param, "--depth");
  EXPECT_NE(error(o).message.find("1048601 tokens"), std::string::npos) << error(o).message;
  o = tiny("llama");
  o.prompts = o.generated = {0};
  EXPECT_EQ(error(o).param, "-p");
  o = tiny("llama");
  o.config.kv.memory_bytes = 200'000;  // a few sequences fit, sixty-four do not
  o.batches = {1, 64};
  EXPECT_EQ(error(o).code, ErrorCode::kOutOfMemory) << error(o).message;
  o = tiny("llama");
  o.config.model.numerics = "f16";
  EXPECT_EQ(error(o).param, "model.numerics");
  o.config.model.path = "/nowhere.gguf";
  EXPECT_EQ(error(o).code, ErrorCode::kNotFound);
}

TEST(ModelWork, CountsWhatAStepMovesAndComputes) {
  const std::string path = test::shared_data("models/llama");
  if (path.empty()) GTEST_SKIP() << test::kNoShared;
  const auto files = model::ModelFiles::open(path);
  ASSERT_TRUE(files);
  const auto spec = (*files)->spec();
  ASSERT_TRUE(spec);
  std::uint64_t in_layers = 0;
  for (const model::Tensor& t : (*files)->tensors()) {
    if (t.shape.size() == 2 && t.name.find("layers.") != std::string::npos) in_layers += t.elements();
  }
  const auto output = static_cast<std::uint64_t>(spec->vocab_rows) * static_cast<std::uint64_t>(spec->hidden);
  runtime::MemoryPlan plan;
  plan.recipe = Recipe::kF32;
  plan.block_tokens = 16;
  plan.weight_bytes = 1'000'000;
  const auto layers = static_cast<double>(spec->num_layers);
  plan.block_bytes = {16 * 100};
  const ModelWork work(**files, *spec, plan);
  EXPECT_EQ(work.parameters(), in_layers + output);
  const double per_key = 4.0 * spec->head_dim * spec->num_q_heads * layers;
  const Work decode = work.step(9, 1, 2, 2);  // two sequences, ten keys each
  EXPECT_DOUBLE_EQ(decode.kv_bytes, 2 * 10 * 100.0);
  EXPECT_DOUBLE_EQ(decode.f32_operations, 2 * (2.0 * static_cast<double>(in_layers + output) + 10 * per_key));
  EXPECT_EQ(decode.int8_operations + decode.int4_operations, 0);
  const Work prefill = work.step(0, 3, 1, 1);  // 1 + 2 + 3 keys
  EXPECT_DOUBLE_EQ(prefill.f32_operations,
                   2.0 * (3.0 * static_cast<double>(in_layers) + static_cast<double>(output)) + 6 * per_key);
  const double weights =
      1'000'000 - (spec->tied ? 0 : static_cast<double>((*files)->find("token_embd.weight")->bytes.size()));
  EXPECT_DOUBLE_EQ(prefill.weight_bytes, weights);
  const model::Tensor* head = (*files)->find(spec->tied ? "token_embd.weight" : "output.weight");
  const Work chunk = work.step(0, 3, 1, 0);  // not the last one of a prompt: no logits
  EXPECT_DOUBLE_EQ(chunk.weight_bytes, weights - static_cast<double>(head->bytes.size()));
  EXPECT_DOUBLE_EQ(chunk.f32_operations, prefill.f32_operations - 2.0 * static_cast<double>(output));

  plan.recipe = Recipe::kBF16;  // attention stays in f32
  const Work pairs = ModelWork(**files, *spec, plan).step(9, 1, 2, 2);
  EXPECT_DOUBLE_EQ(pairs.f32_operations, 2 * 10 * per_key);
  EXPECT_DOUBLE_EQ(pairs.bf16_operations, 4.0 * static_cast<double>(in_layers + output));

  ops::Limits limits;
  EXPECT_EQ(bandwidth_share(decode, limits, 1), 0);
  limits = {
      .threads = 1, .read_gbytes = 2, .f32_gflops = 4, .int8_gops = 8, .int4_gops = 16, .bf16_gflops = 0};
  const Work w{.weight_bytes = 1e9,
               .kv_bytes = 1e9,
               .f32_operations = 4e9,
               .int8_operations = 8e9,
               .int4_operations = 8e9,
               .bf16_operations = 4e9};
  EXPECT_DOUBLE_EQ(bandwidth_share(w, limits, 2), 0.5);
  EXPECT_DOUBLE_EQ(arithmetic_share(w, limits, 7), 0.5);
}

}  // namespace
}  // namespace barg::bench::model_test
