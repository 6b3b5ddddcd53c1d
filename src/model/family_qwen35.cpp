// Qwen3.5: three layers of the gated delta rule for one of attention, whose result a gate of its own multiplies.
#include "model/family.h"

namespace barg::model {
namespace {

constexpr TensorName kNames[] = {
    {"linear_attn.in_proj_qkv", "attn_qkv"}, {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},   {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.conv1d", "ssm_conv1d"},    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},     {"linear_attn", "ssm"},
};

constexpr std::int64_t kMost = 1 << 16;  // heads, and numbers of a head

RecurrentSpec delta_net_sizes(FieldReader& f) {
  const auto size = [&](const char* key, std::int64_t most, std::int64_t usual) {
    return static_cast<std::int32_t>(f.integer(key, 1, most, usual));
  };
  RecurrentSpec r;
  r.kernel = size("linear_conv_kernel_dim", ops::kMaxConvKernel, 4);
  r.groups = size("linear_num_key_heads", kMost, 16);
  r.state_size = size("linear_key_head_dim", 1024, 128);
  r.heads = size("linear_num_value_heads", kMost, 32);
  r.head_dim = size("linear_value_head_dim", 1024, 128);
  r.channels = 2 * r.group_width() + r.inner();
  r.norm_groups = r.heads;
  r.shared_norm = true;
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
  const auto every = static_cast<std::int32_t>(in.fields.integer("full_attention_interval", 1, 1 << 20, 4));
  std::vector<LayerSpec> usual(static_cast<std::size_t>(num_layers));
  for (std::int32_t i = 0; i < num_layers; ++i) {
    if ((i + 1) % every != 0) usual[static_cast<std::size_t>(i)].mixer = MixerKind::kDeltaNet;
  }
  return mixers_from_hf(in, num_layers, kMixers, std::move(usual));
}

}  // namespace

const TensorNames kQwen35Names = kNames;

Result<DecoderSpec> qwen35_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in, {.head_dim = 256, .rope = {.share = 0.25}});
  if (!s) return s;
  FieldReader& f = in.fields;
  s->norm.offset = 1;
  s->qk_norm = QkNorm::kHeads;
  s->attention_gate = true;
  s->qkv_bias = s->o_bias = f.boolean("attention_bias", false);
  if (s->qkv_bias) refuse_value(f, "attention_bias", "true", "false");
  s->recurrent = delta_net_sizes(f);
  s->recurrent.in_rows = InRows::kApart;
  s->layers = layers(in, s->num_layers);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
