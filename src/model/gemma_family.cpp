#include "model/gemma_family.h"

#include <cmath>
#include <optional>

namespace barg::model {
namespace {

constexpr std::int64_t kMaxWidth = 1 << 16;  // of a layer's inputs
constexpr std::int64_t kMaxVocab = 1 << 24;

void set_plain_gemma(DecoderSpec& s) {
  s.activation = ops::Activation::kGeluTanh;
  s.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(s.hidden)));
  s.attention_scale = 1;
  s.norm_place = NormPlace::kAround;
  s.qk_norm = QkNorm::kHeads;
  s.v_norm = true;
}

}  // namespace

Result<DecoderSpec> gemma3n_like_from_hf(const FamilyInput& in, const HfRope& rope) {
  auto s = llama_like_from_hf(in, {.activation_key = "hidden_activation",
                                   .activation = ops::Activation::kGeluTanh,
                                   .rope = rope,
                                   .lists = true});
  if (!s) return s;
  const ops::Activation activation = s->activation;
  set_plain_gemma(*s);
  s->activation = activation;
  s->qkv_bias = s->o_bias = in.fields.boolean("attention_bias", false);
  return s;
}

Result<DecoderSpec> gemma3n_like_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count", "final_logit_softcapping",
                                                "attention.shared_kv_layers"};
  auto s = llama_like_from_gguf(in, {.knows = kKnows, .lists = true});
  if (s) set_plain_gemma(*s);
  return s;
}

float logit_softcap_from_hf(const FamilyInput& in) {
  return static_cast<float>(in.fields.real("final_logit_softcapping", 1e-6, 1e6, 0.0));
}

PerLayerSpec per_layer_from_hf(const FamilyInput& in, std::int32_t least) {
  FieldReader& f = in.fields;
  PerLayerSpec out;
  // Gemma 4's unified class has none.
  const auto none = least > 0 ? std::nullopt : std::optional<std::int64_t>(0);
  out.width = static_cast<std::int32_t>(f.integer("hidden_size_per_layer_input", least, kMaxWidth, none));
  if (out.width > 0) out.rows = static_cast<std::int32_t>(f.integer("vocab_size_per_layer_input", 1, kMaxVocab));
  return out;
}

PerLayerSpec per_layer_from_gguf(const FamilyInput& in, std::int32_t least, std::int32_t absent) {
  PerLayerSpec out;
  out.width = static_cast<std::int32_t>(
      in.fields.integer("embedding_length_per_layer_input", least, kMaxWidth, absent));
  const Tensor* t = in.files.find("per_layer_token_embd.weight");
  if (t != nullptr && t->shape.size() == 2 && t->shape[0] > 0 && t->shape[0] <= kMaxVocab)
    out.rows = static_cast<std::int32_t>(t->shape[0]);
  if (out.width > 0 && out.rows == 0) {
    in.fields.refuse(ErrorCode::kBadFile, "tensor per_layer_token_embd.weight is missing or not a matrix",
                     "embedding_length_per_layer_input");
  }
  return out;
}

RopeSpec local_rope_from_gguf(const FamilyInput& in, std::int32_t head_dim) {
  RopeSpec out;
  out.theta = in.fields.real("rope.freq_base_swa", 1e-3, 1e18, 10000.0);
  out.rotary_dim =
      static_cast<std::int32_t>(in.fields.integer("rope.dimension_count_swa", 2, head_dim, head_dim));
  if (out.rotary_dim % 2 != 0)
    in.fields.refuse(ErrorCode::kBadFile, "rope.dimension_count_swa is not an even number",
                     "rope.dimension_count_swa");
  return out;
}

void set_ffn(DecoderSpec& s, const std::vector<std::int32_t>& ffn) {
  for (std::size_t i = 0; i < s.layers.size(); ++i) s.layers[i].ffn = ffn[i] != s.ffn ? ffn[i] : 0;
}

}  // namespace barg::model
