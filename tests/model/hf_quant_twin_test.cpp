// Checkpoints of families with experts and latent attention, quantised: the same bits as a checkpoint that holds the
// dequantised values. gpt-oss with MXFP4 experts, and DeepSeek V3 in FP8, whose kv_b_proj lies across the rows that the
// absorbed form needs.
#include "math.h"
#include "model/golden_checks.h"
#include "model/hf_quant_builder.h"
#include "model/tensor_floats.h"

namespace barg::model::test::hf_quant_twin_test {
namespace {

/// What stands for a tensor in the two checkpoints.
struct Replaced {
  std::vector<Entry> quantised;
  Entry plain;
};

/// The checkpoint at `source` twice; `replace(tensor)` gives a Replaced, or nothing where the tensor stays.
struct Checkpoints {
  template <class F>
  Checkpoints(const std::string& source, const std::string& quantization_config, F&& replace) {
    std::vector<Entry> small_entries, large_entries;
    const auto files = open_or_throw(source);
    for (const Tensor& t : files->tensors()) {
      if (std::optional<Replaced> r = replace(t)) {
        small_entries.insert(small_entries.end(), r->quantised.begin(), r->quantised.end());
        large_entries.push_back(std::move(r->plain));
        continue;
      }
      const std::string bytes(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
      small_entries.push_back({t.name, t.type.name, t.shape, bytes});
      large_entries.push_back({t.name, t.type.name, t.shape, bytes});
    }
    Json config = parse_json(read_file(source + "/config.json", 1 << 20).value()).value();
    large.write("config.json", dump_json(config));
    large.write("model.safetensors", safetensors(large_entries));
    config.set("quantization_config", parse_json(quantization_config).value());
    small.write("config.json", dump_json(config));
    small.write("model.safetensors", safetensors(small_entries));
  }
  barg::test::TempDir small, large;
};

/// Hidden states of a prompt, and its logits behind them.
std::vector<float> bits_of(const std::string& path, const std::vector<std::int32_t>& ids) {
  Harness h(open_or_throw(path), {});
  auto out = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {50, 33});
  const auto logits = h.logits(out);
  out.insert(out.end(), logits.begin(), logits.end());
  return out;
}

std::string base_of(const std::string& name, const std::string& suffix) {
  return name.substr(0, name.size() - suffix.size());
}

/// gate_up_proj_blocks [E, 2I, H/32, 16] and _scales, gate and up by turns; in bf16 gate_up_proj is [E, H, 2I].
std::optional<Replaced> to_mxfp4(const Tensor& t, Draw& draw) {
  if (!t.name.ends_with("_proj") || t.shape.size() != 3) return std::nullopt;
  const std::int64_t count = t.shape[0], k = t.shape[1], n = t.shape[2];
  Quantised q = mxfp4(t.name, count, n, k, draw);
  std::vector<float> across;
  for (std::int64_t e = 0; e < count; ++e) {
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t r = 0; r < n; ++r) across.push_back(q.values[static_cast<std::size_t>((e * n + r) * k + i)]);
    }
  }
  return Replaced{q.entries, {t.name, "F32", t.shape, bytes_of(across)}};
}

TEST(HfQuantTwins, GptOssWithMxfp4Experts) {
  const std::string path = barg::test::shared_data("models/gpt-oss");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  Draw draw{5};
  const Checkpoints twins(path, R"({"quant_method":"mxfp4","modules_to_not_convert":["model.layers.*.self_attn"]})",
                          [&](const Tensor& t) { return to_mxfp4(t, draw); });
  const auto files = open_or_throw(twins.small.path());
  const auto spec = files->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->experts.layout, ExpertLayout::kFusedTurns);
  EXPECT_EQ(files->find("blk.1.ffn_gate_up_exps.weight")->type.dtype, DType::kFP4);
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  EXPECT_TRUE(same_bits(bits_of(twins.small.path(), ids), bits_of(twins.large.path(), ids)));
  check_bits(files, ids, Recipe::kF32, DType::kF16);
  check_bits(files, ids, Recipe::kInt8, DType::kF16);
}

/// Inputs of 40 and 48 are no whole runs of 32, and kv_b_proj has heads of 48 rows in blocks of 32.
TEST(HfQuantTwins, DeepSeekInFp8) {
  const std::string path = barg::test::shared_data("models/deepseek-v3");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  Draw draw{6};
  const Checkpoints twins(path, R"({"quant_method":"fp8","weight_block_size":[32,32]})",
                          [&](const Tensor& t) -> std::optional<Replaced> {
                            if (!t.name.ends_with("_proj.weight") && !t.name.ends_with("_with_mqa.weight"))
                              return std::nullopt;
                            Quantised q = fp8(base_of(t.name, ".weight"), t.shape[0], t.shape[1], draw);
                            return Replaced{q.entries, {t.name, "F32", t.shape, bytes_of(q.values)}};
                          });
  const auto files = open_or_throw(twins.small.path());
  ASSERT_EQ(files->find("blk.0.attn_kv_b.weight")->type.dtype, DType::kFP8);
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  EXPECT_TRUE(same_bits(bits_of(twins.small.path(), ids), bits_of(twins.large.path(), ids)));
  check_bits(files, ids, Recipe::kInt8, DType::kF16);
}

/// One expert's scales lie eight columns apart, which FP8 blocks of 32 cannot hold: it would become f32, the others not. A
/// stack has one type and one stride, so this is refused, whatever the file calls the types.
TEST(HfQuantTwins, ExpertsOfAStackThatWouldBeHeldInSeveralTypesAreRefused) {
  const std::string path = barg::test::shared_data("models/qwen3-moe");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  for (const bool mixed : {false, true}) {
    const Checkpoints twins(path, R"({"quant_method":"fp8"})", [&](const Tensor& t) -> std::optional<Replaced> {
      if (t.name.find(".experts.") == std::string::npos || !t.name.ends_with(".weight")) return std::nullopt;
      const std::int64_t n = t.shape[0], k = t.shape[1];
      const std::int64_t columns = mixed && t.name.find(".experts.0.") != std::string::npos ? k / 8 : 1;
      const std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k), 0x30);
      const std::vector<float> ones(static_cast<std::size_t>(n * columns), 1.0f);
      const std::vector<float> values(static_cast<std::size_t>(n * k), 0.5f);
      return Replaced{{{t.name, "F8_E4M3", t.shape, bytes_of(codes)},
                       {base_of(t.name, ".weight") + ".weight_scale", "F32", {n, columns}, bytes_of(ones)}},
                      {t.name, "F32", t.shape, bytes_of(values)}};
    });
    const auto files = open_or_throw(twins.small.path());
    ops::CpuDevice device({.threads = 1});
    const auto bytes = Decoder::weight_bytes(*files, device.ops(), Recipe::kF32);
    EXPECT_EQ(bytes.has_value(), !mixed);
    if (!bytes) {
      EXPECT_EQ(bytes.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(bytes.error().message.find("are stored in different types"), std::string::npos) << bytes.error().message;
    }
  }
}

}  // namespace
}  // namespace barg::model::test::hf_quant_twin_test
