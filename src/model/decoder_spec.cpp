#include "model/decoder_spec.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace barg::model {
namespace {

std::uint64_t norms_of_layer(const DecoderSpec& spec) {
  switch (spec.norm_place) {
    case NormPlace::kParallel:
      return 1;
    case NormPlace::kBefore:
    case NormPlace::kAfter:
      return 2;
    case NormPlace::kAround:
      return 4;
  }
  return 0;
}

/// Fields in order, each with its size.
class Facts {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> Facts& add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Facts& add(const std::vector<float>& values) {
    add(values.size());
    text_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string spec_facts(const DecoderSpec& s) {
  Facts f;
  f.add(s.norm.kind).add(s.norm.eps).add(s.norm.offset).add(s.norm_place).add(s.qk_norm).add(s.activation);
  f.add(s.attention_scale).add(s.attention_softcap).add(s.embedding_scale).add(s.residual_scale);
  f.add(s.query_scale.beta).add(s.query_scale.length).add(s.interleaved_qk);
  f.add(s.ropes.size());
  for (const RopeSpec& r : s.ropes) {
    f.add(r.kind).add(r.theta).add(r.rotary_dim).add(r.factor).add(r.low_freq_factor).add(r.high_freq_factor);
    f.add(r.original_max_positions).add(r.beta_fast).add(r.beta_slow).add(r.truncate).add(r.rotated_share);
    f.add(r.attention_factor).add(r.divisors);
  }
  for (const LayerSpec& l : s.layers) f.add(l.window).add(l.rope).add(l.mixer).add(l.feed);
  return f.take();
}

std::vector<LayerGroup> layer_groups(const DecoderSpec& spec) {
  std::vector<LayerGroup> groups;
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    const std::int32_t window = spec.layers[static_cast<std::size_t>(i)].window;
    auto it =
        std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& g) { return g.window == window; });
    if (it == groups.end()) {
      const StateKind kind = window > 0 ? StateKind::kSlidingWindow : StateKind::kFullAttention;
      it = groups.insert(groups.end(), LayerGroup{kind, window, spec.num_kv_heads, spec.head_dim, {}});
    }
    it->layers.push_back(i);
  }
  return groups;
}

std::uint64_t kv_bytes_per_token(const DecoderSpec& spec, DType kv_dtype) {
  const std::uint64_t head = static_cast<std::uint64_t>(spec.head_dim) * block_bytes(kv_dtype) +
                             (has_token_scales(kv_dtype) ? sizeof(float) : 0);
  return 2 * static_cast<std::uint64_t>(spec.num_layers) * static_cast<std::uint64_t>(spec.num_kv_heads) *
         head;
}

std::uint64_t parameter_count(const DecoderSpec& s) {
  const auto u = [](std::int32_t v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t h = u(s.hidden), q = u(s.num_q_heads) * u(s.head_dim),
                      kv = u(s.num_kv_heads) * u(s.head_dim);
  const std::uint64_t norm = s.norm.bias ? 2 * h : h;
  std::uint64_t layer = norms_of_layer(s) * norm + h * (q + 2 * kv) + q * h + 3 * h * u(s.ffn);
  if (s.qk_norm == QkNorm::kHeads) layer += 2 * u(s.head_dim);
  if (s.qk_norm > QkNorm::kHeads) layer += q + kv;
  if (s.qkv_bias) layer += q + 2 * kv;
  if (s.o_bias) layer += h;
  if (s.mlp_bias) layer += 2 * u(s.ffn) + h;
  return u(s.num_layers) * layer + norm + u(s.vocab_rows) * h * (s.tied ? 1 : 2);
}

}  // namespace barg::model
