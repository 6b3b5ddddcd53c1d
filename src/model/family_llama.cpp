// Llama 2 and 3, and what is one to the last flag: Yi, Falcon3, SmolLM2, DeepSeek-R1-Distill-Llama. In GGUF
// also Mistral, with its window, and Mixtral, with its experts.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {

Result<DecoderSpec> llama_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  s->mlp_bias = in.fields.boolean("mlp_bias", false);
  s->layers = layers_from_hf(in, s->num_layers, 0);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> llama_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.interleaved = true, .knows = kKnows});
  if (!s || in.fields.integer("expert_count", 0, ops::kMaxExperts, 0) == 0) return s;
  s->experts.normalise = true;
  experts_from_gguf(in, *s);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
