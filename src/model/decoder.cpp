#include "model/decoder.h"

#include <algorithm>
#include <initializer_list>
#include <new>
#include <utility>

#include "base/check.h"
#include "math.h"
#include "model/altup.h"
#include "model/mla.h"
#include "model/moe.h"
#include "model/per_layer.h"
#include "model/recurrent.h"
#include "model/rope.h"
#include "model/step.h"
#include "model/weights.h"

namespace barg::model {
namespace {

/// Where each buffer of a step lies in the workspace. Attention's, the feed-forward's and what stands between
/// share one region: none outlives its part of a layer.
struct Layout {
  std::size_t x, sub, h, rotations, query_scales, prepared, gathered, attention;
  std::size_t laurel, streams, per_layer;
  std::size_t qkv, context, latent;            // attention half
  std::size_t act, up, prepared_act, experts;  // feed-forward half
  std::size_t between;
  std::size_t total;
};

/// Whether all that a layer has can add to the residual stream as it is computed.
bool adds_directly(const DecoderSpec& s) {
  return s.norm_place == NormPlace::kBefore && s.residual_scale == 1 && s.feed_out_scale == 1 &&
         s.streams.count == 1 && s.per_layer.width == 0 &&
         std::none_of(s.layers.begin(), s.layers.end(), [](const LayerSpec& l) {
           return l.mixer == MixerKind::kAttentionAndMamba2 || l.feed == FeedKind::kDenseAndExperts;
         });
}

/// Of the rows that mixers work in: a projection's (two side by side, where a layer has both kinds), and what
/// the output projection reads.
struct Widths {
  std::int64_t in = 0, context = 0;
  std::int32_t head_dim = 0;  ///< 0: no layer attends
  std::int32_t ffn = 0;       ///< of the feed-forward half
};

Widths widest_layers(const DecoderSpec& s) {
  Widths w{.ffn = std::max(s.ffn, s.experts.shared_ffn)};
  for (const LayerSpec& l : s.layers) {
    const LayerShape shape = shape_of(s, l);
    const std::int64_t attention =
        has_attention(l.mixer) ? (s.attention_gate ? 2 : 1) * shape.q_width + 2 * shape.kv_width : 0;
    w.in = std::max(w.in, attention + recurrent_in_width(l.mixer, s.recurrent));
    w.ffn = std::max(w.ffn, shape.ffn);
    if (has_attention(l.mixer)) w.context = std::max(w.context, shape.q_width);
    if (has_attention(l.mixer)) w.head_dim = std::max(w.head_dim, shape.head_dim);
    if (has_state(l.mixer)) w.context = std::max<std::int64_t>(w.context, s.recurrent.inner());
  }
  return w;
}

Layout make_layout(const DecoderSpec& s, const ops::OpTable& ops, Recipe recipe, std::int32_t max_rows) {
  ScratchPlan plan(max_rows);
  const Widths layer = widest_layers(s);
  Layout l{};
  l.x = plan.numbers(s.hidden);
  l.sub = plan.numbers(adds_directly(s) ? 0 : s.hidden);
  l.h = plan.numbers(s.hidden);
  std::int64_t angles = 0;
  for (const RopeSpec& r : s.ropes) angles += r.rotary_dim / 2;
  l.rotations = plan.numbers(2 * angles);
  l.query_scales = plan.numbers(s.query_scale.beta != 0 ? 1 : 0);
  const auto widest = static_cast<std::int32_t>(
      std::max<std::int64_t>({s.hidden, layer.context, s.per_layer.width, s.streams.laurel_rank}));
  l.prepared = plan.bytes(ops.prepared_bytes(max_rows, widest, recipe));
  l.gathered = plan.numbers(s.reordered_inputs ? std::max(widest, layer.ffn) : 0);
  l.attention = plan.bytes(
      layer.head_dim > 0 ? ops.attention_workspace_bytes(max_rows, s.num_q_heads, layer.head_dim) : 0);
  l.laurel = plan.numbers(s.streams.laurel_rank > 0 ? s.hidden : 0);
  l.streams = plan.numbers(s.streams.count > 1 ? std::int64_t{s.streams.count} * s.hidden : 0);
  l.per_layer = plan.numbers(std::int64_t{s.num_layers} * s.per_layer.width);
  ScratchPlan feed(max_rows, plan.end()), between(max_rows, plan.end());
  l.qkv = plan.numbers(layer.in);
  l.context = plan.numbers(layer.context);
  l.latent = plan.bytes(latent_scratch_bytes(s, ops, recipe, max_rows));
  l.act = feed.numbers(layer.ffn);
  l.up = feed.numbers(layer.ffn);
  l.prepared_act = feed.bytes(ops.prepared_bytes(max_rows, layer.ffn, recipe));
  l.experts = feed.bytes(experts_scratch_bytes(s, ops, recipe, max_rows));
  l.between = between.bytes(std::max(altup_scratch_bytes(s, max_rows), per_layer_scratch_bytes(s, max_rows)));
  l.total = std::max({plan.end(), feed.end(), between.end()});
  return l;
}

/// Of rows of q, k and v: values that keys become have no columns in the projection.
std::int64_t qkv_stride(const Projection& qkv, const LayerSpec& layer, const LayerShape& shape) {
  return qkv.n + (layer.v_is_k ? shape.kv_width : 0);
}

/// Refuses by name what the table cannot do.
Result<void> check_features(const DecoderSpec& s, const ops::OpTable& ops) {
  struct Need {
    ops::Feature feature;
    bool needed;
    const char* what;
  };
  const Need needs[] = {
      {ops::kFeatureNorms, s.qk_norm != QkNorm::kNone || !adds_directly(s), "norms or residual scales"},
      {ops::kFeatureLayerNorm, s.norm.kind != ops::NormKind::kRms || s.norm.bias, "layer norms"},
      {ops::kFeatureNorms, s.latent.kv_rank > 0, "norms of parts of rows"},
      {ops::kFeatureExperts, s.experts.count > 0, "experts"},
      {ops::kFeatureLatent, s.latent.kv_rank > 0, "latent attention"},
      {ops::kFeatureSinks, s.sinks, "attention with sinks"},
      {ops::kFeatureActivations, s.activation != ops::Activation::kSilu, "an activation"},
      {ops::kFeatureSoftcap, s.attention_softcap > 0 || s.logit_softcap > 0, "soft caps"},
      {ops::kFeatureLogitScale, s.logit_scale != 1 || s.layer_scale, "logit scales"},
      {ops::kFeatureEncoders, s.bidirectional || !s.gated || s.activation == ops::Activation::kGeluErf, "an encoder"},
      {ops::kFeatureRecurrent, s.recurrent.kernel > 0 || s.attention_gate, "recurrent layers"},
      {ops::kFeatureSoftcap, s.layer_scale || s.streams.count > 1, "scaled streams"},
      {ops::kFeatureHostMemory, s.query_scale.beta != 0, "scaled queries"},
      {ops::kFeatureHostMemory, s.tables.positions > 0 || !s.final_norm, "an encoder"},
      {ops::kFeatureStreams,
       s.streams.count > 1 ||
           std::any_of(s.layers.begin(), s.layers.end(), [](const LayerSpec& l) { return l.cuts_gate; }),
       "several residual streams"},
  };
  for (const Need& n : needs) {
    if (!n.needed || (ops.features & n.feature) != 0) continue;
    return fail(ErrorCode::kUnsupported,
                s.architecture + " needs " + n.what + " that " + ops.name + " does not compute yet");
  }
  return {};
}

}  // namespace

Workspace::Workspace(std::size_t bytes)
    : data_(static_cast<std::byte*>(::operator new (std::max(bytes, kScratchAlign), std::align_val_t{kScratchAlign}))),
      size_(bytes) {}

Workspace::~Workspace() {
  if (!borrowed_) ::operator delete (data_, std::align_val_t{kScratchAlign});
}

Workspace::Workspace(Workspace&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)), borrowed_(o.borrowed_) {}

Workspace& Workspace::operator=(Workspace&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  std::swap(borrowed_, o.borrowed_);
  return *this;
}

namespace {

/// Radians per position, in the device's memory.
struct Frequencies {
  const float* values;
  std::int32_t count;
};

/// Of every rope; `tables` becomes the owner of what they point to.
Result<std::vector<Frequencies>> make_frequencies(const DecoderSpec& spec, Memory& memory,
                                                  std::unique_ptr<MemoryBlock>& tables) {
  std::vector<float> all;
  std::vector<Frequencies> out;
  for (const RopeSpec& r : spec.ropes) {
    const std::vector<float> one = rope_frequencies(r);
    out.push_back({nullptr, static_cast<std::int32_t>(one.size())});
    all.insert(all.end(), one.begin(), one.end());
  }
  if (all.empty()) return out;
  const std::size_t bytes = all.size() * sizeof(float);
  tables = memory.allocate(bytes, "rope frequencies", false);
  if (tables == nullptr || !memory.write(tables->data(), all.data(), bytes))
    return fail(ErrorCode::kOutOfMemory, "cannot allocate " + std::to_string(bytes) + " bytes for rope frequencies");
  const auto* next = reinterpret_cast<const float*>(tables->data());
  for (Frequencies& f : out) f.values = std::exchange(next, next + f.count);
  return out;
}

}  // namespace

struct Decoder::Impl {
  DecoderSpec spec;
  const ops::OpTable& ops;
  ops::Stream& stream;
  Recipe recipe;
  std::vector<LayerGroup> groups;
  struct Place {
    std::size_t group, index;
  };
  std::vector<Place> places, state_places;      ///< where each layer's KV, and its state, is in the batch
  std::vector<Frequencies> frequencies;  ///< of each rope
  std::unique_ptr<MemoryBlock> tables;   ///< what they point to
  std::unique_ptr<Weights> weights;
  Observer observer;
  const bool direct = adds_directly(spec);
  const std::int32_t keeper = last_keeper(spec);

  void forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out);
  void layer_forward(Step& s, std::int32_t layer) const;
  void mixer_half(Step& s, std::int32_t layer) const;
  void feed_half(const Step& s, std::int32_t layer) const;
  void attend(Step& s, std::int32_t layer, const Output& to) const;
  void multiply(const Projection& p, const Rows& h, std::int32_t rows, float* y, std::int64_t stride) const;
  void attend_projected(Step& s, std::int32_t layer, const Output& to) const;
  Rows recur(const Step& s, std::int32_t layer, float* in) const;
  void recur_alone(Step& s, std::int32_t layer, const Output& to) const;
  void attend_and_recur(Step& s, std::int32_t layer) const;
  void norm_heads(const Step& s, std::int32_t layer, const LayerShape& shape, std::int64_t stride) const;
  void encode_positions(const Step& s) const;
  void add_tables(const Step& s) const;

  StepOps step_ops() const { return {spec, ops, stream, recipe}; }

  /// What a half reads: the norm of the stream, in the forms that `reader` wants, or the stream itself.
  Rows half_input(const Step& s, const NormWeights& w, const Projection& reader) const {
    if (w.weight == nullptr) return {s.x, s.h.prepared, false, s.h.gathered};
    const Rows h = step_ops().wanted(reader, s.h);
    step_ops().norm(s.x, w, s.rows, h);
    return h;
  }

  /// The same, as floats.
  Rows half_floats(const Step& s, const NormWeights& w) const {
    if (w.weight == nullptr) return {s.x, s.h.prepared, false, s.h.gathered};
    step_ops().norm(s.x, w, s.rows, {s.h.x, nullptr});
    return {s.h.x, s.h.prepared, false, s.h.gathered};
  }

  /// Adds rows to the stream.
  void add(const Step& s, const float* y, float scale) const {
    ops.add_scaled(stream, {.x = s.x, .y = y, .scale = scale, .count = std::int64_t{s.rows} * spec.hidden});
  }

  /// Brings a half's result from `sub` to the stream, if it is there.
  void settle(const Step& s, const NormWeights& post, float scale) const {
    if (direct) return;
    const bool sum = spec.norm_place == NormPlace::kBehind;  // is what is normed
    if (!sum && post.weight != nullptr) step_ops().norm(s.sub, post, s.rows, {s.sub, nullptr});
    add(s, s.sub, scale);
    if (sum) step_ops().norm(s.x, post, s.rows, {s.x, nullptr});
  }

  /// Moves what is still to be read of the wanted rows together, of the stream and of `buffers` (the first
  /// `width` numbers of rows of `stride`): in the last layer that keeps K and V, or states, the others' were
  /// all that anybody will read of them.
  struct Kept {
    float* rows;
    std::int64_t stride, width;
  };
  void keep_wanted(Step& s, std::initializer_list<Kept> buffers) const {
    const StepOps step = step_ops();
    const auto keep = [&](float* rows, std::int64_t width) { step.keep_rows(s.batch, rows, width, width); };
    keep(s.x, spec.hidden);
    for (const Kept& b : buffers) step.keep_rows(s.batch, b.rows, b.stride, b.width);
    if (spec.streams.laurel_rank > 0) keep(s.laurel, spec.hidden);
    for (std::int32_t i = 0; s.streams != nullptr && i < spec.streams.count; ++i)
      keep(s.streams + i * s.stream_stride, spec.hidden);
    keep(s.per_layer, std::int64_t{spec.num_layers} * spec.per_layer.width);
    if (keeper + 1 < spec.num_layers) keep_positions(s);
    s.rows = static_cast<std::int32_t>(s.batch.wanted.size());
  }

  /// For the queries of layers behind.
  void keep_positions(const Step& s) const {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const std::int64_t angles = frequencies[i].count;
      for (float* rows : {s.rotations[i].cos, s.rotations[i].sin}) step_ops().keep_rows(s.batch, rows, angles, angles);
    }
    if (spec.query_scale.beta != 0) step_ops().keep_rows(s.batch, s.query_scales, 1, 1);
  }

  void observe(std::int32_t layer, const Step& s) {
    if (!observer) return;
    if (s.streams == nullptr) return observer(layer, s.x, s.rows);
    for (std::int32_t i = 0; i < spec.streams.count; ++i)
      observer(layer, s.streams + i * s.stream_stride, s.rows);
  }
};

/// cos and sin of every rope, and what queries are scaled with, for the rows of the batch.
void Decoder::Impl::encode_positions(const Step& s) const {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    ops.rope_angles(stream, {.frequencies = frequencies[i].values,
                             .count = frequencies[i].count,
                             .scale = static_cast<float>(spec.ropes[i].attention_factor),
                             .positions = s.batch.positions,
                             .rows = s.rows,
                             .cos = s.rotations[i].cos,
                             .sin = s.rotations[i].sin});
  }
  if (spec.query_scale.beta == 0) return;
  for (std::int32_t r = 0; r < s.rows; ++r) {
    const auto passed =
        static_cast<float>(s.batch.positions[r] / static_cast<std::int64_t>(spec.query_scale.length));
    s.query_scales[r] = 1.0f + static_cast<float>(spec.query_scale.beta) * ops::log(1.0f + passed);
  }
}

/// What the stream begins with beside the words: of a prompt all tokens are of type 0.
void Decoder::Impl::add_tables(const Step& s) const {
  auto* const types = reinterpret_cast<std::int32_t*>(s.up);  // nobody has use for it yet
  std::fill_n(types, s.rows, 0);
  const auto embed = [&](const ops::PackedWeight& table, const std::int32_t* ids) {
    ops.embed(stream, {.table = table, .ids = ids, .rows = s.rows, .scale = 1, .out = s.h.x});
    add(s, s.h.x, 1);
  };
  embed(weights->types, types);
  embed(weights->positions, s.batch.positions);
  step_ops().norm(s.x, weights->table_norm, s.rows, {s.x, nullptr});
}

/// The norms of q and k, in place, and of v, which may be made of k.
void Decoder::Impl::norm_heads(const Step& s, std::int32_t layer, const LayerShape& shape,
                               std::int64_t stride) const {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const LayerSpec& kind = spec.layers[static_cast<std::size_t>(layer)];
  const bool row = spec.qk_norm == QkNorm::kRow;
  ops::NormParams p{.kind = spec.norm.kind,
                    .x = nullptr,
                    .x_stride = stride,
                    .weight = nullptr,
                    .weight_stride = spec.qk_norm == QkNorm::kHeads || row ? 0 : shape.head_dim,
                    .bias = nullptr,
                    .weight_offset = spec.norm.offset,
                    .eps = spec.norm.eps,
                    .rows = s.rows,
                    .groups = 1,
                    .dim = shape.head_dim,
                    .out = nullptr,
                    .out_stride = stride};
  const auto part = [&](float* x, const float* weight, std::int32_t heads) {
    p.x = p.out = x;
    p.weight = weight;
    p.groups = row ? 1 : heads;
    p.dim = row ? heads * shape.head_dim : shape.head_dim;
    ops.norm(stream, p);
  };
  float* const k = s.qkv + shape.q_width;
  if (spec.v_norm && kind.kv_of < 0) {
    ops::NormParams v = p;
    v.x = kind.v_is_k ? k : k + shape.kv_width;
    v.out = k + shape.kv_width;
    v.weight = weights->ones;
    v.weight_stride = 0;
    v.weight_offset = 0;
    v.groups = shape.num_kv_heads;
    ops.norm(stream, v);
  }
  if (spec.qk_norm == QkNorm::kNone) return;
  part(s.qkv, w.q_norm, spec.num_q_heads);
  if (kind.kv_of < 0) part(k, w.k_norm, shape.num_kv_heads);
}

/// What a mixer begins with: y [rows, n], rows of `stride`, = W h.
void Decoder::Impl::multiply(const Projection& p, const Rows& h, std::int32_t rows, float* y,
                             std::int64_t stride) const {
  for (const ProjectionPart& part : p.parts) step_ops().linear(part, h, rows, {y + part.out_offset, stride});
}

void Decoder::Impl::attend(Step& s, std::int32_t layer, const Output& to) const {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const LayerSpec& kind = spec.layers[static_cast<std::size_t>(layer)];
  const bool laurel = spec.streams.laurel_rank > 0;
  const Rows h = laurel ? half_floats(s, w.attn_norm) : half_input(s, w.attn_norm, w.qkv);
  if (laurel) begin_laurel(step_ops(), s, w.streams, h);
  multiply(w.qkv, h, s.rows, s.qkv, qkv_stride(w.qkv, kind, shape_of(spec, kind)));
  attend_projected(s, layer, to);
}

/// Leaves nothing but the wanted rows in `s` where the layer is the last that keeps K and V.
void Decoder::Impl::attend_projected(Step& s, std::int32_t layer, const Output& to) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const LayerSpec& kind = spec.layers[static_cast<std::size_t>(layer)];
  const Place place = places[static_cast<std::size_t>(layer)];
  const GroupKv& group = s.batch.groups[place.group];
  const ops::KvLayerView& kv = group.layers[place.index];
  const LayerShape shape = shape_of(spec, kind);
  const std::int64_t stride = qkv_stride(w.qkv, kind, shape), q_width = shape.q_width,
                     kv_width = shape.kv_width;
  if (spec.qk_norm != QkNorm::kNone || spec.v_norm) norm_heads(s, layer, shape, stride);
  if (spec.query_scale.beta != 0) {
    ops.scale_rows(stream, {.x = s.qkv,
                            .x_stride = stride,
                            .scales = s.query_scales,
                            .rows = s.rows,
                            .dim = static_cast<std::int32_t>(q_width)});
  }
  const bool rotates = kind.rope >= 0;
  const std::size_t rope = rotates ? static_cast<std::size_t>(kind.rope) : 0;
  const std::span<const ops::Segment> computed = layer > keeper ? group.wanted_segments : group.segments;
  ops::KvLayerView kept = kv;
  if (kind.kv_of >= 0) kept.num_kv_heads = 0;  // they are there: q alone is to be rotated
  ops.rope_kv_write(stream, {.q = s.qkv,
                             .k = s.qkv + q_width,
                             .v = s.qkv + q_width + kv_width,
                             .q_stride = stride,
                             .kv_stride = stride,
                             .cos = s.rotations[rope].cos,
                             .sin = s.rotations[rope].sin,
                             .rotary_dim = rotates ? spec.ropes[rope].rotary_dim : 0,
                             .num_q_heads = spec.num_q_heads,
                             .kv = kept,
                             .segments = computed.data(),
                             .num_segments = static_cast<std::int32_t>(computed.size())});
  // Beside another mixer, `sub` holds that one's result.
  if (layer == keeper && kind.mixer == MixerKind::kAttention)
    keep_wanted(s, {{s.qkv, stride, spec.attention_gate ? stride : q_width}});
  if (layer == keeper && kind.mixer != MixerKind::kAttention)
    keep_wanted(s, {{s.qkv, stride, q_width}, {s.sub, spec.hidden, spec.hidden}});
  if (s.rows == 0) return;
  const std::span<const ops::Segment> segments = layer >= keeper ? group.wanted_segments : group.segments;
  // Blocks of prepared rows do not straddle heads; where they would, linear prepares the rows itself.
  const bool prepares = shape.head_dim % 32 == 0 && !spec.attention_gate;
  const Rows context = prepares ? step.wanted(w.attn_out, s.context) : s.context;
  ops.attention(stream, {.q = s.qkv,
                         .q_stride = stride,
                         .out = context.x,
                         .out_stride = q_width,
                         .scale = spec.attention_scale,
                         .window = kind.window,
                         .num_q_heads = spec.num_q_heads,
                         .kv = kv,
                         .segments = segments.data(),
                         .num_segments = static_cast<std::int32_t>(segments.size()),
                         .workspace = s.attention,
                         .prepared = context.produced(),
                         .softcap = spec.attention_softcap,
                         .sinks = w.sinks,
                         .causal = !spec.bidirectional});
  if (spec.attention_gate) {
    ops.sigmoid_mul(stream, {.x = context.x,
                             .gate = s.qkv + q_width + 2 * kv_width,
                             .gate_stride = stride,
                             .rows = s.rows,
                             .dim = static_cast<std::int32_t>(q_width),
                             .out = context.x});
  }
  step.project(w.attn_out, context, s.rows, to);
}

/// What the layer's recurrence makes of the projected rows `in`.
Rows Decoder::Impl::recur(const Step& s, std::int32_t layer, float* in) const {
  const Place place = state_places[static_cast<std::size_t>(layer)];
  const GroupKv& group = s.batch.groups[place.group];
  mix_recurrent(step_ops(), spec.layers[static_cast<std::size_t>(layer)].mixer,
                weights->layers[static_cast<std::size_t>(layer)].recurrent,
                {in, s.context.x, s.rows, group.states[place.index], group.segments});
  return s.context;
}

/// Leaves nothing but the wanted rows in `s` where the layer is the last that keeps a state.
void Decoder::Impl::recur_alone(Step& s, std::int32_t layer, const Output& to) const {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Rows h = half_input(s, w.attn_norm, w.recurrent.in);
  multiply(w.recurrent.in, h, s.rows, s.qkv, w.recurrent.in.n);
  const Rows context = recur(s, layer, s.qkv);
  const std::int64_t width = spec.recurrent.inner();
  if (layer == keeper) keep_wanted(s, {{context.x, width, width}});
  if (s.rows > 0) step_ops().project(w.recurrent.out, context, s.rows, to);
}

/// Both mixers of a layer read one norm; the sum of their results is in `sub`.
void Decoder::Impl::attend_and_recur(Step& s, std::int32_t layer) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  step.norm(s.x, w.attn_norm, s.rows, {s.h.x, nullptr});
  float* in = s.qkv + std::int64_t{s.rows} * w.qkv.n;
  multiply(w.qkv, s.h, s.rows, s.qkv, w.qkv.n);
  multiply(w.recurrent.in, s.h, s.rows, in, w.recurrent.in.n);
  step.project(w.recurrent.out, recur(s, layer, in), s.rows, {s.sub, spec.hidden});
  attend_projected(s, layer, {s.h.x, spec.hidden});
  if (s.rows == 0) return;
  ops.add_scaled(stream, {.x = s.sub,
                          .y = s.h.x,
                          .scale = spec.attention_out_scale,
                          .count = std::int64_t{s.rows} * spec.hidden});
}

void Decoder::Impl::mixer_half(Step& s, std::int32_t layer) const {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Output to{direct ? s.x : s.sub, spec.hidden, direct};
  switch (spec.layers[static_cast<std::size_t>(layer)].mixer) {
    case MixerKind::kAttention:
      attend(s, layer, to);
      break;
    case MixerKind::kDeltaNet:
    case MixerKind::kMamba2:
    case MixerKind::kConv:
      recur_alone(s, layer, to);
      break;
    case MixerKind::kAttentionAndMamba2:
      attend_and_recur(s, layer);
      break;
    case MixerKind::kLatent: {
      const Place at = places[static_cast<std::size_t>(layer)];
      const GroupKv& latent = s.batch.groups[at.group];
      latent_half(step_ops(), s, w, spec.layers[static_cast<std::size_t>(layer)], latent,
                  latent.layers[at.index], layer == keeper, half_input(s, w.attn_norm, w.latent.in), to);
      break;
    }
  }
  if (s.rows == 0 || spec.norm_place == NormPlace::kParallel) return;  // the other half reads the same stream
  settle(s, w.attn_post_norm, spec.residual_scale);
  if (spec.streams.laurel_rank > 0) end_laurel(step_ops(), s);
}

void Decoder::Impl::feed_half(const Step& s, std::int32_t layer) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const bool parallel = spec.norm_place == NormPlace::kParallel;
  const bool adds = direct || parallel;
  const Output to{adds ? s.x : s.sub, spec.hidden, adds};
  const LayerSpec& kind = spec.layers[static_cast<std::size_t>(layer)];
  switch (kind.feed) {
    case FeedKind::kDense: {
      const Rows h = half_input(s, parallel ? w.attn_norm : w.ffn_norm, w.gate_up);
      const std::optional<float> cut = kind.cuts_gate ? std::optional(kind.gate_cut) : std::nullopt;
      const Rows act =
          spec.gated ? step.gated(s, w.gate_up, w.down, h, cut) : step.activated(s, w.gate_up, h);
      step.project(w.down, act, s.rows, to);
      break;
    }
    case FeedKind::kDenseAndExperts:
      dense_and_experts_half(step, s, w);
      break;
    case FeedKind::kExperts:
      experts_half(step, s, w, half_floats(s, parallel ? w.attn_norm : w.ffn_norm), to);
      break;
    case FeedKind::kNone:
      return;
  }
  settle(s, w.ffn_post_norm, spec.residual_scale * spec.feed_out_scale);
}

/// Both halves, and what stands before and behind them.
void Decoder::Impl::layer_forward(Step& s, std::int32_t layer) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  if (s.streams != nullptr) predict_streams(step, s, w.streams);
  mixer_half(s, layer);
  if (s.rows == 0) return;
  feed_half(s, layer);
  if (s.streams != nullptr)
    correct_streams(step, s, w.streams, spec.streams.scaled ? w.streams.scale : weights->ones);
  if (spec.per_layer.width > 0) {
    per_layer_half(step, s, w.per_layer, layer, s.x);
    if (s.streams != nullptr)
      add_to_streams(step, s);
    else
      ops.add_scaled(stream, {.x = s.x, .y = s.sub, .scale = 1, .count = std::int64_t{s.rows} * spec.hidden});
  }
  if (spec.layer_scale) step.scale(s.x, s.rows, w.scale);
}

void Decoder::Impl::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  CHECK(batch.rows > 0 && batch.groups.size() == groups.size());
  CHECK(!spec.bidirectional || std::cmp_equal(batch.wanted.size(), batch.rows));
  const Layout l = make_layout(spec, ops, recipe, batch.rows);
  CHECK(l.total <= workspace.size());
  std::byte* const base = workspace.data();
  const auto f = [&](std::size_t at) { return reinterpret_cast<float*>(base + at); };
  Step s{.batch = batch,
         .rows = batch.rows,
         .x = f(l.x),
         .sub = f(l.sub),
         .rotations = {},
         .query_scales = f(l.query_scales),
         .qkv = f(l.qkv),
         .up = f(l.up),
         .h = {f(l.h), base + l.prepared, false, f(l.gathered)},
         .context = {f(l.context), base + l.prepared, false, f(l.gathered)},
         .act = {f(l.act), base + l.prepared_act, false, f(l.gathered)},
         .attention = base + l.attention,
         .latent = base + l.latent,
         .experts = base + l.experts,
         .laurel = f(l.laurel),
         .streams = spec.streams.count > 1 ? f(l.streams) : nullptr,
         .stream_stride = std::int64_t{batch.rows} * spec.hidden,
         .per_layer = f(l.per_layer),
         .between = base + l.between};
  float* angles = f(l.rotations);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const std::int64_t count = std::int64_t{batch.rows} * frequencies[i].count;
    s.rotations[i] = {angles, angles + count};
    angles += 2 * count;
  }
  encode_positions(s);
  ops.embed(stream, {.table = weights->embedding,
                     .ids = batch.tokens,
                     .rows = batch.rows,
                     .scale = spec.embedding_scale,
                     .out = s.x});
  if (spec.tables.positions > 0) add_tables(s);
  if (spec.per_layer.width > 0) make_per_layer_inputs(step_ops(), s, *weights);
  if (s.streams != nullptr) begin_streams(step_ops(), s, *weights);
  observe(-1, s);
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    layer_forward(s, i);
    if (s.rows == 0) return;
    observe(i, s);
  }
  if (s.streams != nullptr) end_streams(step_ops(), s, *weights);
  if (spec.final_norm) return step_ops().norm(s.x, weights->final_norm, s.rows, {hidden_out, nullptr});
  std::copy_n(s.x, std::int64_t{s.rows} * spec.hidden, hidden_out);
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

Result<std::unique_ptr<Decoder>> Decoder::load(const ModelFiles& files, const ops::OpTable& ops,
                                               ops::Stream& stream, const DecoderOptions& options,
                                               const Progress& progress) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  if (auto ok = check_features(*spec, ops); !ok) return std::unexpected(ok.error());
  fix_context(*spec, options.context > 0 ? options.context : spec->max_positions);
  Memory& memory = options.memory != nullptr ? *options.memory : host_memory();
  auto weights = load_weights(*spec, files, ops, stream, options.recipe, progress, memory);
  if (!weights) return std::unexpected(weights.error());
  auto groups = layer_groups(*spec);
  std::vector<Impl::Place> places(static_cast<std::size_t>(spec->num_layers)), state_places(places);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& of_kind = groups[g].kind == StateKind::kRecurrent ? state_places : places;
    for (std::size_t i = 0; i < groups[g].layers.size(); ++i)
      of_kind[static_cast<std::size_t>(groups[g].layers[i])] = {g, i};
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (const std::int32_t of = spec->layers[i].kv_of; of >= 0)
      places[i] = places[static_cast<std::size_t>(of)];
  }
  std::unique_ptr<MemoryBlock> tables;
  auto frequencies = make_frequencies(*spec, memory, tables);
  if (!frequencies) return std::unexpected(frequencies.error());
  auto impl =
      std::make_unique<Impl>(std::move(*spec), ops, stream, options.recipe, std::move(groups),
                             std::move(places), std::move(state_places), std::move(*frequencies),
                             std::move(tables), std::move(*weights), Observer{});
  return std::unique_ptr<Decoder>(new Decoder(std::move(impl)));
}

Result<std::uint64_t> Decoder::weight_bytes(const ModelFiles& files, const ops::OpTable& ops, Recipe recipe) {
  auto spec = files.spec();
  if (!spec) return std::unexpected(spec.error());
  if (auto ok = check_features(*spec, ops); !ok) return std::unexpected(ok.error());
  return plan_weights(*spec, files, ops, recipe);
}

std::size_t Decoder::workspace_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                     std::int32_t max_rows) {
  return make_layout(spec, ops, recipe, max_rows).total;
}

const DecoderSpec& Decoder::spec() const { return impl_->spec; }
Recipe Decoder::recipe() const { return impl_->recipe; }
const std::vector<LayerGroup>& Decoder::groups() const { return impl_->groups; }
std::uint64_t Decoder::weight_bytes() const { return impl_->weights->arena->size(); }

std::size_t Decoder::workspace_bytes(std::int32_t max_rows) const {
  return workspace_bytes(impl_->spec, impl_->ops, impl_->recipe, max_rows);
}

void Decoder::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  impl_->forward(batch, workspace, hidden_out);
}

void Decoder::logits(const float* hidden, std::int32_t rows, Workspace& workspace, float* out,
                     float* block_max, std::int64_t stride) {
  CHECK(rows > 0 && impl_->spec.generates());
  const Layout l = make_layout(impl_->spec, impl_->ops, impl_->recipe, rows);
  CHECK(l.total <= workspace.size());
  const Projection& p = impl_->weights->output;
  auto* x = const_cast<float*>(hidden);  // read only
  const DecoderSpec& spec = impl_->spec;
  if (stride == 0) stride = p.n;
  const bool scaled = spec.logit_scale != 1 || spec.logit_softcap > 0;
  impl_->step_ops().linear(p.parts[0], {x, workspace.data() + l.prepared}, rows,
                           {out, stride, false, scaled ? nullptr : block_max});
  if (!scaled) return;
  impl_->ops.scale_logits(impl_->stream, {.x = out,
                                          .x_stride = stride,
                                          .rows = rows,
                                          .dim = p.n,
                                          .scale = spec.logit_scale,
                                          .softcap = spec.logit_softcap,
                                          .block_max = block_max});
}

void Decoder::set_observer(Observer observer) { impl_->observer = std::move(observer); }

}  // namespace barg::model
