// Families with experts and with latent attention as GGUF: a checkpoint of ../shared/data written again by the
// rules of llama.cpp's converter (names, experts in one tensor, kv_b in two, metadata) must give the bits of the
// Hugging Face directory; and so must a Hugging Face directory that holds its experts in one tensor.
#include <algorithm>
#include <cmath>

#include "math.h"
#include "model/family.h"
#include "model/golden_checks.h"
#include "model/hf_builder.h"
#include "model/twin_file.h"

namespace barg::model::test::expert_twin_test {
namespace {

struct Twin {
  const char* name;
  const char* model;
  const char* architecture;
  bool old_kv_b = false;          ///< attn_kv_b as one tensor, and no key for the widths of heads
  std::int32_t only_layers = 0;   ///< > 0: so many layers of the checkpoint
};

constexpr Twin kTwins[] = {
    {"mixtral", "mixtral", "llama"},
    {"qwen3moe", "qwen3-moe", "qwen3moe", false, 1},  // no GGUF has dense layers between others
    {"gpt_oss", "gpt-oss", "gpt-oss"},
    {"minimax_m2", "minimax-m2", "minimax-m2"},
    {"glm4moe", "glm4-moe", "glm4moe"},
    {"deepseek2_lite", "deepseek-v2", "deepseek2"},
    {"deepseek2", "deepseek-v3", "deepseek2"},
    {"deepseek2_old", "deepseek-v3", "deepseek2", true},
};
void PrintTo(const Twin& t, std::ostream* os) { *os << t.name; }

/// kv_b_proj as one tensor: as it is, in blocks of Q8_0, or the numbers of those blocks.
enum class KvB : std::uint8_t { kFloats, kBlocks, kFloatsOfBlocks };

class Converter {
 public:
  Converter(const Twin& twin, const ModelFiles& hf, KvB kv_b = KvB::kFloats)
      : twin_(twin), hf_(hf), kv_b_(kv_b), spec_(hf.spec().value()), out_(twin.architecture, twin.name) {}

  std::string file() {
    metadata();
    for (const RequiredTensor& t : required_tensors(spec_)) add(t.name);
    for (std::int32_t i = 0; i < spec_.num_layers; ++i) experts("blk." + std::to_string(i) + ".");
    if (is("glm4moe")) put("blk." + std::to_string(spec_.num_layers) + ".nextn.eh_proj.weight", {{1, 2}, {1, 2}});
    return out_.bytes();
  }

 private:
  bool is(const char* architecture) const { return out_.is(architecture); }
  void u32(const char* name, std::int64_t v) { out_.u32(name, v); }
  void f32(const char* name, double v) { out_.f32(name, v); }

  void metadata() {
    const DecoderSpec& s = spec_;
    const ExpertSpec& e = s.experts;
    const LatentSpec& l = s.latent;
    const RopeSpec& rope = s.ropes[0];
    u32("block_count", s.num_layers + (is("glm4moe") ? 1 : 0));
    if (is("glm4moe")) u32("nextn_predict_layers", 1);
    u32("context_length", s.max_positions);
    u32("embedding_length", s.hidden);
    u32("feed_forward_length", s.ffn);
    u32("attention.head_count", s.num_q_heads);
    u32("attention.head_count_kv", s.num_kv_heads);
    f32("attention.layer_norm_rms_epsilon", s.norm.eps);
    f32("rope.freq_base", rope.theta);
    u32("rope.dimension_count", rope.rotary_dim);
    if (l.kv_rank == 0) {
      u32("attention.key_length", s.head_dim);
      u32("attention.value_length", s.head_dim);
    } else {
      const bool old = twin_.old_kv_b;
      u32(old ? "attention.key_length" : "attention.key_length_mla", s.head_dim);
      u32(old ? "attention.value_length" : "attention.value_length_mla", l.value_dim);
      if (!old) u32("attention.key_length", l.kv_rank + l.rope_dim);
      if (!old) u32("attention.value_length", l.kv_rank);
      u32("attention.kv_lora_rank", l.kv_rank);
      if (l.q_rank > 0) u32("attention.q_lora_rank", l.q_rank);
    }
    if (rope.kind == RopeSpec::Kind::kYarn) {
      out_.builder.str(out_.key("rope.scaling.type"), "yarn");
      f32("rope.scaling.factor", rope.factor);
      u32("rope.scaling.original_context_length", static_cast<std::int64_t>(rope.original_max_positions));
      if (l.kv_rank > 0) f32("rope.scaling.yarn_log_multiplier", 0.1);
    }
    u32("expert_count", e.count);
    u32("expert_used_count", e.chosen);
    u32("expert_feed_forward_length", e.ffn);
    if (e.shared_ffn > 0) u32("expert_shared_count", e.shared_ffn / e.ffn);
    if (is("gpt-oss")) u32("attention.sliding_window", s.layers[0].window);
    std::int32_t dense = 0;
    while (s.layers[static_cast<std::size_t>(dense)].feed == FeedKind::kDense) ++dense;
    if (dense > 0) u32("leading_dense_block_count", dense);
    if (is("llama") || is("qwen3moe") || is("gpt-oss")) return;
    u32("expert_gating_func", e.score == ops::RouterScore::kSigmoid ? 2 : 1);
    out_.boolean("expert_weights_norm", e.normalise);
    f32("expert_weights_scale", e.scale == 1 ? 0 : e.scale);  // some writers' word for none
    u32("expert_group_count", e.groups);
    u32("expert_group_used_count", e.kept_groups);
  }

  /// The dense part.
  void add(std::string name) {
    const auto has = [&](const char* part) { return name.find(part) != name.npos; };
    if (has("ffn_gate_up_exps") || has("_exps.")) return;
    if (has("ffn_gate.") || has("ffn_up.") || has("ffn_down.")) {
      const char digit = name[name.find(".", name.find("ffn_")) + 1];
      if (digit >= '0' && digit <= '9') return;
    }
    Floats t = floats_of(*hf_.find(name));
    if (is("llama") && (has(".attn_q.") || has(".attn_k."))) interleave(t, spec_.head_dim);
    if (has("attn_kv_b") && !twin_.old_kv_b) return split_kv_b(name, t);
    if (has("attn_kv_b") && kv_b_ != KvB::kFloats) return put_rounded(name, t);
    if ((is("gpt-oss") || is("glm4moe")) && has("ffn_norm"))
      name.replace(name.find("ffn_norm"), 8, "post_attention_norm");
    put(name, t);
  }

  void split_kv_b(const std::string& name, const Floats& t) {
    const LatentSpec& l = spec_.latent;
    Floats k{{}, {spec_.num_q_heads, l.kv_rank, l.nope_dim}}, v{{}, {spec_.num_q_heads, l.value_dim, l.kv_rank}};
    for (std::int64_t h = 0; h < spec_.num_q_heads; ++h) {
      const auto at = [&](std::int64_t row, std::int64_t column) {
        return t.values[static_cast<std::size_t>((h * (l.nope_dim + l.value_dim) + row) * l.kv_rank + column)];
      };
      for (std::int64_t r = 0; r < l.kv_rank; ++r) {
        for (std::int64_t i = 0; i < l.nope_dim; ++i) k.values.push_back(at(i, r));
      }
      for (std::int64_t i = 0; i < l.value_dim; ++i) {
        for (std::int64_t r = 0; r < l.kv_rank; ++r) v.values.push_back(at(l.nope_dim + i, r));
      }
    }
    const std::string blk = name.substr(0, name.find("attn_kv_b"));
    put(blk + "attn_k_b.weight", k);
    put(blk + "attn_v_b.weight", v);
  }

  void experts(const std::string& blk) {
    if (hf_.find(blk + "ffn_gate_up_exps.weight") != nullptr) return transposed(blk);
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
      Floats all{{}, {spec_.experts.count}};
      for (std::int32_t e = 0; e < spec_.experts.count; ++e) {
        const Tensor* t = hf_.find(blk + name + "." + std::to_string(e) + ".weight");
        if (t == nullptr) return;  // a dense layer
        const Floats one = floats_of(*t);
        all.values.insert(all.values.end(), one.values.begin(), one.values.end());
        if (e == 0) all.shape.insert(all.shape.end(), one.shape.begin(), one.shape.end());
      }
      put(blk + name + "_exps.weight", all);
    }
  }

  /// gpt-oss: [E, in, out], gate and up by turns.
  void transposed(const std::string& blk) {
    const auto part = [&](const std::string& from, const std::string& to, std::int64_t first, std::int64_t step) {
      const Floats t = floats_of(*hf_.find(blk + from + ".weight")), b = floats_of(*hf_.find(blk + from + ".bias"));
      const std::int64_t n = t.shape[2] / step;
      Floats w{{}, {t.shape[0], n, t.shape[1]}}, bias{{}, {t.shape[0], n}};
      for (std::int64_t e = 0; e < t.shape[0]; ++e) {
        for (std::int64_t r = 0; r < n; ++r) {
          for (std::int64_t k = 0; k < t.shape[1]; ++k)
            w.values.push_back(
                t.values[static_cast<std::size_t>((e * t.shape[1] + k) * t.shape[2] + first + r * step)]);
          bias.values.push_back(b.values[static_cast<std::size_t>(e * t.shape[2] + first + r * step)]);
        }
      }
      put(blk + to + "_exps.weight", w);
      put(blk + to + "_exps.bias", bias);
    };
    part("ffn_gate_up_exps", "ffn_gate", 0, 2);
    part("ffn_gate_up_exps", "ffn_up", 1, 2);
    part("ffn_down_exps", "ffn_down", 0, 1);
  }

  void put(const std::string& name, const Floats& t) { out_.put(name, t); }

  /// Through Q8_0. REQUIRES rows of whole blocks.
  void put_rounded(const std::string& name, Floats t) {
    Bytes blocks;
    for (std::size_t i = 0; i < t.values.size(); i += 32) {
      float most = 0;
      for (std::size_t j = i; j < i + 32; ++j) most = std::max(most, std::abs(t.values[j]));
      const std::uint16_t scale = ops::f32_to_f16(most / 127);
      blocks.put(scale);
      for (std::size_t j = i; j < i + 32; ++j) {
        const auto code = static_cast<std::int8_t>(std::lround(t.values[j] * 127 / most));
        blocks.put(code);
        t.values[j] = ops::f16_to_f32(scale) * static_cast<float>(code);
      }
    }
    if (kv_b_ == KvB::kFloatsOfBlocks) return put(name, t);
    constexpr std::uint32_t kQ8 = 8;
    out_.put(name, t.shape, kQ8, std::move(blocks.data));
  }

  const Twin& twin_;
  const ModelFiles& hf_;
  KvB kv_b_;
  DecoderSpec spec_;
  TwinFile out_;
};

/// Hidden states of a prompt, and its logits behind them.
std::vector<float> bits_of(const std::shared_ptr<const ModelFiles>& files, const std::vector<std::int32_t>& ids) {
  Harness h(files, {});
  auto out = h.prefill(h.new_sequence(static_cast<std::int32_t>(ids.size())), ids, {50, 33});
  const auto logits = h.logits(out);
  out.insert(out.end(), logits.begin(), logits.end());
  return out;
}

/// A directory with the weights of another one, and its config with the first of each pair replaced by the second.
std::string with_config(TempDir& dir, const std::string& source,
                        const std::vector<std::pair<std::string, std::string>>& edits) {
  std::string config = read_file(source + "/config.json", 1 << 20).value();
  for (const auto& [from, to] : edits) {
    EXPECT_NE(config.find(from), config.npos) << from;
    config.replace(config.find(from), from.size(), to);
  }
  dir.write("config.json", config);
  dir.write("model.safetensors", read_file(source + "/model.safetensors", 1 << 26).value());
  return dir.path();
}

class ExpertTwin : public ::testing::TestWithParam<Twin> {};

TEST_P(ExpertTwin, GivesTheBitsOfTheCheckpoint) {
  const Twin& twin = GetParam();
  const std::string path = barg::test::shared_data(std::string("models/") + twin.model);
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  TempDir dir, short_dir;
  const auto hf = open_or_throw(
      twin.only_layers == 0
          ? path
          : with_config(short_dir, path,
                        {{"\"num_hidden_layers\": 3", "\"num_hidden_layers\": " + std::to_string(twin.only_layers)}}));
  const auto gguf = open_or_throw(dir.write("twin.gguf", Converter(twin, *hf).file()));
  const auto spec = gguf->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  EXPECT_TRUE(same_bits(bits_of(gguf, ids), bits_of(hf, ids)));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertTwin, ::testing::ValuesIn(kTwins),
                         [](const auto& info) { return std::string(info.param.name); });

/// The absorbed form needs columns of a kv_b_proj that older files hold in blocks along its rows.
TEST(ExpertTwins, OneKvBProjInBlocksGivesTheBitsOfItsNumbers) {
  const std::string path = barg::test::shared_data("models/deepseek-v3");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto hf = open_or_throw(path);
  const Twin& old = *std::ranges::find_if(kTwins, &Twin::old_kv_b);
  TempDir dir;
  const auto blocks = open_or_throw(dir.write("blocks.gguf", Converter(old, *hf, KvB::kBlocks).file()));
  const auto floats = open_or_throw(dir.write("floats.gguf", Converter(old, *hf, KvB::kFloatsOfBlocks).file()));
  ASSERT_EQ(blocks->find("blk.1.attn_kv_b.weight")->type.dtype, DType::kQ8_0);
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  EXPECT_TRUE(same_bits(bits_of(blocks, ids), bits_of(floats, ids)));
  check_bits(blocks, ids, Recipe::kInt8, DType::kF16);
}

/// transformers 5 writes gate_up_proj [E, 2I, H] and down_proj [E, H, I].
TEST(FusedExperts, GiveTheBitsOfSingleOnes) {
  const std::string path = barg::test::shared_data("models/deepseek-v3");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto apart = open_or_throw(path);
  const DecoderSpec spec = apart->spec().value();
  TempDir dir;
  dir.write("config.json", read_file(path + "/config.json", 1 << 20).value());
  std::string header = "{", data;
  const auto put = [&](const std::string& name, const std::vector<std::int64_t>& shape, std::string_view bytes) {
    std::string dims;
    for (const auto d : shape) dims += (dims.empty() ? "" : ",") + std::to_string(d);
    header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"BF16\",\"shape\":[" + dims +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  };
  const auto bytes_of = [](const Tensor& t) {
    return std::string_view(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  };
  for (const Tensor& t : apart->tensors()) {
    if (t.name.find(".experts.") == t.name.npos && t.type.dtype == DType::kBF16) put(t.name, t.shape, bytes_of(t));
  }
  for (std::int32_t i = 1; i < spec.num_layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".", mlp = "model.layers." + std::to_string(i) + ".mlp.";
    std::string gate_up, down;
    for (std::int32_t e = 0; e < spec.experts.count; ++e) {
      const std::string number = "." + std::to_string(e) + ".weight";
      gate_up += bytes_of(*apart->find(blk + "ffn_gate" + number));
      gate_up += bytes_of(*apart->find(blk + "ffn_up" + number));
      down += bytes_of(*apart->find(blk + "ffn_down" + number));
    }
    put(mlp + "experts.gate_up_proj", {spec.experts.count, 2 * spec.experts.ffn, spec.hidden}, gate_up);
    put(mlp + "experts.down_proj", {spec.experts.count, spec.hidden, spec.experts.ffn}, down);
    // The bias of the choice is F32.
    const Floats bias = floats_of(*apart->find(blk + "exp_probs_b.bias"));
    std::string bf16;
    for (const float v : bias.values) bf16 += Bytes().put(ops::f32_to_bf16(v)).data;
    if (apart->find(blk + "exp_probs_b.bias")->type.dtype != DType::kBF16)
      put(mlp + "gate.e_score_correction_bias", {spec.experts.count}, bf16);
  }
  dir.write("model.safetensors", safetensors_file(header + "}", data));
  const auto fused = open_or_throw(dir.path());
  const auto fused_spec = fused->spec();
  ASSERT_TRUE(fused_spec) << fused_spec.error().message;
  EXPECT_EQ(fused_spec->experts.layout, ExpertLayout::kFused);
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  EXPECT_TRUE(same_bits(bits_of(fused, ids), bits_of(apart, ids)));
}

/// What a config says that is not true of the file, or cannot be.
TEST(ExpertConfigs, AreRefusedByName) {
  struct Case {
    const char *model, *from, *to, *message;
  };
  const Case cases[] = {
      {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5",
       "5 of 4 experts are to be chosen"},
      {"mixtral", "\"num_local_experts\": 4", "\"num_local_experts\": 1024", "promises 1024 experts"},
      {"mixtral", "\"num_local_experts\": 4", "\"num_local_experts\": 5000", "num_local_experts"},
      {"mixtral", "\"num_local_experts\": 4", "\"num_local_experts\": 5", "has shape"},
      {"gpt-oss", "\"num_local_experts\": 6", "\"num_local_experts\": 7", "has shape"},
      {"deepseek-v3", "\"n_group\": 4", "\"n_group\": 3", "8 experts in 3 groups"},
      {"deepseek-v3", "\"topk_group\": 2", "\"topk_group\": 1", "fewer than the 3 experts"},
      {"deepseek-v3", "\"kv_lora_rank\": 32", "\"kv_lora_rank\": 2048", "latent vector has 2064"},
      {"deepseek-v3", "\"kv_lora_rank\": 32", "\"kv_lora_rank\": 48", "has shape"},
      {"deepseek-v3", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias"},
      {"deepseek-v2", "\"topk_method\": \"greedy\"", "\"topk_method\": \"best\"", "topk_method"},
      {"deepseek-v2", "\"qk_rope_head_dim\": 16", "\"qk_rope_head_dim\": 15", "head size 15"},
      {"minimax-m2", "\"hidden_act\": \"silu\"", "\"scoring_func\": \"softmax\"", "scoring_func"},
      {"qwen3-moe", "\"mlp_only_layers\": [1]", "\"mlp_only_layers\": 1", "mlp_only_layers"},
      {"qwen3-moe", "\"mlp_only_layers\": [1]", "\"mlp_only_layers\": []", "is missing"},
      {"qwen3-next", "\"shared_expert_intermediate_size\": 32", "\"shared_expert_intermediate_size\": 48",
       "has shape"},
      {"qwen3-next", "\"linear_num_key_heads\": 2", "\"linear_num_key_heads\": 3",
       "not a multiple of 3 key heads"},
      {"qwen3-next", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 7", "7 of 6 experts"},
      {"qwen35-moe", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias"},
      {"granite-hybrid", "\"num_local_experts\": 4", "\"num_local_experts\": 5", "has shape"},
      {"granite-hybrid", "\"shared_intermediate_size\": 64", "\"shared_intermediate_size\": 60", "has shape"},
  };
  for (const Case& c : cases) {
    const std::string path = barg::test::shared_data(std::string("models/") + c.model);
    if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
    std::string config = read_file(path + "/config.json", 1 << 20).value();
    // Lists may stand on several lines.
    std::erase_if(config, [](char ch) { return ch == '\n'; });
    for (std::size_t at; (at = config.find("  ")) != config.npos;) config.erase(at, 1);
    for (std::size_t at; (at = config.find("[ ")) != config.npos;) config.erase(at + 1, 1);
    for (std::size_t at; (at = config.find(" ]")) != config.npos;) config.erase(at, 1);
    ASSERT_NE(config.find(c.from), config.npos) << c.model << ": " << c.from;
    TempDir dir;
    dir.write("config.json", config.replace(config.find(c.from), std::strlen(c.from), c.to));
    dir.write("model.safetensors", read_file(path + "/model.safetensors", 1 << 26).value());
    const auto spec = open_or_throw(dir.path())->spec();
    ASSERT_FALSE(spec) << c.model << ": " << c.to;
    EXPECT_NE(spec.error().message.find(c.message), std::string::npos) << spec.error().message;
  }
}

}  // namespace
}  // namespace barg::model::test::expert_twin_test
