// Qwen3-Next and Qwen3.5: three layers of the gated delta rule for one of attention, whose result a gate of
// its own multiplies; with experts, one of which every row goes through, behind a gate of the row.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

constexpr TensorName kNames[] = {
    {"linear_attn.in_proj_qkv", "attn_qkv"}, {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},   {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},  {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.conv1d", "ssm_conv1d"},    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},     {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
};

/// What follows from the sizes.
void finish(RecurrentSpec& r) {
  r.channels = 2 * r.group_width() + r.inner();
  r.norm_groups = r.heads;
  r.shared_norm = true;
}

RecurrentSpec sizes_from_hf(FieldReader& f) {
  const auto size = [&](const char* key, std::int64_t most) {
    return static_cast<std::int32_t>(f.integer(key, 1, most));
  };
  RecurrentSpec r;
  r.kernel = size("linear_conv_kernel_dim", ops::kMaxConvKernel);
  r.groups = size("linear_num_key_heads", kMaxStateHeads);
  r.state_size = size("linear_key_head_dim", kMaxStateDim);
  r.heads = size("linear_num_value_heads", kMaxStateHeads);
  r.head_dim = size("linear_value_head_dim", kMaxStateDim);
  finish(r);
  if (f.error()) return r;
  if (r.kernel < 2) refuse_value(f, "linear_conv_kernel_dim", "1", "2, 3, 4");
  if (r.heads % r.groups != 0) {
    f.refuse(ErrorCode::kBadFile,
             std::to_string(r.heads) + " value heads are not a multiple of " + std::to_string(r.groups) +
                 " key heads",
             "linear_num_value_heads");
  }
  return r;
}

/// Attention in every `full_attention_interval`-th layer.
std::vector<LayerSpec> layers(const FamilyInput& in, std::int32_t num_layers) {
  static constexpr MixerName kMixers[] = {{"linear_attention", MixerKind::kDeltaNet}};
  const auto every = static_cast<std::int32_t>(in.fields.integer("full_attention_interval", 1, 1 << 20));
  std::vector<LayerSpec> usual(static_cast<std::size_t>(num_layers));
  for (std::int32_t i = 0; i < num_layers; ++i) {
    if ((i + 1) % every != 0) usual[static_cast<std::size_t>(i)].mixer = MixerKind::kDeltaNet;
  }
  return mixers_from_hf(in, num_layers, kMixers, std::move(usual));
}

Result<DecoderSpec> from_hf(const FamilyInput& in, std::string_view ffn_key) {
  auto s = llama_like_from_hf(in, {.ffn_key = ffn_key});
  if (!s) return s;
  FieldReader& f = in.fields;
  s->norm.offset = 1;
  s->qk_norm = QkNorm::kHeads;
  s->attention_gate = true;
  if (f.boolean("attention_bias", false)) refuse_value(f, "attention_bias", "true", "false");
  s->recurrent = sizes_from_hf(f);
  s->layers = layers(in, s->num_layers);
  return s;
}

/// Without the kinds of layers: some of them may be cut off.
Result<DecoderSpec> from_gguf(const FamilyInput& in, std::string_view ffn_key) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.ffn_key = ffn_key, .knows = kKnows});
  if (!s) return s;
  s->qk_norm = QkNorm::kHeads;
  s->attention_gate = true;
  s->ffn_norm_is_post = true;
  s->recurrent = recurrent_sizes_from_gguf(in.fields);
  finish(s->recurrent);
  return s;
}

/// In every layer.
void gated_experts_from_hf(const FamilyInput& in, DecoderSpec& s) {
  experts_from_hf(in, s, 0);
  s.experts.shared_ffn =
      static_cast<std::int32_t>(in.fields.integer("shared_expert_intermediate_size", 1, kMaxFfn));
  s.experts.shared_gate = SharedGate::kRow;
  s.experts.normalise = true;
}

Result<DecoderSpec> gated_experts_from_gguf(const FamilyInput& in) {
  auto s = from_gguf(in, "expert_feed_forward_length");
  if (!s) return s;
  s->experts.normalise = true;
  experts_from_gguf(in, *s);
  s->experts.shared_ffn =
      static_cast<std::int32_t>(in.fields.integer("expert_shared_feed_forward_length", 1, kMaxFfn, s->ffn));
  s->experts.shared_gate = SharedGate::kVector;
  check_experts(in.fields, *s);
  mixers_by_interval_from_gguf(in, *s, MixerKind::kDeltaNet);
  return s;
}

/// The converter of Qwen3.5 puts the value heads into an order in which their key heads come by turns.
void set_converted_heads(RecurrentSpec& r) {
  r.in_rows = InRows::kApart;
  r.tiled = r.heads != r.groups;
}

Result<DecoderSpec> checked(const FamilyInput& in, Result<DecoderSpec> s) {
  if (s && in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace

const TensorNames kQwen35Names = kNames;

Result<DecoderSpec> qwen3_next_from_hf(const FamilyInput& in) {
  auto s = from_hf(in, "intermediate_size");
  if (!s) return s;
  s->recurrent.in_rows = InRows::kByGroup;
  if (in.fields.integer("num_experts", 0, ops::kMaxExperts, 1) > 0) {  // or another name of it
    gated_experts_from_hf(in, *s);
    s->experts.normalise = in.fields.boolean("norm_topk_prob", false);
    dense_layers_from_hf(in, *s);
    check_experts(in.fields, *s);
  }
  return checked(in, std::move(s));
}

Result<DecoderSpec> qwen3_next_from_gguf(const FamilyInput& in) {
  auto s = gated_experts_from_gguf(in);
  if (!s) return s;
  const std::string blk = first_layer_with(*s, has_state);
  const bool one = in.files.find(blk + "ssm_in.weight") != nullptr;  // as older files have it
  s->recurrent.in_rows = one ? InRows::kByGroup : InRows::kGatesByGroup;
  return checked(in, std::move(s));
}

Result<DecoderSpec> qwen35_from_hf(const FamilyInput& in) {
  auto s = from_hf(in, "intermediate_size");
  if (s) s->recurrent.in_rows = InRows::kApart;
  return checked(in, std::move(s));
}

Result<DecoderSpec> qwen35_from_gguf(const FamilyInput& in) {
  auto s = from_gguf(in, "feed_forward_length");
  if (!s) return s;
  set_converted_heads(s->recurrent);
  drop_prediction_layers(in, *s);
  mixers_by_interval_from_gguf(in, *s, MixerKind::kDeltaNet);
  return checked(in, std::move(s));
}

Result<DecoderSpec> qwen35_moe_from_hf(const FamilyInput& in) {
  auto s = from_hf(in, "moe_intermediate_size");
  if (!s) return s;
  s->recurrent.in_rows = InRows::kApart;
  gated_experts_from_hf(in, *s);
  check_experts(in.fields, *s);
  return checked(in, std::move(s));
}

Result<DecoderSpec> qwen35_moe_from_gguf(const FamilyInput& in) {
  auto s = gated_experts_from_gguf(in);
  if (s) set_converted_heads(s->recurrent);
  return checked(in, std::move(s));
}

}  // namespace barg::model
