#include "model/per_layer.h"

#include <algorithm>
#include <cmath>

namespace barg::model {
namespace {

std::int64_t all_layers(const DecoderSpec& s) { return std::int64_t{s.num_layers} * s.per_layer.width; }

/// Of both functions, none of which has any use for what the other left.
struct Scratch {
  std::size_t projected, ids, total;
};

Scratch lay_out(const DecoderSpec& s, std::int32_t rows) {
  ScratchPlan plan(rows);
  Scratch l{};
  l.projected = plan.numbers(all_layers(s));
  l.ids = plan.numbers(s.per_layer.rows < s.vocab_rows ? 1 : 0);
  l.total = plan.end();
  return l;
}

/// The table's rows: the tokens, of which some may lie beyond it.
const std::int32_t* table_rows(const DecoderSpec& spec, const ForwardBatch& batch, std::int32_t* ids) {
  if (spec.per_layer.rows >= spec.vocab_rows) return batch.tokens;
  std::transform(batch.tokens, batch.tokens + batch.rows, ids,
                 [&](std::int32_t id) { return id < spec.per_layer.rows ? id : 0; });
  return ids;
}

}  // namespace

std::size_t per_layer_scratch_bytes(const DecoderSpec& spec, std::int32_t max_rows) {
  return spec.per_layer.width > 0 ? lay_out(spec, max_rows).total : 0;
}

void make_per_layer_inputs(const StepOps& ops, const Step& s, const Weights& w) {
  const DecoderSpec& spec = ops.spec;
  const std::int64_t all = all_layers(spec);
  const Scratch l = lay_out(spec, s.rows);
  auto* const base = static_cast<std::byte*>(s.between);
  auto* const projected = reinterpret_cast<float*>(base + l.projected);
  ops.table.embed(ops.stream,
                  {.table = w.per_layer_table,
                   .ids = table_rows(spec, s.batch, reinterpret_cast<std::int32_t*>(base + l.ids)),
                   .rows = s.rows,
                   .scale = static_cast<float>(std::sqrt(spec.per_layer.width / 2.0)),
                   .out = s.per_layer});
  const Rows x{s.x, s.h.prepared, false, s.h.gathered};
  for (const ProjectionPart& part : w.per_layer_in.parts)
    ops.linear(part, x, s.rows, {projected + part.out_offset, all});
  // The norm takes the factor 1 / sqrt(hidden) out again, but for its square beside eps.
  ops.table.norm(ops.stream, {.kind = spec.norm.kind,
                              .x = projected,
                              .x_stride = all,
                              .weight = w.per_layer_norm,
                              .weight_stride = 0,
                              .bias = nullptr,
                              .weight_offset = spec.norm.offset,
                              .eps = spec.norm.eps * static_cast<float>(spec.hidden),
                              .rows = s.rows,
                              .groups = spec.num_layers,
                              .dim = spec.per_layer.width,
                              .out = projected,
                              .out_stride = all});
  ops.table.add_scaled(ops.stream, {.x = s.per_layer,
                                    .y = projected,
                                    .scale = static_cast<float>(1 / std::sqrt(2.0)),
                                    .count = s.rows * all});
}

void per_layer_half(const StepOps& ops, const Step& s, const PerLayerWeights& w, std::int32_t layer,
                    float* x) {
  const std::int64_t width = ops.spec.per_layer.width;
  auto* const gate = static_cast<float*>(s.between);
  for (const ProjectionPart& part : w.gate.parts)
    ops.linear(part, {x, s.h.prepared, false, s.h.gathered}, s.rows, {gate + part.out_offset, width});
  ops.table.gate_mul(ops.stream, {.gate = gate,
                                  .up = s.per_layer + layer * width,
                                  .in_stride = width,
                                  .rows = s.rows,
                                  .dim = ops.spec.per_layer.width,
                                  .out = gate,
                                  .activation = ops.spec.activation,
                                  .gate_scale = 1,
                                  .up_stride = all_layers(ops.spec)});
  ops.project(w.out, {gate, s.h.prepared, false, s.h.gathered}, s.rows, {s.sub, ops.spec.hidden});
  ops.norm(s.sub, w.post_norm, s.rows, {s.sub, nullptr});
}

}  // namespace barg::model
