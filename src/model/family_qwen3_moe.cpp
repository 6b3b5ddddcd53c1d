// Qwen3-MoE: Qwen3 whose feed-forward halves are experts, but for some that are dense.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {

Result<DecoderSpec> qwen3_moe_from_hf(const FamilyInput& in) {
  auto s = qwen3_from_hf(in);
  if (!s) return s;
  experts_from_hf(in, *s, 0);
  dense_layers_from_hf(in, *s);
  s->experts.normalise = in.fields.boolean("norm_topk_prob", false);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> qwen3_moe_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.knows = kKnows});
  if (!s) return s;
  s->qk_norm = QkNorm::kHeads;
  s->experts.normalise = true;  // no key says so, and every released model does
  experts_from_gguf(in, *s);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
