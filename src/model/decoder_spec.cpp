#include "model/decoder_spec.h"

#include <algorithm>

namespace barg::model {

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
  return 2 * static_cast<std::uint64_t>(spec.num_layers) * static_cast<std::uint64_t>(spec.num_kv_heads) * head;
}

std::uint64_t parameter_count(const DecoderSpec& s) {
  const auto u = [](std::int32_t v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t h = u(s.hidden), q = u(s.num_q_heads) * u(s.head_dim),
                      kv = u(s.num_kv_heads) * u(s.head_dim);
  std::uint64_t layer = 2 * h + h * (q + 2 * kv) + q * h + 3 * h * u(s.ffn);
  if (s.qkv_bias) layer += q + 2 * kv;
  if (s.o_bias) layer += h;
  if (s.mlp_bias) layer += 2 * u(s.ffn) + h;
  return u(s.num_layers) * layer + h + u(s.vocab_rows) * h * (s.tied ? 1 : 2);
}

}  // namespace barg::model
