// Qwen3-MoE: Qwen3 whose feed-forward halves are experts, but for some that are dense.
#include "model/family.h"
#include "model/moe_family.h"

namespace barg::model {
namespace {

/// Layers in mlp_only_layers are dense, and those that decoder_sparse_step passes over.
void set_dense_layers(const FamilyInput& in, DecoderSpec& s) {
  const auto step = in.fields.integer("decoder_sparse_step", 1, 1 << 20, 1);
  for (std::int64_t i = 0; i < s.num_layers; ++i) {
    if ((i + 1) % step != 0) s.layers[static_cast<std::size_t>(i)].feed = FeedKind::kDense;
  }
  const Json* list = in.config->find("mlp_only_layers");
  if (list == nullptr || list->is_null()) return;
  for (std::size_t i = 0; list->is_array() && i < list->size(); ++i) {
    const Json& layer = list->as_array()[i];
    if (layer.type() == Json::Type::kInt && layer.as_int() >= 0 && layer.as_int() < s.num_layers)
      s.layers[static_cast<std::size_t>(layer.as_int())].feed = FeedKind::kDense;
  }
  if (!list->is_array())
    in.fields.refuse(ErrorCode::kBadFile, "mlp_only_layers is not a list of layers", "mlp_only_layers");
}

}  // namespace

Result<DecoderSpec> qwen3_moe_from_hf(const FamilyInput& in) {
  auto s = qwen3_from_hf(in);
  if (!s) return s;
  experts_from_hf(in, *s, 0);
  set_dense_layers(in, *s);
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
