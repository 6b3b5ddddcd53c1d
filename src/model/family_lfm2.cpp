// LFM2: short convolutions between gates, and attention in some layers.
#include "model/family.h"

namespace barg::model {
namespace {

constexpr TensorName kNames[] = {
    {"operator_norm", "attn_norm"},           {"ffn_norm", "ffn_norm"},
    {"feed_forward.w1", "ffn_gate"},          {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},          {"self_attn.q_layernorm", "attn_q_norm"},
    {"self_attn.k_layernorm", "attn_k_norm"}, {"self_attn.out_proj", "attn_output"},
    {"conv.in_proj", "shortconv.in_proj"},    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
};
constexpr TensorName kGgufNames[] = {{"token_embd_norm.weight", "output_norm.weight"}};

/// The width that the file's tensors have, of the one that the config names.
std::int32_t feed_forward_width(FieldReader& f, std::int32_t named) {
  std::int64_t width = f.integer("block_ff_dim", 1, 1 << 24, named);
  if (!f.boolean("block_auto_adjust_ff_dim", false)) return static_cast<std::int32_t>(width);
  const double multiplier = f.real("block_ffn_dim_multiplier", 1e-3, 1e3);
  const std::int64_t multiple = f.integer("block_multiple_of", 1, 1 << 20);
  width = static_cast<std::int64_t>(multiplier * static_cast<double>(2 * width / 3));
  return static_cast<std::int32_t>((width + multiple - 1) / multiple * multiple);
}

/// `full_attn_idxs` of older files.
std::vector<LayerSpec> usual_layers(const FamilyInput& in, std::int32_t num_layers) {
  std::vector<LayerSpec> layers(static_cast<std::size_t>(num_layers));
  const Json* attends = in.config->find("full_attn_idxs");
  if (attends == nullptr || !attends->is_array()) return layers;
  for (LayerSpec& l : layers) l.mixer = MixerKind::kConv;
  for (const Json& i : attends->as_array()) {
    if (i.type() == Json::Type::kInt && i.as_int() >= 0 && i.as_int() < num_layers)
      layers[static_cast<std::size_t>(i.as_int())].mixer = MixerKind::kAttention;
  }
  return layers;
}

}  // namespace

const TensorNames kLfm2Names = kNames, kLfm2GgufNames = kGgufNames;

Result<DecoderSpec> lfm2_from_hf(const FamilyInput& in) {
  static constexpr MixerName kMixers[] = {{"conv", MixerKind::kConv}};
  auto s = llama_like_from_hf(in, {.eps_key = "norm_eps"});
  if (!s) return s;
  FieldReader& f = in.fields;
  s->qk_norm = QkNorm::kHeads;
  s->ffn = feed_forward_width(f, s->ffn);
  s->tied = f.boolean("tie_embedding", s->tied);
  RecurrentSpec& r = s->recurrent;
  r.kernel = static_cast<std::int32_t>(f.integer("conv_L_cache", 2, ops::kMaxConvKernel));
  r.channels = s->hidden;
  r.conv_bias = r.in_bias = r.out_bias = f.boolean("conv_bias", false);
  s->layers = mixers_from_hf(in, s->num_layers, kMixers, usual_layers(in, s->num_layers));
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> lfm2_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.some_attend = true});
  if (!s) return s;
  s->qk_norm = QkNorm::kHeads;
  mixers_from_gguf(in, *s, MixerKind::kConv);
  RecurrentSpec& r = s->recurrent;
  r.kernel = static_cast<std::int32_t>(in.fields.integer("shortconv.l_cache", 2, ops::kMaxConvKernel));
  r.channels = s->hidden;
  r.converted = true;
  const std::string conv = first_layer_with(*s, has_state) + "shortconv.";
  const auto has_bias = [&](const char* name) { return in.files.find(conv + name + ".bias") != nullptr; };
  r.conv_bias = has_bias("conv");
  r.in_bias = has_bias("in_proj");
  r.out_bias = has_bias("out_proj");
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
