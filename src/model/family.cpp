#include "model/family.h"

#include <set>
#include <utility>

#include "model/printable.h"

namespace barg::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", "llama", llama_from_hf, llama_from_gguf},
    {"mistral", "MistralForCausalLM", nullptr, mistral_from_hf, nullptr},
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t d : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(d);
  return out + "]";
}

}  // namespace

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
  const std::int64_t h = s.hidden, q = std::int64_t{s.num_q_heads} * s.head_dim,
                     kv = std::int64_t{s.num_kv_heads} * s.head_dim;
  std::vector<RequiredTensor> out;
  out.push_back({"token_embd.weight", {s.vocab_rows, h}});
  if (!s.tied) out.push_back({"output.weight", {s.vocab_rows, h}});
  out.push_back({"output_norm.weight", {h}});
  for (std::int32_t i = 0; i < s.num_layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    const auto matrix = [&](const char* name, std::int64_t n, std::int64_t k, bool bias) {
      out.push_back({blk + name + ".weight", {n, k}});
      if (bias) out.push_back({blk + name + ".bias", {n}});
    };
    out.push_back({blk + "attn_norm.weight", {h}});
    matrix("attn_q", q, h, s.qkv_bias);
    matrix("attn_k", kv, h, s.qkv_bias);
    matrix("attn_v", kv, h, s.qkv_bias);
    matrix("attn_output", h, q, s.o_bias);
    out.push_back({blk + "ffn_norm.weight", {h}});
    matrix("ffn_gate", s.ffn, h, s.mlp_bias);
    matrix("ffn_up", s.ffn, h, s.mlp_bias);
    matrix("ffn_down", h, s.ffn, s.mlp_bias);
  }
  return out;
}

Result<void> check_tensors(const DecoderSpec& spec, const ModelFiles& files) {
  // Each layer needs nine tensors, so a config that promises more layers than the file holds stops here,
  // before a list of them is made.
  if (static_cast<std::uint64_t>(spec.num_layers) > files.tensors().size()) {
    return fail(ErrorCode::kBadFile, "the config promises " + std::to_string(spec.num_layers) +
                                         " layers but there are only " +
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
  for (const Tensor& t : files.tensors()) {
    if (t.name.starts_with("blk.") && !known.contains(t.name)) {
      return fail(ErrorCode::kUnsupported, "tensor " + printable(t.name) + " is not part of a " + spec.family +
                                               " model of " + std::to_string(spec.num_layers) + " layers");
    }
  }
  return {};
}

}  // namespace barg::model
