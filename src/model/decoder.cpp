#include "model/decoder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "model/rope.h"
#include "model/weights.h"

namespace barg::model {
namespace {

constexpr std::size_t kAlign = 64;

/// Where each buffer of a step lies in the workspace. Attention's and the feed-forward's share one region:
/// neither outlives its half of a layer.
struct Layout {
  std::size_t x, h, y, cos, sin, linear, attention;
  std::size_t qkv, context;  // attention half
  std::size_t gate_up, act;  // feed-forward half
  std::size_t total;
};

Layout make_layout(const DecoderSpec& s, const ops::OpTable& ops, Recipe recipe, std::int32_t max_rows) {
  std::size_t at = 0;
  const auto rows = static_cast<std::size_t>(max_rows);
  const auto bytes = [&](std::size_t n) {
    return std::exchange(at, (at + n + kAlign - 1) / kAlign * kAlign);
  };
  const auto floats = [&](std::int64_t width) {
    return bytes(rows * static_cast<std::size_t>(width) * sizeof(float));
  };
  const std::int64_t q = std::int64_t{s.num_q_heads} * s.head_dim,
                     kv = std::int64_t{s.num_kv_heads} * s.head_dim;
  Layout l{};
  l.x = floats(s.hidden);
  l.h = floats(s.hidden);
  l.y = floats(s.hidden);
  l.cos = floats(s.rope.rotary_dim / 2);
  l.sin = floats(s.rope.rotary_dim / 2);
  std::size_t linear = 0;
  for (const std::int64_t k : {std::int64_t{s.hidden}, q, std::int64_t{s.ffn}}) {
    linear = std::max(linear, ops.prepared_bytes(max_rows, static_cast<std::int32_t>(k), recipe));
  }
  l.linear = bytes(linear);
  l.attention = bytes(ops.attention_workspace_bytes(max_rows, s.num_q_heads, s.head_dim));
  const std::size_t shared = at;
  l.qkv = floats(q + 2 * kv);
  l.context = floats(q);
  const std::size_t attention_end = std::exchange(at, shared);
  l.gate_up = floats(2 * std::int64_t{s.ffn});
  l.act = floats(s.ffn);
  l.total = std::max(attention_end, at);
  return l;
}

}  // namespace

Workspace::Workspace(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new (std::max(bytes, kAlign), std::align_val_t{kAlign}))),
      size_(bytes) {}

Workspace::~Workspace() { ::operator delete (data_, std::align_val_t{kAlign}); }

Workspace::Workspace(Workspace&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Workspace& Workspace::operator=(Workspace&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

/// The buffers of one step and the batch they belong to.
struct Step {
  const ForwardBatch& batch;
  std::int32_t rows;
  float *x, *h, *y, *cos, *sin, *qkv, *context, *gate_up, *act;
  void *linear, *attention;
};

struct Decoder::Impl {
  DecoderSpec spec;
  const ops::OpTable& ops;
  ops::Stream& stream;
  Recipe recipe;
  std::vector<LayerGroup> groups;
  struct Place {
    std::size_t group, index;
  };
  std::vector<Place> places;  ///< where each layer's KV is in ForwardBatch::groups
  std::vector<float> frequencies;
  std::unique_ptr<Weights> weights;
  Observer observer;

  void forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out);
  void attention_half(const Step& s, std::int32_t layer);
  void ffn_half(const Step& s, std::int32_t layer);

  /// The one way to multiply by a weight. `y` [rows, p.n] dense.
  void linear(const Projection& p, const float* x, std::int32_t rows, void* scratch, float* y) {
    for (const ProjectionPart& part : p.parts) {
      ops.linear(stream, {.weight = part.weight,
                          .recipe = recipe,
                          .x = x,
                          .rows = rows,
                          .x_stride = p.k,
                          .bias = part.bias,
                          .out = y + part.out_offset,
                          .out_stride = p.n,
                          .workspace = scratch});
    }
  }

  /// h = norm(x), after x += residual when there is one.
  void norm(const Step& s, const float* residual, const float* weight, float* out) {
    ops.rms_norm(stream, {.x = s.x,
                          .residual = residual,
                          .weight = weight,
                          .weight_offset = 0,
                          .eps = spec.rms_eps,
                          .rows = s.rows,
                          .dim = spec.hidden,
                          .out = out});
  }

  /// Sums a row-parallel projection's output over the ranks.
  void all_reduce(const Step& s) {
    ops.all_reduce(stream, {.x = s.y, .count = std::int64_t{s.rows} * spec.hidden, .rank = 0, .world = 1});
  }

  void observe(std::int32_t layer, const Step& s) {
    if (observer) observer(layer, s.x, s.rows);
  }
};

void Decoder::Impl::attention_half(const Step& s, std::int32_t layer) {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Place place = places[static_cast<std::size_t>(layer)];
  const GroupKv& group = s.batch.groups[place.group];
  const ops::KvLayerView& kv = group.layers[place.index];
  const std::int64_t q_width = std::int64_t{spec.num_q_heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.num_kv_heads} * spec.head_dim;
  const auto num_segments = static_cast<std::int32_t>(group.segments.size());
  linear(w.qkv, s.h, s.rows, s.linear, s.qkv);
  ops.rope_kv_write(stream, {.q = s.qkv,
                             .k = s.qkv + q_width,
                             .v = s.qkv + q_width + kv_width,
                             .q_stride = w.qkv.n,
                             .kv_stride = w.qkv.n,
                             .cos = s.cos,
                             .sin = s.sin,
                             .rotary_dim = spec.rope.rotary_dim,
                             .num_q_heads = spec.num_q_heads,
                             .kv = kv,
                             .segments = group.segments.data(),
                             .num_segments = num_segments});
  ops.attention(stream, {.q = s.qkv,
                         .q_stride = w.qkv.n,
                         .out = s.context,
                         .out_stride = q_width,
                         .scale = spec.attention_scale,
                         .window = spec.layers[static_cast<std::size_t>(layer)].window,
                         .num_q_heads = spec.num_q_heads,
                         .kv = kv,
                         .segments = group.segments.data(),
                         .num_segments = num_segments,
                         .workspace = s.attention});
  linear(w.attn_out, s.context, s.rows, s.linear, s.y);
  all_reduce(s);
}

void Decoder::Impl::ffn_half(const Step& s, std::int32_t layer) {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  linear(w.gate_up, s.h, s.rows, s.linear, s.gate_up);
  ops.silu_mul(stream, {.gate = s.gate_up,
                        .up = s.gate_up + spec.ffn,
                        .in_stride = w.gate_up.n,
                        .rows = s.rows,
                        .dim = spec.ffn,
                        .out = s.act});
  linear(w.down, s.act, s.rows, s.linear, s.y);
  all_reduce(s);
}

void Decoder::Impl::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  CHECK(batch.rows > 0 && batch.groups.size() == groups.size());
  const Layout l = make_layout(spec, ops, recipe, batch.rows);
  CHECK(l.total <= workspace.size());
  const auto f = [&](std::size_t at) { return reinterpret_cast<float*>(workspace.data() + at); };
  const Step s{batch,
               batch.rows,
               f(l.x),
               f(l.h),
               f(l.y),
               f(l.cos),
               f(l.sin),
               f(l.qkv),
               f(l.context),
               f(l.gate_up),
               f(l.act),
               workspace.data() + l.linear,
               workspace.data() + l.attention};
  rope_rows(frequencies, batch.positions, batch.rows, s.cos, s.sin);
  ops.embed(stream, {.table = weights->embedding,
                     .ids = batch.tokens,
                     .rows = batch.rows,
                     .scale = spec.embedding_scale,
                     .out = s.x});
  observe(-1, s);
  // Each half leaves its output in y; the next norm adds it to the residual stream x.
  const float* pending = nullptr;
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    const LayerWeights& w = weights->layers[static_cast<std::size_t>(i)];
    norm(s, pending, w.attn_norm, s.h);
    if (i > 0) observe(i - 1, s);
    attention_half(s, i);
    norm(s, s.y, w.ffn_norm, s.h);
    ffn_half(s, i);
    pending = s.y;
  }
  norm(s, pending, weights->final_norm, hidden_out);
  observe(spec.num_layers - 1, s);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const ModelFiles& files, const ops::OpTable& ops,
                                               ops::Stream& stream, const DecoderOptions& options,
                                               const Progress& progress) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  auto weights = load_weights(*spec, files, ops, stream, progress);
  if (!weights) return std::unexpected(weights.error());
  auto groups = layer_groups(*spec);
  std::vector<Impl::Place> places(static_cast<std::size_t>(spec->num_layers));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].layers.size(); ++i)
      places[static_cast<std::size_t>(groups[g].layers[i])] = {g, i};
  }
  auto frequencies = rope_frequencies(spec->rope);
  auto impl =
      std::make_unique<Impl>(std::move(*spec), ops, stream, options.recipe, std::move(groups),
                             std::move(places), std::move(frequencies), std::move(*weights), Observer{});
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<std::uint64_t> Decoder::weight_bytes(const ModelFiles& files, const ops::OpTable& ops) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  return plan_weights(*spec, files, ops);
}

std::size_t Decoder::workspace_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                     std::int32_t max_rows) {
  return make_layout(spec, ops, recipe, max_rows).total;
}

const DecoderSpec& Decoder::spec() const { return impl_->spec; }
Recipe Decoder::recipe() const { return impl_->recipe; }
const std::vector<LayerGroup>& Decoder::groups() const { return impl_->groups; }
std::uint64_t Decoder::weight_bytes() const { return impl_->weights->arena.size(); }

std::size_t Decoder::workspace_bytes(std::int32_t max_rows) const {
  return workspace_bytes(impl_->spec, impl_->ops, impl_->recipe, max_rows);
}

void Decoder::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  impl_->forward(batch, workspace, hidden_out);
}

void Decoder::logits(const float* hidden, std::int32_t rows, Workspace& workspace, float* out) {
  CHECK(rows > 0);
  const Layout l = make_layout(impl_->spec, impl_->ops, impl_->recipe, rows);
  CHECK(l.total <= workspace.size());
  impl_->linear(impl_->weights->output, hidden, rows, workspace.data() + l.linear, out);
}

void Decoder::set_observer(Observer observer) { impl_->observer = std::move(observer); }

}  // namespace barg::model
