#include "model/family.h"

#include <charconv>
#include <cstring>
#include <set>
#include <utility>

#include "model/printable.h"
#include "model/recurrent.h"

namespace barg::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "llama", "llama", llama_from_hf, llama_from_gguf},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", "smollm3", smollm3_from_hf, smollm3_from_gguf},
    {"mistral", "MistralForCausalLM", "mistral", nullptr, mistral_from_hf, nullptr},
    {"ministral3", "Ministral3ForCausalLM", "ministral3", "mistral3", ministral3_from_hf, ministral3_from_gguf},
    {"ministral3", "Mistral3ForConditionalGeneration", "mistral", nullptr, ministral3_from_hf, nullptr},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", "qwen2", qwen2_from_hf, qwen2_from_gguf},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", "qwen3", qwen3_from_hf, qwen3_from_gguf},
    {"qwen3", "Qwen3Model", "qwen3", nullptr, qwen3_from_hf, nullptr, nullptr, nullptr, Pooling::kLast},
    {"bert", "BertModel", "bert", "bert", bert_from_hf, bert_from_gguf, &kBertNames, nullptr, Pooling::kMean},
    {"qwen3-next", "Qwen3NextForCausalLM", "qwen3_next", "qwen3next", qwen3_next_from_hf, qwen3_next_from_gguf,
     &kQwen35Names},
    {"qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text", "qwen35", qwen35_from_hf, qwen35_from_gguf, &kQwen35Names},
    {"qwen35", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", nullptr, qwen35_from_hf, nullptr, &kQwen35Names},
    {"qwen35-moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen35moe", qwen35_moe_from_hf, qwen35_moe_from_gguf,
     &kQwen35Names},
    {"qwen35-moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", nullptr, qwen35_moe_from_hf,
     nullptr, &kQwen35Names},
    {"mamba2", "Mamba2ForCausalLM", "mamba2", "mamba2", mamba2_from_hf, mamba2_from_gguf, &kMamba2Names},
    {"bamba", "BambaForCausalLM", "bamba", nullptr, bamba_from_hf, nullptr, &kBambaNames},
    {"granite-hybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid", "granitehybrid", granite_hybrid_from_hf,
     granite_hybrid_from_gguf, &kGraniteHybridNames},
    {"falcon-h1", "FalconH1ForCausalLM", "falcon_h1", "falcon-h1", falcon_h1_from_hf, falcon_h1_from_gguf,
     &kFalconH1Names,
     &kFalconH1GgufNames},
    {"lfm2", "Lfm2ForCausalLM", "lfm2", "lfm2", lfm2_from_hf, lfm2_from_gguf, &kLfm2Names, &kLfm2GgufNames},
    {"gemma", "GemmaForCausalLM", "gemma", "gemma", gemma_from_hf, gemma_from_gguf},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", "gemma2", gemma2_from_hf, gemma2_from_gguf, &kGemmaNames},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", "gemma3", gemma3_from_hf, gemma3_from_gguf, &kGemmaNames},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", nullptr, gemma3_from_hf, nullptr, &kGemmaNames},
    {"gemma3n", "Gemma3nForCausalLM", "gemma3n_text", "gemma3n", gemma3n_from_hf, gemma3n_from_gguf, &kGemma3nNames},
    {"gemma3n", "Gemma3nForConditionalGeneration", "gemma3n_text", nullptr, gemma3n_from_hf, nullptr, &kGemma3nNames},
    {"gemma4", "Gemma4ForCausalLM", "gemma4_text", "gemma4", gemma4_from_hf, gemma4_from_gguf, &kGemma4Names},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", nullptr, gemma4_from_hf, nullptr, &kGemma4Names},
    {"gemma4", "Gemma4UnifiedForCausalLM", "gemma4_unified_text", nullptr, gemma4_from_hf, nullptr, &kGemma4Names},
    {"gemma4", "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text", nullptr, gemma4_from_hf,
     nullptr, &kGemma4Names},
    {"phi3", "Phi3ForCausalLM", "phi3", "phi3", phi3_from_hf, phi3_from_gguf},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", "olmo2", olmo2_from_hf, olmo2_from_gguf, &kOlmo2Names},
    {"olmo3", "Olmo3ForCausalLM", "olmo3", nullptr, olmo3_from_hf, nullptr, &kOlmo2Names},
    {"granite", "GraniteForCausalLM", "granite", "granite", granite_from_hf, granite_from_gguf},
    {"cohere", "CohereForCausalLM", "cohere", "command-r", cohere_from_hf, cohere_from_gguf},
    {"cohere2", "Cohere2ForCausalLM", "cohere2", "cohere2", cohere2_from_hf, cohere2_from_gguf},
    {"mixtral", "MixtralForCausalLM", "mixtral", nullptr, mixtral_from_hf, nullptr},
    {"qwen3-moe", "Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", qwen3_moe_from_hf, qwen3_moe_from_gguf},
    {"gpt-oss", "GptOssForCausalLM", "gpt_oss", "gpt-oss", gpt_oss_from_hf, gpt_oss_from_gguf},
    {"minimax-m2", "MiniMaxM2ForCausalLM", "minimax_m2", "minimax-m2", minimax_m2_from_hf, minimax_m2_from_gguf},
    {"glm4-moe", "Glm4MoeForCausalLM", "glm4_moe", "glm4moe", glm4_moe_from_hf, glm4_moe_from_gguf},
    {"deepseek-v2", "DeepseekV2ForCausalLM", "deepseek_v2", nullptr, deepseek_v2_from_hf, nullptr},
    {"deepseek-v3", "DeepseekV3ForCausalLM", "deepseek_v3", "deepseek2", deepseek_v3_from_hf, deepseek2_from_gguf},
    {"glm", "GlmForCausalLM", "glm", nullptr, glm_from_hf, nullptr},
    {"glm4", "Glm4ForCausalLM", "glm4", "glm4", glm4_from_hf, glm4_from_gguf, &kGlm4Names},
    {"stablelm", "StableLmForCausalLM", "stablelm", "stablelm", stablelm_from_hf, stablelm_from_gguf,
     &kStableLmNames},
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + "]";
}

struct TensorList {
  const DecoderSpec& s;
  std::string blk;
  std::vector<RequiredTensor> out;

  void matrix(const std::string& name, std::int64_t n, std::int64_t k, bool bias) {
    out.push_back({blk + name + ".weight", {n, k}});
    if (bias) out.push_back({blk + name + ".bias", {n}});
  }
  void norm(const std::string& name) {
    out.push_back({blk + name + ".weight", {s.hidden}});
    if (s.norm.bias) out.push_back({blk + name + ".bias", {s.hidden}});
  }
  void head_norm(const std::string& name, std::int64_t heads, std::int64_t d) {
    if (s.qk_norm == QkNorm::kHeads) out.push_back({blk + name + ".weight", {d}});
    if (s.qk_norm == QkNorm::kOwnHeads) out.push_back({blk + name + ".weight", {heads, d}});
    if (s.qk_norm == QkNorm::kRow) out.push_back({blk + name + ".weight", {heads * d}});
    for (std::int64_t i = 0; s.qk_norm == QkNorm::kOwnHeadsApart && i < heads; ++i)
      out.push_back({blk + name + "." + std::to_string(i) + ".weight", {d}});
  }
  void attention(const LayerSpec& l) {
    const LayerShape shape = shape_of(s, l);
    const std::int64_t h = s.hidden, q = shape.q_width, kv = shape.kv_width;
    const bool own = l.kv_of < 0;
    if (s.fused_qkv) {
      matrix("attn_qkv", q + 2 * kv, h, s.qkv_bias);
    } else {
      matrix("attn_q", s.attention_gate ? 2 * q : q, h, s.qkv_bias);
      if (own) matrix("attn_k", kv, h, s.qkv_bias);
      if (own && !l.v_is_k) matrix("attn_v", kv, h, s.qkv_bias);
    }
    head_norm("attn_q_norm", s.num_q_heads, shape.head_dim);
    if (own) head_norm("attn_k_norm", shape.num_kv_heads, shape.head_dim);
    if (s.sinks) out.push_back({blk + "attn_sinks.weight", {s.num_q_heads}});
    matrix("attn_output", h, q, s.o_bias);
  }
  void latent() {
    const LatentSpec& l = s.latent;
    const std::int64_t heads = s.num_q_heads, query = heads * (l.nope_dim + l.rope_dim);
    if (l.q_rank > 0) {
      matrix("attn_q_a", l.q_rank, s.hidden, false);
      out.push_back({blk + "attn_q_a_norm.weight", {l.q_rank}});
      matrix("attn_q_b", query, l.q_rank, false);
    } else {
      matrix("attn_q", query, s.hidden, false);
    }
    matrix("attn_kv_a_mqa", l.kv_rank + l.rope_dim, s.hidden, false);
    out.push_back({blk + "attn_kv_a_norm.weight", {l.kv_rank}});
    if (l.split_kv_b) {
      out.push_back({blk + "attn_k_b.weight", {heads, l.kv_rank, l.nope_dim}});
      out.push_back({blk + "attn_v_b.weight", {heads, l.value_dim, l.kv_rank}});
    } else {
      matrix("attn_kv_b", heads * (l.nope_dim + l.value_dim), l.kv_rank, false);
    }
    matrix("attn_output", s.hidden, heads * l.value_dim, false);
  }
  /// `name` with the matrices [n, k] of all experts.
  void stack(const std::string& name, std::int64_t n, std::int64_t k) {
    const ExpertSpec& e = s.experts;
    const bool transposed = e.layout == ExpertLayout::kFusedTransposed;
    out.push_back({blk + name + ".weight", {e.count, transposed ? k : n, transposed ? n : k}});
    if (e.bias) out.push_back({blk + name + ".bias", {e.count, n}});
  }
  void experts() {
    const ExpertSpec& e = s.experts;
    const std::int64_t h = s.hidden;
    matrix("ffn_gate_inp", e.count, h, e.router_bias);
    if (e.choice_bias) out.push_back({blk + "exp_probs_b.bias", {e.count}});
    if (e.router_norm) out.push_back({blk + "ffn_gate_inp.scale", {h}});
    if (e.expert_scales) out.push_back({blk + "ffn_down_exps.scale", {e.count}});
    switch (e.layout) {
      case ExpertLayout::kStacks:
        stack("ffn_gate_exps", e.ffn, h);
        stack("ffn_up_exps", e.ffn, h);
        stack("ffn_down_exps", h, e.ffn);
        break;
      case ExpertLayout::kFused:
      case ExpertLayout::kFusedTurns:
      case ExpertLayout::kFusedTransposed:
        stack("ffn_gate_up_exps", 2 * e.ffn, h);
        stack("ffn_down_exps", h, e.ffn);
        break;
      case ExpertLayout::kEach:
        for (std::int32_t i = 0; i < e.count; ++i) {
          const std::string number = "." + std::to_string(i);
          matrix("ffn_gate" + number, e.ffn, h, false);
          matrix("ffn_up" + number, e.ffn, h, false);
          matrix("ffn_down" + number, h, e.ffn, false);
        }
    }
    if (e.shared_ffn == 0) return;
    if (e.shared_fused) {
      matrix("ffn_up", 2 * std::int64_t{e.shared_ffn}, h, false);
      matrix("ffn_down", h, e.shared_ffn, false);
    } else {
      matrix("ffn_gate_shexp", e.shared_ffn, h, false);
      matrix("ffn_up_shexp", e.shared_ffn, h, false);
      matrix("ffn_down_shexp", h, e.shared_ffn, false);
    }
    const char* const gate = "ffn_gate_inp_shexp.weight";
    if (e.shared_gate == SharedGate::kRow) out.push_back({blk + gate, {1, h}});
    if (e.shared_gate == SharedGate::kVector) out.push_back({blk + gate, {h}});
  }
  void dense(std::int64_t i) {
    if (s.gated && !s.fused_gate_up) matrix("ffn_gate", i, s.hidden, s.mlp_bias);
    matrix("ffn_up", s.fused_gate_up ? 2 * i : i, s.hidden, s.mlp_bias);
    matrix("ffn_down", s.hidden, i, s.mlp_bias);
  }
  void layer(std::int32_t i) {
    blk = "blk." + std::to_string(i) + ".";
    const LayerSpec& l = s.layers[static_cast<std::size_t>(i)];
    const NormPlace place = l.feed == FeedKind::kNone ? NormPlace::kParallel : s.norm_place;  // one norm
    if (place != NormPlace::kAfter && place != NormPlace::kBehind) norm("attn_norm");
    if (place == NormPlace::kBefore || place == NormPlace::kAround)
      norm(s.ffn_norm_is_post ? "post_attention_norm" : "ffn_norm");
    if (place == NormPlace::kAfter || place == NormPlace::kAround) {
      norm("post_attention_norm");
      norm("post_ffw_norm");
    }
    if (place == NormPlace::kBehind) {
      norm("attn_output_norm");
      norm("layer_output_norm");
    }
    if (has_attention(l.mixer)) attention(l);
    if (l.mixer == MixerKind::kLatent) latent();
    if (has_state(l.mixer)) recurrent(l.mixer);
    if (has_dense(l.feed)) dense(shape_of(s, l).ffn);
    if (has_experts(l.feed)) experts();
    if (l.feed == FeedKind::kDenseAndExperts) {
      for (const char* name : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"}) norm(name);
    }
    besides();
  }
  /// Of a layer, beside its halves.
  void besides() {
    const std::int64_t h = s.hidden, width = s.per_layer.width, streams = s.streams.count,
                       rank = s.streams.laurel_rank;
    if (width > 0) {
      matrix("inp_gate", width, h, false);
      matrix("proj", h, width, false);
      norm("post_norm");
    }
    if (s.layer_scale) out.push_back({blk + "layer_output_scale.weight", {1}});
    if (streams > 1) {
      matrix("altup_router", streams, h, false);
      matrix("altup_predict_coef", streams * streams, streams, false);
      matrix("altup_correct_coef", streams, streams, false);
      norm("altup_router_norm");
      if (s.streams.scaled) norm("altup_correct_scale");
    }
    if (rank > 0) {
      matrix("laurel_l", rank, h, false);
      matrix("laurel_r", h, rank, false);
      norm("laurel_post_norm");
    }
  }
  /// And of the whole model.
  void once() {
    const std::int64_t h = s.hidden, width = s.per_layer.width, all = s.num_layers * width;
    if (width > 0) {
      matrix("per_layer_token_embd", s.per_layer.rows, all, false);
      matrix("per_layer_model_proj", all, h, false);
      out.push_back({"per_layer_proj_norm.weight", {width}});
    }
    const std::int64_t others = s.streams.count - 1;
    for (const std::string name : {"altup_proj", "altup_unembd_proj"}) {
      if (s.streams.stacked) out.push_back({name + ".weight", {others, h, h}});
      for (std::int64_t i = 0; !s.streams.stacked && i < others; ++i)
        matrix(name + "." + std::to_string(i), h, h, false);
    }
  }
  void recurrent(MixerKind kind) {
    const RecurrentSpec& r = s.recurrent;
    const RecurrentNames names = recurrent_names(kind);
    const std::int64_t h = s.hidden, inner = r.inner(), width = recurrent_in_width(kind, r);
    switch (r.in_rows) {
      case InRows::kOne:
        matrix(names.in, width, h, r.in_bias);
        break;
      case InRows::kApart:
        matrix("attn_qkv", r.channels, h, r.in_bias);
        matrix("attn_gate", inner, h, r.in_bias);
        matrix("ssm_beta", r.heads, h, r.in_bias);
        matrix("ssm_alpha", r.heads, h, r.in_bias);
        break;
      case InRows::kByGroup:
        matrix("ssm_in", r.channels + inner, h, r.in_bias);
        matrix("ssm_ba", 2 * std::int64_t{r.heads}, h, r.in_bias);
        break;
      case InRows::kGatesByGroup:
        matrix("attn_qkv", r.channels, h, r.in_bias);
        matrix("attn_gate", inner, h, r.in_bias);
        matrix("ssm_ba", 2 * std::int64_t{r.heads}, h, r.in_bias);
        break;
    }
    matrix(names.out, h, inner, r.out_bias);
    const std::string conv = blk + names.conv;
    out.push_back({conv + ".weight", {r.channels, 1, r.kernel}});
    if (r.converted) out.back().shape = {r.channels, r.kernel};
    if (r.conv_bias) out.push_back({conv + ".bias", {r.channels}});
    if (r.heads > 0) recurrence(kind);
  }
  /// Of the heads.
  void recurrence(MixerKind kind) {
    const RecurrentSpec& r = s.recurrent;
    const bool mamba = kind != MixerKind::kDeltaNet;
    const std::int64_t part = r.inner() / r.norm_groups;
    using Shape = std::vector<std::int64_t>;
    const Shape heads = r.converted && mamba ? Shape{r.heads, 1} : Shape{r.heads};
    out.push_back({blk + "ssm_a", heads});
    out.push_back({blk + "ssm_dt.bias", {r.heads}});
    if (mamba) out.push_back({blk + "ssm_d", heads});
    if (!r.norm) return;
    const Shape whole = r.converted ? Shape{r.norm_groups, part} : Shape{r.inner()};
    out.push_back({blk + "ssm_norm.weight", r.shared_norm ? Shape{part} : whole});
  }
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::string translate_name(TensorNames rows, std::string_view name) {
  for (const TensorName& row : rows) {
    const std::size_t star = row.file.find('*');
    if (star == row.file.npos) {
      if (name == row.file) return std::string(row.canonical);
      continue;
    }
    const std::string_view head = row.file.substr(0, star), tail = row.file.substr(star + 1);
    if (name.size() <= head.size() + tail.size() || !name.starts_with(head) || !name.ends_with(tail))
      continue;
    const std::string_view number = name.substr(head.size(), name.size() - head.size() - tail.size());
    if (number.find_first_not_of("0123456789") != number.npos) continue;
    std::string out(row.canonical);
    return out.replace(out.find('*'), 1, number);
  }
  return {};
}

const Family* find_hf_family(std::string_view architecture) {
  for (const Family& f : kFamilies) {
    if (f.hf_architecture != nullptr && architecture == f.hf_architecture) return &f;
  }
  return nullptr;
}

const Family* find_gguf_family(std::string_view architecture) {
  for (const Family& f : kFamilies) {
    if (f.gguf_architecture != nullptr && architecture == f.gguf_architecture) return &f;
  }
  return nullptr;
}

std::string known_hf_architectures() {
  std::string out;
  for (const Family& f : kFamilies) {
    if (f.hf_architecture != nullptr) out += (out.empty() ? "" : ", ") + std::string(f.hf_architecture);
  }
  return out;
}

std::string known_gguf_architectures() {
  std::string out;
  for (const Family& f : kFamilies) {
    if (f.gguf_architecture != nullptr) out += (out.empty() ? "" : ", ") + std::string(f.gguf_architecture);
  }
  return out;
}

std::vector<RequiredTensor> required_tensors(const DecoderSpec& s) {
  TensorList list{s, {}, {}};
  list.out.push_back({"token_embd.weight", {s.vocab_rows, s.hidden}});
  if (!s.tied && s.generates()) list.out.push_back({"output.weight", {s.vocab_rows, s.hidden}});
  if (s.tables.positions > 0) {
    list.matrix("position_embd", s.tables.positions, s.hidden, false);
    list.matrix("token_types", s.tables.types, s.hidden, false);
    list.norm("token_embd_norm");
  }
  if (s.final_norm) list.norm("output_norm");
  list.once();
  for (std::int32_t i = 0; i < s.num_layers; ++i) list.layer(i);
  return std::move(list.out);
}

Result<void> check_tensors(const DecoderSpec& spec, const ModelFiles& files) {
  // Each layer needs several tensors, so a config that promises more layers than the file holds stops here,
  // before a list of them is made.
  if (static_cast<std::uint64_t>(spec.num_layers) > files.tensors().size()) {
    return fail(ErrorCode::kBadFile, "the config promises " + std::to_string(spec.num_layers) +
                                         " layers but there are only " +
                                         std::to_string(files.tensors().size()) + " tensors");
  }
  if (spec.qk_norm == QkNorm::kOwnHeadsApart &&
      static_cast<std::uint64_t>(spec.num_layers) * static_cast<std::uint64_t>(spec.num_q_heads) >
          files.tensors().size()) {
    return fail(ErrorCode::kBadFile, "the config promises a norm for each of " +
                                         std::to_string(spec.num_q_heads) + " heads but there are only " +
                                         std::to_string(files.tensors().size()) + " tensors");
  }
  for (const RequiredTensor& need : required_tensors(spec)) {
    const Tensor* t = files.find(need.name);
    if (t == nullptr) return fail(ErrorCode::kBadFile, "tensor " + need.name + " is missing");
    if (t->shape != need.shape) {
      return fail(ErrorCode::kBadFile, "tensor " + printable(t->name) + " has shape " + shape_text(t->shape) +
                                           ", the config says " + shape_text(need.shape));
    }
  }
  return {};
}

Result<void> check_no_more_tensors(const DecoderSpec& spec, const ModelFiles& files) {
  std::set<std::string> known;
  for (RequiredTensor& need : required_tensors(spec)) known.insert(std::move(need.name));
  // Converters keep what a layer has no use for that reads another's K and V.
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    if (spec.layers[static_cast<std::size_t>(i)].kv_of < 0) continue;
    for (const char* name : {"attn_k", "attn_v", "attn_k_norm"})
      known.insert("blk." + std::to_string(i) + "." + name + ".weight");
  }
  const auto skipped = [&](const std::string& name) {
    std::int32_t layer = -1;
    std::from_chars(name.data() + std::strlen("blk."), name.data() + name.size(), layer);
    return layer >= spec.num_layers && layer < spec.num_layers + spec.skipped_layers;
  };
  for (const auto& [name, index] : files.by_canonical_name()) {
    if (name.starts_with("blk.") && !known.contains(name) && !skipped(name)) {
      return fail(ErrorCode::kUnsupported, "tensor " + printable(files.tensors()[index].name) +
                                               " is not part of a " + spec.family + " model of " +
                                               std::to_string(spec.num_layers) + " layers");
    }
  }
  return {};
}

}  // namespace barg::model
