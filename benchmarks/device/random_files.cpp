#include "device/random_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/env.h"
#include "math.h"

namespace barg::check {
namespace {

class RandomFiles final : public model::ModelFiles {
 public:
  explicit RandomFiles(const ModelShape& s) : shape_(s) {
    const std::int64_t q = std::int64_t{s.heads} * s.head_dim, kv = std::int64_t{s.kv_heads} * s.head_dim;
    const std::int64_t widest = std::max({std::int64_t{s.hidden}, std::int64_t{s.ffn}, q});
    const std::int64_t largest = std::max({std::int64_t{s.vocab}, std::int64_t{s.ffn}, q}) * s.hidden;
    make_numbers(static_cast<std::size_t>(largest) + kSpread, static_cast<std::int32_t>(widest));
    path_ = std::string("random ") + s.name;
    matrix("token_embd.weight", s.vocab, s.hidden);
    for (std::int32_t i = 0; i < s.layers; ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      vector(blk + "attn_norm.weight", s.hidden);
      matrix(blk + "attn_q.weight", q, s.hidden);
      matrix(blk + "attn_k.weight", kv, s.hidden);
      matrix(blk + "attn_v.weight", kv, s.hidden);
      if (s.qk_norm) {
        vector(blk + "attn_q_norm.weight", s.head_dim);
        vector(blk + "attn_k_norm.weight", s.head_dim);
      }
      matrix(blk + "attn_output.weight", s.hidden, q);
      vector(blk + "ffn_norm.weight", s.hidden);
      matrix(blk + "ffn_gate.weight", s.ffn, s.hidden);
      matrix(blk + "ffn_up.weight", s.ffn, s.hidden);
      matrix(blk + "ffn_down.weight", s.hidden, s.ffn);
    }
    vector("output_norm.weight", s.hidden);
    if (!s.tied) matrix("output.weight", s.vocab, s.hidden);
    std::vector<std::string> names;
    for (const model::Tensor& t : tensors_) names.push_back(t.name);
    CHECK(index_tensors(std::move(names)).has_value());
  }

  std::string_view container() const override { return "gguf"; }
  std::string architecture() const override { return shape_.qk_norm ? "qwen3" : "llama"; }
  std::string display_name() const override { return path(); }
  Result<VocabData> vocab() const override { return VocabData{}; }
  Result<model::GenerationDefaults> generation_defaults() const override { return model::GenerationDefaults{}; }
  void drop(const model::Tensor&, std::span<const std::byte>) const override {}

  Result<model::DecoderSpec> spec() const override {
    model::DecoderSpec s;
    s.family = s.architecture = architecture();
    s.hidden = shape_.hidden;
    s.num_layers = shape_.layers;
    s.num_q_heads = shape_.heads;
    s.num_kv_heads = shape_.kv_heads;
    s.head_dim = shape_.head_dim;
    s.ffn = shape_.ffn;
    s.vocab_rows = shape_.vocab;
    s.max_positions = 32768;
    s.norm.eps = 1e-5F;
    s.qk_norm = shape_.qk_norm ? model::QkNorm::kHeads : model::QkNorm::kNone;
    s.attention_scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    s.tied = shape_.tied;
    model::RopeSpec& rope = s.ropes.emplace_back();
    rope.theta = 500000;
    rope.rotary_dim = shape_.head_dim;
    s.layers.resize(static_cast<std::size_t>(shape_.layers));
    return s;
  }

 private:
  static constexpr std::size_t kSpread = 4096;  ///< places where tensors may begin

  /// Numbers whose products with rows of `columns` keep their size.
  void make_numbers(std::size_t count, std::int32_t columns) {
    Rng rng(1);
    halves_.resize(count);
    const float size = 2 / std::sqrt(static_cast<float>(columns)) / 32768;
    for (std::size_t i = 0; i < count; i += 4) {
      const std::uint64_t r = rng.next();
      for (std::size_t j = 0; j < 4 && i + j < count; ++j)
        halves_[i + j] = ops::f32_to_bf16(size * static_cast<float>(static_cast<std::int16_t>(r >> 16 * j)));
    }
    for (std::size_t i = 0; i < kSpread + static_cast<std::size_t>(columns); ++i)
      floats_.push_back(static_cast<float>(0.5 + rng.uniform()));
  }

  void matrix(const std::string& name, std::int64_t n, std::int64_t k) {
    const std::uint16_t* const from = halves_.data() + 8 * (tensors_.size() * 37 % (kSpread / 8));
    add(name, {.name = "BF16", .block_elements = 1, .block_bytes = 2, .dtype = DType::kBF16}, {n, k},
        reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(2 * n * k));
  }
  void vector(const std::string& name, std::int64_t n) {
    const float* const from = floats_.data() + tensors_.size() * 37 % kSpread;
    add(name, {.name = "F32", .block_elements = 1, .block_bytes = 4, .dtype = DType::kF32}, {n},
        reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(4 * n));
  }
  void add(const std::string& name, const model::StoredType& type, std::vector<std::int64_t> shape, const std::byte* from,
           std::size_t bytes) {
    tensors_.push_back({.name = name, .type = type, .shape = std::move(shape), .bytes = {from, bytes}});
  }

  const ModelShape shape_;
  std::vector<std::uint16_t> halves_;
  std::vector<float> floats_;
};

}  // namespace

std::shared_ptr<const model::ModelFiles> random_files(const ModelShape& shape) { return std::make_shared<RandomFiles>(shape); }

}  // namespace barg::check
