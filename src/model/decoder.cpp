#include "model/decoder.h"

#include <algorithm>
#include <initializer_list>
#include <new>
#include <utility>

#include "base/check.h"
#include "math.h"
#include "model/mla.h"
#include "model/moe.h"
#include "model/recurrent.h"
#include "model/rope.h"
#include "model/step.h"
#include "model/weights.h"

namespace barg::model {
namespace {

/// Where each buffer of a step lies in the workspace. Attention's and the feed-forward's share one region:
/// neither outlives its half of a layer.
struct Layout {
  std::size_t x, sub, h, rotations, query_scales, prepared, gathered, attention;
  std::size_t qkv, context, latent;            // attention half
  std::size_t act, up, prepared_act, experts;  // feed-forward half
  std::size_t total;
};

/// Whether both halves of a layer can add to the residual stream as they compute.
bool adds_directly(const DecoderSpec& s) {
  return s.norm_place == NormPlace::kBefore && s.residual_scale == 1 && s.feed_out_scale == 1 &&
         std::none_of(s.layers.begin(), s.layers.end(),
                      [](const LayerSpec& l) { return l.mixer == MixerKind::kAttentionAndMamba2; });
}

/// Of the rows that mixers work in: a projection's (two side by side, where a layer has both kinds), and what
/// the output projection reads.
struct Widths {
  std::int64_t in = 0, context = 0;
};

Widths mixer_widths(const DecoderSpec& s) {
  const std::int64_t q = std::int64_t{s.num_q_heads} * s.head_dim, kv = std::int64_t{s.num_kv_heads} * s.head_dim;
  Widths w;
  for (const LayerSpec& l : s.layers) {
    const std::int64_t attention = has_attention(l.mixer) ? (s.attention_gate ? 2 : 1) * q + 2 * kv : 0;
    w.in = std::max(w.in, attention + recurrent_in_width(l.mixer, s.recurrent));
    if (has_attention(l.mixer)) w.context = std::max(w.context, q);
    if (has_state(l.mixer)) w.context = std::max<std::int64_t>(w.context, s.recurrent.inner());
  }
  return w;
}

Layout make_layout(const DecoderSpec& s, const ops::OpTable& ops, Recipe recipe, std::int32_t max_rows) {
  ScratchPlan plan(max_rows);
  const Widths mixer = mixer_widths(s);
  Layout l{};
  l.x = plan.numbers(s.hidden);
  l.sub = plan.numbers(adds_directly(s) ? 0 : s.hidden);
  l.h = plan.numbers(s.hidden);
  std::int64_t angles = 0;
  for (const RopeSpec& r : s.ropes) angles += r.rotary_dim / 2;
  l.rotations = plan.numbers(2 * angles);
  l.query_scales = plan.numbers(s.query_scale.beta != 0 ? 1 : 0);
  const auto widest = static_cast<std::int32_t>(std::max<std::int64_t>(s.hidden, mixer.context));
  l.prepared = plan.bytes(ops.prepared_bytes(max_rows, widest, recipe));
  l.gathered = plan.numbers(s.reordered_inputs ? std::max(widest, s.ffn) : 0);
  const bool attends = std::any_of(s.layers.begin(), s.layers.end(),
                                   [](const LayerSpec& l) { return has_attention(l.mixer); });
  l.attention = plan.bytes(attends ? ops.attention_workspace_bytes(max_rows, s.num_q_heads, s.head_dim) : 0);
  ScratchPlan feed(max_rows, plan.end());
  l.qkv = plan.numbers(mixer.in);
  l.context = plan.numbers(mixer.context);
  l.latent = plan.bytes(latent_scratch_bytes(s, ops, recipe, max_rows));
  const std::int32_t ffn = std::max(s.ffn, s.experts.shared_ffn);
  l.act = feed.numbers(ffn);
  l.up = feed.numbers(ffn);
  l.prepared_act = feed.bytes(ops.prepared_bytes(max_rows, ffn, recipe));
  l.experts = feed.bytes(experts_scratch_bytes(s, ops, recipe, max_rows));
  l.total = std::max(plan.end(), feed.end());
  return l;
}

/// Refuses by name what the table cannot do.
Result<void> check_features(const DecoderSpec& s, const ops::OpTable& ops) {
  struct Need {
    ops::Feature feature;
    bool needed;
    const char* what;
  };
  const Need needs[] = {
      {ops::kFeatureNorms,
       s.norm.kind != ops::NormKind::kRms || s.norm.bias || s.qk_norm != QkNorm::kNone || !adds_directly(s) ||
           s.query_scale.beta != 0,
       "norms or residual scales"},
      {ops::kFeatureNorms, s.latent.kv_rank > 0, "norms of parts of rows"},
      {ops::kFeatureExperts, s.experts.count > 0, "experts"},
      {ops::kFeatureLatent, s.latent.kv_rank > 0, "latent attention"},
      {ops::kFeatureSinks, s.sinks, "attention with sinks"},
      {ops::kFeatureActivations, s.activation != ops::Activation::kSilu, "an activation"},
      {ops::kFeatureSoftcap, s.attention_softcap > 0 || s.logit_softcap > 0 || s.logit_scale != 1,
       "soft caps or logit scales"},
      {ops::kFeatureRecurrent, s.recurrent.kernel > 0 || s.attention_gate, "recurrent layers"},
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

Workspace::~Workspace() { ::operator delete (data_, std::align_val_t{kScratchAlign}); }

Workspace::Workspace(Workspace&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Workspace& Workspace::operator=(Workspace&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

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
  std::vector<std::vector<float>> frequencies;  ///< of each rope
  std::unique_ptr<Weights> weights;
  Observer observer;
  const bool direct = adds_directly(spec);

  void forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out);
  void mixer_half(Step& s, std::int32_t layer) const;
  void feed_half(const Step& s, std::int32_t layer) const;
  void attend(Step& s, std::int32_t layer, const Rows& h, const Output& to) const;
  void multiply(const Projection& p, const Rows& h, std::int32_t rows, float* y) const;
  void attend_projected(Step& s, std::int32_t layer, const Output& to) const;
  Rows recur(const Step& s, std::int32_t layer, float* in) const;
  void recur_alone(Step& s, std::int32_t layer, const Output& to) const;
  void attend_and_recur(Step& s, std::int32_t layer) const;
  void norm_heads(const Step& s, const LayerWeights& w) const;
  void encode_positions(const Step& s) const;

  StepOps step_ops() const { return {spec, ops, stream, recipe}; }

  /// What a half reads: the norm of the stream, in the forms that `reader` wants, or the stream itself.
  Rows half_input(const Step& s, const NormWeights& w, const Projection& reader) const {
    if (spec.norm_place == NormPlace::kAfter) return {s.x, s.h.prepared, false, s.h.gathered};
    const Rows h = step_ops().wanted(reader, s.h);
    step_ops().norm(s.x, w, s.rows, h);
    return h;
  }

  /// The same, as floats.
  Rows half_floats(const Step& s, const NormWeights& w) const {
    if (spec.norm_place == NormPlace::kAfter) return {s.x, s.h.prepared};
    step_ops().norm(s.x, w, s.rows, {s.h.x, nullptr});
    return {s.h.x, s.h.prepared};
  }

  /// Brings a half's result from `sub` to the stream, if it is there.
  void settle(const Step& s, const NormWeights& post, float scale) const {
    if (direct) return;
    if (post.weight != nullptr) step_ops().norm(s.sub, post, s.rows, {s.sub, nullptr});
    ops.add_scaled(
        stream,
        {.x = s.x, .y = s.sub, .scale = scale, .count = std::int64_t{s.rows} * spec.hidden});
  }

  /// Moves what the rest of the last layer reads of the wanted rows together, of the stream and of `buffers`
  /// (the first `width` numbers of rows of `stride`): the others' K and V, or states, were all that anybody
  /// will read of them.
  struct Kept {
    float* rows;
    std::int64_t stride, width;
  };
  void keep_wanted(Step& s, std::initializer_list<Kept> buffers) const {
    keep_rows(s.batch.wanted, s.x, spec.hidden, spec.hidden);
    for (const Kept& b : buffers) keep_rows(s.batch.wanted, b.rows, b.stride, b.width);
    s.rows = static_cast<std::int32_t>(s.batch.wanted.size());
  }

  void observe(std::int32_t layer, const Step& s) {
    if (observer) observer(layer, s.x, s.rows);
  }
};

/// cos and sin of every rope, and what queries are scaled with, for the rows of the batch.
void Decoder::Impl::encode_positions(const Step& s) const {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    rope_rows(frequencies[i], static_cast<float>(spec.ropes[i].attention_factor), s.batch.positions, s.rows,
              s.rotations[i].cos, s.rotations[i].sin);
  }
  if (spec.query_scale.beta == 0) return;
  for (std::int32_t r = 0; r < s.rows; ++r) {
    const auto passed =
        static_cast<float>(s.batch.positions[r] / static_cast<std::int64_t>(spec.query_scale.length));
    s.query_scales[r] = 1.0f + static_cast<float>(spec.query_scale.beta) * ops::log(1.0f + passed);
  }
}

/// The norms of q and k, in place.
void Decoder::Impl::norm_heads(const Step& s, const LayerWeights& w) const {
  const bool row = spec.qk_norm == QkNorm::kRow;
  const auto part = [&](float* x, const float* weight, std::int32_t heads) {
    ops.norm(stream, {.kind = spec.norm.kind,
                      .x = x,
                      .x_stride = w.qkv.n,
                      .weight = weight,
                      .weight_stride = spec.qk_norm == QkNorm::kHeads || row ? 0 : spec.head_dim,
                      .bias = nullptr,
                      .weight_offset = spec.norm.offset,
                      .eps = spec.norm.eps,
                      .rows = s.rows,
                      .groups = row ? 1 : heads,
                      .dim = row ? heads * spec.head_dim : spec.head_dim,
                      .out = x,
                      .out_stride = w.qkv.n});
  };
  part(s.qkv, w.q_norm, spec.num_q_heads);
  part(s.qkv + std::int64_t{spec.num_q_heads} * spec.head_dim, w.k_norm, spec.num_kv_heads);
}

/// What a mixer begins with: y [rows, n] dense = W h.
void Decoder::Impl::multiply(const Projection& p, const Rows& h, std::int32_t rows, float* y) const {
  for (const ProjectionPart& part : p.parts) step_ops().linear(part, h, rows, {y + part.out_offset, p.n});
}

void Decoder::Impl::attend(Step& s, std::int32_t layer, const Rows& h, const Output& to) const {
  multiply(weights->layers[static_cast<std::size_t>(layer)].qkv, h, s.rows, s.qkv);
  attend_projected(s, layer, to);
}

/// Leaves nothing but the wanted rows in `s` where the layer is the last.
void Decoder::Impl::attend_projected(Step& s, std::int32_t layer, const Output& to) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const LayerSpec& kind = spec.layers[static_cast<std::size_t>(layer)];
  const Place place = places[static_cast<std::size_t>(layer)];
  const GroupKv& group = s.batch.groups[place.group];
  const ops::KvLayerView& kv = group.layers[place.index];
  const std::int64_t q_width = std::int64_t{spec.num_q_heads} * spec.head_dim;
  const std::int64_t kv_width = std::int64_t{spec.num_kv_heads} * spec.head_dim;
  if (spec.qk_norm != QkNorm::kNone) norm_heads(s, w);
  if (spec.query_scale.beta != 0) {
    ops.scale_rows(stream, {.x = s.qkv,
                            .x_stride = w.qkv.n,
                            .scales = s.query_scales,
                            .rows = s.rows,
                            .dim = static_cast<std::int32_t>(q_width)});
  }
  const bool rotates = kind.rope >= 0;
  const std::size_t rope = rotates ? static_cast<std::size_t>(kind.rope) : 0;
  ops.rope_kv_write(stream, {.q = s.qkv,
                             .k = s.qkv + q_width,
                             .v = s.qkv + q_width + kv_width,
                             .q_stride = w.qkv.n,
                             .kv_stride = w.qkv.n,
                             .cos = s.rotations[rope].cos,
                             .sin = s.rotations[rope].sin,
                             .rotary_dim = rotates ? spec.ropes[rope].rotary_dim : 0,
                             .num_q_heads = spec.num_q_heads,
                             .kv = kv,
                             .segments = group.segments.data(),
                             .num_segments = static_cast<std::int32_t>(group.segments.size())});
  const bool last = layer + 1 == spec.num_layers;
  // Beside another mixer, `sub` holds that one's result.
  if (last && kind.mixer == MixerKind::kAttention)
    keep_wanted(s, {{s.qkv, w.qkv.n, spec.attention_gate ? w.qkv.n : q_width}});
  if (last && kind.mixer != MixerKind::kAttention)
    keep_wanted(s, {{s.qkv, w.qkv.n, q_width}, {s.sub, spec.hidden, spec.hidden}});
  if (s.rows == 0) return;
  const std::vector<ops::Segment>& segments = last ? group.wanted_segments : group.segments;
  // Blocks of prepared rows do not straddle heads; where they would, linear prepares the rows itself.
  const bool prepares = spec.head_dim % 32 == 0 && !spec.attention_gate;
  const Rows context = prepares ? step.wanted(w.attn_out, s.context) : s.context;
  ops.attention(stream, {.q = s.qkv,
                         .q_stride = w.qkv.n,
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
                         .sinks = w.sinks});
  if (spec.attention_gate) {
    ops.sigmoid_mul(stream, {.x = context.x,
                             .gate = s.qkv + q_width + 2 * kv_width,
                             .gate_stride = w.qkv.n,
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

/// Leaves nothing but the wanted rows in `s` where the layer is the last.
void Decoder::Impl::recur_alone(Step& s, std::int32_t layer, const Output& to) const {
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const Rows h = half_input(s, w.attn_norm, w.recurrent.in);
  multiply(w.recurrent.in, h, s.rows, s.qkv);
  const Rows context = recur(s, layer, s.qkv);
  const std::int64_t width = spec.recurrent.inner();
  if (layer + 1 == spec.num_layers) keep_wanted(s, {{context.x, width, width}});
  if (s.rows > 0) step_ops().project(w.recurrent.out, context, s.rows, to);
}

/// Both mixers of a layer read one norm; the sum of their results is in `sub`.
void Decoder::Impl::attend_and_recur(Step& s, std::int32_t layer) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  step.norm(s.x, w.attn_norm, s.rows, {s.h.x, nullptr});
  float* in = s.qkv + std::int64_t{s.rows} * w.qkv.n;
  multiply(w.qkv, s.h, s.rows, s.qkv);
  multiply(w.recurrent.in, s.h, s.rows, in);
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
      attend(s, layer, half_input(s, w.attn_norm, w.qkv), to);
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
      latent_half(step_ops(), s, w, spec.layers[static_cast<std::size_t>(layer)], latent, latent.layers[at.index],
                  layer + 1 == spec.num_layers, half_input(s, w.attn_norm, w.latent.in), to);
      break;
    }
  }
  if (s.rows == 0 || spec.norm_place == NormPlace::kParallel) return;  // the other half reads the same stream
  settle(s, w.attn_post_norm, spec.residual_scale);
}

void Decoder::Impl::feed_half(const Step& s, std::int32_t layer) const {
  const StepOps step = step_ops();
  const LayerWeights& w = weights->layers[static_cast<std::size_t>(layer)];
  const bool parallel = spec.norm_place == NormPlace::kParallel;
  const bool adds = direct || parallel;
  const Output to{adds ? s.x : s.sub, spec.hidden, adds};
  switch (spec.layers[static_cast<std::size_t>(layer)].feed) {
    case FeedKind::kDense: {
      const Rows h = half_input(s, parallel ? w.attn_norm : w.ffn_norm, w.gate_up);
      step.project(w.down, step.gated(s, w.gate_up, w.down, h), s.rows, to);
      break;
    }
    case FeedKind::kExperts:
      experts_half(step, s, w, half_floats(s, parallel ? w.attn_norm : w.ffn_norm), to);
      break;
    case FeedKind::kNone:
      return;
  }
  settle(s, w.ffn_post_norm, spec.residual_scale * spec.feed_out_scale);
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
         .experts = base + l.experts};
  float* angles = f(l.rotations);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const std::size_t count = static_cast<std::size_t>(batch.rows) * frequencies[i].size();
    s.rotations[i] = {angles, angles + count};
    angles += 2 * count;
  }
  encode_positions(s);
  ops.embed(stream, {.table = weights->embedding,
                     .ids = batch.tokens,
                     .rows = batch.rows,
                     .scale = spec.embedding_scale,
                     .out = s.x});
  observe(-1, s);
  for (std::int32_t i = 0; i < spec.num_layers; ++i) {
    mixer_half(s, i);
    if (s.rows == 0) return;
    feed_half(s, i);
    observe(i, s);
  }
  step_ops().norm(s.x, weights->final_norm, s.rows, {hidden_out, nullptr});
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
  auto weights = load_weights(*spec, files, ops, stream, options.recipe, progress);
  if (!weights) return std::unexpected(weights.error());
  auto groups = layer_groups(*spec);
  std::vector<Impl::Place> places(static_cast<std::size_t>(spec->num_layers)), state_places(places);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& of_kind = groups[g].kind == StateKind::kRecurrent ? state_places : places;
    for (std::size_t i = 0; i < groups[g].layers.size(); ++i)
      of_kind[static_cast<std::size_t>(groups[g].layers[i])] = {g, i};
  }
  std::vector<std::vector<float>> frequencies;
  for (const RopeSpec& r : spec->ropes) frequencies.push_back(rope_frequencies(r));
  auto impl =
      std::make_unique<Impl>(std::move(*spec), ops, stream, options.recipe, std::move(groups),
                             std::move(places), std::move(state_places), std::move(frequencies),
                             std::move(*weights), Observer{});
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
std::uint64_t Decoder::weight_bytes() const { return impl_->weights->arena.size(); }

std::size_t Decoder::workspace_bytes(std::int32_t max_rows) const {
  return workspace_bytes(impl_->spec, impl_->ops, impl_->recipe, max_rows);
}

void Decoder::forward(const ForwardBatch& batch, Workspace& workspace, float* hidden_out) {
  impl_->forward(batch, workspace, hidden_out);
}

void Decoder::logits(const float* hidden, std::int32_t rows, Workspace& workspace, float* out,
                     float* block_max) {
  CHECK(rows > 0 && impl_->spec.generates());
  const Layout l = make_layout(impl_->spec, impl_->ops, impl_->recipe, rows);
  CHECK(l.total <= workspace.size());
  const Projection& p = impl_->weights->output;
  auto* x = const_cast<float*>(hidden);  // read only
  const DecoderSpec& spec = impl_->spec;
  const bool scaled = spec.logit_scale != 1 || spec.logit_softcap > 0;
  impl_->step_ops().linear(p.parts[0], {x, workspace.data() + l.prepared}, rows,
                           {out, p.n, false, scaled ? nullptr : block_max});
  if (!scaled) return;
  impl_->ops.scale_logits(impl_->stream, {.x = out,
                                          .x_stride = p.n,
                                          .rows = rows,
                                          .dim = p.n,
                                          .scale = spec.logit_scale,
                                          .softcap = spec.logit_softcap,
                                          .block_max = block_max});
}

void Decoder::set_observer(Observer observer) { impl_->observer = std::move(observer); }

}  // namespace barg::model
