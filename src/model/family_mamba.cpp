// Mamba-2 alone, and between or beside layers of attention: Bamba, Granite 4 (also with experts), Falcon-H1.
#include <array>
#include <cmath>
#include <limits>

#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

constexpr TensorName kMamba2Rows[] = {
    {"norm", "attn_norm"},
    {"mixer.in_proj", "ssm_in"},
    {"mixer.conv1d", "ssm_conv1d"},
    {"mixer.norm", "ssm_norm"},
    {"mixer.out_proj", "ssm_out"},
    {"mixer.A_log", "ssm_a"},
    {"mixer.dt_bias", "ssm_dt.bias"},
    {"mixer.D", "ssm_d"},
};
constexpr TensorName kBambaRows[] = {
    {"pre_ff_layernorm", "ffn_norm"},
    {"feed_forward.gate_proj", "ffn_gate"},
    {"feed_forward.up_proj", "ffn_up"},
    {"feed_forward.down_proj", "ffn_down"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"mamba.A_log", "ssm_a"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.D", "ssm_d"},
};
constexpr TensorName kGraniteRows[] = {
    {"shared_mlp.input_linear", "ffn_up"},
    {"shared_mlp.output_linear", "ffn_down"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"mamba.A_log", "ssm_a"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.D", "ssm_d"},
};
constexpr TensorName kFalconGgufRows[] = {{"blk.*.ffn_norm", "blk.*.ffn_norm.weight"}};

/// A bound of `time_step_limit`: a number, or infinity as transformers 5 writes it.
float time_limit(FieldReader& f, const Json& v) {
  if (v.is_number() && v.as_double() >= 0) return static_cast<float>(v.as_double());
  const Json* name = v.is_object() ? v.find("__float__") : nullptr;
  if (name != nullptr && name->is_string() && name->as_string() == "Infinity")
    return std::numeric_limits<float>::infinity();
  f.refuse(ErrorCode::kBadFile, "time_step_limit is not a pair of numbers of at least 0", "time_step_limit");
  return 0;
}

/// As many numbers as `out` has, from the list `key` if it is there.
template <std::size_t N>
void read_scales(const FamilyInput& in, const char* key, std::array<float, N>& out) {
  const Json* list = in.config->find(key);
  if (list == nullptr || list->is_null()) return;
  bool good = list->is_array() && list->size() == N;
  for (std::size_t i = 0; good && i < N; ++i) {
    const Json& v = list->as_array()[i];
    good = v.is_number() && std::abs(v.as_double()) < 1e6;
    if (good) out[i] = static_cast<float>(v.as_double());
  }
  if (!good)
    in.fields.refuse(ErrorCode::kBadFile,
                     std::string(key) + " is not a list of " + std::to_string(N) + " numbers", key);
}

/// Where Mamba-2 stands between layers of attention.
constexpr MixerName kMixers[] = {{"linear_attention", MixerKind::kMamba2}, {"mamba", MixerKind::kMamba2}};

float scale_of(FieldReader& f, std::string_view key) {
  return static_cast<float>(f.real(key, 1e-9, 1e6));
}

/// From the keys, and of the optional tensors from those that the first such layer has.
RecurrentSpec mamba2_sizes_from_gguf(const FamilyInput& in, const DecoderSpec& s) {
  RecurrentSpec r = recurrent_sizes_from_gguf(in.fields);
  r.norm_groups = r.groups;
  r.gate_first = true;
  r.channels = r.inner() + 2 * r.group_width();
  const std::string blk = first_layer_with(s, has_state);
  r.norm = in.files.find(blk + "ssm_norm.weight") != nullptr;
  r.conv_bias = in.files.find(blk + "ssm_conv1d.bias") != nullptr;
  return r;
}

/// The softmax over all, made to sum to one over the chosen, is that over the chosen.
constexpr ops::RouterScore kGraniteRouter = ops::RouterScore::kChosenSoftmax;

/// Granite's experts, of which transformers writes gate and up as one, those of the shared one too.
void granite_experts_from_hf(const FamilyInput& in, DecoderSpec& s) {
  experts_from_hf(in, s, 0);
  ExpertSpec& e = s.experts;
  e.shared_ffn = s.ffn;
  e.shared_fused = true;
  e.score = kGraniteRouter;
  check_experts(in.fields, s);
}

void granite_experts_from_gguf(const FamilyInput& in, DecoderSpec& s) {
  ExpertSpec& e = s.experts;
  e.score = kGraniteRouter;
  experts_from_gguf(in, s);
  if (e.score == ops::RouterScore::kSoftmax) e.score = kGraniteRouter;
  e.shared_ffn =
      static_cast<std::int32_t>(in.fields.integer("expert_shared_feed_forward_length", 0, kMaxFfn, 0));
  check_experts(in.fields, s);
}

}  // namespace

const TensorNames kMamba2Names = kMamba2Rows, kBambaNames = kBambaRows, kGraniteHybridNames = kGraniteRows,
                  kFalconH1Names = kBambaRows, kFalconH1GgufNames = kFalconGgufRows;

RecurrentSpec mamba2_sizes_from_hf(const FamilyInput& in, std::int32_t hidden, bool prefixed,
                                   std::int32_t inner) {
  FieldReader& f = in.fields;
  const auto size = [&](const char* long_key, const char* short_key, std::int64_t most) {
    return static_cast<std::int32_t>(f.integer(prefixed ? long_key : short_key, 1, most));
  };
  RecurrentSpec r;
  const std::int32_t expand = size("mamba_expand", "expand", 64);
  if (inner == 0) inner = expand * hidden;
  r.heads = size("mamba_n_heads", "num_heads", kMaxStateHeads);
  const Json* head = in.config->find("mamba_d_head");
  const bool automatic = prefixed && (head == nullptr || head->is_string());  // "auto"
  r.head_dim = automatic ? inner / r.heads : size("mamba_d_head", "head_dim", kMaxStateDim);
  r.groups = size("mamba_n_groups", "n_groups", kMaxStateHeads);
  r.state_size = size("mamba_d_state", "state_size", kMaxStateDim);
  r.kernel = size("mamba_d_conv", "conv_kernel", ops::kMaxConvKernel);
  r.conv_bias = f.boolean(prefixed ? "mamba_conv_bias" : "use_conv_bias", false);
  r.in_bias = r.out_bias = f.boolean(prefixed ? "mamba_proj_bias" : "use_bias", false);
  r.gate_first = true;
  r.norm_groups = r.groups;
  if (f.error()) return r;
  if (r.kernel < 2) refuse_value(f, "conv_kernel", "1", "2, 3, 4");
  if (r.heads % r.groups != 0 || r.inner() != inner) {
    f.refuse(ErrorCode::kBadFile,
             std::to_string(r.heads) + " heads of " + std::to_string(r.head_dim) + " in " +
                 std::to_string(r.groups) + " groups do not make an inner size of " + std::to_string(inner),
             prefixed ? "mamba_n_heads" : "num_heads");
  }
  r.channels = inner + 2 * r.group_width();
  const Json* limit = in.config->find("time_step_limit");
  if (limit == nullptr || limit->is_null()) return r;
  if (!limit->is_array() || limit->size() != 2) {
    f.refuse(ErrorCode::kBadFile, "time_step_limit is not a pair of numbers", "time_step_limit");
    return r;
  }
  r.dt_min = time_limit(f, limit->as_array()[0]);
  r.dt_max = time_limit(f, limit->as_array()[1]);
  return r;
}

Result<DecoderSpec> mamba2_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  const std::string activation = f.text("hidden_act", "silu");
  if (activation != "silu") refuse_value(f, "hidden_act", '"' + activation + '"', "silu");
  s.hidden = static_cast<std::int32_t>(f.integer("hidden_size", 1, 1 << 20));
  s.num_layers = static_cast<std::int32_t>(f.integer("num_hidden_layers", 1, 4096));
  s.vocab_rows = static_cast<std::int32_t>(f.integer("vocab_size", 1, 1 << 24));
  s.max_positions = 1 << 20;  // nothing in the model ends; what a request may ask for does
  s.norm.eps = static_cast<float>(f.real("layer_norm_epsilon", 1e-20, 1));
  s.tied = f.boolean("tie_word_embeddings", in.files.find("output.weight") == nullptr);
  if (f.error()) return std::unexpected(*f.error());
  s.recurrent = mamba2_sizes_from_hf(in, s.hidden, false);
  s.layers.assign(static_cast<std::size_t>(s.num_layers),
                  LayerSpec{.rope = -1, .mixer = MixerKind::kMamba2, .feed = FeedKind::kNone});
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> bamba_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->qkv_bias = s->o_bias = f.boolean("attention_bias", false);
  s->mlp_bias = f.boolean("mlp_bias", false);
  s->recurrent = mamba2_sizes_from_hf(in, s->hidden, true);
  std::vector<LayerSpec> usual(static_cast<std::size_t>(s->num_layers), {.mixer = MixerKind::kMamba2});
  const Json* attends = in.config->find("attn_layer_indices");
  if (attends != nullptr && attends->is_array()) {
    for (const Json& i : attends->as_array()) {
      const bool known = i.type() == Json::Type::kInt && i.as_int() >= 0 && i.as_int() < s->num_layers;
      if (known) usual[static_cast<std::size_t>(i.as_int())].mixer = MixerKind::kAttention;
    }
  }
  s->layers = mixers_from_hf(in, s->num_layers, kMixers, std::move(usual));
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> mamba2_from_gguf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  DecoderSpec s;
  s.hidden = static_cast<std::int32_t>(f.integer("embedding_length", 1, 1 << 20));
  s.num_layers = static_cast<std::int32_t>(f.integer("block_count", 1, 4096));
  s.max_positions = static_cast<std::int32_t>(f.integer("context_length", 1, 1 << 30, 1 << 20));
  s.norm.eps = static_cast<float>(f.real("attention.layer_norm_rms_epsilon", 1e-20, 1));
  s.vocab_rows = vocab_rows_from_gguf(in);
  s.tied = in.files.find("output.weight") == nullptr;
  s.layers.assign(static_cast<std::size_t>(s.num_layers),
                  LayerSpec{.rope = -1, .mixer = MixerKind::kMamba2, .feed = FeedKind::kNone});
  s.recurrent = mamba2_sizes_from_gguf(in, s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> granite_hybrid_from_hf(const FamilyInput& in) {
  auto s = granite_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->ffn = static_cast<std::int32_t>(f.integer("shared_intermediate_size", 1, kMaxFfn));
  s->fused_gate_up = true;
  s->recurrent = mamba2_sizes_from_hf(in, s->hidden, true);
  std::vector<LayerSpec> usual(static_cast<std::size_t>(s->num_layers), {.mixer = MixerKind::kMamba2});
  s->layers = mixers_from_hf(in, s->num_layers, kMixers, std::move(usual));
  const std::string positions = f.text("position_embedding_type", "nope");
  for (LayerSpec& l : s->layers) l.rope = positions == "rope" ? 0 : -1;
  if (f.integer("num_local_experts", 0, ops::kMaxExperts, 1) > 0) granite_experts_from_hf(in, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

/// Granite 4 H and Bamba.
Result<DecoderSpec> granite_hybrid_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"embedding_scale", "residual_scale", "logit_scale",
                                                "expert_count"};
  auto s = llama_like_from_gguf(in, {.interleaved = true, .knows = kKnows, .some_attend = true});
  if (!s) return s;
  FieldReader& f = in.fields;
  granite_scales_from_gguf(in, *s);
  s->interleaved_qk = s->head_dim;  // also where a part of it rotates, or nothing
  mixers_from_gguf(in, *s, MixerKind::kMamba2);
  const bool rotates = f.boolean("rope.scaling.finetuned", true);
  for (LayerSpec& l : s->layers) l.rope = rotates ? 0 : -1;
  s->recurrent = mamba2_sizes_from_gguf(in, *s);
  if (f.integer("expert_count", 0, ops::kMaxExperts, 0) > 0) granite_experts_from_gguf(in, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

/// What the model multiplies is linear but for the gate of the feed-forward half, and so goes where it costs
/// nothing: into the scores, the taps of the convolution, the gate's norm.
Result<DecoderSpec> falcon_h1_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  if (f.boolean("attention_bias", false)) refuse_value(f, "attention_bias", "true", "false");
  if (f.boolean("mlp_bias", false)) refuse_value(f, "mlp_bias", "true", "false");
  if (f.boolean("mamba_proj_bias", false)) refuse_value(f, "mamba_proj_bias", "true", "false");
  const auto inner = static_cast<std::int32_t>(f.integer("mamba_d_ssm", 0, 1 << 22, 0));
  s->recurrent = mamba2_sizes_from_hf(in, s->hidden, true, inner);
  RecurrentSpec& r = s->recurrent;
  r.out_bias = f.boolean("projectors_bias", false);
  if (r.out_bias) refuse_value(f, "projectors_bias", "true", "false");
  r.norm = f.boolean("mamba_rms_norm", false);
  r.gate_first = !f.boolean("mamba_norm_before_gate", false);
  read_scales(in, "ssm_multipliers", r.in_scales);
  const float ssm_in = scale_of(f, "ssm_in_multiplier");
  for (float& scale : r.in_scales) scale *= ssm_in;
  r.out_scale = scale_of(f, "ssm_out_multiplier");
  const float attention_in = scale_of(f, "attention_in_multiplier");
  s->attention_scale *= attention_in * attention_in * scale_of(f, "key_multiplier");
  s->attention_out_scale = attention_in * scale_of(f, "attention_out_multiplier");
  s->embedding_scale = scale_of(f, "embedding_multiplier");
  s->logit_scale = scale_of(f, "lm_head_multiplier");
  std::array<float, 2> feed{1, 1};
  read_scales(in, "mlp_multipliers", feed);
  s->feed_gate_scale = feed[0];
  s->feed_out_scale = feed[1];
  for (LayerSpec& l : s->layers) l.mixer = MixerKind::kAttentionAndMamba2;
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

/// The converter has multiplied the weights.
Result<DecoderSpec> falcon_h1_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in);
  if (!s) return s;
  for (LayerSpec& l : s->layers) l.mixer = MixerKind::kAttentionAndMamba2;
  s->recurrent = mamba2_sizes_from_gguf(in, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
