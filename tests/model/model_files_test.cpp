// Paths that are not models, Hugging Face configs right and wrong, vocabularies, sampling defaults, and every
// file of ../shared/data: each loads or says in one sentence what is not supported.
#include "model/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "cpu/cpu.h"
#include "model/decoder.h"
#include "model/hf_builder.h"
#include "model/inspect.h"
#include "support/data.h"

namespace barg::model::test::model_files_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

std::string open_error(const std::string& path) {
  const auto m = ModelFiles::open(path);
  return m ? "" : m.error().message;
}

/// Opens, describes and loads; the first error.
std::string whole_error(const std::string& path) {
  const auto m = ModelFiles::open(path);
  if (!m) return m.error().message;
  static ops::CpuDevice device({.threads = 1});
  const auto i = inspect(**m);
  if (!i) return i.error().message;
  const auto loaded = Decoder::load(**m, device.ops(), device.stream(), {});
  return loaded ? "" : loaded.error().message;
}

struct HfDir {
  TempDir dir;
  explicit HfDir(const std::string& config, const std::vector<F32Tensor>& tensors = tiny_hf_tensors()) {
    dir.write("config.json", config);
    dir.write("model.safetensors", safetensors_of(tensors));
    dir.write("tokenizer.json", "{}");
  }
  std::shared_ptr<const ModelFiles> open() const { return ModelFiles::open(dir.path()).value(); }
};

TEST(ModelPaths, OnlyRegularFilesAndModelDirectories) {
  TempDir dir;
  EXPECT_THAT(open_error(""), HasSubstr("path is empty"));
  EXPECT_THAT(open_error(dir.path() + "/none.gguf"), HasSubstr("none.gguf"));
  EXPECT_THAT(open_error(dir.path()), HasSubstr("has no config.json"));
  EXPECT_THAT(open_error("/dev/zero"), HasSubstr("/dev/zero is not a regular file"));
  EXPECT_THAT(open_error(dir.write("empty.gguf", "")), HasSubstr("is empty"));
  EXPECT_THAT(open_error(dir.write("text.gguf", "hello, this is no model")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(open_error(dir.write("m.safetensors", "x")), HasSubstr("give the directory"));
  const std::string fifo = dir.path() + "/fifo.gguf";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(open_error(fifo), HasSubstr("is not a regular file"));
  fs::create_symlink("nowhere", dir.path() + "/dangling.gguf");
  EXPECT_THAT(open_error(dir.path() + "/dangling.gguf"), HasSubstr("dangling.gguf"));
}

/// The same of every file in a directory: nothing but a regular file is read, and nothing waits for a writer.
TEST(ModelPaths, FilesOfADirectoryAreRegular) {
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    const HfDir d(tiny_hf_config());
    const std::string path = d.dir.path() + "/" + file;
    const auto error = [&] {
      const auto m = ModelFiles::open(d.dir.path());
      if (!m) return m.error().message;
      const auto v = (*m)->vocab();
      return v ? std::string() : v.error().message;
    };
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(error(), HasSubstr(std::string(file) + " is not a regular file"));
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_THAT(error(), HasSubstr(std::string(file) + " is not a regular file"));
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    EXPECT_THAT(error(), HasSubstr(std::string(file) + " is not a regular file"));
  }
}

TEST(HfConfig, TinyDirectoryLoads) {
  const HfDir d(tiny_hf_config());
  EXPECT_EQ(whole_error(d.dir.path()), "");
  const auto m = d.open();
  const auto s = m->spec().value();
  EXPECT_EQ(s.head_dim, 4);
  EXPECT_TRUE(s.tied);
  EXPECT_EQ(s.interleaved_qk, 0);
  EXPECT_EQ(m->find("blk.0.attn_output.weight")->name, "model.layers.0.self_attn.o_proj.weight");
  EXPECT_EQ(m->quantisation_summary(), "F32 (100.0%)");
}

TEST(HfConfig, BothSpellingsOfRope) {
  const auto rope = [](const std::string& extra) {
    const HfDir d(tiny_hf_config(extra));
    const auto s = d.open()->spec();
    EXPECT_TRUE(s) << s.error().message;
    return s ? s->ropes.at(0) : RopeSpec{};
  };
  EXPECT_EQ(rope("").theta, 10000);
  EXPECT_EQ(rope(R"("rope_theta":500000.0,"rope_scaling":null)").theta, 500000);
  EXPECT_EQ(rope(R"("rope_parameters":{"rope_type":"default","rope_theta":250000})").theta, 250000);
  const std::string llama3 =
      R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192)";
  for (const std::string& extra :
       {R"("rope_theta":5e5,"rope_scaling":{"rope_type":"llama3",)" + llama3 + "}",
        R"("rope_theta":5e5,"rope_scaling":{"type":"llama3",)" + llama3 + "}",
        R"("rope_parameters":{"rope_theta":5e5,"rope_type":"llama3",)" + llama3 + "}"}) {
    const RopeSpec r = rope(extra);
    EXPECT_EQ(r.kind, RopeSpec::Kind::kLlama3);
    EXPECT_EQ(r.theta, 5e5);
    EXPECT_EQ(r.factor, 8);
    EXPECT_EQ(r.original_max_positions, 8192);
  }
  const RopeSpec linear = rope(R"("rope_scaling":{"type":"linear","factor":4.0})");
  EXPECT_EQ(linear.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(linear.factor, 4);
  const std::string both = R"("rope_parameters":{"rope_type":"linear","factor":2.0},"rope_scaling":)";
  EXPECT_EQ(rope(both + R"({"rope_type":"linear","factor":4.0})").factor, 4) << "as transformers";
  EXPECT_EQ(rope(both + "{}").factor, 2);
}

TEST(HfConfig, WhatIsNotSupportedIsNamed) {
  struct Row {
    const char* extra;
    const char* expected;
  };
  const Row rows[] = {
      {R"("hidden_act":"gelu")",
       "hidden_act: \"gelu\" is not supported yet (known: silu, gelu_pytorch_tanh)"},
      {R"("use_bidirectional_attention":true)", "use_bidirectional_attention: true is not supported yet"},
      {R"("quantization_config":{"quant_method":"bitsandbytes"})",
       "quantization_config.quant_method: \"bitsandbytes\" is not supported yet (known: awq,"},
      {R"("quantization_config":{})", "quantization_config.quant_method: null"},
      {R"("rope_scaling":{"rope_type":"xpos","factor":4.0})",
       "rope_scaling.rope_type: \"xpos\" is not supported yet (known: default, linear, dynamic, llama3"},
      {R"("rope_parameters":{"type":"longrope"})",
       "rope_parameters.short_factor is not a list of 2 positive numbers"},
      {R"("rope_parameters":{"type":"longrope","short_factor":[1,0],"long_factor":[1,1]})",
       "rope_parameters.short_factor is not a list of 2 positive numbers"},
      {R"("rope_theta":1,"rope_scaling":{"rope_type":"yarn","factor":4})", "rope_theta is not above 1"},
      {R"("rope_scaling":{"rope_type":"yarn","factor":0})", "rope_scaling.factor is 0"},
      {R"("rope_scaling":{"rope_type":"dynamic"})", "rope_scaling.factor is missing"},
      {R"("partial_rotary_factor":0.5,"rope_scaling":{"rope_type":"dynamic","factor":2})",
       "dynamic rope needs a rotary width of at least 4"},
      {R"("rope_parameters":{"full_attention":{"rope_theta":1}})",
       "rope_parameters.full_attention: settings per layer type"},
      {R"("rope_scaling":{"rope_type":"llama3","factor":8.0})", "rope_scaling.low_freq_factor is missing"},
      {R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":4.0,"high_freq_factor":1.0,"original_max_position_embeddings":64})",
       "high_freq_factor is not above"},
      {R"("rope_scaling":"linear")", "rope_scaling is not an object"},
      {R"("rope_scaling":{"rope_type":"linear","factor":0})", "rope_scaling.factor is 0"},
      {R"("rope_theta":-1)", "rope_theta is -1"},
      {R"("partial_rotary_factor":0.2)", "partial_rotary_factor gives a rotary width of 0"},
      {R"("partial_rotary_factor":0.3,"rope_scaling":{"rope_type":"yarn","factor":4})",
       "partial_rotary_factor gives a rotary width of 1"},
      {R"("partial_rotary_factor":1.5)", "partial_rotary_factor is 1.5"},
      {R"("head_dim":3)", "is not an even number"},
      {R"("head_dim":6)", "q_proj.weight has shape [8, 8], the config says [12, 8]"},
      {R"("head_dim":"4")", "head_dim is not an integer"},
      {R"("layer_types":["linear_attention"])", "layer_types: \"linear_attention\" is not supported yet"},
      {R"("layer_types":["sliding_attention"])", "sliding_window is not set"},
      {R"("layer_types":[])", "layer_types is not a list with one entry a layer"},
      {R"("attention_bias":true)", "attn_q.bias is missing"},
      {R"("attention_bias":1)", "attention_bias is not true or false"},
      {R"("tie_word_embeddings":false)", "output.weight is missing"},
  };
  for (const Row& r : rows) {
    const HfDir d(tiny_hf_config(r.extra));
    const std::string e = whole_error(d.dir.path());
    EXPECT_THAT(e, HasSubstr(r.expected)) << r.extra;
    EXPECT_THAT(e, HasSubstr("config.json")) << r.extra;
  }
}

TEST(HfConfig, SizesAreChecked) {
  struct Row {
    const char* from;
    const char* to;
    const char* expected;
  };
  const Row rows[] = {
      {"\"num_attention_heads\":2", "\"num_attention_heads\":0", "num_attention_heads is 0"},
      {"\"num_attention_heads\":2", "\"num_attention_heads\":null", "num_attention_heads is missing"},
      {"\"num_key_value_heads\":1", "\"num_key_value_heads\":3", "not a multiple of 3"},
      {"\"num_hidden_layers\":1", "\"num_hidden_layers\":0", "num_hidden_layers is 0"},
      {"\"num_hidden_layers\":1", "\"num_hidden_layers\":4000", "promises 4000 layers"},
      {"\"vocab_size\":4", "\"vocab_size\":5",
       "embed_tokens.weight has shape [4, 8], the config says [5, 8]"},
      {"\"hidden_size\":8", "\"hidden_size\":7", "not a multiple of num_attention_heads"},
      {"\"hidden_size\":8", "\"hidden_size\":1e400", "config.json"},
      {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":0", "rms_norm_eps is 0"},
      {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":NaN", "config.json"},
      {"\"rms_norm_eps\":1e-05", "\"rms_norm_eps\":-Infinity", "config.json"},
      {"\"max_position_embeddings\":64", "\"max_position_embeddings\":-1", "max_position_embeddings is -1"},
      {"LlamaForCausalLM", "GPT2LMHeadModel",
       "\"GPT2LMHeadModel\" is not supported yet (known: LlamaForCausalLM, SmolLM3ForCausalLM, "
       "MistralForCausalLM"},
      {"[\"LlamaForCausalLM\"]", "[]", "\"unknown\" is not supported yet"},
  };
  for (const Row& r : rows) {
    std::string config = tiny_hf_config();
    config.replace(config.find(r.from), std::string_view(r.from).size(), r.to);
    EXPECT_THAT(whole_error(HfDir(config).dir.path()), HasSubstr(r.expected)) << r.to;
  }
}

TEST(HfConfig, TwoNamesForOneTensorAreRefused) {
  auto tensors = tiny_hf_tensors();
  tensors.push_back({"blk.0.attn_q.weight", {8, 8}});
  EXPECT_THAT(open_error(HfDir(tiny_hf_config(), tensors).dir.path()), HasSubstr("is there twice"));
}

TEST(HfConfig, TiesByFlagThenByTensor) {
  auto tensors = tiny_hf_tensors();
  tensors.push_back({"lm_head.weight", {4, 8}});
  EXPECT_FALSE(HfDir(tiny_hf_config(), tensors).open()->spec()->tied);
  EXPECT_TRUE(HfDir(tiny_hf_config("\"tie_word_embeddings\":true"), tensors).open()->spec()->tied);
}

TEST(HfConfig, WindowsMakeGroups) {
  const auto groups = [](const std::string& extra) {
    const HfDir d(tiny_hf_config(extra, "MistralForCausalLM"));
    const auto s = d.open()->spec();
    EXPECT_TRUE(s) << s.error().message;
    return layer_groups(*s);
  };
  EXPECT_EQ(groups("\"sliding_window\":null")[0].kind, StateKind::kFullAttention);
  EXPECT_EQ(groups("")[0].window, 4096) << "as transformers: a key that is missing is not one that is null";
  EXPECT_EQ(groups("\"sliding_window\":16")[0].kind, StateKind::kSlidingWindow);
  EXPECT_EQ(groups("\"sliding_window\":16")[0].window, 16);
  EXPECT_EQ(groups(R"("sliding_window":16,"layer_types":["full_attention"])")[0].window, 0);
  DecoderSpec s;
  s.num_layers = 5;
  s.layers = {{0}, {8}, {0}, {8}, {4}};
  const auto g = layer_groups(s);
  ASSERT_EQ(g.size(), 3u);
  EXPECT_THAT(g[0].layers, ElementsAre(0, 2));
  EXPECT_THAT(g[1].layers, ElementsAre(1, 3));
  EXPECT_THAT(g[2].layers, ElementsAre(4));
}

TEST(HfConfig, WindowsOfQwenBeginBehindItsFirstLayers) {
  const auto window = [](const std::string& fields) {
    auto tensors = tiny_hf_tensors();
    tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {8}});
    for (const char* part : {"k_proj", "v_proj"})
      tensors.push_back({std::string("model.layers.0.self_attn.") + part + ".bias", {4}});
    const HfDir d(tiny_hf_config("\"sliding_window\":16," + fields, "Qwen2ForCausalLM"), tensors);
    const auto s = d.open()->spec();
    EXPECT_TRUE(s) << s.error().message;
    return s ? s->layers[0].window : -1;
  };
  EXPECT_EQ(window(R"("use_sliding_window":true,"max_window_layers":0)"), 16);
  EXPECT_EQ(window(R"("use_sliding_window":true,"max_window_layers":1)"), 0);
  EXPECT_EQ(window(R"("use_sliding_window":false,"max_window_layers":0)"), 0);
}

TEST(HfFiles, EosIsTheUnionAndSamplingDefaultsAreRead) {
  HfDir d(tiny_hf_config());
  EXPECT_FALSE(d.open()->generation_defaults()->temperature.has_value());
  d.dir.write(
      "generation_config.json",
      R"({"eos_token_id":[2,1],"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":0.05,"repetition_penalty":1.1})");
  const auto g = d.open()->generation_defaults().value();
  EXPECT_THAT(g.eos_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(g.temperature, 0.6);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.repetition_penalty, 1.1);
  EXPECT_THAT(d.open()->vocab()->eos_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(d.open()->vocab()->eos, 3);
  d.dir.write("generation_config.json", R"({"top_k":-1,"temperature":0.6})");
  EXPECT_EQ(d.open()->generation_defaults()->top_k, 0) << "-1 means off too";
  d.dir.write("generation_config.json", R"({"do_sample":false,"temperature":0.6})");
  EXPECT_FALSE(d.open()->generation_defaults()->temperature.has_value());
  d.dir.write("generation_config.json", R"({"temperature":"hot"})");
  EXPECT_THAT(d.open()->generation_defaults().error().message,
              HasSubstr("generation_config.json: temperature is not a number"));
  d.dir.write("generation_config.json", R"({"eos_token_id":"x"})");
  EXPECT_THAT(d.open()->generation_defaults().error().message, HasSubstr("eos_token_id is not an id"));
}

TEST(HfFiles, TemplatePrecedence) {
  HfDir d(tiny_hf_config());
  EXPECT_EQ(d.open()->vocab()->chat_template, "");
  d.dir.write("tokenizer_config.json", R"({"chat_template":"from config"})");
  EXPECT_EQ(d.open()->vocab()->chat_template, "from config");
  d.dir.write("tokenizer_config.json",
              R"({"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})");
  EXPECT_EQ(d.open()->vocab()->chat_template, "A");
  EXPECT_EQ(d.open()->vocab()->named_chat_templates.at(0).second, "B");
  d.dir.write("chat_template.jinja", "from file");
  fs::create_directory(d.dir.path() + "/additional_chat_templates");
  d.dir.write("additional_chat_templates/rag.jinja", "R");
  const auto v = d.open()->vocab().value();
  EXPECT_EQ(v.chat_template, "from file");
  ASSERT_EQ(v.named_chat_templates.size(), 1u);
  EXPECT_EQ(v.named_chat_templates[0].first, "rag");
  // Without the file there is still the default of the configuration; the files beside it are the named ones.
  fs::remove(d.dir.path() + "/chat_template.jinja");
  EXPECT_EQ(d.open()->vocab()->chat_template, "A");
  EXPECT_EQ(d.open()->vocab()->named_chat_templates, v.named_chat_templates);
  fs::remove_all(d.dir.path() + "/additional_chat_templates");
  // What older processors wrote comes before the configuration and behind the file.
  d.dir.write("chat_template.json", R"({"chat_template":"from a processor"})");
  EXPECT_EQ(d.open()->vocab()->chat_template, "from a processor");
  EXPECT_TRUE(d.open()->vocab()->named_chat_templates.empty());
  d.dir.write("chat_template.jinja", "from file");
  EXPECT_EQ(d.open()->vocab()->chat_template, "from file");
  fs::remove(d.dir.path() + "/chat_template.jinja");
  d.dir.write("chat_template.json", R"({"chat_template":null})");
  EXPECT_EQ(d.open()->vocab()->chat_template, "A");
  d.dir.write("chat_template.json", R"({"chat_template":[{"name":"default"}]})");
  EXPECT_THAT(d.open()->vocab().error().message, HasSubstr("chat_template.json: chat_template has an entry"));
  d.dir.write("chat_template.json", "{");
  EXPECT_THAT(d.open()->vocab().error().message, HasSubstr("chat_template.json"));
  fs::remove(d.dir.path() + "/chat_template.json");
  fs::remove(d.dir.path() + "/tokenizer.json");
  EXPECT_THAT(d.open()->vocab().error().message, HasSubstr("has no tokenizer.json"));
}

TEST(SharedModels, EveryCheckpointLoadsOrSaysWhatIsMissing) {
  const std::string root = barg::test::shared_data("models");
  if (root.empty()) GTEST_SKIP() << barg::test::kNoShared;
  std::size_t loaded = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "model.safetensors") &&
        !fs::exists(entry.path() / "model.safetensors.index.json"))
      continue;
    if (!fs::exists(entry.path() / "tokenizer.json")) continue;
    const std::string e = whole_error(entry.path().string());
    loaded += e.empty();
    if (e.empty()) continue;
    EXPECT_THAT(e, HasSubstr("is not supported yet")) << entry.path();
    EXPECT_EQ(std::count(e.begin(), e.end(), '\n'), 0) << e;
  }
  EXPECT_GE(loaded, 3u);
}

TEST(SharedGguf, EveryFileLoadsOrNamesTheTensorTypeOrField) {
  const std::string root = barg::test::shared_data("gguf");
  if (root.empty()) GTEST_SKIP() << barg::test::kNoShared;
  std::size_t loaded = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string e = whole_error(entry.path().string());
    loaded += e.empty();
    if (!e.empty()) {
      EXPECT_THAT(e, HasSubstr("is not supported yet")) << entry.path();
    }
    EXPECT_THAT(e, Not(HasSubstr(": type "))) << entry.path();
  }
  EXPECT_GE(loaded, 3u);
}

TEST(Inspect, TextNamesWhatAnOperatorNeeds) {
  const std::string path = barg::test::shared_data("gguf/llama31-q4_1.gguf");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto m = ModelFiles::open(path).value();
  EXPECT_TRUE(m->is_quantised());
  const auto i = inspect(*m).value();
  std::uint64_t in_file = 0;
  for (const Tensor& t : m->tensors()) in_file += t.name == "rope_freqs.weight" ? 0 : t.elements();
  EXPECT_EQ(i.parameters, in_file);
  EXPECT_THAT(header_text(*m), HasSubstr("architecture: llama\n"));
  const std::string text = to_text(i, *m, DType::kF16, true);
  for (const char* part :
       {"architecture: llama (family llama)", "quantisation: Q4_1 (", "kv bytes per token: 384 (f16)",
        "context length: 1024", "rope: default, theta 500000, per-frequency divisors",
        "kv group: 3 layers, full attention, 2 kv heads of 16, 384 bytes a token", " KiB) in ",
        "tensor: blk.2.ffn_up.weight  Q4_1  160 x 64"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

}  // namespace
}  // namespace barg::model::test::model_files_test
