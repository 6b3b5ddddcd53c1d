// DecoderSpec: everything that distinguishes one decoder-only transformer from another, as plain flags. A
// family file turns config.json or GGUF metadata into it; decoder.cpp reads nothing else, so a new family is
// a builder function and a row of the family table, never an `if (architecture == ...)`.
//
// Invariants of a spec that ModelFiles::spec() returned: every size is positive and small enough that
// products fit 63 bits, q heads are a multiple of kv heads, head_dim and rotary_dim are even, layers has
// num_layers rows. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/forward.h"

namespace barg::model {

struct RopeSpec {
  enum class Kind : std::uint8_t { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  std::int32_t rotary_dim = 0;        ///< even, <= head_dim; pairs are (i, i + rotary_dim/2)
  double factor = 1;                  ///< linear, llama3
  double low_freq_factor = 1;         ///< llama3
  double high_freq_factor = 4;        ///< llama3
  double original_max_positions = 0;  ///< llama3
  std::vector<float> divisors;        ///< [rotary_dim/2] of `rope_freqs.weight`, or empty
};

struct LayerSpec {
  std::int32_t window = 0;  ///< keys visible to a query including itself; 0 = all
};

struct DecoderSpec {
  std::string family;        ///< row of the family table: "llama", "mistral"
  std::string architecture;  ///< as the file spells it: "LlamaForCausalLM", "llama"
  std::int32_t hidden = 0;
  std::int32_t num_layers = 0;
  std::int32_t num_q_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ffn = 0;
  std::int32_t vocab_rows = 0;     ///< rows of the embedding; the tokenizer may know fewer ids
  std::int32_t max_positions = 0;  ///< the model's own context length
  float rms_eps = 0;
  float attention_scale = 0;  ///< 1/sqrt(head_dim) for Llama
  float embedding_scale = 1;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied = false;         ///< the output projection is the embedding
  bool permuted_qk = false;  ///< the file's q/k rows are in interleaved rope order (GGUF "llama")
  RopeSpec rope;
  std::vector<LayerSpec> layers;
};

/// Layers with the same state (kind, window, heads, head size) share a group; ordered by first layer.
std::vector<LayerGroup> layer_groups(const DecoderSpec& spec);

/// Bytes of K and V one token costs while every layer still holds it (no per-block padding).
std::uint64_t kv_bytes_per_token(const DecoderSpec& spec, DType kv_dtype);

/// Weights as numbers, from the spec alone (tied embeddings counted once).
std::uint64_t parameter_count(const DecoderSpec& spec);

}  // namespace barg::model
