#include "model/moe_family.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>

#include "model/printable.h"

namespace barg::model {
namespace {

/// The first of the keys that the config has.
std::string_view spelled(const FieldReader& f, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (f.has(key)) return key;
  }
  return *keys.begin();
}

void give_experts(DecoderSpec& s, std::int32_t first) {
  for (std::int32_t i = std::max(first, 0); i < s.num_layers; ++i)
    s.layers[static_cast<std::size_t>(i)].feed = FeedKind::kExperts;
}

/// "blk.N." of the first layer with experts.
std::string first_layer(const DecoderSpec& s) {
  for (std::int32_t i = 0; i < s.num_layers; ++i) {
    if (has_experts(s.layers[static_cast<std::size_t>(i)].feed)) return "blk." + std::to_string(i) + ".";
  }
  return "blk.";
}

void set_layout(const FamilyInput& in, DecoderSpec& s) {
  const std::string blk = first_layer(s);
  const bool stacks = in.files.find(blk + "ffn_down_exps.weight") != nullptr;
  const Tensor* fused = in.files.find(blk + "ffn_gate_up_exps.weight");
  s.experts.layout = fused != nullptr ? ExpertLayout::kFused : stacks ? ExpertLayout::kStacks : ExpertLayout::kEach;
  if (s.experts.layout != ExpertLayout::kEach || in.fields.error()) return;
  // Before a list of their names is made.
  const auto layers =
      std::count_if(s.layers.begin(), s.layers.end(), [](const LayerSpec& l) { return has_experts(l.feed); });
  if (layers * s.experts.count > std::ssize(in.files.tensors())) {
    in.fields.refuse(ErrorCode::kBadFile,
                     "the config promises " + std::to_string(s.experts.count) + " experts in " +
                         std::to_string(layers) + " layers but there are only " +
                         std::to_string(in.files.tensors().size()) + " tensors",
                     "num_experts");
  }
}

}  // namespace

void experts_from_hf(const FamilyInput& in, DecoderSpec& s, std::int32_t first) {
  FieldReader& f = in.fields;
  ExpertSpec& e = s.experts;
  e.count = static_cast<std::int32_t>(
      f.integer(spelled(f, {"num_local_experts", "num_experts", "n_routed_experts"}), 1, ops::kMaxExperts));
  e.chosen = static_cast<std::int32_t>(f.integer(
      spelled(f, {"num_experts_per_tok", "experts_per_token", "top_k_experts"}), 1, ops::kMaxExperts));
  e.ffn = static_cast<std::int32_t>(f.integer(spelled(f, {"moe_intermediate_size", "intermediate_size"}), 1, kMaxFfn));
  give_experts(s, first);
  set_layout(in, s);
}

void grouped_router_from_hf(const FamilyInput& in, ExpertSpec& e) {
  FieldReader& f = in.fields;
  e.score = ops::RouterScore::kSigmoid;
  e.choice_bias = true;
  e.normalise = f.boolean("norm_topk_prob", false);
  e.norm_epsilon = 1e-20f;
  e.scale = static_cast<float>(f.real("routed_scaling_factor", 0, 1e6));
  e.groups = static_cast<std::int32_t>(f.integer("n_group", 1, ops::kMaxExperts, 1));
  e.kept_groups = static_cast<std::int32_t>(f.integer("topk_group", 1, ops::kMaxExperts, 1));
  e.group_top2 = true;
  const auto shared = static_cast<std::int32_t>(f.integer("n_shared_experts", 0, 1024));
  e.shared_ffn = static_cast<std::int32_t>(std::min(std::int64_t{shared} * e.ffn, kMaxFfn));
}

void experts_from_gguf(const FamilyInput& in, DecoderSpec& s) {
  FieldReader& f = in.fields;
  ExpertSpec& e = s.experts;
  drop_prediction_layers(in, s);
  e.count = static_cast<std::int32_t>(f.integer("expert_count", 1, ops::kMaxExperts));
  e.chosen = static_cast<std::int32_t>(f.integer("expert_used_count", 1, ops::kMaxExperts));
  e.ffn = static_cast<std::int32_t>(f.integer("expert_feed_forward_length", 1, kMaxFfn, s.ffn));
  const auto shared = f.integer("expert_shared_count", 0, 1024, 0);
  e.shared_ffn = static_cast<std::int32_t>(
      f.integer("expert_shared_feed_forward_length", 0, kMaxFfn, std::min(shared * e.ffn, kMaxFfn)));
  if (shared == 0) e.shared_ffn = 0;
  e.normalise = f.boolean("expert_weights_norm", e.normalise);
  e.scale = static_cast<float>(f.real("expert_weights_scale", 0, 1e6, 1.0));
  if (e.scale == 0) e.scale = 1;  // writers use 0 for "none"
  e.groups = static_cast<std::int32_t>(f.integer("expert_group_count", 0, ops::kMaxExperts, 1));
  e.kept_groups = static_cast<std::int32_t>(f.integer("expert_group_used_count", 0, ops::kMaxExperts, e.groups));
  if (e.groups == 0) e.groups = e.kept_groups = 1;
  switch (f.integer("expert_gating_func", 0, 4, 0)) {
    case 0:
      break;  // the family's own
    case 1:
      e.score = ops::RouterScore::kSoftmax;
      break;
    case 2:
      e.score = ops::RouterScore::kSigmoid;
      break;
    case 3:
      e.score = ops::RouterScore::kChosenSoftmax;
      break;
    default:
      refuse_value(f, "expert_gating_func", "4", "1, 2, 3");
  }
  give_experts(s, static_cast<std::int32_t>(f.integer("leading_dense_block_count", 0, s.num_layers, 0)));
  set_layout(in, s);
  const std::string blk = first_layer(s);
  e.choice_bias = in.files.find(blk + "exp_probs_b.bias") != nullptr;
  e.router_bias = in.files.find(blk + "ffn_gate_inp.bias") != nullptr;
  e.bias = in.files.find(blk + "ffn_down_exps.bias") != nullptr;
}

void dense_layers_from_hf(const FamilyInput& in, DecoderSpec& s) {
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

void check_experts(FieldReader& f, const DecoderSpec& s) {
  const ExpertSpec& e = s.experts;
  if (f.error()) return;
  const auto bad = [&](const std::string& message, const char* key) {
    f.refuse(ErrorCode::kBadFile, message, key);
  };
  if (e.chosen > e.count) {
    return bad(std::to_string(e.chosen) + " of " + std::to_string(e.count) + " experts are to be chosen",
               "num_experts_per_tok");
  }
  if (e.groups > e.count || e.count % e.groups != 0 || e.kept_groups < 1 || e.kept_groups > e.groups) {
    return bad(std::to_string(e.count) + " experts in " + std::to_string(e.groups) + " groups, " +
                   std::to_string(e.kept_groups) + " of which are kept",
               "n_group");
  }
  if (e.chosen > e.count / e.groups * e.kept_groups) {
    return bad("the groups that are kept hold fewer than the " + std::to_string(e.chosen) + " experts to be chosen",
               "topk_group");
  }
  if (std::int64_t{e.count} * std::max(2 * std::int64_t{e.ffn}, std::int64_t{s.hidden}) >
      std::numeric_limits<std::int32_t>::max()) {
    return bad("the matrices of " + std::to_string(e.count) + " experts of width " + std::to_string(e.ffn) +
                   " have too many rows",
               "num_experts");
  }
}

}  // namespace barg::model
