// Mistral: Llama with a window, in all layers or none. Ministral 3 and Mistral 3 add yarn, and queries that
// grow with their position.
#include "model/family.h"
#include "model/rope.h"

namespace barg::model {

Result<DecoderSpec> mistral_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  const std::int32_t window = window_from_hf(in);
  s->layers = layers_from_hf(in, s->num_layers, window);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> ministral3_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in));
  if (const Json* rope = rope_object_from_hf(in); rope != nullptr) {
    JsonFieldReader f(*rope, "rope_parameters");
    s->query_scale.beta = f.real("llama_4_scaling_beta", 0, 1e3, 0.0);
    const double longest = in.fields.real("max_position_embeddings", 1, 1e9);
    s->query_scale.length = f.real("original_max_position_embeddings", 1, 1e9, longest);
    if (f.error()) in.fields.refuse(f.error()->code, f.error()->message, "rope_parameters");
  }
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> ministral3_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"attention.temperature_scale"};
  auto s = llama_like_from_gguf(in, {.interleaved = true, .knows = kKnows});
  if (!s) return s;
  FieldReader& f = in.fields;
  s->query_scale.beta = f.real("attention.temperature_scale", 0, 1e3, 0.0);
  RopeSpec& rope = s->ropes[0];
  const double original = f.real("rope.scaling.original_context_length", 1, 1e9, s->max_positions);
  s->query_scale.length = f.real("attention.temperature_length", 1, 1e9, original);
  const double all_dims = f.real("rope.scaling.yarn_log_multiplier", 0, 1e3, 0.0);
  if (rope.kind == RopeSpec::Kind::kYarn && all_dims != 0) {  // mscale_all_dim; mscale is 1
    rope.attention_factor = yarn_magnitude(rope.factor, 1) / yarn_magnitude(rope.factor, all_dims);
  }
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
