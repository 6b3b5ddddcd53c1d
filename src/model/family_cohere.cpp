// Cohere (Command R) and Cohere2 (Command R7B): both halves read one LayerNorm, neighbours rotate, logits are
// scaled. Command R may norm each head of q and k with weights of its own; Cohere2 has windows in three
// layers of four, and the fourth does not encode positions.
#include "model/family.h"

namespace barg::model {
namespace {

constexpr std::int32_t kFullEvery = 4;
constexpr std::string_view kKnows[] = {"logit_scale"};

void set_cohere(DecoderSpec& s) {
  s.norm.kind = ops::NormKind::kLayer;
  s.norm_place = NormPlace::kParallel;
  s.interleaved_qk = s.ropes[0].rotary_dim;
}

Result<DecoderSpec> cohere_like_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in, {.eps_key = "layer_norm_eps"});
  if (!s) return s;
  set_cohere(*s);
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  s->logit_scale = static_cast<float>(in.fields.real("logit_scale", 1e-6, 1e6));
  return s;
}

Result<DecoderSpec> cohere_like_from_gguf(const FamilyInput& in, std::int32_t full_every) {
  auto s = llama_like_from_gguf(in, {.eps_key = "attention.layer_norm_epsilon",
                                     .interleaved = true,
                                     .full_every = full_every,
                                     .knows = kKnows});
  if (!s) return s;
  set_cohere(*s);
  s->logit_scale = static_cast<float>(in.fields.real("logit_scale", 1e-6, 1e6, 1.0));
  return s;
}

void rotate_windows_only(DecoderSpec& s) {
  for (LayerSpec& l : s.layers) l.rope = l.window > 0 ? 0 : -1;
}

}  // namespace

Result<DecoderSpec> cohere_from_hf(const FamilyInput& in) {
  auto s = cohere_like_from_hf(in);
  if (!s) return s;
  if (in.fields.boolean("use_qk_norm", false)) s->qk_norm = QkNorm::kOwnHeads;
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> cohere_from_gguf(const FamilyInput& in) {
  auto s = cohere_like_from_gguf(in, 0);
  if (!s) return s;
  if (in.files.find("blk.0.attn_q_norm.weight") != nullptr) s->qk_norm = QkNorm::kOwnHeads;
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> cohere2_from_hf(const FamilyInput& in) {
  auto s = cohere_like_from_hf(in);
  if (!s) return s;
  const char* pattern =
      in.fields.has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  const auto every = static_cast<std::int32_t>(in.fields.integer(pattern, 1, 1 << 20));
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), every);
  rotate_windows_only(*s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> cohere2_from_gguf(const FamilyInput& in) {
  auto s = cohere_like_from_gguf(in, kFullEvery);
  if (!s) return s;
  rotate_windows_only(*s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
