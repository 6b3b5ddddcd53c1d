// Crafts safetensors bytes and small Hugging Face directories, right and wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_builder.h"

namespace barg::model::test {

/// A safetensors file from its JSON header and data.
inline std::string safetensors_file(std::string_view header, std::string_view data) {
  return Bytes().put<std::uint64_t>(header.size()).data + std::string(header) + std::string(data);
}

struct F32Tensor {
  std::string name;
  std::vector<int> shape;
};

/// F32 tensors filled with 0.25.
inline std::string safetensors_of(const std::vector<F32Tensor>& tensors) {
  std::string header = "{";
  std::size_t at = 0;
  for (const auto& t : tensors) {
    std::size_t n = 4;
    std::string shape;
    for (const int d : t.shape) {
      n *= static_cast<std::size_t>(d);
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
    }
    header += (at > 0 || header.size() > 1 ? "," : "");
    header += "\"" + t.name + "\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(at) + "," + std::to_string(at + n) + "]}";
    at += n;
  }
  std::string data;
  for (std::size_t i = 0; i < at / 4; ++i) data += Bytes().put(0.25f).data;
  return safetensors_file(header + "}", data);
}

/// One layer, hidden 8, two heads of 4, one kv head, ffn 8, four tokens.
inline std::vector<F32Tensor> tiny_hf_tensors() {
  const std::string l = "model.layers.0.";
  return {{"model.embed_tokens.weight", {4, 8}},   {"model.norm.weight", {8}},
          {l + "input_layernorm.weight", {8}},     {l + "self_attn.q_proj.weight", {8, 8}},
          {l + "self_attn.k_proj.weight", {4, 8}}, {l + "self_attn.v_proj.weight", {4, 8}},
          {l + "self_attn.o_proj.weight", {8, 8}}, {l + "post_attention_layernorm.weight", {8}},
          {l + "mlp.gate_proj.weight", {8, 8}},    {l + "mlp.up_proj.weight", {8, 8}},
          {l + "mlp.down_proj.weight", {8, 8}}};
}

/// config.json of it; `extra` members replace or add (written last wins is not JSON, so pass whole lines).
inline std::string tiny_hf_config(const std::string& extra = "",
                                  const std::string& architecture = "LlamaForCausalLM") {
  return "{\"architectures\":[\"" + architecture +
         "\"],\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
         "\"num_key_value_heads\":1,\"intermediate_size\":8,\"vocab_size\":4,\"max_position_embeddings\":64,"
         "\"rms_norm_eps\":1e-05,"
         "\"eos_token_id\":3" +
         (extra.empty() ? "" : "," + extra) + "}";
}

}  // namespace barg::model::test
