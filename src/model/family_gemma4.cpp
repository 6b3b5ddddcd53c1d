// Gemma 4: layers without a window have heads of another size and fewer of them for keys, whose numbers may
// also be the values; the last layers may read the K and V of others, with a wider feed-forward half; experts
// beside the dense half, or per-layer inputs.
#include "model/gemma_family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kWindow = 512, kFullEvery = 6;
constexpr double kFullTheta = 1e6, kFullShare = 0.25;
constexpr std::int64_t kMaxHeads = 1 << 16;

bool full(const LayerSpec& l) { return l.window == 0; }

/// Heads of layers without a window.
struct FullHeads {
  std::int32_t dim, kv;
};

void set_heads(DecoderSpec& s, FullHeads heads) {
  for (LayerSpec& l : s.layers) {
    if (!full(l)) continue;
    l.head_dim = heads.dim;
    l.num_kv_heads = heads.kv;
  }
}

RopeSpec full_rope_from_hf(const FamilyInput& in, std::int32_t head_dim) {
  const Json* ropes = in.config->find("rope_parameters");
  if (ropes != nullptr && !ropes->is_null())
    return rope_from_hf(in, head_dim, {.layer_type = "full_attention", .theta = kFullTheta});
  RopeSpec usual;
  usual.kind = RopeSpec::Kind::kProportional;
  usual.theta = kFullTheta;
  usual.rotary_dim = head_dim;
  usual.rotated_share = kFullShare;
  return usual;
}

/// experts_from_* gave every layer experts, instead of what these have.
void put_beside_dense(DecoderSpec& s) {
  for (LayerSpec& l : s.layers) l.feed = FeedKind::kDenseAndExperts;
  s.experts.normalise = true;
  s.experts.router_norm = s.experts.expert_scales = true;
}

}  // namespace

static constexpr TensorName kRows[] = {{"post_attention_layernorm", "post_attention_norm"},
                                       {"pre_feedforward_layernorm", "ffn_norm"},
                                       {"post_feedforward_layernorm", "post_ffw_norm"},
                                       {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                                       {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
                                       {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
                                       {"per_layer_input_gate", "inp_gate"},
                                       {"per_layer_projection", "proj"},
                                       {"post_per_layer_input_norm", "post_norm"},
                                       {"layer_scalar", "layer_output_scale.weight"}};
const TensorNames kGemma4Names = kRows;

Result<DecoderSpec> gemma4_from_hf(const FamilyInput& in) {
  auto s = gemma3n_like_from_hf(in, {.layer_type = "sliding_attention"});
  if (!s) return s;
  FieldReader& f = in.fields;
  if (f.has("per_layer_config")) refuse_value(f, "per_layer_config", "an object", "null");
  s->logit_softcap = logit_softcap_from_hf(in, 0);
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in, kWindow), kFullEvery);
  s->layers.back().window = 0;  // transformers makes it so, whatever the config says
  FullHeads heads{static_cast<std::int32_t>(f.integer("global_head_dim", 2, kMaxHeadDim, 512)),
                  s->num_kv_heads};
  const bool k_is_v = f.boolean("attention_k_eq_v", false);
  if (k_is_v)
    heads.kv = static_cast<std::int32_t>(f.integer("num_global_key_value_heads", 1, kMaxHeads, heads.kv));
  set_heads(*s, heads);
  set_rotary(*s, {full_rope_from_hf(in, heads.dim), s->ropes[0]});
  use_local_rope(*s);
  share_kv(f, *s, static_cast<std::int32_t>(f.integer("num_kv_shared_layers", 0, s->num_layers - 1, 0)),
           "num_kv_shared_layers");
  const bool wide = f.boolean("use_double_wide_mlp", false);
  for (LayerSpec& l : s->layers) {
    l.v_is_k = k_is_v && full(l) && l.kv_of < 0;
    if (wide && l.kv_of >= 0) l.ffn = 2 * s->ffn;
  }
  s->per_layer = per_layer_from_hf(in, 0);
  s->layer_scale = in.files.find("blk.0.layer_output_scale.weight") != nullptr;
  if (f.boolean("enable_moe_block", false)) {
    experts_from_hf(in, *s, 0);
    put_beside_dense(*s);
    check_experts(f, *s);
  }
  check_layer_heads(f, *s, "num_key_value_heads");
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gemma4_from_gguf(const FamilyInput& in) {
  auto s = gemma3n_like_from_gguf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->logit_softcap = static_cast<float>(f.real("final_logit_softcapping", 0, 1e6, 0.0));
  const std::int32_t full_dim = s->head_dim;
  s->head_dim = static_cast<std::int32_t>(f.integer("attention.key_length_swa", 2, kMaxHeadDim, full_dim));
  if (f.integer("attention.value_length_swa", 1, kMaxHeadDim, s->head_dim) != s->head_dim)
    refuse_value(f, "attention.value_length_swa", "another than key_length_swa", "the same");
  const auto kv = by_layer(in, "attention.head_count_kv", s->num_layers, 1, kMaxHeads);
  const auto shared =
      static_cast<std::int32_t>(f.integer("attention.shared_kv_layers", 0, s->num_layers - 1, 0));
  share_kv(f, *s, shared, "attention.shared_kv_layers");
  for (std::size_t i = 0; i < s->layers.size(); ++i) {
    LayerSpec& l = s->layers[i];
    if (full(l)) l.head_dim = full_dim;
    l.num_kv_heads = kv[i];
    l.v_is_k = l.kv_of < 0 && in.files.find("blk." + std::to_string(i) + ".attn_v.weight") == nullptr;
    if (l.kv_of >= 0 && kv[i] != kv[static_cast<std::size_t>(l.kv_of)])
      f.refuse(ErrorCode::kBadFile, "layers that share keys have different numbers of heads",
               "attention.head_count_kv");
  }
  set_ffn(*s, by_layer(in, "feed_forward_length", s->num_layers, 1, kMaxFfn));
  set_rotary(*s, {s->ropes[0], local_rope_from_gguf(in, s->head_dim)});
  use_local_rope(*s);
  s->per_layer = per_layer_from_gguf(in, 0, 0);
  s->layer_scale = in.files.find("blk.0.layer_output_scale.weight") != nullptr;
  if (f.integer("expert_count", 0, ops::kMaxExperts, 0) > 0) {
    experts_from_gguf(in, *s);
    put_beside_dense(*s);
    check_experts(f, *s);
  }
  check_layer_heads(f, *s, "attention.head_count_kv");
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
