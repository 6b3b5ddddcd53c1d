// Gemma 4: layers without a window have heads of another size and fewer of them for keys, whose numbers may
// also be the values; the last layers may read the K and V of others, with a wider feed-forward half; experts
// beside the dense half, or per-layer inputs.
#include <charconv>
#include <string>

#include "model/gemma_family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kFullEvery = 6;
constexpr std::int64_t kMaxHeads = 1 << 16;

bool full(const LayerSpec& l) { return l.window == 0; }

void set_heads(const DecoderSpec& s, LayerSpec& l, std::int64_t dim, std::int64_t kv) {
  l.head_dim = dim == s.head_dim ? 0 : static_cast<std::int32_t>(dim);
  l.num_kv_heads = kv == s.num_kv_heads ? 0 : static_cast<std::int32_t>(kv);
}

/// Heads of layers without a window, as published files say it.
void set_full_heads(FieldReader& f, DecoderSpec& s, bool k_is_v) {
  const std::int64_t dim = f.integer("global_head_dim", 2, kMaxHeadDim);
  const std::int64_t kv =
      k_is_v ? f.integer("num_global_key_value_heads", 1, kMaxHeads, s.num_kv_heads) : s.num_kv_heads;
  for (LayerSpec& l : s.layers) {
    if (full(l)) set_heads(s, l, dim, kv);
  }
}

/// As transformers writes it: an object for each layer that differs from the others.
void set_layer_heads(const FamilyInput& in, DecoderSpec& s, const Json& layers) {
  static constexpr const char* kKey = "per_layer_config";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& [number, own] = layers.as_object()[i];
    std::int32_t layer = -1;
    const auto end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, layer);
    if (parsed.ec != std::errc() || parsed.ptr != end || layer < 0 || layer >= s.num_layers || !own.is_object())
      return in.fields.refuse(ErrorCode::kBadFile, std::string(kKey) + " is not an object for some layers", kKey);
    JsonFieldReader f(own, std::string(kKey) + "." + number);
    for (const auto& [key, value] : own.as_object()) {
      if (key != "head_dim" && key != "num_key_value_heads") refuse_value(f, f.full_name(key), "a value", "none");
    }
    LayerSpec& l = s.layers[static_cast<std::size_t>(layer)];
    set_heads(s, l, f.integer("head_dim", 2, kMaxHeadDim, s.head_dim),
              f.integer("num_key_value_heads", 1, kMaxHeads, s.num_kv_heads));
    if (f.error()) return in.fields.refuse(f.error()->code, f.error()->message, kKey);
  }
}

/// Of the layers with a window, or of those without: each kind has one rope.
std::int32_t head_dim_of(FieldReader& f, const DecoderSpec& s, bool windows) {
  std::int32_t dim = 0;
  for (const LayerSpec& l : s.layers) {
    if (full(l) == windows) continue;
    const std::int32_t own = shape_of(s, l).head_dim;
    if (dim != 0 && own != dim)
      refuse_value(f, "per_layer_config", "heads of several sizes in layers of one kind", "one size");
    dim = own;
  }
  return dim == 0 ? s.head_dim : dim;
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
  s->logit_softcap = logit_softcap_from_hf(in);
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), kFullEvery);
  s->layers.back().window = 0;  // transformers makes it so, whatever the config says
  const bool k_is_v = f.boolean("attention_k_eq_v", false);
  const Json* own = in.config->find("per_layer_config");
  if (own != nullptr && own->is_object())
    set_layer_heads(in, *s, *own);
  else
    set_full_heads(f, *s, k_is_v);
  if (head_dim_of(f, *s, true) != s->head_dim)
    refuse_value(f, "per_layer_config", "heads of another size in layers with a window", "that of head_dim");
  const HfRope full_rope{.layer_type = "full_attention"};
  set_rotary(*s, {rope_from_hf(in, head_dim_of(f, *s, false), full_rope), s->ropes[0]});
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
