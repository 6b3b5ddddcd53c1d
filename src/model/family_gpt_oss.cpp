// gpt-oss: a window in every other layer, a sink a head, biases everywhere, experts with a clamped SwiGLU, and a
// yarn whose ramp is not rounded.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

void set_rules(DecoderSpec& s) {
  s.sinks = true;
  s.experts.score = ops::RouterScore::kChosenSoftmax;
  s.experts.glu = ops::ExpertGlu::kClampedSilu;
}

}  // namespace

Result<DecoderSpec> gpt_oss_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  auto s = llama_like_from_hf(in);
  if (!s) return s;
  s->qkv_bias = s->o_bias = f.boolean("attention_bias", false);
  s->layers = layers_from_hf(in, s->num_layers, window_from_hf(in), 2);
  experts_from_hf(in, *s, 0);
  set_rules(*s);
  ExpertSpec& e = s->experts;
  e.router_bias = e.bias = true;
  e.alpha = static_cast<float>(f.real("swiglu_alpha", -1e3, 1e3));
  e.limit = static_cast<float>(f.real("swiglu_limit", 0, 1e30));
  const Tensor* fused = in.files.find("blk.0.ffn_gate_up_exps.weight");
  if (fused != nullptr)  // floats lie transposed, MXFP4 does not
    e.layout = fused->type.block_elements > 1 ? ExpertLayout::kFusedTurns : ExpertLayout::kFusedTransposed;
  check_experts(f, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> gpt_oss_from_gguf(const FamilyInput& in) {
  static constexpr std::string_view kKnows[] = {"expert_count"};
  auto s = llama_like_from_gguf(in, {.full_every = 2, .knows = kKnows});
  if (!s) return s;
  s->ffn_norm_is_post = true;
  for (RopeSpec& r : s->ropes) r.truncate = false;
  experts_from_gguf(in, *s);
  set_rules(*s);
  s->experts.alpha = 1.702f;  // no keys say so
  s->experts.limit = 7.0f;
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

}  // namespace barg::model
