// What the builders of Gemma 3n and Gemma 4 share, beyond Gemma 3: plain norms, normed values, scores that
// are not scaled, per-layer inputs, layers that read the K and V of others. Pure; any thread.
#pragma once

#include <cstdint>

#include "model/decoder_spec.h"
#include "model/family.h"

namespace barg::model {

/// Sizes, norms and layers; ropes and layers' kinds are the families' own. Sizes may be lists.
Result<DecoderSpec> gemma3n_like_from_hf(const FamilyInput& input, const HfRope& rope);
Result<DecoderSpec> gemma3n_like_from_gguf(const FamilyInput& input);

/// final_logit_softcapping; 0 where it is null.
float logit_softcap_from_hf(const FamilyInput& input);

/// Width of the per-layer inputs, at least `least`, and rows of their table.
PerLayerSpec per_layer_from_hf(const FamilyInput& input, std::int32_t least);
PerLayerSpec per_layer_from_gguf(const FamilyInput& input, std::int32_t least, std::int32_t absent);

/// The second rope of GGUF files, of heads of head_dim in layers with a window.
RopeSpec local_rope_from_gguf(const FamilyInput& input, std::int32_t head_dim);

/// Gives each layer its entry of `ffn`, where that is not the model's.
void set_ffn(DecoderSpec& spec, const std::vector<std::int32_t>& ffn);

}  // namespace barg::model
