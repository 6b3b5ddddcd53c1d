#include "model/class_defaults.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace barg::model {
namespace {

struct Row {
  std::string_view model_type;
  const char* json;
};

// Of transformers 5.24: tests/tools/config_classes.py writes what tests/model/class_defaults_test.cpp compares them
// with. Also the fallbacks that its classes have in their code: rope_theta, partial_rotary_factor,
// full_attention_interval, sliding_window_pattern, global_head_dim. Without ids of tokens; and without
// tie_word_embeddings where it is false: there is then an output matrix in the file, or nothing else that it can be.
constexpr Row kRows[] = {
    {"llama", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,
      "attention_bias":false,"mlp_bias":false,"rope_theta":10000.0})"},
    {"smollm3", R"({"vocab_size":128256,"hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,
      "num_attention_heads":16,"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":32768,
      "rms_norm_eps":1e-06,"use_sliding_window":false,"no_rope_layer_interval":4,"attention_bias":false,
      "mlp_bias":false,"tie_word_embeddings":true,"rope_theta":2000000.0})"},
    {"mistral", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,
      "rms_norm_eps":1e-06,"sliding_window":4096,"rope_theta":10000.0})"},
    {"ministral3", R"({"vocab_size":131072,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":34,
      "num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"hidden_act":"silu",
      "max_position_embeddings":262144,"rms_norm_eps":1e-05,"rope_theta":10000.0,
      "rope_parameters":{"rope_theta":1000000.0,"factor":16.0,"original_max_position_embeddings":16384,
        "beta_fast":32.0,"beta_slow":1.0,"mscale_all_dim":1.0,"mscale":1.0,"llama_4_scaling_beta":0.1,
        "rope_type":"yarn"}})"},
    {"qwen2", R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":32768,
      "rms_norm_eps":1e-06,"use_sliding_window":false,"sliding_window":4096,"max_window_layers":28,
      "rope_theta":10000.0})"},
    {"qwen3", R"({"vocab_size":151936,"hidden_size":4096,"intermediate_size":22016,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"head_dim":128,"hidden_act":"silu",
      "max_position_embeddings":32768,"rms_norm_eps":1e-06,"attention_bias":false,"use_sliding_window":false,
      "sliding_window":4096,"max_window_layers":28,"rope_theta":10000.0})"},
    {"bert", R"({"vocab_size":30522,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,
      "intermediate_size":3072,"hidden_act":"gelu","max_position_embeddings":512,"type_vocab_size":2,
      "layer_norm_eps":1e-12,"is_decoder":false,"add_cross_attention":false,"tie_word_embeddings":true})"},
    {"qwen3_next", R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":48,
      "num_attention_heads":16,"num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":32768,
      "rms_norm_eps":1e-06,"attention_bias":false,"head_dim":256,"linear_conv_kernel_dim":4,
      "linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,
      "linear_num_value_heads":32,"decoder_sparse_step":1,"moe_intermediate_size":512,
      "shared_expert_intermediate_size":512,"num_experts_per_tok":10,"num_experts":512,"norm_topk_prob":true,
      "rope_theta":10000.0,"partial_rotary_factor":0.25,"full_attention_interval":4})"},
    {"qwen3_5_text", R"({"vocab_size":248320,"hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":32,
      "num_attention_heads":16,"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":32768,
      "rms_norm_eps":1e-06,"attention_bias":false,"head_dim":256,"linear_conv_kernel_dim":4,
      "linear_key_head_dim":128,"linear_value_head_dim":128,"linear_num_key_heads":16,
      "linear_num_value_heads":32,"rope_theta":10000.0,"partial_rotary_factor":0.25,
      "full_attention_interval":4})"},
    {"qwen3_5_moe_text", R"({"vocab_size":248320,"hidden_size":2048,"num_hidden_layers":40,"num_attention_heads":16,
      "num_key_value_heads":2,"hidden_act":"silu","max_position_embeddings":32768,"rms_norm_eps":1e-06,
      "attention_bias":false,"head_dim":256,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
      "linear_value_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,
      "moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts_per_tok":8,
      "num_experts":256,"rope_theta":10000.0,"partial_rotary_factor":0.25,"full_attention_interval":4})"},
    {"mamba2", R"({"num_heads":128,"head_dim":64,"vocab_size":32768,"hidden_size":4096,"state_size":128,
      "num_hidden_layers":64,"layer_norm_epsilon":1e-05,"expand":2,"conv_kernel":4,"n_groups":8,
      "use_bias":false,"use_conv_bias":true,"hidden_act":"silu",
      "time_step_limit":[0.0,{"__float__":"Infinity"}]})"},
    {"bamba", R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu","rms_norm_eps":1e-05,
      "max_position_embeddings":262144,"mamba_n_heads":128,"mamba_d_head":"auto","mamba_n_groups":1,
      "mamba_d_state":256,"mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,"mamba_proj_bias":false,
      "time_step_limit":[0.0,{"__float__":"Infinity"}],"attention_bias":false,"mlp_bias":false,
      "rope_theta":10000.0,"partial_rotary_factor":0.5})"},
    {"granitemoehybrid", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,
      "attention_bias":false,"embedding_multiplier":1.0,"logits_scaling":1.0,"residual_multiplier":1.0,
      "attention_multiplier":1.0,"num_local_experts":8,"num_experts_per_tok":2,
      "shared_intermediate_size":1024,"mamba_n_heads":128,"mamba_n_groups":1,"mamba_d_state":256,
      "mamba_d_head":"auto","mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,"mamba_proj_bias":false,
      "time_step_limit":[0.0,{"__float__":"Infinity"}],"rope_theta":10000.0})"},
    {"falcon_h1", R"({"vocab_size":128000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu","rms_norm_eps":1e-05,
      "max_position_embeddings":8192,"mamba_d_ssm":1024,"mamba_n_heads":128,"mamba_d_head":"auto",
      "mamba_n_groups":1,"mamba_d_state":256,"mamba_d_conv":4,"mamba_expand":2,"mamba_conv_bias":true,
      "mamba_proj_bias":false,"mamba_norm_before_gate":true,"mamba_rms_norm":false,
      "time_step_limit":[0.0,{"__float__":"Infinity"}],"projectors_bias":false,"lm_head_multiplier":1.0,
      "embedding_multiplier":1.0,"key_multiplier":1.0,"attention_out_multiplier":1.0,
      "attention_in_multiplier":1.0,"ssm_in_multiplier":1.0,"ssm_out_multiplier":1.0,"attention_bias":false,
      "mlp_bias":false,"rope_theta":10000.0})"},
    {"lfm2", R"({"vocab_size":65536,"hidden_size":2560,"intermediate_size":12288,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"max_position_embeddings":128000,"norm_eps":1e-05,
      "tie_word_embeddings":true,"conv_bias":false,"conv_L_cache":3,"block_multiple_of":256,
      "block_ffn_dim_multiplier":1.0,"block_auto_adjust_ff_dim":true,"rope_theta":1000000.0})"},
    {"gemma", R"({"vocab_size":256000,"hidden_size":3072,"intermediate_size":24576,"num_hidden_layers":28,
      "num_attention_heads":16,"num_key_value_heads":16,"head_dim":256,"hidden_act":"gelu_pytorch_tanh",
      "max_position_embeddings":8192,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "rope_theta":10000.0})"},
    {"gemma2", R"({"vocab_size":256000,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "max_position_embeddings":8192,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "query_pre_attn_scalar":256,"sliding_window":4096,"final_logit_softcapping":30.0,
      "attn_logit_softcapping":50.0,"rope_theta":10000.0})"},
    {"gemma3_text", R"({"vocab_size":262208,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "max_position_embeddings":131072,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "query_pre_attn_scalar":256,"sliding_window":4096,"use_bidirectional_attention":false,
      "rope_theta":1000000.0,"rope_local_base_freq":10000.0,"sliding_window_pattern":6})"},
    {"gemma3n_text", R"({"vocab_size":262400,"hidden_size":2048,"intermediate_size":16384,"num_hidden_layers":35,
      "num_attention_heads":8,"num_key_value_heads":2,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "max_position_embeddings":32768,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "sliding_window":512,"final_logit_softcapping":30.0,"vocab_size_per_layer_input":262144,
      "hidden_size_per_layer_input":256,"altup_active_idx":0,"altup_correct_scale":true,"altup_num_inputs":4,
      "num_kv_shared_layers":15,"laurel_rank":64,"rope_theta":1000000.0,"rope_local_base_freq":10000.0})"},
    {"gemma4_text", R"({"vocab_size":262144,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":30,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "max_position_embeddings":131072,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "sliding_window":512,"vocab_size_per_layer_input":262144,"hidden_size_per_layer_input":256,
      "attention_k_eq_v":false,"num_kv_shared_layers":0,"enable_moe_block":false,"use_double_wide_mlp":false,
      "rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":10000.0},
        "full_attention":{"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":1000000.0}},
      "global_head_dim":512})"},
    {"gemma4_unified_text", R"({"vocab_size":262144,"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":30,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh",
      "max_position_embeddings":262144,"rms_norm_eps":1e-06,"tie_word_embeddings":true,"attention_bias":false,
      "sliding_window":1024,"use_bidirectional_attention":"vision","attention_k_eq_v":false,
      "num_kv_shared_layers":0,"use_double_wide_mlp":false,
      "rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":10000.0},
        "full_attention":{"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":1000000.0}},
      "global_head_dim":512})"},
    {"phi3", R"({"vocab_size":32064,"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":4096,
      "original_max_position_embeddings":4096,"rms_norm_eps":1e-05,"rope_theta":10000.0})"},
    {"olmo2", R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"attention_bias":false,
      "rms_norm_eps":1e-05,"rope_theta":10000.0})"},
    {"olmo3", R"({"vocab_size":50304,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"attention_bias":false,
      "rms_norm_eps":1e-05,"sliding_window":4096,"rope_theta":500000.0})"},
    {"granite", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,
      "attention_bias":false,"mlp_bias":false,"embedding_multiplier":1.0,"logits_scaling":1.0,
      "residual_multiplier":1.0,"attention_multiplier":1.0,"rope_theta":10000.0})"},
    {"cohere", R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"logit_scale":0.0625,
      "num_hidden_layers":40,"num_attention_heads":64,"hidden_act":"silu","max_position_embeddings":8192,
      "layer_norm_eps":1e-05,"tie_word_embeddings":true,"attention_bias":false,"use_qk_norm":false,
      "rope_theta":500000.0})"},
    {"cohere2", R"({"vocab_size":256000,"hidden_size":8192,"intermediate_size":22528,"logit_scale":0.0625,
      "num_hidden_layers":40,"num_attention_heads":64,"hidden_act":"silu","max_position_embeddings":8192,
      "layer_norm_eps":1e-05,"tie_word_embeddings":true,"attention_bias":false,"sliding_window":4096,
      "rope_theta":10000.0,"sliding_window_pattern":4})"},
    {"mixtral", R"({"vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,
      "rms_norm_eps":1e-05,"num_experts_per_tok":2,"num_local_experts":8,"rope_theta":1000000.0})"},
    {"qwen3_moe", R"({"vocab_size":151936,"hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":24,
      "num_attention_heads":32,"num_key_value_heads":4,"hidden_act":"silu","max_position_embeddings":32768,
      "rms_norm_eps":1e-06,"attention_bias":false,"use_sliding_window":false,"sliding_window":4096,
      "decoder_sparse_step":1,"moe_intermediate_size":768,"num_experts_per_tok":8,"num_experts":128,
      "norm_topk_prob":false,"rope_theta":10000.0})"},
    {"gpt_oss", R"({"num_hidden_layers":36,"num_local_experts":128,"vocab_size":201088,"hidden_size":2880,
      "intermediate_size":2880,"head_dim":64,"num_attention_heads":64,"num_key_value_heads":8,
      "sliding_window":128,"hidden_act":"silu","max_position_embeddings":131072,"rms_norm_eps":1e-05,
      "num_experts_per_tok":4,"swiglu_alpha":1.702,"swiglu_limit":7.0,"attention_bias":true,
      "rope_theta":150000.0,
      "rope_parameters":{"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,"truncate":false,
        "original_max_position_embeddings":4096}})"},
    {"minimax_m2", R"({"vocab_size":200064,"hidden_size":3072,"intermediate_size":1536,"num_hidden_layers":62,
      "num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,"hidden_act":"silu",
      "max_position_embeddings":196608,"rms_norm_eps":1e-06,"num_experts_per_tok":8,"num_local_experts":256,
      "rope_theta":5000000.0})"},
    {"deepseek_v2", R"({"vocab_size":102400,"hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
      "num_attention_heads":32,"hidden_act":"silu","max_position_embeddings":2048,"rms_norm_eps":1e-06,
      "attention_bias":false,"mlp_bias":false,"first_k_dense_replace":0,"kv_lora_rank":512,"q_lora_rank":1536,
      "n_routed_experts":64,"n_shared_experts":2,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
      "routed_scaling_factor":1.0,"topk_method":"greedy","norm_topk_prob":false,"v_head_dim":128,
      "moe_intermediate_size":1407,"rope_theta":10000.0})"},
    {"deepseek_v3", R"({"vocab_size":129280,"hidden_size":7168,"intermediate_size":18432,"moe_intermediate_size":2048,
      "num_hidden_layers":61,"num_attention_heads":128,"num_key_value_heads":128,"n_shared_experts":1,
      "n_routed_experts":256,"routed_scaling_factor":2.5,"kv_lora_rank":512,"q_lora_rank":1536,
      "qk_rope_head_dim":64,"v_head_dim":128,"qk_nope_head_dim":128,"n_group":8,"topk_group":4,
      "num_experts_per_tok":8,"first_k_dense_replace":3,"norm_topk_prob":true,"hidden_act":"silu",
      "max_position_embeddings":4096,"rms_norm_eps":1e-06,"rope_interleave":true,"attention_bias":false,
      "rope_theta":10000.0})"},
    {"glm4_moe", R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":10944,"num_hidden_layers":46,
      "num_attention_heads":96,"num_key_value_heads":8,"hidden_act":"silu","max_position_embeddings":131072,
      "rms_norm_eps":1e-05,"attention_bias":false,"moe_intermediate_size":1408,"num_experts_per_tok":8,
      "n_shared_experts":1,"n_routed_experts":128,"routed_scaling_factor":1.0,"n_group":1,"topk_group":1,
      "first_k_dense_replace":1,"norm_topk_prob":true,"use_qk_norm":false,"rope_theta":10000.0,
      "partial_rotary_factor":0.5})"},
    {"glm", R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"hidden_act":"silu",
      "max_position_embeddings":131072,"rms_norm_eps":1.5625e-07,"attention_bias":true,"rope_theta":10000.0,
      "partial_rotary_factor":0.5})"},
    {"glm4", R"({"vocab_size":151552,"hidden_size":4096,"intermediate_size":13696,"num_hidden_layers":40,
      "num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,"hidden_act":"silu",
      "max_position_embeddings":131072,"rms_norm_eps":1.5625e-07,"attention_bias":true,"rope_theta":10000.0,
      "partial_rotary_factor":0.5})"},
    {"stablelm", R"({"vocab_size":50304,"intermediate_size":6912,"hidden_size":2560,"num_hidden_layers":32,
      "num_attention_heads":32,"num_key_value_heads":32,"hidden_act":"silu","max_position_embeddings":4096,
      "layer_norm_eps":1e-05,"use_qkv_bias":false,"qk_layernorm":false,"use_parallel_residual":false,
      "rope_theta":10000.0,"partial_rotary_factor":0.25})"},
};

/// Names of one thing: where one is there, none of the others is filled in.
constexpr std::string_view kExperts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
constexpr std::string_view kChosen[] = {"num_experts_per_tok", "experts_per_token", "top_k_experts"};
constexpr std::span<const std::string_view> kSpellings[] = {kExperts, kChosen};

bool names(const Json& config, std::string_view key) {
  if (config.find(key) != nullptr) return true;
  for (const auto spellings : kSpellings) {
    if (std::find(spellings.begin(), spellings.end(), key) == spellings.end()) continue;
    return std::any_of(spellings.begin(), spellings.end(),
                       [&](std::string_view other) { return config.find(other) != nullptr; });
  }
  return false;
}

/// Some classes have a rope for a config that has none, in neither spelling; null is none.
bool has_rope(const Json& config) {
  const Json* v5 = config.find("rope_parameters");
  const Json* v4 = config.find("rope_scaling");
  return (v5 != nullptr && !v5->is_null()) || (v4 != nullptr && v4->size() > 0);
}

const Row* row_of(std::string_view model_type) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& r) { return r.model_type == model_type; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

Json class_defaults(std::string_view model_type) {
  const Row* row = row_of(model_type);
  if (row == nullptr) return {};
  auto json = parse_json(row->json);
  CHECK(json);
  return std::move(*json);
}

Json with_class_defaults(Json config, std::string_view usual_class) {
  const Json* type = config.find("model_type");
  const bool known = type != nullptr && type->is_string() && row_of(type->as_string()) != nullptr;
  Json defaults = class_defaults(known ? std::string_view(type->as_string()) : usual_class);
  if (!config.is_object() || !defaults.is_object()) return config;
  for (auto& [key, value] : defaults.as_object()) {
    if (key == "rope_parameters" ? !has_rope(config) : !names(config, key)) config.set(key, std::move(value));
  }
  return config;
}

}  // namespace barg::model
