// Crafts GGUF bytes field by field, also wrong ones, and small valid models to start from.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/temp_dir.h"

namespace barg::model::test {

class Bytes {
 public:
  template <class T>
  Bytes& put(T v) {
    data.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Bytes& text(std::string_view s) {
    put<std::uint64_t>(s.size());
    data.append(s);
    return *this;
  }
  std::string data;
};

/// Type ids of metadata values.
enum : std::uint32_t {
  kMetaU8 = 0,
  kMetaI8,
  kMetaU16,
  kMetaI16,
  kMetaU32,
  kMetaI32,
  kMetaF32,
  kMetaBool,
  kMetaString,
  kMetaArray,
  kMetaU64,
  kMetaI64,
  kMetaF64
};

struct GgufTensorInfo {
  std::string name;
  std::vector<std::uint64_t> dims;  ///< fastest first, as in the file
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct GgufBuilder {
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::vector<std::pair<std::string, std::string>> meta;  ///< key, encoded type and value
  std::vector<GgufTensorInfo> tensors;
  std::int64_t claim_tensors = -1, claim_keys = -1;  ///< counts in the header, -1 = the truth

  template <class T>
  GgufBuilder& set(const std::string& key, std::uint32_t type, T value) {
    return raw(key, Bytes().put(type).put(value).data);
  }
  GgufBuilder& u32(const std::string& key, std::uint32_t v) { return set(key, kMetaU32, v); }
  GgufBuilder& f32(const std::string& key, float v) { return set(key, kMetaF32, v); }
  GgufBuilder& str(const std::string& key, std::string_view v) {
    return raw(key, Bytes().put(kMetaString).text(v).data);
  }
  GgufBuilder& strs(const std::string& key, const std::vector<std::string>& v) {
    Bytes b;
    b.put(kMetaArray).put(kMetaString).put<std::uint64_t>(v.size());
    for (const auto& s : v) b.text(s);
    return raw(key, b.data);
  }
  GgufBuilder& raw(const std::string& key, std::string encoded) {
    for (auto& [k, v] : meta) {
      if (k == key) return v = std::move(encoded), *this;
    }
    meta.emplace_back(key, std::move(encoded));
    return *this;
  }
  GgufBuilder& erase(const std::string& key) {
    std::erase_if(meta, [&](const auto& m) { return m.first == key; });
    return *this;
  }
  /// Appends an F32 tensor behind the last one.
  GgufBuilder& tensor(const std::string& name, std::vector<std::uint64_t> dims, std::uint32_t type = 0,
                      std::uint64_t bytes = 0) {
    std::uint64_t n = 4;
    for (const auto d : dims) n *= d;
    if (bytes == 0) bytes = n;
    const std::uint64_t end = tensors.empty() ? 0 : tensors.back().offset + tensors.back().bytes;
    tensors.push_back({name, std::move(dims), type, (end + alignment - 1) / alignment * alignment, bytes});
    return *this;
  }
  GgufTensorInfo& at(const std::string& name) {
    for (auto& t : tensors) {
      if (t.name == name) return t;
    }
    std::abort();
  }

  std::string build() const {
    Bytes b;
    b.data = "GGUF";
    b.put(version);
    b.put<std::uint64_t>(claim_tensors >= 0 ? static_cast<std::uint64_t>(claim_tensors) : tensors.size());
    b.put<std::uint64_t>(claim_keys >= 0 ? static_cast<std::uint64_t>(claim_keys) : meta.size());
    for (const auto& [key, value] : meta) {
      b.text(key);
      b.data += value;
    }
    for (const auto& t : tensors) {
      b.text(t.name).put(static_cast<std::uint32_t>(t.dims.size()));
      for (const auto d : t.dims) b.put(d);
      b.put(t.type).put(t.offset);
    }
    header_bytes = b.data.size();
    b.data.resize((b.data.size() + alignment - 1) / alignment * alignment, '\0');
    const std::size_t base = b.data.size();
    for (const auto& t : tensors) {
      if (b.data.size() < base + t.offset + t.bytes) b.data.resize(base + t.offset + t.bytes, '\0');
    }
    // Weights that are neither zero nor huge: 0.25f everywhere.
    for (std::size_t i = base; i + 4 <= b.data.size(); i += 4) {
      const float w = 0.25f;
      std::memcpy(b.data.data() + i, &w, 4);
    }
    return b.data;
  }
  mutable std::size_t header_bytes = 0;
};

/// One layer, hidden 8, two heads of 4, one kv head, ffn 8, four tokens: complete and loadable.
inline GgufBuilder tiny_llama() {
  GgufBuilder b;
  b.str("general.architecture", "llama").str("general.name", "tiny").u32("general.alignment", 32);
  b.u32("llama.block_count", 1)
      .u32("llama.context_length", 64)
      .u32("llama.embedding_length", 8)
      .u32("llama.feed_forward_length", 8);
  b.u32("llama.attention.head_count", 2)
      .u32("llama.attention.head_count_kv", 1)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.f32("llama.rope.freq_base", 10000.0f).u32("llama.rope.dimension_count", 4);
  b.str("tokenizer.ggml.model", "gpt2")
      .str("tokenizer.ggml.pre", "smollm")
      .strs("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"});
  b.strs("tokenizer.ggml.merges", {"a b"}).u32("tokenizer.ggml.eos_token_id", 3);
  b.raw("tokenizer.ggml.token_type", Bytes()
                                         .put(kMetaArray)
                                         .put(kMetaI32)
                                         .put<std::uint64_t>(4)
                                         .put<std::int32_t>(1)
                                         .put<std::int32_t>(1)
                                         .put<std::int32_t>(1)
                                         .put<std::int32_t>(3)
                                         .data);
  b.str("tokenizer.chat_template", "{{ messages }}");
  b.tensor("token_embd.weight", {8, 4}).tensor("output_norm.weight", {8});
  b.tensor("blk.0.attn_norm.weight", {8})
      .tensor("blk.0.attn_q.weight", {8, 8})
      .tensor("blk.0.attn_k.weight", {8, 4})
      .tensor("blk.0.attn_v.weight", {8, 4});
  b.tensor("blk.0.attn_output.weight", {8, 8})
      .tensor("blk.0.ffn_norm.weight", {8})
      .tensor("blk.0.ffn_gate.weight", {8, 8});
  b.tensor("blk.0.ffn_up.weight", {8, 8}).tensor("blk.0.ffn_down.weight", {8, 8});
  return b;
}

using barg::test::TempDir;

}  // namespace barg::model::test
