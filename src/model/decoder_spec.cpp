#include "model/decoder_spec.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "model/recurrent.h"

namespace barg::model {
namespace {

std::uint64_t norms_of_layer(const DecoderSpec& spec) {
  switch (spec.norm_place) {
    case NormPlace::kParallel:
      return 1;
    case NormPlace::kBefore:
    case NormPlace::kAfter:
    case NormPlace::kBehind:
      return 2;
    case NormPlace::kAround:
      return 4;
  }
  return 0;
}

std::uint64_t recurrent_parameters(MixerKind kind, const RecurrentSpec& r, std::uint64_t hidden) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t in = u(recurrent_in_width(kind, r)), inner = u(r.inner()), channels = u(r.channels);
  std::uint64_t sum = hidden * (in + inner) + channels * u(r.kernel);
  if (r.conv_bias) sum += channels;
  if (r.in_bias) sum += in;
  if (r.out_bias) sum += hidden;
  if (r.heads > 0) sum += u(r.heads) * (kind == MixerKind::kDeltaNet ? 2 : 3);
  if (r.heads > 0 && r.norm) sum += r.shared_norm ? inner / u(r.norm_groups) : inner;
  return sum;
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

/// What a layer keeps, as a group without layers.
LayerGroup state_of(const DecoderSpec& s, const LayerSpec& layer) {
  if (layer.mixer == MixerKind::kLatent)
    return {StateKind::kLatent, 0, 1, s.latent.kv_rank + s.latent.rope_dim, {}};
  const StateKind kind = layer.window > 0 ? StateKind::kSlidingWindow : StateKind::kFullAttention;
  const LayerShape shape = shape_of(s, layer);
  return {kind, layer.window, shape.num_kv_heads, shape.head_dim, {}};
}

std::uint64_t latent_parameters(const DecoderSpec& s) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const LatentSpec& l = s.latent;
  const std::uint64_t heads = u(s.num_q_heads), h = u(s.hidden), query = heads * u(l.nope_dim + l.rope_dim);
  const std::uint64_t q = l.q_rank > 0 ? u(l.q_rank) * (h + 1 + query) : h * query;
  return q + h * u(l.kv_rank + l.rope_dim) + u(l.kv_rank) + heads * u(l.nope_dim + l.value_dim) * u(l.kv_rank) +
         h * heads * u(l.value_dim);
}

std::uint64_t expert_parameters(const DecoderSpec& s) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const ExpertSpec& e = s.experts;
  const std::uint64_t h = u(s.hidden);
  std::uint64_t sum = u(e.count) * (h + 3 * h * u(e.ffn)) + 3 * h * u(e.shared_ffn);
  if (e.shared_gate != SharedGate::kNone) sum += h;
  if (e.router_norm) sum += h;
  if (e.expert_scales) sum += u(e.count);
  if (e.router_bias) sum += u(e.count);
  if (e.choice_bias) sum += u(e.count);
  if (e.bias) sum += u(e.count) * (2 * u(e.ffn) + h);
  return sum;
}

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
  for (const LayerSpec& l : s.layers) {
    f.add(l.window).add(l.rope).add(l.mixer).add(l.feed).add(l.head_dim).add(l.num_kv_heads).add(l.ffn);
    f.add(l.kv_of).add(l.v_is_k).add(l.cuts_gate).add(l.gate_cut);
  }
  f.add(s.v_norm).add(s.layer_scale).add(s.per_layer.width).add(s.per_layer.rows);
  f.add(s.streams.count).add(s.streams.active).add(s.streams.scaled).add(s.streams.laurel_rank);
  const ExpertSpec& e = s.experts;
  f.add(e.count).add(e.chosen).add(e.score).add(e.normalise).add(e.norm_epsilon).add(e.scale);
  f.add(e.groups)
      .add(e.kept_groups)
      .add(e.group_top2)
      .add(e.shared_gate)
      .add(e.glu)
      .add(e.alpha)
      .add(e.limit)
      .add(e.layout);
  f.add(e.router_norm).add(e.expert_scales);
  const LatentSpec& latent = s.latent;
  f.add(latent.kv_rank).add(latent.rope_dim).add(latent.nope_dim).add(latent.norm_eps).add(latent.interleaved);
  f.add(s.bidirectional).add(s.gated).add(s.tables.positions).add(s.tables.types);
  f.add(s.attention_gate).add(s.attention_out_scale).add(s.feed_gate_scale).add(s.feed_out_scale);
  const RecurrentSpec& r = s.recurrent;
  f.add(r.kernel).add(r.channels).add(r.heads).add(r.head_dim).add(r.groups).add(r.state_size).add(r.tiled);
  f.add(r.dt_min).add(r.dt_max).add(r.norm).add(r.gate_first).add(r.norm_groups).add(r.out_scale);
  for (const float scale : r.in_scales) f.add(scale);
  return f.take();
}

LayerShape shape_of(const DecoderSpec& s, const LayerSpec& l) {
  LayerShape out{.head_dim = l.head_dim > 0 ? l.head_dim : s.head_dim,
                 .num_kv_heads = l.num_kv_heads > 0 ? l.num_kv_heads : s.num_kv_heads,
                 .ffn = l.ffn > 0 ? l.ffn : s.ffn,
                 .q_width = 0,
                 .kv_width = 0};
  out.q_width = std::int64_t{s.num_q_heads} * out.head_dim;
  out.kv_width = std::int64_t{out.num_kv_heads} * out.head_dim;
  return out;
}

std::int32_t last_keeper(const DecoderSpec& s) {
  std::int32_t last = s.num_layers - 1;
  while (last > 0 && s.layers[static_cast<std::size_t>(last)].kv_of >= 0) --last;
  return last;
}

std::vector<LayerGroup> layer_groups(const DecoderSpec& spec) {
  std::vector<LayerGroup> groups;
  const auto join = [&](std::int32_t layer, LayerGroup group) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& g) {
      return g.kind == group.kind && g.window == group.window && g.num_kv_heads == group.num_kv_heads &&
             g.head_dim == group.head_dim;
    });
    if (it == groups.end()) it = groups.insert(groups.end(), std::move(group));
    it->layers.push_back(layer);
  };
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    const LayerSpec& l = spec.layers[static_cast<std::size_t>(i)];
    if (l.kv_of >= 0) continue;
    if (has_attention(l.mixer) || l.mixer == MixerKind::kLatent) join(i, state_of(spec, l));
    if (has_state(l.mixer))
      join(i, {.kind = StateKind::kRecurrent, .layers = {}, .state_bytes = spec.recurrent.state_bytes()});
  }
  return groups;
}

const char* pooling_name(Pooling kind) {
  static constexpr const char* kNames[] = {"none", "first token", "last token", "mean"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int32_t group_readers(const DecoderSpec& spec, const LayerGroup& group) {
  const auto reads = [&](const LayerSpec& l) {
    return std::find(group.layers.begin(), group.layers.end(), l.kv_of) != group.layers.end();
  };
  return static_cast<std::int32_t>(std::ssize(group.layers) +
                                   std::count_if(spec.layers.begin(), spec.layers.end(), reads));
}

std::uint64_t kv_bytes_per_token(const LayerGroup& g, DType kv_dtype) {
  const auto u = [](auto v) { return static_cast<std::uint64_t>(v); };
  if (g.kind == StateKind::kRecurrent) return 0;
  // K and V, or the two parts of a latent vector: each has its own scale.
  const std::uint64_t scales = has_token_scales(kv_dtype) ? 2 * sizeof(float) : 0;
  const std::uint64_t planes = g.kind == StateKind::kLatent ? 1 : 2;
  return u(g.layers.size()) * u(g.num_kv_heads) * (planes * u(g.head_dim) * block_bytes(kv_dtype) + scales);
}

std::uint64_t kv_bytes_per_token(const DecoderSpec& spec, DType kv_dtype) {
  std::uint64_t sum = 0;
  for (const LayerGroup& g : layer_groups(spec)) sum += kv_bytes_per_token(g, kv_dtype);
  return sum;
}

namespace {

std::uint64_t attention_parameters(const DecoderSpec& s, const LayerSpec& l) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const LayerShape shape = shape_of(s, l);
  const bool reads = l.kv_of >= 0;
  const std::uint64_t h = u(s.hidden), q = u(shape.q_width), k = reads ? 0 : u(shape.kv_width),
                      v = l.v_is_k ? 0 : k, d = u(shape.head_dim);
  std::uint64_t sum = h * (q + k + v) + q * h;
  if (s.attention_gate) sum += h * q;
  if (s.qk_norm == QkNorm::kHeads) sum += reads ? d : 2 * d;
  if (s.qk_norm > QkNorm::kHeads) sum += q + k;
  if (s.qkv_bias) sum += q + k + v;
  if (s.o_bias) sum += h;
  if (s.sinks) sum += u(s.num_q_heads);
  if (s.streams.laurel_rank > 0) sum += h * (2 * u(s.streams.laurel_rank) + 1);
  return sum;
}

std::uint64_t dense_parameters(const DecoderSpec& s, const LayerSpec& l) {
  const std::uint64_t h = static_cast<std::uint64_t>(s.hidden),
                      ffn = static_cast<std::uint64_t>(shape_of(s, l).ffn);
  const std::uint64_t ups = s.gated ? 2 : 1;
  return (ups + 1) * h * ffn + (s.mlp_bias ? ups * ffn + h : 0);
}

/// Of the per-layer inputs, of the streams and of the tables beside the words': the model's, and those of a layer.
struct Besides {
  std::uint64_t once = 0, layer = 0;
};
Besides besides_parameters(const DecoderSpec& s) {
  const auto u = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t h = u(s.hidden), width = u(s.per_layer.width), streams = u(s.streams.count);
  Besides out;
  if (width > 0) {
    out.once += u(s.num_layers) * width * (u(s.per_layer.rows) + h) + width;
    out.layer += 2 * width * h + h;
  }
  if (streams > 1) {
    out.once += 2 * (streams - 1) * h * h;
    out.layer += streams * h + h + streams * streams * (streams + 1) + (s.streams.scaled ? h : 0);
  }
  if (s.layer_scale) out.layer += 1;
  if (s.tables.positions > 0)
    out.once += (u(s.tables.positions) + u(s.tables.types)) * h + (s.norm.bias ? 2 * h : h);
  return out;
}

}  // namespace

std::uint64_t parameter_count(const DecoderSpec& s) {
  const std::uint64_t h = static_cast<std::uint64_t>(s.hidden);
  const std::uint64_t norm = s.norm.bias ? 2 * h : h;
  const Besides besides = besides_parameters(s);
  std::uint64_t sum = (s.final_norm ? norm : 0) + besides.once;
  sum += static_cast<std::uint64_t>(s.vocab_rows) * h * (s.tied || !s.generates() ? 1 : 2);
  for (const LayerSpec& l : s.layers) {
    const bool feeds = l.feed != FeedKind::kNone;
    sum += (norms_of_layer(s) - (feeds ? 0 : 1)) * norm + besides.layer;
    if (has_dense(l.feed)) sum += dense_parameters(s, l);
    if (has_experts(l.feed)) sum += expert_parameters(s);
    if (l.feed == FeedKind::kDenseAndExperts) sum += 3 * norm;
    if (l.mixer == MixerKind::kLatent) sum += latent_parameters(s);
    if (has_attention(l.mixer)) sum += attention_parameters(s, l);
    if (has_state(l.mixer)) sum += recurrent_parameters(l.mixer, s.recurrent, h);
  }
  return sum;
}

}  // namespace barg::model
