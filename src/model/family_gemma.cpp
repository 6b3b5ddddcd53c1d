// Gemma 1, 2 and 3: (1 + w) norms, embeddings times sqrt(hidden), a gate through GELU. Gemma 2 norms what the
// halves give too, alternates windows and caps scores and logits; Gemma 3 norms q and k, has windows in five
// layers of six, and two ropes. GGUF files hold 1 + w.
#include <cmath>

#include "model/family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kGemma2Window = 4096;  // where a GGUF file does not say
constexpr std::int32_t kGemma3Every = 6;

/// What all three share.
void set_gemma(DecoderSpec& s, float norm_offset, ops::Activation activation = ops::Activation::kGeluTanh) {
  s.norm.offset = norm_offset;
  s.activation = activation;
  s.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(s.hidden)));
}

Result<DecoderSpec> gemma_like_from_hf(const FamilyInput& in, const HfRope& rope = {},
                                       std::string_view activation = "hidden_activation") {
  auto s = llama_like_from_hf(
      in, {.activation_key = activation, .activation = ops::Activation::kGeluTanh, .rope = rope});
  if (!s) return s;
  set_gemma(*s, 1, s->activation);
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  return s;
}

float scale_of(double query_pre_attn_scalar) {
  return static_cast<float>(1.0 / std::sqrt(query_pre_attn_scalar));
}

/// Files do not say query_pre_attn_scalar. It is the head size in all models but the 27 B ones, which are
/// known by their layers.
void set_scale_from_gguf(const FamilyInput& in, DecoderSpec& s, std::int32_t layers_of_27b) {
  if (s.num_layers == layers_of_27b && !in.fields.has("attention.scale"))
    s.attention_scale = scale_of(static_cast<double>(s.hidden) / s.num_q_heads);
}

}  // namespace

static constexpr TensorName kGemmaRows[] = {{"post_attention_layernorm", "post_attention_norm"},
                                            {"pre_feedforward_layernorm", "ffn_norm"},
                                            {"post_feedforward_layernorm", "post_ffw_norm"}};
const TensorNames kGemmaNames = kGemmaRows;

Result<DecoderSpec> gemma_from_hf(const FamilyInput& in) {
  // The first files say "gelu" in hidden_act and mean what is approximated by tanh.
  const bool other = in.fields.has("hidden_activation") || in.fields.text("hidden_act", "gelu") == "gelu";
  auto s = gemma_like_from_hf(in, {}, other ? "hidden_activation" : "hidden_act");
  if (s && in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> gemma_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in);
  if (s) set_gemma(*s, 0);
  return s;
}

Result<DecoderSpec> gemma2_from_hf(const FamilyInput& in) {
  auto s = gemma_like_from_hf(in);
  if (!s) return s;
  FieldReader& f = in.fields;
  const auto cap = [&](const char* key) { return static_cast<float>(f.real(key, 1e-6, 1e6, 0.0)); };
  s->norm_place = NormPlace::kAround;
  s->attention_softcap = cap("attn_logit_softcapping");
  s->logit_softcap = cap("final_logit_softcapping");
  s->attention_scale = scale_of(f.real("query_pre_attn_scalar", 1e-6, 1e9));
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), 2);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gemma2_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"attn_logit_softcapping", "final_logit_softcapping"};
  auto s = llama_like_from_gguf(in, {.full_every = 2, .knows = kKnows});
  if (!s) return s;
  FieldReader& f = in.fields;
  set_gemma(*s, 0);
  s->norm_place = NormPlace::kAround;
  s->attention_softcap = static_cast<float>(f.real("attn_logit_softcapping", 0, 1e6, 50.0));
  s->logit_softcap = static_cast<float>(f.real("final_logit_softcapping", 0, 1e6, 30.0));
  set_scale_from_gguf(in, *s, 46);
  if (!f.has("attention.sliding_window")) s->layers = layers_from_gguf(in, s->num_layers, kGemma2Window, 2);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gemma3_from_hf(const FamilyInput& in) {
  auto s = gemma_like_from_hf(in, {.layer_type = "full_attention"});
  if (!s) return s;
  FieldReader& f = in.fields;
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (f.has(key)) refuse_value(f, key, "a cap", "null");
  }
  s->norm_place = NormPlace::kAround;
  s->qk_norm = QkNorm::kHeads;
  s->attention_scale = scale_of(f.real("query_pre_attn_scalar", 1e-6, 1e9));
  const char* pattern =
      f.has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  const auto every = static_cast<std::int32_t>(f.integer(pattern, 1, 1 << 20));
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), every);
  const Json* v5 = in.config->find("rope_parameters");
  const bool new_spelling = v5 != nullptr && !v5->is_null();
  const HfRope local{
      .layer_type = "sliding_attention", .theta_key = "rope_local_base_freq", .scaled = new_spelling};
  set_rotary(*s, {s->ropes[0], rope_from_hf(in, s->head_dim, local)});
  use_local_rope(*s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gemma3_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.full_every = kGemma3Every});
  if (!s) return s;
  set_gemma(*s, 0);
  s->norm_place = NormPlace::kAround;
  s->qk_norm = QkNorm::kHeads;
  set_scale_from_gguf(in, *s, 62);
  RopeSpec local;
  local.rotary_dim = s->ropes[0].rotary_dim;
  local.theta = in.fields.real("rope.freq_base_swa", 1e-3, 1e18, 10000.0);
  set_rotary(*s, {s->ropes[0], local});
  use_local_rope(*s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
