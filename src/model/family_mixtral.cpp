// Mixtral: Llama whose feed-forward halves are experts. In GGUF it is a "llama" with expert_count (family_llama.cpp).
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {

Result<DecoderSpec> mixtral_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in));
  experts_from_hf(in, *s, 0);
  s->experts.normalise = true;
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
