// OLMo 2 and 3: no norm before the halves but after them, and norms of q and k as whole rows. OLMo 3 has
// windows in three layers of four, which keep the plain rope. GGUF calls both olmo2.
#include "model/family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kFullEvery = 4;

void set_olmo(DecoderSpec& s) {
  s.norm_place = NormPlace::kAfter;
  s.qk_norm = QkNorm::kRow;
}

/// Layers with a window rotate as if nothing were stretched.
void use_plain_rope(DecoderSpec& s, const RopeSpec& plain) {
  set_rotary(s, {s.ropes[0], plain});
  for (LayerSpec& l : s.layers) l.rope = l.window > 0 ? 1 : 0;
}

}  // namespace

static constexpr TensorName kOlmo2Rows[] = {{"post_attention_layernorm", "post_attention_norm"},
                                            {"post_feedforward_layernorm", "post_ffw_norm"}};
const TensorNames kOlmo2Names = kOlmo2Rows;

Result<DecoderSpec> olmo2_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  set_olmo(*s);
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> olmo3_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in, {.rope = {.layer_type = "full_attention"}});
  if (!s) return s;
  set_olmo(*s);
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), kFullEvery);
  const Json* v5 = in.config->find("rope_parameters");
  const bool each = v5 != nullptr && v5->is_object() && v5->find("sliding_attention") != nullptr;
  const HfRope style{.layer_type = "sliding_attention", .scaled = each};
  use_plain_rope(*s, rope_from_hf(in, s->head_dim, style));
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> olmo2_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.full_every = kFullEvery});
  if (!s) return s;
  set_olmo(*s);
  RopeSpec plain;
  plain.theta = s->ropes[0].theta;
  plain.rotary_dim = s->ropes[0].rotary_dim;
  use_plain_rope(*s, plain);
  return s;
}

}  // namespace barg::model
