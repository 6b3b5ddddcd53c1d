// GLM-4 (GlmForCausalLM) and GLM-4-0414 (Glm4ForCausalLM): half of each head rotates, as neighbours; gate and
// up in one tensor. GLM-4-0414 norms what the halves give too.
#include "model/family.h"

namespace barg::model {
namespace {

Result<DecoderSpec> glm_like_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = in.fields.boolean("attention_bias", false);
  s->fused_gate_up = true;
  s->interleaved_qk = s->ropes[0].rotary_dim;
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace

static constexpr TensorName kGlm4Rows[] = {{"post_self_attn_layernorm", "post_attention_norm"},
                                           {"post_attention_layernorm", "ffn_norm"},
                                           {"post_mlp_layernorm", "post_ffw_norm"}};
const TensorNames kGlm4Names = kGlm4Rows;

Result<DecoderSpec> glm_from_hf(const FamilyInput& in) { return glm_like_from_hf(in); }

Result<DecoderSpec> glm4_from_hf(const FamilyInput& in) {
  auto s = glm_like_from_hf(in);
  if (s) s->norm_place = NormPlace::kAround;
  return s;
}

Result<DecoderSpec> glm4_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.interleaved = true});
  if (s) s->norm_place = NormPlace::kAround;
  return s;
}

}  // namespace barg::model
