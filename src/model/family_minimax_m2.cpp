// MiniMax-M2: one norm over all heads of q, and of k; half of each head rotates; experts chosen by sigmoids with a
// bias.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {

Result<DecoderSpec> minimax_m2_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  // Published configs give the rotated width itself.
  const double rotated = f.real("rotary_dim", 0, kMaxHeadDim, 0.0), dim = f.real("head_dim", 2, kMaxHeadDim);
  const double share = rotated > 0 && rotated <= dim ? rotated / dim : 1;
  auto s = llama_like_from_hf(in, {.rope = {.share = share}});
  if (!s) return s;
  if (f.boolean("use_qk_norm", true)) s->qk_norm = QkNorm::kRow;
  experts_from_hf(in, *s, 0);
  ExpertSpec& e = s->experts;
  const std::string score = f.text("scoring_func", "sigmoid");
  if (score != "sigmoid") refuse_value(f, "scoring_func", '"' + score + '"', "sigmoid");
  if (f.integer("shared_intermediate_size", 0, 1 << 24, 0) != 0)
    refuse_value(f, "shared_intermediate_size", "a value other than 0", "0");
  e.score = ops::RouterScore::kSigmoid;
  e.choice_bias = f.boolean("use_routing_bias", true);
  e.normalise = true;
  check_experts(f, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> minimax_m2_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.knows = kKnows});
  if (!s) return s;
  s->qk_norm = QkNorm::kRow;
  s->experts.score = ops::RouterScore::kSigmoid;
  s->experts.normalise = true;
  experts_from_gguf(in, *s);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
