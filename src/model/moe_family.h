// What the builders of families with experts share: how configs spell them. Pure; any thread.
#pragma once

#include <cstdint>

#include "model/decoder_spec.h"
#include "model/family.h"

namespace barg::model {

/// Count, choice and width from config.json, in each of its spellings; the layout from the tensors that there are.
/// All layers from `first` on get experts. Problems go to input.fields.
void experts_from_hf(const FamilyInput& input, DecoderSpec& spec, std::int32_t first);
/// The rules of DeepSeek V3's router: groups, their bias, scale.
void grouped_router_from_hf(const FamilyInput& input, ExpertSpec& experts);
/// The same from GGUF, with the router's rules as far as there are keys for them. Layers for the prediction of
/// further tokens are cut off.
void experts_from_gguf(const FamilyInput& input, DecoderSpec& spec);
/// Layers in mlp_only_layers are dense, and those that decoder_sparse_step passes over.
void dense_layers_from_hf(const FamilyInput& input, DecoderSpec& spec);
/// What holds between the numbers, whatever the container: to be called last.
void check_experts(FieldReader& fields, const DecoderSpec& spec);

}  // namespace barg::model
