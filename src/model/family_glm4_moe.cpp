// GLM-4.5 to 4.7: biases of q, k and v, half of each head rotates, and from some layer on experts with DeepSeek V3's
// router.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {

Result<DecoderSpec> glm4_moe_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = f.boolean("attention_bias", false);
  if (f.boolean("use_qk_norm", false)) s->qk_norm = QkNorm::kHeads;
  experts_from_hf(in, *s, static_cast<std::int32_t>(f.integer("first_k_dense_replace", 0, s->num_layers)));
  grouped_router_from_hf(in, s->experts);
  check_experts(f, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> glm4_moe_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.knows = kKnows});
  if (!s) return s;
  s->ffn_norm_is_post = true;
  if (in.files.find("blk.0.attn_q_norm.weight") != nullptr) s->qk_norm = QkNorm::kHeads;
  ExpertSpec& e = s->experts;
  e.score = ops::RouterScore::kSigmoid;
  e.normalise = true;
  e.norm_epsilon = 1e-20f;
  e.group_top2 = true;
  experts_from_gguf(in, *s);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
