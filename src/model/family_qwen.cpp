// Qwen2 and 2.5 (QwQ, R1-Distill-Qwen): biases of q, k and v. Qwen3: norms of the heads of q and k instead.
#include <algorithm>

#include "model/family.h"

namespace barg::model {
namespace {

/// A window only where use_sliding_window says so, and then from layer max_window_layers on.
void set_layers(const FamilyInput& in, DecoderSpec& s) {
  FieldReader& f = in.fields;
  const bool windows = f.boolean("use_sliding_window", false);
  const std::int32_t window = windows ? window_from_hf(in) : 0;
  s.layers = layers_from_hf(in, s.num_layers, window);
  const Json* types = in.config->find("layer_types");
  if (types != nullptr && !types->is_null()) return;
  const auto full = f.integer("max_window_layers", 0, 1 << 20, 0);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(full, s.num_layers); ++i)
    s.layers[static_cast<std::size_t>(i)].window = 0;
}

}  // namespace

Result<DecoderSpec> qwen2_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = true;
  set_layers(in, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> qwen2_from_gguf(const FamilyInput& in) { return llama_like_from_gguf(in); }

Result<DecoderSpec> qwen3_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  s->qk_norm = QkNorm::kHeads;
  set_layers(in, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> qwen3_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in);
  if (s) s->qk_norm = QkNorm::kHeads;
  return s;
}

}  // namespace barg::model
