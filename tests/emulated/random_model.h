// Llamas and Qwens with random weights whose shapes the CUDA kernels have (heads of 64 numbers), as GGUF files: small
// enough for the emulated device, with logits that are spread like a trained model's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/env.h"
#include "math.h"
#include "model/gguf_builder.h"

namespace barg::test {

/// Ids of ggml's types.
enum class Stored : std::uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14, kBF16 = 30 };

struct RandomModel {
  const char* architecture = "llama";
  Stored type = Stored::kBF16;
  std::uint32_t layers = 2, hidden = 128, heads = 3, kv_heads = 1, ffn = 192, vocab = 600;
  std::uint64_t seed = 1;
  bool tied = false;
  std::int32_t poisoned = -1;  ///< a token whose embedding is NaN; of bf16
  Stored down = type;  ///< of ffn_down: files of mixed types keep it finer

  std::string build() const;
  /// Of KV in 16 bits.
  std::int64_t token_bytes() const { return std::int64_t{layers} * kv_heads * 2 * 64 * 2; }

 private:
  std::string numbers(std::uint64_t rows, std::uint64_t k, Stored as, float size, Rng& rng) const;
};

inline float uniform(Rng& rng) { return static_cast<float>(rng.below(1 << 20)) / static_cast<float>(1 << 19) - 1; }

/// [rows, k], uniform in +-size.
inline std::string RandomModel::numbers(std::uint64_t rows, std::uint64_t k, Stored as, float size, Rng& rng) const {
  model::test::Bytes out;
  const std::uint64_t count = rows * k;
  const auto scale = [&](float largest) { out.put(ops::f32_to_f16(size / largest)); };
  switch (as) {
    case Stored::kF32:
      for (std::uint64_t i = 0; i < count; ++i) out.put(size * uniform(rng));
      break;
    case Stored::kF16:
      for (std::uint64_t i = 0; i < count; ++i) out.put(ops::f32_to_f16(size * uniform(rng)));
      break;
    case Stored::kBF16:
      for (std::uint64_t i = 0; i < count; ++i) out.put(ops::f32_to_bf16(size * uniform(rng)));
      break;
    case Stored::kQ8_0:
      for (std::uint64_t b = 0; b < count / 32; ++b) {
        scale(127);
        for (int i = 0; i < 32; ++i) out.put(static_cast<std::int8_t>(static_cast<int>(rng.below(255)) - 127));
      }
      break;
    case Stored::kQ4_K:  // d, dmin, factors and minima of six bits each, nibbles
      for (std::uint64_t b = 0; b < count / 256; ++b) {
        out.put(ops::f32_to_f16(size / (32 * 8))).put(ops::f32_to_f16(size / 32));
        for (int i = 0; i < 140; ++i) out.put(static_cast<std::uint8_t>(rng.below(256)));
      }
      break;
    case Stored::kQ6_K:  // codes, factors of a byte, d
      for (std::uint64_t b = 0; b < count / 256; ++b) {
        for (int i = 0; i < 192; ++i) out.put(static_cast<std::uint8_t>(rng.below(256)));
        for (int i = 0; i < 16; ++i) out.put(static_cast<std::int8_t>(static_cast<int>(rng.below(255)) - 127));
        out.put(ops::f32_to_f16(size / (32 * 64)));
      }
      break;
    case Stored::kQ4_0:
    case Stored::kQ4_1:
      for (std::uint64_t b = 0; b < count / 32; ++b) {
        scale(8);
        if (as == Stored::kQ4_1) out.put(ops::f32_to_f16(-size));
        for (int i = 0; i < 16; ++i) out.put(static_cast<std::uint8_t>(rng.below(256)));
      }
      break;
  }
  return out.data;
}

inline std::string RandomModel::build() const {
  model::test::GgufBuilder b;
  const std::string a = architecture;
  b.str("general.architecture", a).str("general.name", "random").u32("general.alignment", 32);
  b.u32(a + ".block_count", layers).u32(a + ".context_length", 4096).u32(a + ".embedding_length", hidden);
  b.u32(a + ".feed_forward_length", ffn).u32(a + ".attention.head_count", heads).u32(a + ".attention.head_count_kv", kv_heads);
  b.u32(a + ".attention.key_length", 64).u32(a + ".attention.value_length", 64);
  b.f32(a + ".attention.layer_norm_rms_epsilon", 1e-5F).f32(a + ".rope.freq_base", 10000.0F).u32(a + ".rope.dimension_count", 64);
  std::vector<std::string> tokens;
  for (std::uint32_t i = 0; i < vocab; ++i) tokens.push_back("t" + std::to_string(i));
  b.str("tokenizer.ggml.model", "gpt2").str("tokenizer.ggml.pre", "smollm").strs("tokenizer.ggml.tokens", tokens);
  b.strs("tokenizer.ggml.merges", {}).u32("tokenizer.ggml.eos_token_id", 2);
  Rng rng(seed);
  std::vector<std::string> data;
  const auto tensor = [&](const std::string& name, std::uint64_t rows, std::uint64_t k, Stored as, float size) {
    data.push_back(numbers(rows, k, as, size, rng));
    std::vector<std::uint64_t> dims{k};
    if (rows > 1) dims.push_back(rows);
    b.tensor(name, dims, static_cast<std::uint32_t>(as), data.back().size());
  };
  const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t k, float gain) {
    tensor(name + ".weight", rows, k, type, gain / std::sqrt(static_cast<float>(k)));
  };
  const auto vector = [&](const std::string& name, std::uint64_t n, float size) { tensor(name, 1, n, Stored::kF32, size); };
  const bool gemma = a == "gemma3", biases = a == "qwen2", head_norms = gemma || a == "qwen3";
  if (gemma) b.u32(a + ".attention.sliding_window", 48);
  matrix("token_embd", vocab, hidden, 10);
  for (std::uint32_t i = 0; i < layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    vector(blk + "attn_norm.weight", hidden, 1);
    matrix(blk + "attn_q", std::uint64_t{64} * heads, hidden, 3);
    matrix(blk + "attn_k", std::uint64_t{64} * kv_heads, hidden, 3);
    matrix(blk + "attn_v", std::uint64_t{64} * kv_heads, hidden, 3);
    if (biases) {
      vector(blk + "attn_q.bias", std::uint64_t{64} * heads, 0.5F);
      vector(blk + "attn_k.bias", std::uint64_t{64} * kv_heads, 0.5F);
      vector(blk + "attn_v.bias", std::uint64_t{64} * kv_heads, 0.5F);
    }
    if (gemma) {
      vector(blk + "post_attention_norm.weight", hidden, 1);
      vector(blk + "post_ffw_norm.weight", hidden, 1);
    }
    if (head_norms) {
      vector(blk + "attn_q_norm.weight", 64, 1);
      vector(blk + "attn_k_norm.weight", 64, 1);
    }
    matrix(blk + "attn_output", hidden, std::uint64_t{64} * heads, 3);
    vector(blk + "ffn_norm.weight", hidden, 1);
    matrix(blk + "ffn_gate", ffn, hidden, 3);
    matrix(blk + "ffn_up", ffn, hidden, 3);
    tensor(blk + "ffn_down.weight", hidden, ffn, down, 3 / std::sqrt(static_cast<float>(ffn)));
  }
  vector("output_norm.weight", hidden, 2);
  if (!tied) matrix("output", vocab, hidden, 4);
  if (poisoned >= 0) {
    const std::uint16_t nan = 0x7fc0;
    for (std::size_t i = 0; i < hidden; ++i)
      std::memcpy(data[0].data() + (static_cast<std::size_t>(poisoned) * hidden + i) * sizeof nan, &nan, sizeof nan);
  }
  std::string file = b.build();
  const std::size_t base = (b.header_bytes + b.alignment - 1) / b.alignment * b.alignment;
  for (std::size_t i = 0; i < data.size(); ++i)
    std::memcpy(file.data() + base + b.tensors[i].offset, data[i].data(), data[i].size());
  return file;
}

}  // namespace barg::test
