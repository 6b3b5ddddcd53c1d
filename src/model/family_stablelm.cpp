// StableLM 2 and 3B: LayerNorms with biases, a quarter of each head rotates. The 12 B model norms each head
// of q and k with weights of its own, and its halves read one norm.
#include "model/family.h"

namespace barg::model {
namespace {

void set_stablelm(DecoderSpec& s, bool parallel) {
  s.norm.kind = ops::NormKind::kLayer;
  s.norm.bias = true;
  if (parallel) s.norm_place = NormPlace::kParallel;
}

}  // namespace

static constexpr TensorName kStableLmRows[] = {{"self_attn.q_layernorm.norms.*", "attn_q_norm.*"},
                                               {"self_attn.k_layernorm.norms.*", "attn_k_norm.*"}};
const TensorNames kStableLmNames = kStableLmRows;

Result<DecoderSpec> stablelm_from_hf(const FamilyInput& in) {
  auto s = llama_like_from_hf(in, {.eps_key = "layer_norm_eps"});
  if (!s) return s;
  FieldReader& f = in.fields;
  set_stablelm(*s, f.boolean("use_parallel_residual", false));
  s->qkv_bias = f.boolean("use_qkv_bias", false);
  if (f.boolean("qk_layernorm", false)) s->qk_norm = QkNorm::kOwnHeadsApart;
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> stablelm_from_gguf(const FamilyInput& in) {
  auto s = llama_like_from_gguf(in, {.eps_key = "attention.layer_norm_epsilon"});
  if (!s) return s;
  set_stablelm(*s, in.files.find("blk.0.ffn_norm.weight") == nullptr);
  if (in.files.find("blk.0.attn_q_norm.weight") != nullptr) s->qk_norm = QkNorm::kOwnHeads;
  return s;
}

}  // namespace barg::model
