// SmolLM3: Llama, but every fourth layer does not encode positions.
#include "model/family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kInterval = 4;

void leave_out_rope(DecoderSpec& s, std::int32_t interval) {
  for (std::int32_t i = interval - 1; interval > 0 && i < s.num_layers; i += interval)
    s.layers[static_cast<std::size_t>(i)].rope = -1;
}

}  // namespace

Result<DecoderSpec> smollm3_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->qkv_bias = s->o_bias = f.boolean("attention_bias", false);
  s->mlp_bias = f.boolean("mlp_bias", false);
  s->layers =
      layers_from_hf(in, s->num_layers, f.boolean("use_sliding_window", false) ? window_from_hf(in) : 0);
  const Json* list = in.config->find("no_rope_layers");  // 1: the layer rotates
  if (list == nullptr || list->is_null()) {
    leave_out_rope(*s, static_cast<std::int32_t>(f.integer("no_rope_layer_interval", 1, 1 << 20)));
  } else if (!list->is_array() || list->size() != s->layers.size()) {
    f.refuse(ErrorCode::kBadFile, "no_rope_layers is not a list with one entry a layer", "no_rope_layers");
  } else {
    for (std::size_t i = 0; i < s->layers.size(); ++i) {
      const Json& rotates = list->as_array()[i];
      if (!rotates.is_integer() || (rotates.as_double() != 0 && rotates.as_double() != 1))
        f.refuse(ErrorCode::kBadFile, "no_rope_layers has an entry that is not 0 or 1", "no_rope_layers");
      else if (rotates.as_double() == 0)
        s->layers[i].rope = -1;
    }
  }
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> smollm3_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.interleaved = true});
  if (s) leave_out_rope(*s, kInterval);  // no key says which layers
  return s;
}

}  // namespace barg::model
