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
  std::size_t x, h, cos, sin, prepared, attention;
  std::size_t qkv, context;           // attention half
  std::size_t act, up, prepared_act;  // feed-forward half
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
  const std::int32_t q = s.num_q_heads * s.head_dim, kv = s.num_kv_heads * s.head_dim;
  Layout l{};
  l.x = floats(s.hidden);
  l.h = floats(s.hidden);
  l.cos = floats(s.rope.rotary_dim / 2);
  l.sin = floats(s.rope.rotary_dim / 2);
  l.prepared = bytes(ops.prepared_bytes(max_rows, std::max(s.hidden, q), recipe));
  l.attention = bytes(ops.attention_workspace_bytes(max_rows, s.num_q_heads, s.head_dim));
  const std::size_t shared = at;
  l.qkv = floats(q + 2 * std::int64_t{kv});
  l.context = floats(q);
  const std::size_t attention_end = std::exchange(at, shared);
  l.act = floats(s.ffn);
  l.up = floats(s.ffn);
  l.prepared_act = bytes(ops.prepared_bytes(max_rows, s.ffn, recipe));
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

/// Rows between two operations: as floats, prepared for the recipe, or both, as the readers want them.
struct Rows {
  float* x;
  void* prepared;
  bool ready = false;  ///< producers fill `prepared`; else linear prepares the rows there, from x

  void* produced() const { return ready ? prepared : nullptr; }
};

/// Where a matrix product goes.
struct Output {
  float* y;
  std::int64_t stride;
  bool accumulate = false;
  float* block_max = nullptr;
};

/// The buffers of one step and the batch they belong to.
struct Step {
  const ForwardBatch& batch;
  std::int32_t rows;  ///< of the batch, or after keep_wanted() of those that are wanted
  float *x, *cos, *sin, *qkv, *up;
  Rows h, context, act;
  void* attention;
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
  void attention_half(Step& s, std::int32_t layer);
  void ffn_half(const Step& s, std::int32_t layer);
  Rows gated(const Step& s, const LayerWeights& w, const Rows& h);

  bool reads_prepared(const ProjectionPart& p) const {
    return ops::prepared_form(recipe, p.weight.dtype) != ops::Form::kF32;
  }

  /// `buffers` without those that no part of `p` reads: what a producer has to write. In recipe bf16 every
  /// product rounds its rows itself.
  Rows wanted(const Projection& p, const Rows& buffers) const {
    if (recipe == Recipe::kBF16) return buffers;
    Rows out{nullptr, nullptr, true};
    for (const ProjectionPart& part : p.parts) {
      if (reads_prepared(part))
        out.prepared = buffers.prepared;
      else
        out.x = buffers.x;
    }
    return out;
  }

  /// The one way to multiply by a weight.
  void linear(const ProjectionPart& p, const Rows& in, std::int32_t rows, const Output& out) {
    ops.linear(stream, {.weight = p.weight,
                        .recipe = recipe,
                        .x = in.x,
                        .rows = rows,
                        .x_stride = p.weight.k,
                        .bias = p.bias,
                        .out = out.y,
                        .out_stride = out.stride,
                        .workspace = in.prepared,
                        .prepared = in.ready && reads_prepared(p) ? in.prepared : nullptr,
                        .accumulate = out.accumulate,
                        .block_max = out.block_max});
  }

  /// x += W in, row-parallel: summed over the ranks, of which the first adds to the residual stream.
  void add_projection(const Step& s, const Projection& p, const Rows& in) {
    for (const ProjectionPart& part : p.parts) linear(part, in, s.rows, {s.x + part.out_offset, p.n, true});
    ops.all_reduce(stream, {.x = s.x, .count = std::int64_t{s.rows} * spec.hidden, .rank = 0, .world = 1});
  }

  void norm(const Step& s, const float* weight, const Rows& to) {
    ops.rms_norm(stream, {.x = s.x,
                          .weight = weight,
                          .weight_offset = 0,
                          .eps = spec.rms_eps,
                          .rows = s.rows,
                          .dim = spec.hidden,
                          .out = to.x,
                          .prepared = to.produced()});
  }

  /// Moves what the rest of the last layer reads of the wanted rows together: the others' K and V were all
  /// that anybody will read of them.
  void keep_wanted(Step& s, std::int64_t qkv_width) const {
    const std::int64_t q_width = std::int64_t{spec.num_q_heads} * spec.head_dim;
    std::int64_t to = 0;
    for (const std::int64_t from : s.batch.wanted) {  // ascending: nothing is overwritten before it moves
      if (from != to) {
        std::copy_n(s.x + from * spec.hidden, spec.hidden, s.x + to * spec.hidden);
        std::copy_n(s.qkv + from * qkv_width, q_width, s.qkv + to * qkv_width);
      }
      ++to;
    }
    s.rows = static_cast<std::int32_t>(to);
  }

  void observe(std::int32_t layer, const Step& s) {
    if (observer) observer(layer, s.x, s.rows);
  }
};

/// Leaves nothing but the wanted rows in `s` where the layer is the last.
void Decoder::Impl::attention_half(Step& s, std::int32_t layer) {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Place place = places[static_cast<std::size_t>(layer)];
  const GroupKv& group = s.batch.groups[place.group];
  const ops::KvLayerView& kv = group.layers[place.index];
  const std::int64_t q_width = std::int64_t{spec.num_q_heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.num_kv_heads} * spec.head_dim;
  const Rows h = wanted(w.qkv, s.h);
  norm(s, w.attn_norm, h);
  for (const ProjectionPart& part : w.qkv.parts) linear(part, h, s.rows, {s.qkv + part.out_offset, w.qkv.n});
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
                             .num_segments = static_cast<std::int32_t>(group.segments.size())});
  const bool last = layer + 1 == spec.num_layers;
  if (last) keep_wanted(s, w.qkv.n);
  if (s.rows == 0) return;
  const std::vector<ops::Segment>& segments = last ? group.wanted_segments : group.segments;
  // Blocks of prepared rows do not straddle heads; where they would, linear prepares the rows itself.
  const Rows context = spec.head_dim % 32 == 0 ? wanted(w.attn_out, s.context) : s.context;
  ops.attention(stream, {.q = s.qkv,
                         .q_stride = w.qkv.n,
                         .out = context.x,
                         .out_stride = q_width,
                         .scale = spec.attention_scale,
                         .window = spec.layers[static_cast<std::size_t>(layer)].window,
                         .num_q_heads = spec.num_q_heads,
                         .kv = kv,
                         .segments = segments.data(),
                         .num_segments = static_cast<std::int32_t>(segments.size()),
                         .workspace = s.attention,
                         .prepared = context.produced()});
  add_projection(s, w.attn_out, context);
}

/// silu(gate h) * up h. Fused where gate and up are stored alike.
Rows Decoder::Impl::gated(const Step& s, const LayerWeights& w, const Rows& h) {
  const ProjectionPart &gate = w.gate_up.parts[0], &up = w.gate_up.parts[1];
  if (gate.weight.dtype == up.weight.dtype) {
    const Rows act = wanted(w.down, s.act);
    ops.gated_linear(stream, {.gate = gate.weight,
                              .up = up.weight,
                              .recipe = recipe,
                              .x = h.x,
                              .rows = s.rows,
                              .x_stride = spec.hidden,
                              .gate_bias = gate.bias,
                              .up_bias = up.bias,
                              .out = act.x,
                              .prepared_out = act.produced(),
                              .workspace = h.prepared,
                              .prepared = h.produced()});
    return act;
  }
  linear(gate, h, s.rows, {s.act.x, spec.ffn});
  linear(up, h, s.rows, {s.up, spec.ffn});
  ops.silu_mul(
      stream,
      {.gate = s.act.x, .up = s.up, .in_stride = spec.ffn, .rows = s.rows, .dim = spec.ffn, .out = s.act.x});
  return s.act;
}

void Decoder::Impl::ffn_half(const Step& s, std::int32_t layer) {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Rows h = wanted(w.gate_up, s.h);
  norm(s, w.ffn_norm, h);
  add_projection(s, w.down, gated(s, w, h));
}

void Decoder::Impl::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  CHECK(batch.rows > 0 && batch.groups.size() == groups.size());
  const Layout l = make_layout(spec, ops, recipe, batch.rows);
  CHECK(l.total <= workspace.size());
  std::byte* const base = workspace.data();
  const auto f = [&](std::size_t at) { return reinterpret_cast<float*>(base + at); };
  Step s{.batch = batch,
         .rows = batch.rows,
         .x = f(l.x),
         .cos = f(l.cos),
         .sin = f(l.sin),
         .qkv = f(l.qkv),
         .up = f(l.up),
         .h = {f(l.h), base + l.prepared},
         .context = {f(l.context), base + l.prepared},
         .act = {f(l.act), base + l.prepared_act},
         .attention = base + l.attention};
  rope_rows(frequencies, batch.positions, batch.rows, s.cos, s.sin);
  ops.embed(stream, {.table = weights->embedding,
                     .ids = batch.tokens,
                     .rows = batch.rows,
                     .scale = spec.embedding_scale,
                     .out = s.x});
  observe(-1, s);
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    attention_half(s, i);
    if (s.rows == 0) return;
    ffn_half(s, i);
    observe(i, s);
  }
  norm(s, weights->final_norm, {hidden_out, nullptr});
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const ModelFiles& files, const ops::OpTable& ops,
                                               ops::Stream& stream, const DecoderOptions& options,
                                               const Progress& progress) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  auto weights = load_weights(*spec, files, ops, stream, options.recipe, progress);
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

Result<std::uint64_t> Decoder::weight_bytes(const ModelFiles& files, const ops::OpTable& ops, Recipe recipe) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  return plan_weights(*spec, files, ops, recipe);
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

void Decoder::logits(const float* hidden, std::int32_t rows, Workspace& workspace, float* out,
                     float* block_max) {
  CHECK(rows > 0);
  const Layout l = make_layout(impl_->spec, impl_->ops, impl_->recipe, rows);
  CHECK(l.total <= workspace.size());
  const Projection& p = impl_->weights->output;
  auto* x = const_cast<float*>(hidden);  // read only
  impl_->linear(p.parts[0], {x, workspace.data() + l.prepared}, rows, {out, p.n, false, block_max});
}

void Decoder::set_observer(Observer observer) { impl_->observer = std::move(observer); }

}  // namespace barg::model
