#include "model/expert_names.h"

#include <algorithm>

namespace barg::model {
namespace {

struct NameRow {
  std::string_view hf, gguf;
};

constexpr NameRow kWhole[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"router.proj.weight", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
};

constexpr std::string_view kExpertPrefixes[] = {"mlp.experts.", "block_sparse_moe.experts.", "experts."};
constexpr NameRow kExpertNames[] = {
    {"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"}, {"down_proj", "ffn_down"},
    {"w1", "ffn_gate"},        {"w3", "ffn_up"},      {"w2", "ffn_down"},
};

bool is_number(std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }

}  // namespace

std::optional<std::string> expert_tensor_name(std::string_view rest) {
  for (const NameRow& row : kWhole) {
    if (rest == row.hf) return std::string(row.gguf);
  }
  for (const std::string_view prefix : kExpertPrefixes) {
    if (!rest.starts_with(prefix)) continue;
    const std::string_view tail = rest.substr(prefix.size());  // 7.gate_proj.weight
    const std::size_t first = tail.find('.'), last = tail.rfind('.');
    if (first == tail.npos || last <= first || !is_number(tail.substr(0, first))) return {};
    for (const NameRow& row : kExpertNames) {
      if (tail.substr(first + 1, last - first - 1) != row.hf) continue;
      return std::string(row.gguf) + "." + std::string(tail.substr(0, first)) + std::string(tail.substr(last));
    }
  }
  return {};
}

}  // namespace barg::model
