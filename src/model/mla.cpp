#include "model/mla.h"

#include <algorithm>
#include <utility>

namespace barg::model {
namespace {

struct Scratch {
  std::size_t in, q, query, context, out, prepared, stacked, attention, total;
};

std::int32_t query_dim(const LatentSpec& l) { return l.nope_dim + l.rope_dim; }

/// Of a row of `in`: the query or what it is made of, then c, then k_pe.
std::int32_t in_width(const DecoderSpec& s) {
  const LatentSpec& l = s.latent;
  return (l.q_rank > 0 ? l.q_rank : s.num_q_heads * query_dim(l)) + l.kv_rank + l.rope_dim;
}

Scratch lay_out(const DecoderSpec& s, const ops::OpTable& ops, Recipe recipe, std::int32_t rows) {
  const LatentSpec& l = s.latent;
  const std::int32_t heads = s.num_q_heads;
  ScratchPlan plan(rows);
  Scratch x{};
  x.in = plan.numbers(in_width(s));
  x.q = plan.numbers(l.q_rank > 0 ? heads * query_dim(l) : 0);
  x.query = plan.numbers(std::int64_t{heads} * (l.kv_rank + l.rope_dim));
  x.context = plan.numbers(std::int64_t{heads} * l.kv_rank);
  x.out = plan.numbers(std::int64_t{heads} * l.value_dim);
  x.prepared = plan.bytes(ops.prepared_bytes(rows, std::max(l.q_rank, heads * l.value_dim), recipe));
  x.stacked = plan.bytes(ops.stacked_workspace_bytes(rows, heads, std::max(l.nope_dim, l.kv_rank), recipe));
  x.attention = plan.bytes(ops.latent_workspace_bytes(l.kv_rank));
  x.total = plan.end();
  return x;
}

/// The norm of a part of the rows of `in`, in place.
void norm_part(const StepOps& ops, float* x, std::int64_t stride, const float* weight, std::int32_t dim,
               std::int32_t rows) {
  ops.table.norm(ops.stream, {.kind = ops::NormKind::kRms,
                              .x = x,
                              .x_stride = stride,
                              .weight = weight,
                              .weight_stride = 0,
                              .bias = nullptr,
                              .weight_offset = 0,
                              .eps = ops.spec.latent.norm_eps,
                              .rows = rows,
                              .groups = 1,
                              .dim = dim,
                              .out = x,
                              .out_stride = stride});
}

/// Each head's matrix on its part of the rows.
void each_head(const StepOps& ops, const ops::PackedStack& w, const float* x, std::int64_t x_stride,
               std::int64_t x_head, float* out, std::int64_t out_head, std::int32_t rows, void* workspace) {
  ops.table.stacked_linear(ops.stream, {.weight = w,
                                        .recipe = ops.recipe,
                                        .x = x,
                                        .rows = rows,
                                        .x_stride = x_stride,
                                        .x_head_stride = x_head,
                                        .out = out,
                                        .out_stride = w.count * out_head,
                                        .out_head_stride = out_head,
                                        .workspace = workspace});
}

}  // namespace

std::size_t latent_scratch_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                 std::int32_t max_rows) {
  return spec.latent.kv_rank > 0 ? lay_out(spec, ops, recipe, max_rows).total : 0;
}

void latent_half(const StepOps& ops, Step& s, const LayerWeights& w, const LayerSpec& layer, const GroupKv& group,
                 const ops::KvLayerView& kv, bool last, const Rows& h, const Output& to) {
  const LatentSpec& l = ops.spec.latent;
  const LatentWeights& weights = w.latent;
  const std::int32_t heads = ops.spec.num_q_heads;
  const Scratch at = lay_out(ops.spec, ops.table, ops.recipe, s.rows);
  auto* const base = static_cast<std::byte*>(s.latent);
  const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
  float *const in = floats(at.in), *const query = floats(at.query), *const context = floats(at.context);
  void* const prepared = base + at.prepared;
  const std::int32_t width = weights.in.n;
  for (const ProjectionPart& part : weights.in.parts) ops.linear(part, h, s.rows, {in + part.out_offset, width});
  float* const c = in + (width - l.kv_rank - l.rope_dim);
  norm_part(ops, c, width, weights.kv_norm, l.kv_rank, s.rows);
  float* q = in;
  std::int64_t q_stride = width;
  if (l.q_rank > 0) {
    norm_part(ops, in, width, weights.q_norm, l.q_rank, s.rows);
    q = floats(at.q);
    q_stride = std::int64_t{heads} * query_dim(l);
    for (const ProjectionPart& part : weights.q_up.parts) {
      ops.table.linear(ops.stream, {.weight = part.weight,
                                    .recipe = ops.recipe,
                                    .x = in,
                                    .rows = s.rows,
                                    .x_stride = width,
                                    .bias = part.bias,
                                    .out = q + part.out_offset,
                                    .out_stride = q_stride,
                                    .workspace = prepared});
    }
  }
  const Rotation& rotation = s.rotations[static_cast<std::size_t>(layer.rope)];
  ops.table.latent_write(ops.stream, {.c = c,
                                      .k_pe = c + l.kv_rank,
                                      .c_stride = width,
                                      .pe_stride = width,
                                      .q_pe = q + l.nope_dim,
                                      .q_stride = q_stride,
                                      .q_head_stride = query_dim(l),
                                      .query = query,
                                      .cos = rotation.cos,
                                      .sin = rotation.sin,
                                      .rotary_dim = l.rope_dim,
                                      .interleaved = l.interleaved,
                                      .num_q_heads = heads,
                                      .kv = kv,
                                      .segments = group.segments.data(),
                                      .num_segments = static_cast<std::int32_t>(group.segments.size())});
  const std::int64_t key_dim = l.kv_rank + l.rope_dim;
  if (last) {
    ops.keep_rows(s.batch, s.x, ops.spec.hidden, ops.spec.hidden);
    ops.keep_rows(s.batch, q, q_stride, q_stride);
    ops.keep_rows(s.batch, query, heads * key_dim, heads * key_dim);
    s.rows = static_cast<std::int32_t>(s.batch.wanted.size());
    if (s.rows == 0) return;
  }
  each_head(ops, weights.absorb, q, q_stride, query_dim(l), query, key_dim, s.rows, base + at.stacked);
  const std::span<const ops::Segment> segments = last ? group.wanted_segments : group.segments;
  ops.table.latent_attention(ops.stream, {.q = query,
                                          .out = context,
                                          .scale = ops.spec.attention_scale,
                                          .num_q_heads = heads,
                                          .value_dim = l.kv_rank,
                                          .kv = kv,
                                          .segments = segments.data(),
                                          .num_segments = static_cast<std::int32_t>(segments.size()),
                                          .workspace = base + at.attention});
  float* const out = floats(at.out);
  each_head(ops, weights.expand, context, std::int64_t{heads} * l.kv_rank, l.kv_rank, out, l.value_dim, s.rows,
            base + at.stacked);
  ops.project(w.attn_out, {out, prepared}, s.rows, to);
}

}  // namespace barg::model
