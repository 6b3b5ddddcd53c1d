// Granite 3: Llama with multipliers of the embedding, the scores, the residual stream and the logits.
#include "model/family.h"

namespace barg::model {

Result<DecoderSpec> granite_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->qkv_bias = s->o_bias = f.boolean("attention_bias", false);
  s->mlp_bias = f.boolean("mlp_bias", false);
  s->embedding_scale = static_cast<float>(f.real("embedding_multiplier", 1e-6, 1e6));
  s->residual_scale = static_cast<float>(f.real("residual_multiplier", 1e-6, 1e6));
  s->attention_scale = static_cast<float>(f.real("attention_multiplier", 1e-9, 1e6));
  s->logit_scale = static_cast<float>(1.0 / f.real("logits_scaling", 1e-6, 1e6));
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

void granite_scales_from_gguf(const FamilyInput& in, DecoderSpec& s) {
  FieldReader& f = in.fields;
  s.embedding_scale = static_cast<float>(f.real("embedding_scale", 1e-6, 1e6, 1.0));
  s.residual_scale = static_cast<float>(f.real("residual_scale", 1e-6, 1e6, 1.0));
  s.logit_scale = static_cast<float>(1.0 / f.real("logit_scale", 1e-6, 1e6, 1.0));
}

Result<DecoderSpec> granite_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"embedding_scale", "residual_scale", "logit_scale"};
  auto s = llama_like_from_gguf(in, {.interleaved = true, .knows = kKnows});
  if (!s) return s;
  granite_scales_from_gguf(in, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
