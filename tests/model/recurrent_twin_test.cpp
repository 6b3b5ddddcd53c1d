// Families with recurrent layers as GGUF: a checkpoint of ../shared/data written again by the rules of
// llama.cpp's converter (names and shapes, the decay instead of its logarithm, value heads in tiles, q and k
// rows in interleaved order, 1 + w, multipliers in the weights, metadata) must give the bits of the Hugging
// Face directory; where the converter changes the order of a sum or rounds a weight, what transformers gives.
#include <functional>

#include "math.h"
#include "model/family.h"
#include "model/golden_checks.h"
#include "model/twin_file.h"

namespace barg::model::test::recurrent_twin_test {
namespace {

using barg::test::TempDir;

struct Twin {
  const char* name;
  const char* model;
  const char* architecture;
  bool exact = true;
  float bar = kBar;    ///< of what is not exact
  bool old = false;    ///< as files before the converter took the projection of Qwen3-Next apart
  bool dense = false;  ///< Granite without its experts
};

constexpr Twin kTwins[] = {
    {"qwen3next", "qwen3-next", "qwen3next"},
    {"qwen3next_old", "qwen3-next", "qwen3next", true, 0, true},
    {"qwen35", "qwen35", "qwen35", false, 5e-4f},
    {"qwen35moe", "qwen35-moe", "qwen35moe", false},
    {"mamba2", "mamba2", "mamba2"},
    {"bamba", "bamba", "granitehybrid"},
    {"granitehybrid", "granite-hybrid", "granitehybrid"},
    {"granitehybrid_dense", "granite-hybrid", "granitehybrid", true, 0, false, true},
    {"falcon_h1", "falcon-h1", "falcon-h1", false},
    {"lfm2", "lfm2", "lfm2"},
};
void PrintTo(const Twin& t, std::ostream* os) { *os << t.name; }

Floats rows_of(const Floats& t, std::int64_t from, std::int64_t count) {
  Floats out{{}, t.shape};
  out.shape[0] = count;
  out.values.assign(t.values.begin() + from * t.width(), t.values.begin() + (from + count) * t.width());
  return out;
}

void append(Floats& to, const Floats& rows) {
  to.shape[0] += rows.shape[0];
  to.values.insert(to.values.end(), rows.values.begin(), rows.values.end());
}

/// Parts of `unit` numbers from `first` on, by key head, become the first of every key head, then the second.
void tile(std::vector<float>& v, std::int64_t first, std::int64_t unit, const RecurrentSpec& r) {
  const std::vector<float> from = v;
  const std::int64_t each = r.heads / r.groups;
  for (std::int64_t h = 0; h < r.heads; ++h) {
    const std::int64_t to = first + (h % each * r.groups + h / each) * unit;
    std::copy_n(from.begin() + first + h * unit, unit, v.begin() + to);
  }
}

void scale(Floats& t, std::int64_t from, std::int64_t count, double by) {
  for (std::int64_t i = from * t.width(); i < (from + count) * t.width(); ++i)
    t.values[static_cast<std::size_t>(i)] *= static_cast<float>(by);
}

class Converter {
 public:
  Converter(const Twin& twin, const ModelFiles& hf, const Json& config)
      : twin_(twin), hf_(hf), config_(config), spec_(hf.spec().value()), out_(twin.architecture, twin.name) {}

  using Change = std::function<void(TwinFile&)>;

  /// `change`: of the metadata, once they are written.
  std::string file(const Change& change = {}) {
    metadata();
    if (change) change(out_);
    for (const RequiredTensor& t : required_tensors(spec_)) {
      const std::size_t layer = t.name.starts_with("blk.") ? t.name.find('.', 4) + 1 : 0;
      blk_ = t.name.substr(0, layer);
      add(t.name.substr(layer), floats_of(*hf_.find(t.name)));
    }
    for (std::int32_t i = 0; i < spec_.num_layers && spec_.experts.layout == ExpertLayout::kEach; ++i) {
      blk_ = "blk." + std::to_string(i) + ".";
      for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) stack(name);
    }
    // A layer that predicts a further token.
    if (out_.is("qwen35moe"))
      out_.put("blk." + std::to_string(spec_.num_layers) + ".nextn.eh_proj.weight", {{1, 2}, {1, 2}});
    return out_.bytes();
  }

 private:
  double number(const char* key) const { return config_.find(key)->as_double(); }
  double number(const char* key, std::size_t i) const { return config_.find(key)->as_array()[i].as_double(); }
  bool delta() const { return spec_.layers[0].mixer == MixerKind::kDeltaNet; }
  bool mamba() const { return spec_.recurrent.heads > 0 && !delta(); }
  bool tiled() const { return out_.is("qwen35") || out_.is("qwen35moe"); }

  void metadata() {
    const DecoderSpec& s = spec_;
    const RecurrentSpec& r = s.recurrent;
    out_.u32("block_count", s.num_layers + (out_.is("qwen35moe") ? 1 : 0));
    if (out_.is("qwen35moe")) out_.u32("nextn_predict_layers", 1);
    out_.u32("context_length", s.max_positions);
    out_.u32("embedding_length", s.hidden);
    out_.f32("attention.layer_norm_rms_epsilon", s.norm.eps);
    out_.u32("attention.head_count", s.num_q_heads);
    if (!out_.is("qwen35moe"))
      out_.u32("feed_forward_length", s.experts.count > 0 && mamba() ? s.experts.ffn : s.ffn);
    if (r.heads > 0) {
      out_.u32("ssm.conv_kernel", r.kernel);
      out_.u32("ssm.inner_size", r.inner());
      out_.u32("ssm.state_size", r.state_size);
      out_.u32("ssm.time_step_rank", r.heads);
      out_.u32("ssm.group_count", r.groups);
    } else {
      out_.u32("shortconv.l_cache", r.kernel);
    }
    if (out_.is("mamba2")) return;
    out_.f32("rope.freq_base", s.ropes[0].theta);
    out_.u32("rope.dimension_count", s.ropes[0].rotary_dim);
    if (delta() || out_.is("falcon-h1")) {
      out_.u32("attention.key_length", s.head_dim);
      out_.u32("attention.value_length", s.head_dim);
      out_.u32("attention.head_count_kv", s.num_kv_heads);
    } else {
      std::vector<std::uint32_t> heads;
      for (const LayerSpec& l : s.layers)
        heads.push_back(has_attention(l.mixer) ? static_cast<std::uint32_t>(s.num_kv_heads) : 0);
      out_.u32s("attention.head_count_kv", heads);
    }
    if (out_.is("qwen35moe")) out_.u32s("attention.recurrent_layers", {1, 1, 1, 0, 0});
    if (delta()) out_.u32("full_attention_interval", 4);
    if (out_.is("granitehybrid")) granite();
    if (s.experts.count == 0) return;
    out_.u32("expert_count", s.experts.count);
    out_.u32("expert_used_count", s.experts.chosen);
    out_.u32("expert_shared_feed_forward_length", s.experts.shared_ffn);
    if (delta()) out_.u32("expert_feed_forward_length", s.experts.ffn);
  }

  void granite() {
    out_.boolean("rope.scaling.finetuned", std::string_view(twin_.model) == "bamba");
    if (std::string_view(twin_.model) == "bamba") return;
    out_.f32("attention.scale", number("attention_multiplier"));
    out_.f32("embedding_scale", number("embedding_multiplier"));
    out_.f32("residual_scale", number("residual_multiplier"));
    out_.f32("logit_scale", number("logits_scaling"));
    if (spec_.experts.count == 0) out_.u32("expert_count", 0);
  }

  void put(const std::string& name, const Floats& t) { out_.put(blk_ + name, t); }

  void halves(const std::string& first, const std::string& second, const Floats& t) {
    const std::int64_t half = t.shape[0] / 2;
    put(first, rows_of(t, 0, half));
    put(second, rows_of(t, half, half));
  }

  void add(std::string name, Floats t) {
    if (name.starts_with("ffn_") && name.find_first_of("0123456789") != name.npos) return;  // of one expert
    if (out_.is("falcon-h1")) multiply(name, t);
    if (delta()) return add_delta(name, std::move(t));
    const RecurrentSpec& r = spec_.recurrent;
    const bool shared = spec_.experts.count > 0;
    if (name == "ffn_gate_up_exps.weight") return split_experts(t);
    if (name == "ffn_up.weight" && spec_.fused_gate_up)
      return halves(shared ? "ffn_gate_shexp.weight" : "ffn_gate.weight",
                    shared ? "ffn_up_shexp.weight" : "ffn_up.weight", t);
    if (name == "ffn_down.weight" && shared) name = "ffn_down_shexp.weight";
    if (out_.is("granitehybrid") && (name == "attn_q.weight" || name == "attn_k.weight"))
      interleave(t, spec_.head_dim);
    if (name == "ssm_a") decay(t);
    if (name == "ssm_a" || name == "ssm_d") t.shape.push_back(1);
    if (name == "ssm_norm.weight") t.shape = {r.norm_groups, r.inner() / r.norm_groups};
    if (name == "ssm_conv1d.weight" || name == "shortconv.conv.weight") t.shape = {r.channels, r.kernel};
    if (out_.is("lfm2") && name == "output_norm.weight") name = "token_embd_norm.weight";
    if (out_.is("falcon-h1") && name == "ffn_norm.weight") name = "ffn_norm";
    put(name, t);
  }

  static void decay(Floats& t) {
    for (float& v : t.values) v = -ops::exp(v);
  }

  void add_delta(std::string name, Floats t) {
    const RecurrentSpec& r = spec_.recurrent;
    const std::int64_t keys = 2 * r.group_width();
    if (name == "ssm_in.weight" && !twin_.old) return split_qkvz(t);
    if (name.ends_with("norm.weight") && name != "ssm_norm.weight") {
      for (float& v : t.values) v = v + 1.0f;
    }
    if (name == "ffn_norm.weight") name = "post_attention_norm.weight";
    if (name == "ffn_gate_inp_shexp.weight") t.shape = {spec_.hidden};
    if (name == "ssm_a") decay(t);
    if (name == "ssm_conv1d.weight") t.shape = {r.channels, r.kernel};
    if (tiled()) {
      if (name == "attn_qkv.weight") tile(t.values, keys * t.width(), r.head_dim * t.width(), r);
      if (name == "ssm_conv1d.weight")
        tile(t.values, keys * r.kernel, std::int64_t{r.head_dim} * r.kernel, r);
      if (name == "attn_gate.weight") tile(t.values, 0, r.head_dim * t.width(), r);
      if (name == "ssm_alpha.weight" || name == "ssm_beta.weight") tile(t.values, 0, t.width(), r);
      if (name == "ssm_a" || name == "ssm_dt.bias") tile(t.values, 0, 1, r);
      for (std::int64_t row = 0; name == "ssm_out.weight" && row < t.shape[0]; ++row)
        tile(t.values, row * t.width(), r.head_dim, r);
    }
    put(name, t);
  }

  /// [q | k | v | z] of every key head.
  void split_qkvz(const Floats& t) {
    const RecurrentSpec& r = spec_.recurrent;
    const std::int64_t keys = r.state_size, values = r.heads / r.groups * r.head_dim;
    Floats qkv{{}, {0, t.width()}}, z = qkv;
    const auto gather = [&](Floats& to, std::int64_t at, std::int64_t count) {
      for (std::int64_t g = 0; g < r.groups; ++g) append(to, rows_of(t, g * 2 * (keys + values) + at, count));
    };
    gather(qkv, 0, keys);
    gather(qkv, keys, keys);
    gather(qkv, 2 * keys, values);
    gather(z, 2 * keys + values, values);
    put("attn_qkv.weight", qkv);
    put("attn_gate.weight", z);
  }

  /// [E, gate and up, H].
  void split_experts(const Floats& t) {
    const std::int64_t n = t.shape[1] / 2, size = n * t.shape[2];
    Floats gate{{}, {t.shape[0], n, t.shape[2]}}, up = gate;
    for (std::int64_t e = 0; e < t.shape[0]; ++e) {
      const auto at = t.values.begin() + 2 * e * size;
      gate.values.insert(gate.values.end(), at, at + size);
      up.values.insert(up.values.end(), at + size, at + 2 * size);
    }
    put("ffn_gate_exps.weight", gate);
    put("ffn_up_exps.weight", up);
  }

  void stack(const std::string& name) {
    Floats all{{}, {spec_.experts.count}};
    for (std::int32_t e = 0; e < spec_.experts.count; ++e) {
      const Floats one = floats_of(*hf_.find(blk_ + name + "." + std::to_string(e) + ".weight"));
      all.values.insert(all.values.end(), one.values.begin(), one.values.end());
      if (e == 0) all.shape.insert(all.shape.end(), one.shape.begin(), one.shape.end());
    }
    put(name + "_exps.weight", all);
  }

  /// Falcon-H1's numbers go into the weights.
  void multiply(const std::string& name, Floats& t) const {
    const RecurrentSpec& r = spec_.recurrent;
    const std::int64_t inner = r.inner(), group = r.group_width();
    const double in = number("attention_in_multiplier");
    const auto all = [&](double by) { scale(t, 0, t.shape[0], by); };
    if (name == "token_embd.weight") all(number("embedding_multiplier"));
    if (name == "output.weight") all(number("lm_head_multiplier"));
    if (name == "attn_q.weight" || name == "attn_v.weight") all(in);
    if (name == "attn_k.weight") all(in * number("key_multiplier"));
    if (name == "attn_output.weight") all(number("attention_out_multiplier"));
    if (name == "ffn_gate.weight") all(number("mlp_multipliers", 0));
    if (name == "ffn_down.weight") all(number("mlp_multipliers", 1));
    if (name == "ssm_out.weight") all(number("ssm_out_multiplier"));
    if (name != "ssm_in.weight") return;
    std::int64_t at = 0;
    const std::int64_t parts[] = {inner, inner, group, group, r.heads};
    for (std::size_t i = 0; i < 5; at += parts[i++])
      scale(t, at, parts[i], number("ssm_in_multiplier") * number("ssm_multipliers", i));
  }

  const Twin& twin_;
  const ModelFiles& hf_;
  const Json& config_;
  DecoderSpec spec_;
  TwinFile out_;
  std::string blk_;  ///< of the tensor that is added
};

/// The checkpoint's directory, or one with another config.
std::string directory(const Twin& twin, TempDir& dir, const std::string& path) {
  if (!twin.dense) return path;
  std::string config = read_file(path + "/config.json", 1 << 20).value();
  const std::string from = "\"num_local_experts\": 4";
  config.replace(config.find(from), from.size(), "\"num_local_experts\": 0");
  dir.write("config.json", config);
  dir.write("model.safetensors", read_file(path + "/model.safetensors", 1 << 26).value());
  return dir.path();
}

class RecurrentTwin : public ::testing::TestWithParam<Twin> {
 protected:
  void SetUp() override {
    path_ = barg::test::shared_data(std::string("models/") + GetParam().model);
    if (path_.empty()) GTEST_SKIP() << barg::test::kNoShared;
    hf_path_ = directory(GetParam(), hf_dir_, path_);
    const auto hf = open_or_throw(hf_path_);
    const Json config = parse_json(read_file(hf_path_ + "/config.json", 1 << 20).value()).value();
    gguf_path_ = dir_.write("twin.gguf", Converter(GetParam(), *hf, config).file());
  }
  TempDir dir_, hf_dir_;
  std::string path_, hf_path_, gguf_path_;
};

TEST_P(RecurrentTwin, GivesWhatTheCheckpointGives) {
  const auto gguf = open_or_throw(gguf_path_);
  const auto spec = gguf->spec();
  ASSERT_TRUE(spec) << spec.error().message;
  if (!GetParam().exact)
    return check_file_against_goldens(gguf_path_, path_ + "/goldens.safetensors", {.bar = GetParam().bar});
  const auto ids = longest_prompt(Goldens(path_ + "/goldens.safetensors"), 200);
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness a(open_or_throw(hf_path_), {}), b(gguf, {});
  const auto want = a.prefill(a.new_sequence(n), ids, {150, 50}),
             got = b.prefill(b.new_sequence(n), ids, {64});
  EXPECT_TRUE(same_bits(got, want));
  EXPECT_TRUE(same_bits(b.logits(got), a.logits(want)));
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentTwin, ::testing::ValuesIn(kTwins),
                         [](const auto& info) { return std::string(info.param.name); });

/// Granite 4 H without experts is Granite 4 H whose experts give nothing.
TEST(GraniteHybrid, WithoutExpertsIsWithExpertsThatGiveNothing) {
  const std::string path = barg::test::shared_data("models/granite-hybrid");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  TempDir dense_dir, silent_dir;
  const Twin dense{"dense", "granite-hybrid", "", true, 0, false, true};
  const auto without = open_or_throw(directory(dense, dense_dir, path));
  std::string weights = read_file(path + "/model.safetensors", 1 << 26).value();
  const auto whole = open_or_throw(path);
  for (const Tensor& t : whole->tensors()) {
    if (t.name.find("output_linear") == t.name.npos || t.name.find("block_sparse_moe") == t.name.npos)
      continue;
    const std::string_view bytes(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
    const std::size_t at = weights.find(bytes);
    ASSERT_NE(at, weights.npos);
    std::fill_n(weights.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), '\0');
  }
  silent_dir.write("config.json", read_file(path + "/config.json", 1 << 20).value());
  silent_dir.write("model.safetensors", weights);
  const auto ids = longest_prompt(Goldens(path + "/goldens.safetensors"), 65);
  const auto n = static_cast<std::int32_t>(ids.size());
  Harness a(without, {}), b(open_or_throw(silent_dir.path()), {}), c(whole, {});
  EXPECT_EQ(a.decoder().spec().experts.count, 0);
  const auto want = b.prefill(b.new_sequence(n), ids, {ids.size()});
  EXPECT_TRUE(same_bits(a.prefill(a.new_sequence(n), ids, {ids.size()}), want));
  EXPECT_FALSE(same_bits(c.prefill(c.new_sequence(n), ids, {ids.size()}), want))
      << "the experts say something";
}

/// What the metadata say that cannot be, or is not supported.
TEST(RecurrentGguf, IsRefusedByName) {
  struct Case {
    Twin twin;
    const char* key;
    std::uint32_t value;
    const char* message;
  };
  const Case cases[] = {
      {{"mamba2", "mamba2", "mamba2"}, "ssm.inner_size", 100, "an inner size of 100 is not that of"},
      {{"mamba2", "mamba2", "mamba2"}, "ssm.group_count", 3, "not a multiple of 3 groups"},
      {{"mamba2", "mamba2", "mamba2"}, "ssm.conv_kernel", 1, "ssm.conv_kernel"},
      {{"mamba2", "mamba2", "mamba2"}, "ssm.state_size", 32, "has shape"},
      {{"qwen3next", "qwen3-next", "qwen3next"}, "ssm.inner_size", 63, "is not that of 4 heads"},
      {{"qwen3next", "qwen3-next", "qwen3next"}, "ssm.group_count", 3, "not a multiple of 3 groups"},
      {{"qwen3next", "qwen3-next", "qwen3next"}, "full_attention_interval", 2, "has shape"},
      {{"qwen3next", "qwen3-next", "qwen3next"}, "expert_shared_feed_forward_length", 48, "has shape"},
      {{"lfm2", "lfm2", "lfm2"}, "shortconv.l_cache", 5, "shortconv.l_cache"},
      {{"lfm2", "lfm2", "lfm2"}, "attention.head_count_kv", 2, "is missing"},
      {{"granite", "granite-hybrid", "granitehybrid"}, "expert_used_count", 5, "5 of 4 experts"},
  };
  for (const Case& c : cases) {
    const std::string path = barg::test::shared_data(std::string("models/") + c.twin.model);
    if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
    const auto hf = open_or_throw(path);
    const Json config = parse_json(read_file(path + "/config.json", 1 << 20).value()).value();
    TempDir dir;
    const std::string bytes =
        Converter(c.twin, *hf, config).file([&](TwinFile& f) { f.u32(c.key, c.value); });
    const auto spec = open_or_throw(dir.write("twin.gguf", bytes))->spec();
    ASSERT_FALSE(spec) << c.key;
    EXPECT_NE(spec.error().message.find(c.message), std::string::npos) << spec.error().message;
  }
}

/// Layers with attention must have equally many key/value heads, and the list must name every layer.
TEST(RecurrentGguf, HeadsByLayerAreChecked) {
  const std::string path = barg::test::shared_data("models/lfm2");
  if (path.empty()) GTEST_SKIP() << barg::test::kNoShared;
  const auto hf = open_or_throw(path);
  const Json config = parse_json(read_file(path + "/config.json", 1 << 20).value()).value();
  const std::pair<std::vector<std::uint32_t>, const char*> cases[] = {
      {{0, 2, 0, 4}, "differs between layers with attention"},
      {{0, 2, 0}, "has no entry for each layer"},
      {{0, 2, 0, 1u << 30}, "out of range"},
      {{}, "head_count_kv"},
  };
  for (const auto& [heads, message] : cases) {
    TempDir dir;
    const Twin twin{"lfm2", "lfm2", "lfm2"};
    const std::string bytes =
        Converter(twin, *hf, config).file([&](TwinFile& f) { f.u32s("attention.head_count_kv", heads); });
    const auto spec = open_or_throw(dir.write("twin.gguf", bytes))->spec();
    ASSERT_FALSE(spec) << message;
    EXPECT_NE(spec.error().message.find(message), std::string::npos) << spec.error().message;
  }
}

}  // namespace
}  // namespace barg::model::test::recurrent_twin_test
