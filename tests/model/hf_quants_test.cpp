// Quantised Hugging Face checkpoints: every format's values to the bit against what the formats say (computed
// independently, ../shared/data/hfquants), whole models against the same model in f32, sizes, and refusals.
#include "model/hf_quants.h"

#include "math.h"
#include "model/golden_checks.h"
#include "model/hf_quant_builder.h"
#include "model/quants.h"

namespace barg::model::test::hf_quants_test {
namespace {

Json quantization(const std::string& text) {
  auto json = parse_json("{\"quantization_config\":" + text + "}", {.max_depth = 16, .max_members = 0});
  return json ? *json : Json();
}

const char* const kAwq =
    R"({"quant_method":"awq","bits":4,"group_size":32,"version":"gemm","zero_point":true})";
const char* const kGptq4 = R"({"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"sym":false})";
const char* const kGptq8 = R"({"quant_method":"gptq","bits":8,"group_size":32})";
const char* const kCt = R"({"quant_method":"compressed-tensors","format":"pack-quantized"})";
const char* const kFp8 = R"({"quant_method":"fp8","weight_block_size":[128,128]})";

/// Equal bits; zeros that went through an integer have no sign.
::testing::AssertionResult same_values(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && (a[i] != 0 || b[i] != 0))
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

/// All weights of a matrix, through rows, packing and the embedding; columns where they belong.
std::vector<float> values(const Tensor& t) {
  ops::CpuDevice device({.threads = 1});
  const auto n = static_cast<std::int32_t>(row_count(t)), k = static_cast<std::int32_t>(t.shape.back());
  std::vector<std::byte> rows(static_cast<std::size_t>(n) * read_row_bytes(t));
  for (std::int32_t r = 0; r < n; r += 7)  // odd cuts
    read_rows(t, r, std::min(7, n - r), rows.data() + static_cast<std::size_t>(r) * read_row_bytes(t));
  Workspace packed(device.ops().packed_bytes(*t.type.dtype, n, k, ops::Packing::kStored));
  device.ops().pack(device.stream(), {rows.data(), n, k, *t.type.dtype, packed.data()});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = i;
  std::vector<float> out(ids.size() * static_cast<std::size_t>(k));
  device.ops().embed(device.stream(), {.table = {n, k, *t.type.dtype, packed.data()},
                                       .ids = ids.data(),
                                       .rows = n,
                                       .scale = 1,
                                       .out = out.data()});
  if (t.source == nullptr || t.source->order.empty()) return out;
  const std::vector<float> ordered = out;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    for (std::size_t j = 0; j < t.source->order.size(); ++j)
      out[r * t.source->order.size() + static_cast<std::size_t>(t.source->order[j])] =
          ordered[r * t.source->order.size() + j];
  }
  return out;
}

struct Format {
  const char* name;
  const char* config;
  std::vector<const char*> tensors;
  const char* joined;
  int bar;  ///< percent of the file's bytes that blocks may have; 0: rows of f32
};

void PrintTo(const Format& f, std::ostream* out) { *out << f.name; }

const Format kFormats[] = {
    {"awq", kAwq, {"qweight", "qzeros", "scales"}, "X.weight", 160},
    {"gptq4", kGptq4, {"qweight", "qzeros", "scales", "g_idx"}, "X.weight", 160},
    {"gptq4_actorder", kGptq4, {"qweight", "qzeros", "scales", "g_idx"}, "X.weight", 160},
    {"gptq8", kGptq8, {"qweight", "qzeros", "scales", "g_idx"}, "X.weight", 160},
    {"ct_w4a16", kCt, {"weight_packed", "weight_scale", "weight_shape"}, "X.weight", 160},
    {"ct_w4a16_asym",
     kCt,
     {"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"},
     "X.weight",
     160},
    {"fp8_block", kFp8, {"weight", "weight_scale_inv"}, "X.weight", 0},
    {"fp8_channel", kCt, {"weight", "weight_scale"}, "X.weight", 0},
    {"int8_channel", kCt, {"weight", "weight_scale"}, "X.weight", 160},
    {"nvfp4", kCt, {"weight_packed", "weight_scale", "weight_global_scale"}, "X.weight", 160},
    {"mxfp4", R"({"quant_method":"mxfp4"})", {"blocks", "scales"}, "X", 160},
};

class HfQuants : public ::testing::TestWithParam<Format> {};

TEST_P(HfQuants, RowsAreTheFormatsValues) {
  const Format& f = GetParam();
  const std::string path = barg::test::shared_data("hfquants/hfquants.safetensors");
  const std::string name = f.name;
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const Goldens g(path);
  if (!g.has(name + ".expected")) GTEST_SKIP() << barg::test::kNoShared;
  std::vector<Tensor> tensors;
  std::size_t file_bytes = 0;
  for (const std::string part : f.tensors) {
    Tensor t = g.tensor(name + "." + part);
    t.name = std::string("X") + (name == "mxfp4" ? "_" : ".") + part;
    const bool fp8 = name.starts_with("fp8") && part == "weight",
               fp8_scale = name == "nvfp4" && part == "weight_scale";
    if (fp8 || fp8_scale) t.type = {"F8_E4M3", 1, 1, {}};  // stored as U8 for readers that do not know fp8
    file_bytes += t.bytes.size();
    tensors.push_back(std::move(t));
  }
  const auto ok = join_quantised(quantization(f.config), tensors);
  ASSERT_TRUE(ok) << ok.error().message;
  ASSERT_EQ(tensors.size(), f.tensors.size());
  const Tensor& joined = tensors[0];
  EXPECT_EQ(joined.name, f.joined);
  EXPECT_EQ(joined.shape, g.tensor(name + ".expected").shape);
  EXPECT_TRUE(same_values(values(joined), g.floats(name + ".expected")));
  const std::size_t bytes = static_cast<std::size_t>(row_count(joined)) * read_row_bytes(joined);
  if (f.bar > 0) {
    EXPECT_LE(bytes * 100, file_bytes * static_cast<std::size_t>(f.bar));
  }
  EXPECT_EQ(*joined.type.dtype == DType::kF32, f.bar == 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, HfQuants, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

// --- sizes -----------------------------------------------------------------------------------------------

/// A tensor of zeros beside its name's ending.
struct Zeros {
  const char *suffix, *type;
  std::vector<std::int64_t> shape;
};

struct SizedFormat {
  const char* name;
  const char* config;
  std::vector<Zeros> tensors;
};

void PrintTo(const SizedFormat& f, std::ostream* out) { *out << f.name; }

/// A matrix [64, 256] in groups of 128, as published files have them.
const SizedFormat kSizedFormats[] = {
    {"awq", kAwq, {{".qweight", "I32", {256, 8}}, {".qzeros", "I32", {2, 8}}, {".scales", "F16", {2, 64}}}},
    {"gptq4", kGptq4, {{".qweight", "I32", {32, 64}}, {".qzeros", "I32", {2, 8}}, {".scales", "F16", {2, 64}}}},
    {"gptq8", kGptq8, {{".qweight", "I32", {64, 64}}, {".qzeros", "I32", {2, 16}}, {".scales", "F16", {2, 64}}}},
    {"w4a16",
     kCt,
     {{".weight_packed", "I32", {64, 32}}, {".weight_scale", "BF16", {64, 2}}, {".weight_shape", "I64", {2}}}},
    {"w4a16_channel",
     kCt,
     {{".weight_packed", "I32", {64, 32}}, {".weight_scale", "BF16", {64, 1}}, {".weight_shape", "I64", {2}}}},
    {"w4a16_zeros",
     kCt,
     {{".weight_packed", "I32", {64, 32}},
      {".weight_scale", "F16", {64, 2}},
      {".weight_zero_point", "I32", {8, 2}},
      {".weight_shape", "I64", {2}}}},
    {"w8a16",
     kCt,
     {{".weight_packed", "I32", {64, 64}}, {".weight_scale", "BF16", {64, 2}}, {".weight_shape", "I64", {2}}}},
    {"w8a8", kCt, {{".weight", "I8", {64, 256}}, {".weight_scale", "BF16", {64, 1}}}},
    {"w8a8_zeros",
     kCt,
     {{".weight", "I8", {64, 256}}, {".weight_scale", "BF16", {64, 1}}, {".weight_zero_point", "I8", {64, 1}}}},
    {"fp8_tensor", kCt, {{".weight", "F8_E4M3", {64, 256}}, {".weight_scale", "F32", {1}}}},
    {"fp8_channel", kCt, {{".weight", "F8_E4M3", {64, 256}}, {".weight_scale", "F32", {64, 1}}}},
    {"fp8_block", kFp8, {{".weight", "F8_E4M3", {64, 256}}, {".weight_scale_inv", "F32", {1, 2}}}},
    {"nvfp4",
     kCt,
     {{".weight_packed", "U8", {64, 128}}, {".weight_scale", "F8_E4M3", {64, 16}}, {".weight_global_scale", "F32", {1}}}},
    {"mxfp4", R"({"quant_method":"mxfp4"})", {{"_blocks", "U8", {2, 32, 8, 16}}, {"_scales", "U8", {2, 32, 8}}}},
};

class HfQuantSizes : public ::testing::TestWithParam<SizedFormat> {};

/// 1.6 times the file's size for what is converted at load.
TEST_P(HfQuantSizes, PackedSizeStaysNearTheFilesSize) {
  std::vector<std::string> bytes;
  std::vector<Tensor> tensors;
  std::size_t file_bytes = 0;
  for (const Zeros& z : GetParam().tensors) {
    const std::string type = z.type;
    const std::size_t unit = type == "I64" ? 8 : type == "I32" || type == "F32" ? 4 : type.ends_with("16") ? 2 : 1;
    Tensor t;
    t.name = std::string("X") + z.suffix;
    t.type = {z.type, 1, static_cast<std::uint32_t>(unit), {}};
    if (type == "F32") t.type.dtype = DType::kF32;
    if (type == "F16") t.type.dtype = DType::kF16;
    if (type == "BF16") t.type.dtype = DType::kBF16;
    t.shape = z.shape;
    bytes.push_back(std::string(t.elements() * unit, '\0'));
    if (type == "I64") bytes.back() = bytes_of(std::vector<std::int64_t>{64, 256});
    file_bytes += bytes.back().size();
    tensors.push_back(std::move(t));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i].bytes = {reinterpret_cast<const std::byte*>(bytes[i].data()), bytes[i].size()};
  const auto ok = join_quantised(quantization(GetParam().config), tensors);
  ASSERT_TRUE(ok) << ok.error().message;
  const Tensor& joined = tensors[0];
  ASSERT_EQ(joined.elements(), std::size_t{64} * 256);
  ops::CpuDevice device({.threads = 1});
  const std::size_t packed = device.ops().packed_bytes(*joined.type.dtype, 64, 256, ops::Packing::kStored);
  RecordProperty("packed_over_file", std::to_string(static_cast<double>(packed) / static_cast<double>(file_bytes)));
  EXPECT_LE(packed * 10, file_bytes * 16);
}

INSTANTIATE_TEST_SUITE_P(Formats, HfQuantSizes, ::testing::ValuesIn(kSizedFormats),
                         [](const auto& info) { return std::string(info.param.name); });

// --- whole models ----------------------------------------------------------------------------------------

constexpr std::int64_t kGroup = 32;

std::uint16_t draw_scale(Draw& draw, bool bf16) {
  const float v = 0.002f + 1e-5f * static_cast<float>(draw(1000));
  return bf16 ? ops::f32_to_bf16(v) : ops::f32_to_f16(v);
}

/// GPTQ of 4 bits; `shuffled`: act order.
Quantised gptq(const std::string& x, std::int64_t n, std::int64_t k, Draw& draw, bool shuffled,
               std::int64_t group = kGroup) {
  const std::int64_t groups = k / group;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::uint32_t> words(at(k / 8 * n)), zeros(at(groups * n / 8));
  std::vector<std::uint16_t> scales(at(groups * n));
  std::vector<std::int32_t> g_idx(at(k));
  for (auto& w : words) w = draw(1u << 31) << 1 | draw(2);
  for (auto& w : zeros) w = draw(1u << 31) << 1 | draw(2);
  for (auto& s : scales) s = draw_scale(draw, false);
  for (std::int64_t i = 0; i < k; ++i)
    g_idx[at(i)] = static_cast<std::int32_t>(shuffled ? i % groups : i / group);
  Quantised q;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t g = g_idx[at(i)];
      const auto code = static_cast<int>(words[at(i / 8 * n + row)] >> (4 * (i % 8)) & 15);
      const auto zero = static_cast<int>(zeros[at(g * (n / 8) + row / 8)] >> (4 * (row % 8)) & 15) + 1;
      q.values.push_back(static_cast<float>(code - zero) * ops::f16_to_f32(scales[at(g * n + row)]));
    }
  }
  q.entries = {{x + ".qweight", "I32", {k / 8, n}, bytes_of(words)},
               {x + ".qzeros", "I32", {groups, n / 8}, bytes_of(zeros)},
               {x + ".scales", "F16", {groups, n}, bytes_of(scales)},
               {x + ".g_idx", "I32", {k}, bytes_of(g_idx)}};
  return q;
}

/// compressed-tensors: 4 bits without zero points, or 8.
Quantised compressed(const std::string& x, std::int64_t n, std::int64_t k, Draw& draw, int bits) {
  const std::int64_t per = 32 / bits, groups = k / kGroup;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(n * k / per));
  std::vector<std::uint16_t> scales;
  for (auto& w : words) w = draw(1u << 31) << 1 | draw(2);
  for (std::int64_t i = 0; i < n * groups; ++i) scales.push_back(draw_scale(draw, true));
  Quantised q;
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      const std::uint32_t word = words[static_cast<std::size_t>((row * k + i) / per)];
      const int code = static_cast<int>(word >> (bits * (i % per)) & ((1u << bits) - 1)) - (1 << (bits - 1));
      q.values.push_back(static_cast<float>(code) *
                         ops::bf16_to_f32(scales[static_cast<std::size_t>(row * groups + i / kGroup)]));
    }
  }
  const std::vector<std::int64_t> shape = {n, k};
  q.entries = {{x + ".weight_packed", "I32", {n, k / per}, bytes_of(words)},
               {x + ".weight_scale", "BF16", {n, groups}, bytes_of(scales)},
               {x + ".weight_shape", "I64", {2}, bytes_of(shape)}};
  return q;
}

/// Two layers of width 64 in two directories: quantised as `make` says, and the same values in f32.
struct Twins {
  /// `vocab` other than 48: and the output is the embedding.
  template <class F>
  Twins(const std::string& quantization_config, F&& make, std::int64_t vocab = 48) {
    std::vector<Entry> quantised, plain;
    Draw draw{7};
    const auto both = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
      std::vector<float> v;
      std::int64_t size = 1;
      for (const std::int64_t d : shape) size *= d;
      for (std::int64_t i = 0; i < size; ++i)
        v.push_back(shape.size() == 1 ? 1.0f + 0.001f * static_cast<float>(draw(100))
                                      : 0.001f * static_cast<float>(static_cast<int>(draw(400)) - 200));
      quantised.push_back({name, "F32", shape, bytes_of(v)});
      plain.push_back({name, "F32", shape, bytes_of(v)});
    };
    const auto matrix = [&](const std::string& x, std::int64_t n, std::int64_t k) {
      const Quantised q = make(x, n, k, draw);
      quantised.insert(quantised.end(), q.entries.begin(), q.entries.end());
      plain.push_back({x + ".weight", "F32", {n, k}, bytes_of(q.values)});
    };
    const bool tied = vocab != 48;
    both("model.embed_tokens.weight", {vocab, 64});
    both("model.norm.weight", {64});
    if (!tied) both("lm_head.weight", {48, 64});
    for (const std::string l : {"model.layers.0.", "model.layers.1."}) {
      both(l + "input_layernorm.weight", {64});
      both(l + "post_attention_layernorm.weight", {64});
      matrix(l + "self_attn.q_proj", 64, 64);
      matrix(l + "self_attn.k_proj", 32, 64);
      matrix(l + "self_attn.v_proj", 32, 64);
      matrix(l + "self_attn.o_proj", 64, 64);
      matrix(l + "mlp.gate_proj", 96, 64);
      matrix(l + "mlp.up_proj", 96, 64);
      matrix(l + "mlp.down_proj", 64, 96);
    }
    const std::string config =
        R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,
            "num_key_value_heads":2,"intermediate_size":96,"max_position_embeddings":256,
            "rms_norm_eps":1e-5,"eos_token_id":3,"vocab_size":)" +
        std::to_string(vocab) + ",\"tie_word_embeddings\":" + (tied ? "true" : "false");
    small.write("config.json", config + ",\"quantization_config\":" + quantization_config + "}");
    small.write("model.safetensors", safetensors(quantised));
    large.write("config.json", config + "}");
    large.write("model.safetensors", safetensors(plain));
  }
  barg::test::TempDir small, large;
};

struct Method {
  const char* name;
  const char* config;
  Quantised (*make)(const std::string&, std::int64_t, std::int64_t, Draw&);
  bool reordered = false;
};

void PrintTo(const Method& m, std::ostream* out) { *out << m.name; }

const Method kMethods[] = {
    {"gptq", kGptq4, [](const auto& x, auto n, auto k, Draw& d) { return gptq(x, n, k, d, false); }},
    {"gptq_act_order", kGptq4, [](const auto& x, auto n, auto k, Draw& d) { return gptq(x, n, k, d, true); },
     true},
    {"fp8", R"({"quant_method":"fp8","weight_block_size":[32,32],"activation_scheme":"dynamic"})", fp8},
    {"w4a16", kCt, [](const auto& x, auto n, auto k, Draw& d) { return compressed(x, n, k, d, 4); }},
    {"w8a16", kCt, [](const auto& x, auto n, auto k, Draw& d) { return compressed(x, n, k, d, 8); }},
};

class HfQuantModels : public ::testing::TestWithParam<Method> {};

TEST_P(HfQuantModels, ComputeWhatTheirDequantisedTwinComputes) {
  const Twins twins(GetParam().config, GetParam().make);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 40; ++i) ids.push_back(i * 7 % 48);
  const auto logits = [&](const std::string& path, Recipe recipe) {
    const auto files = open_or_throw(path);
    Harness h(files, {.recipe = recipe, .cpu = {.threads = 2}});
    return h.logits(h.prefill(h.new_sequence(40), ids, {13, 1, 26}));
  };
  const auto want = logits(twins.large.path(), Recipe::kF32);
  const auto distance = [&](const std::vector<float>& got) {
    double difference = 0, square = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
      square += std::pow(static_cast<double>(want[i]), 2);
    }
    return std::sqrt(difference / square);
  };
  const auto exact = logits(twins.small.path(), Recipe::kF32);
  if (GetParam().reordered) {  // the same sums in another order
    EXPECT_LT(distance(exact), 1e-5);
  } else {
    EXPECT_TRUE(same_bits(exact, want));
  }
  // So much do activations of 8 bits change in random weights, which agree on nothing.
  EXPECT_LT(distance(logits(twins.small.path(), Recipe::kInt8)), 0.1);
  if (ops::recipe_supported(ops::Isa::kAuto, Recipe::kBF16)) {
    EXPECT_LT(distance(logits(twins.small.path(), Recipe::kBF16)), 0.05);
  }
}

TEST_P(HfQuantModels, AreLoadedPartByPart) {
  const Twins twins(GetParam().config, GetParam().make);
  const auto files = open_or_throw(twins.small.path());
  ops::CpuDevice device({.threads = 1});
  std::uint64_t last = 0, total = 0;
  const auto d = Decoder::load(*files, device.ops(), device.stream(), {.recipe = Recipe::kF32},
                               [&](std::uint64_t done, std::uint64_t all) {
                                 EXPECT_GE(done, last);
                                 last = done;
                                 total = all;
                               });
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(last, total);
  EXPECT_EQ((*d)->spec().reordered_inputs, GetParam().reordered);
}

/// `numerics auto` goes by the weights that are multiplied by: not by a large embedding, nor by bytes.
TEST_P(HfQuantModels, AreQuantisedWhateverTheEmbeddingIs) {
  const Twins twins(GetParam().config, GetParam().make, 8192);
  const auto small = open_or_throw(twins.small.path());
  EXPECT_GT(small->find("token_embd.weight")->bytes.size() * 2, small->total_bytes());
  EXPECT_TRUE(small->is_quantised());
  EXPECT_FALSE(open_or_throw(twins.large.path())->is_quantised());
}

/// Rows computed alone, in chunks, by other instruction sets.
TEST_P(HfQuantModels, ChunksBlocksThreadsAndIsaDoNotChangeABit) {
  const Twins twins(GetParam().config, GetParam().make);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 70; ++i) ids.push_back(i * 5 % 48);
  for (const Recipe recipe : {Recipe::kF32, Recipe::kInt8})
    check_bits(open_or_throw(twins.small.path()), ids, recipe, DType::kF16);
}

INSTANTIATE_TEST_SUITE_P(Methods, HfQuantModels, ::testing::ValuesIn(kMethods),
                         [](const auto& info) { return std::string(info.param.name); });

// --- refusals --------------------------------------------------------------------------------------------

TEST(HfQuantConfig, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quant_method":"bitsandbytes"})",
       "quant_method: \"bitsandbytes\" is not supported yet (known: awq,"},
      {R"({})", "quant_method: null is not supported"},
      {R"([])", "quantization_config is not an object"},
      {R"({"quant_method":"awq","bits":3})", "bits: 3 is not supported"},
      {R"({"quant_method":"awq","version":"gemv"})", "version: \"gemv\" is not supported"},
      {R"({"quant_method":"gptq","bits":2})", "bits: 2 is not supported"},
      {R"({"quant_method":"gptq","checkpoint_format":"marlin"})",
       "checkpoint_format: \"marlin\" is not supported"},
      {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "block size of the weights"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24"})",
       "format: \"marlin-24\" is not supported"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"a":{"format":"odd"}}})", "format: \"odd\""},
      {R"({"quant_method":"compressed-tensors","transform_config":{"a":1}})", "transform_config"},
      {R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})",
       "sparsity_config"},
  };
  for (const auto& [config, message] : cases) {
    std::vector<Tensor> none;
    const auto ok = join_quantised(quantization(config), none);
    ASSERT_FALSE(ok) << config;
    EXPECT_NE(ok.error().message.find(message), std::string::npos) << ok.error().message;
  }
  std::vector<Tensor> none;
  EXPECT_TRUE(join_quantised(Json::object(), none));
}

Tensor view(const std::string& name, const char* type, std::uint32_t bytes, std::vector<std::int64_t> shape,
            const std::string& data, std::optional<DType> dtype = {}) {
  Tensor t;
  t.name = name;
  t.type = {type, 1, bytes, dtype};
  t.shape = std::move(shape);
  t.bytes = std::as_bytes(std::span(data)).first(t.elements() * bytes);
  return t;
}

/// An order whose groups are no whole runs: held in f32, and nothing is gathered. And matrices that nobody
/// gathers for.
TEST(HfQuantConfig, OrdersThatBlocksCannotHold) {
  Draw draw{3};
  Quantised q = gptq("X", 8, 64, draw, true);
  std::vector<Tensor> tensors;
  const auto add = [&](const Entry& e, const char* type, std::uint32_t bytes, std::optional<DType> dtype) {
    Tensor t;
    t.name = e.name;
    t.type = {type, 1, bytes, dtype};
    t.shape = e.shape;
    t.bytes = std::as_bytes(std::span(e.bytes));
    tensors.push_back(t);
  };
  std::int32_t other = 0;  // one column of group 1 becomes group 0's
  std::memcpy(q.entries[3].bytes.data() + 4, &other, 4);
  add(q.entries[0], "I32", 4, {});
  add(q.entries[1], "I32", 4, {});
  add(q.entries[2], "F16", 2, DType::kF16);
  add(q.entries[3], "I32", 4, {});
  ASSERT_TRUE(join_quantised(quantization(kGptq4), tensors));
  EXPECT_EQ(tensors[0].type.dtype, DType::kF32);
  EXPECT_TRUE(tensors[0].source->order.empty());
}

/// Groups of 16, and rows that are no whole runs: the values of the format, in f32.
TEST(HfQuantConfig, GroupsThatBlocksCannotHold) {
  for (const auto& [k, group] : {std::pair{64, 16}, std::pair{48, 24}}) {
    Draw draw{11};
    const Quantised q = gptq("X", 8, k, draw, false, group);
    std::vector<Tensor> tensors;
    for (const Entry& e : q.entries) {
      const bool scales = e.dtype == "F16";
      tensors.push_back(view(e.name, scales ? "F16" : "I32", scales ? 2 : 4, e.shape, e.bytes,
                             scales ? std::optional(DType::kF16) : std::nullopt));
    }
    ASSERT_TRUE(join_quantised(quantization(kGptq4), tensors));
    EXPECT_EQ(tensors[0].type.dtype, DType::kF32);
    EXPECT_TRUE(same_values(values(tensors[0]), q.values)) << group;
  }
}

/// 8 bits, zero points and scales of many bits: minima would be rounded.
TEST(HfQuantConfig, ZeroPointsThatBlocksCannotHold) {
  std::string codes;
  for (int i = 0; i < 64; ++i) codes += static_cast<char>(i * 37);
  const float scale = 0.1f;
  const std::string scales(reinterpret_cast<const char*>(&scale), 4), zeros(1, '\x7b');
  std::vector<Tensor> tensors = {view("a.weight", "I8", 1, {1, 64}, codes),
                                 view("a.weight_scale", "F32", 4, {1}, scales, DType::kF32),
                                 view("a.weight_zero_point", "I8", 1, {1}, zeros)};
  ASSERT_TRUE(join_quantised(quantization(kCt), tensors));
  std::vector<float> want;
  for (const char c : codes) want.push_back(static_cast<float>(static_cast<signed char>(c) - 0x7b) * scale);
  EXPECT_EQ(tensors[0].type.dtype, DType::kF32);
  EXPECT_TRUE(same_values(values(tensors[0]), want));
}

TEST(HfQuantConfig, TensorsThatDoNotFitTogetherAreNamed) {
  const std::string zeros(1 << 16, '\0'), ones(1 << 16, '\1');
  const std::string twos = bytes_of(std::vector<std::int32_t>(64, 2));  // the first of the groups that are not there
  const auto i32 = [&](const char* name, std::vector<std::int64_t> shape, const std::string& data) {
    return view(name, "I32", 4, std::move(shape), data);
  };
  const auto f16 = [&](const char* name, std::vector<std::int64_t> shape) {
    return view(name, "F16", 2, std::move(shape), zeros, DType::kF16);
  };
  const auto q = i32("a.qweight", {8, 16}, zeros);
  const auto z = i32("a.qzeros", {2, 2}, zeros), g = i32("a.g_idx", {64}, zeros);
  const auto w8 = view("a.weight", "F8_E4M3", 1, {64, 64}, zeros);
  const auto packed = i32("a.weight_packed", {16, 8}, zeros);
  const struct {
    const char* config;
    std::vector<Tensor> tensors;
    const char* message;
  } cases[] = {
      {kGptq4, {q, f16("a.scales", {2, 16})}, "tensor a.qzeros is missing"},
      {kGptq4, {q, z}, "tensor a.scales is missing"},
      {kGptq4, {q, z, f16("a.scales", {2, 15})}, "tensor a.scales: its shape"},
      {kGptq4, {q, z, f16("a.scales", {3, 16})}, "tensor a.qzeros: its shape"},
      {kGptq4, {q, i32("a.qzeros", {3, 2}, zeros), f16("a.scales", {3, 16})}, "a last group that is smaller"},
      {kGptq4,
       {q, z, f16("a.scales", {2, 16}), i32("a.g_idx", {64}, ones)},
       "tensor a.g_idx: it names a group"},
      {kGptq4, {q, z, f16("a.scales", {2, 16}), i32("a.g_idx", {64}, twos)}, "tensor a.g_idx: it names a group"},
      {kGptq4,
       {q, z, f16("a.scales", {2, 16}), i32("a.g_idx", {63}, zeros)},
       "tensor a.g_idx: it is not one"},
      {kGptq4, {i32("a.qweight", {8, 2, 8}, zeros), z}, "3 dimensions"},
      {kGptq4, {i32("a.qweight", {0, 16}, zeros), z}, "a size out of range"},
      {kAwq,
       {i32("a.qweight", {64, 2}, zeros), z, view("a.scales", "F64", 8, {2, 16}, zeros)},
       "the type F64 here"},
      {kFp8, {w8}, "tensor a.weight_scale is missing"},
      {kFp8,
       {w8, view("a.weight_scale_inv", "F32", 4, {3, 1}, zeros, DType::kF32)},
       "tensor a.weight_scale_inv: its shape"},
      {kFp8, {w8, view("a.weight_scale_inv", "F8_E8M0", 1, {1, 1}, zeros)}, "the type F8_E8M0 here"},
      {kCt, {packed, f16("a.weight_scale", {16, 2})}, "tensor a.weight_shape is missing"},
      {kCt,
       {packed, f16("a.weight_scale", {16, 2}), view("a.weight_shape", "I64", 8, {2}, zeros)},
       "tensor a.weight_shape: it does not fit"},
      {R"({"quant_method":"mxfp4"})",
       {view("a_blocks", "U8", 1, {1, 2, 3}, zeros)},
       "tensor a_blocks: anything but"},
  };
  for (const auto& c : cases) {
    std::vector<Tensor> tensors = c.tensors;
    const auto ok = join_quantised(quantization(c.config), tensors);
    ASSERT_FALSE(ok) << c.message;
    EXPECT_NE(ok.error().message.find(c.message), std::string::npos) << ok.error().message;
    EXPECT_EQ(tensors[0].source, nullptr);
  }
  std::vector<Tensor> good = {q, z, f16("a.scales", {2, 16}), g};
  EXPECT_TRUE(join_quantised(quantization(kGptq4), good));
}

/// One NaN code makes its block NaN; the others stay.
TEST(HfQuantConfig, NanCodesOfFp8StayNan) {
  std::string codes(64, '\x38');  // 1
  codes[40] = '\x7f';
  const float one = 1;
  std::vector<Tensor> tensors = {view("a.weight", "F8_E4M3", 1, {1, 64}, codes),
                                 view("a.weight_scale", "F32", 4, {1},
                                      std::string(reinterpret_cast<const char*>(&one), 4), DType::kF32)};
  const std::string scale(reinterpret_cast<const char*>(&one), 4);
  tensors[1].bytes = std::as_bytes(std::span(scale));
  ASSERT_TRUE(join_quantised(quantization(kFp8), tensors));
  const auto v = values(tensors[0]);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(v[i]), i >= 32) << i;
}

}  // namespace
}  // namespace barg::model::test::hf_quants_test
