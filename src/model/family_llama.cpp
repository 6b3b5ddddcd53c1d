// Llama 2 and 3, and what is one to the last flag: Yi, Falcon3, SmolLM2, DeepSeek-R1-Distill-Llama. In GGUF
// also Mistral, with its window.
#include "model/family.h"

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
  return llama_like_from_gguf(in, {.interleaved = true});
}

}  // namespace barg::model
