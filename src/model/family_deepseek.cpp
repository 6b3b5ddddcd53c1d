// DeepSeek V2, V2-Lite, V3, R1 and what is one (Kimi K2): latent attention, dense layers first, then experts beside
// one that sees every row.
#include <cmath>

#include "model/family.h"
#include "model/moe_family.h"
#include "model/printable.h"
#include "model/rope.h"

namespace barg::model {
namespace {

constexpr std::int64_t kMaxRank = 1 << 20;
constexpr std::int64_t kMaxPart = 1 << 12;  // numbers of a head

/// `magnitude`: yarn's, for all dims; its square scales the scores.
void finish_latent(FieldReader& f, DecoderSpec& s, double magnitude) {
  LatentSpec& l = s.latent;
  s.head_dim = l.nope_dim + l.rope_dim;
  s.num_kv_heads = 1;
  s.attention_scale = static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(s.head_dim)));
  for (LayerSpec& layer : s.layers) layer.mixer = MixerKind::kLatent;
  if (f.error()) return;
  if (l.kv_rank + l.rope_dim > ops::kMaxLatentDim) {
    f.refuse(ErrorCode::kUnsupported,
             "the latent vector has " + std::to_string(l.kv_rank + l.rope_dim) + " numbers, and " +
                 std::to_string(ops::kMaxLatentDim) + " are supported at most",
             "kv_lora_rank");
  }
  if (std::int64_t{s.num_q_heads} * (l.nope_dim + l.value_dim) > (1 << 22))
    f.refuse(ErrorCode::kBadFile, "the attention width is too large", "num_attention_heads");
}

/// yarn's magnitude for mscale_all_dim.
double magnitude_from_hf(const FamilyInput& in, const DecoderSpec& s) {
  if (s.ropes[0].kind != RopeSpec::Kind::kYarn) return 1;
  const Json* rope = rope_object_from_hf(in);
  if (rope == nullptr) return 1;
  JsonFieldReader f(*rope, "rope_scaling");
  const double all = f.real("mscale_all_dim", 0, 1e6, 0.0);
  if (f.error()) in.fields.refuse(f.error()->code, f.error()->message, "mscale_all_dim");
  return all != 0 ? yarn_magnitude(s.ropes[0].factor, all) : 1;
}

Result<DecoderSpec> latent_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  auto s = llama_like_from_hf(in, {.head_dim_key = "qk_rope_head_dim"});
  if (!s) return s;
  if (f.boolean("attention_bias", false)) refuse_value(f, "attention_bias", "true", "false");
  LatentSpec& l = s->latent;
  const auto part = [&](const char* key) { return static_cast<std::int32_t>(f.integer(key, 1, kMaxPart)); };
  l.kv_rank = static_cast<std::int32_t>(f.integer("kv_lora_rank", 1, kMaxRank));
  l.q_rank = static_cast<std::int32_t>(f.integer("q_lora_rank", 1, kMaxRank, 0));
  l.nope_dim = part("qk_nope_head_dim");
  l.rope_dim = part("qk_rope_head_dim");
  l.value_dim = part("v_head_dim");
  l.norm_eps = 1e-6f;
  finish_latent(f, *s, magnitude_from_hf(in, *s));
  if (f.integer("moe_layer_freq", 1, 1 << 20, 1) != 1) refuse_value(f, "moe_layer_freq", "a value above 1", "1");
  experts_from_hf(in, *s, static_cast<std::int32_t>(f.integer("first_k_dense_replace", 0, s->num_layers, 0)));
  return s;
}

}  // namespace

Result<DecoderSpec> deepseek_v2_from_hf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  auto s = latent_from_hf(in);
  if (!s) return s;
  ExpertSpec& e = s->experts;
  grouped_router_from_hf(in, e);
  e.score = ops::RouterScore::kSoftmax;
  e.choice_bias = e.group_top2 = false;
  e.normalise = f.boolean("norm_topk_prob", false);
  if (e.normalise) e.scale = 1;  // one or the other
  s->latent.interleaved = true;
  const std::string method = f.text("topk_method", "greedy");
  if (method == "greedy") {
    e.groups = e.kept_groups = 1;
  } else if (method != "group_limited_greedy") {
    refuse_value(f, "topk_method", '"' + printable(method) + '"', "greedy, group_limited_greedy");
  }
  check_experts(f, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

Result<DecoderSpec> deepseek_v3_from_hf(const FamilyInput& in) {
  auto s = latent_from_hf(in);
  if (!s) return s;
  s->latent.interleaved = in.fields.boolean("rope_interleave", false);
  grouped_router_from_hf(in, s->experts);
  check_experts(in.fields, *s);
  if (in.fields.error()) return std::unexpected(*in.fields.error());
  return s;
}

Result<DecoderSpec> deepseek2_from_gguf(const FamilyInput& in) {
  FieldReader& f = in.fields;
  static constexpr std::string_view kKnows[] = {"expert_count", "attention.q_lora_rank", "attention.kv_lora_rank"};
  const auto rope_dim = static_cast<std::int32_t>(f.integer("rope.dimension_count", 2, kMaxPart));
  auto s = llama_like_from_gguf(in, {.knows = kKnows, .head_dim = rope_dim});
  if (!s) return s;
  LatentSpec& l = s->latent;
  // Newer files keep the widths of heads beside those of the latent vector.
  const bool newer = f.has("attention.key_length_mla");
  const auto key = static_cast<std::int32_t>(
      f.integer(newer ? "attention.key_length_mla" : "attention.key_length", 1, 2 * kMaxPart));
  l.rope_dim = rope_dim;
  l.nope_dim = key - rope_dim;
  l.value_dim = static_cast<std::int32_t>(
      f.integer(newer ? "attention.value_length_mla" : "attention.value_length", 1, kMaxPart));
  l.kv_rank = static_cast<std::int32_t>(f.integer("attention.kv_lora_rank", 1, kMaxRank));
  l.q_rank = static_cast<std::int32_t>(f.integer("attention.q_lora_rank", 0, kMaxRank, 0));
  l.norm_eps = s->norm.eps;
  l.split_kv_b = in.files.find("blk.0.attn_k_b.weight") != nullptr;
  if (l.nope_dim < 1)
    f.refuse(ErrorCode::kBadFile, "rope.dimension_count is not below the width of a head's key", "rope.dimension_count");
  const double stretch = f.real("rope.scaling.yarn_log_multiplier", 0, 1e3, 0.0);
  const bool yarn = s->ropes[0].kind == RopeSpec::Kind::kYarn;
  if (yarn) s->ropes[0].attention_factor = 1;  // what it says goes to the scores
  finish_latent(f, *s, yarn ? 1 + stretch * std::log(s->ropes[0].factor) : 1);
  ExpertSpec& e = s->experts;
  experts_from_gguf(in, *s);
  e.norm_epsilon = 1e-20f;
  e.group_top2 = e.choice_bias;
  check_experts(f, *s);
  if (f.error()) return std::unexpected(*f.error());
  return s;
}

}  // namespace barg::model
