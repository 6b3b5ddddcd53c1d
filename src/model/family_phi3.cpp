// Phi-3, 3.5, 4 and 4-mini: q, k and v in one tensor, gate and up in one, longrope, heads that rotate in
// part.
#include "model/family.h"

namespace barg::model {

Result<DecoderSpec> phi3_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in, {.rope = {.original_at_top = true}});
  if (!s) return s;
  s->fused_qkv = s->fused_gate_up = true;
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in));
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> phi3_from_gguf(const FamilyInput& in) { return llama_like_from_gguf(in); }

}  // namespace barg::model
