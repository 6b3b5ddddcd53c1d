// Gemma 3n: several residual streams (AltUp), a low-rank path beside attention (LAuReL), per-layer inputs,
// the last layers read the K and V of others, and of the gates of the first layers only the largest are left.
#include <algorithm>
#include <cmath>
#include <optional>

#include "model/gemma_family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kWindow = 512, kFullEvery = 5;
constexpr std::int32_t kCutLayers = 10;  // where a file does not say which
constexpr double kCutShare = 0.95;
constexpr std::int32_t kKeepers = 20;  // layers that do not read others' K and V, where a GGUF file does not say
constexpr std::int64_t kMaxRank = 1 << 16;

/// x with Phi(x) = p, 0 < p < 1.
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return low;
}

void cut(LayerSpec& l, double deviations) {
  l.cuts_gate = true;
  l.gate_cut = static_cast<float>(deviations);
}

void cut_usual_layers(DecoderSpec& s) {
  for (std::int32_t i = 0; s.num_layers > kCutLayers && i < kCutLayers; ++i)
    cut(s.layers[static_cast<std::size_t>(i)], normal_quantile(kCutShare));
}

/// The share of each layer's gates that becomes 0.
void cuts_from_hf(const FamilyInput& in, DecoderSpec& s) {
  static constexpr const char* kKey = "activation_sparsity_pattern";
  const Json* list = in.config->find(kKey);
  if (list == nullptr || list->is_null()) return cut_usual_layers(s);
  if (!list->is_array() || list->size() != s.layers.size())
    return in.fields.refuse(ErrorCode::kBadFile, std::string(kKey) + " is not a list with one entry a layer",
                            kKey);
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const Json& v = list->as_array()[i];
    const double share = v.is_number() ? v.as_double() : -1;
    if (!(share >= 0 && share < 1))
      return in.fields.refuse(ErrorCode::kBadFile,
                              std::string(kKey) + " has an entry that is not from 0 to below 1", kKey);
    if (share > 0) cut(s.layers[i], normal_quantile(share));
  }
}

/// The standard deviations of each layer; -infinity where nothing is cut.
void cuts_from_gguf(const FamilyInput& in, DecoderSpec& s) {
  static constexpr std::string_view kKey = "activation_sparsity_scale";
  if (!in.fields.has(kKey)) return cut_usual_layers(s);
  const auto list = in.gguf->reals(in.fields.full_name(kKey));
  if (!list) return in.fields.refuse(list.error().code, list.error().message, kKey);
  if ((*list)->size() != s.layers.size())
    return in.fields.refuse(ErrorCode::kBadFile, in.fields.full_name(kKey) + " has no entry for each layer",
                            kKey);
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    if (std::isfinite((**list)[i])) cut(s.layers[i], static_cast<double>((**list)[i]));
  }
}

}  // namespace

static constexpr TensorName kRows[] = {{"post_attention_layernorm", "post_attention_norm"},
                                       {"pre_feedforward_layernorm", "ffn_norm"},
                                       {"post_feedforward_layernorm", "post_ffw_norm"},
                                       {"per_layer_input_gate", "inp_gate"},
                                       {"per_layer_projection", "proj"},
                                       {"post_per_layer_input_norm", "post_norm"},
                                       {"altup.modality_router", "altup_router"},
                                       {"altup.router_norm", "altup_router_norm"},
                                       {"altup.prediction_coefs", "altup_predict_coef"},
                                       {"altup.correction_coefs", "altup_correct_coef"},
                                       {"altup.correct_output_scale", "altup_correct_scale.weight"},
                                       {"laurel.linear_left", "laurel_l"},
                                       {"laurel.linear_right", "laurel_r"},
                                       {"laurel.post_laurel_norm", "laurel_post_norm"}};
const TensorNames kGemma3nNames = kRows;

Result<DecoderSpec> gemma3n_from_hf(const FamilyInput& in) {
  auto s = gemma3n_like_from_hf(in, {.layer_type = "full_attention"});
  if (!s) return s;
  FieldReader& f = in.fields;
  s->logit_softcap = logit_softcap_from_hf(in);
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), kFullEvery);
  const Json* v5 = in.config->find("rope_parameters");
  const HfRope local{.layer_type = "sliding_attention",
                     .theta_key = "rope_local_base_freq",
                     .scaled = v5 != nullptr && !v5->is_null()};
  set_rotary(*s, {s->ropes[0], rope_from_hf(in, s->head_dim, local)});
  use_local_rope(*s);
  share_kv(f, *s, static_cast<std::int32_t>(f.integer("num_kv_shared_layers", 0, s->num_layers - 1, 0)),
           "num_kv_shared_layers");
  set_ffn(*s, by_layer(in, "intermediate_size", s->num_layers, 1, kMaxFfn));
  cuts_from_hf(in, *s);
  s->per_layer = per_layer_from_hf(in, 1);
  s->streams.count = static_cast<std::int32_t>(f.integer("altup_num_inputs", 2, ops::kMaxStreams));
  s->streams.active = static_cast<std::int32_t>(f.integer("altup_active_idx", 0, s->streams.count - 1));
  s->streams.scaled = f.boolean("altup_correct_scale", false);
  s->streams.laurel_rank = static_cast<std::int32_t>(f.integer("laurel_rank", 1, kMaxRank));
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gemma3n_from_gguf(const FamilyInput& in) {
  auto s = gemma3n_like_from_gguf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  s->logit_softcap = static_cast<float>(f.real("final_logit_softcapping", 0, 1e6, 30.0));
  if (!f.has("attention.sliding_window_pattern")) {
    const auto window = static_cast<std::int32_t>(f.integer("attention.sliding_window", 1, 1 << 30, kWindow));
    s->layers = window_layers(s->num_layers, window, kFullEvery);
  }
  set_rotary(*s, {s->ropes[0], local_rope_from_gguf(in, s->head_dim)});
  use_local_rope(*s);
  const std::int64_t usual = std::max(s->num_layers - kKeepers, 0);
  share_kv(f, *s,
           static_cast<std::int32_t>(f.integer("attention.shared_kv_layers", 0, s->num_layers - 1, usual)),
           "attention.shared_kv_layers");
  set_ffn(*s, by_layer(in, "feed_forward_length", s->num_layers, 1, kMaxFfn));
  cuts_from_gguf(in, *s);
  s->per_layer = per_layer_from_gguf(in, 1, 256);
  s->streams.count = static_cast<std::int32_t>(f.integer("altup.num_inputs", 2, ops::kMaxStreams, 4));
  s->streams.active = static_cast<std::int32_t>(f.integer("altup.active_idx", 0, s->streams.count - 1, 0));
  s->streams.stacked = true;
  const Tensor* left = in.files.find("blk.0.laurel_l.weight");
  s->streams.laurel_rank = left != nullptr && left->shape.size() == 2 && left->shape[0] <= kMaxRank
                               ? static_cast<std::int32_t>(left->shape[0])
                               : 64;
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
