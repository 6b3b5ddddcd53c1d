#include "model/step.h"

#include <algorithm>

#include "base/check.h"

namespace barg::model {

void StepOps::keep_rows(const ForwardBatch& batch, float* rows, std::int64_t stride, std::int64_t width) const {
  const auto count = static_cast<std::int32_t>(batch.wanted.size());
  if (count == batch.rows || width == 0) return;
  table.keep_rows(stream, {.rows = rows, .stride = stride, .width = width, .wanted = batch.wanted.data(), .count = count});
}

Rows StepOps::wanted(const Projection& p, const Rows& buffers) const {
  const auto reordered = [](const ProjectionPart& part) { return part.order != nullptr; };
  // What linear rounds by itself it rounds into `prepared`.
  const auto rounded = [this](const ProjectionPart& part) { return recipe == Recipe::kBF16 && !reads_prepared(part); };
  if (std::any_of(p.parts.begin(), p.parts.end(), reordered) || std::any_of(p.parts.begin(), p.parts.end(), rounded))
    return buffers;
  Rows out{nullptr, nullptr, true};
  for (const ProjectionPart& part : p.parts) {
    if (reads_prepared(part))
      out.prepared = buffers.prepared;
    else
      out.x = buffers.x;
  }
  return out;
}

const float* StepOps::input(const ProjectionPart& p, const Rows& in, std::int32_t rows) const {
  if (p.order == nullptr) return in.x;
  CHECK(in.gathered != nullptr && !in.ready);
  const std::int32_t k = p.weight.k;
  table.gather_columns(
      stream, {.x = in.x, .x_stride = k, .rows = rows, .dim = k, .order = p.order, .out = in.gathered});
  return in.gathered;
}

void StepOps::linear(const ProjectionPart& p, const Rows& in, std::int32_t rows, const Output& out) const {
  table.linear(stream, {.weight = p.weight,
                        .recipe = recipe,
                        .x = input(p, in, rows),
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

void StepOps::project(const Projection& p, const Rows& in, std::int32_t rows, const Output& to) const {
  for (const ProjectionPart& part : p.parts)
    linear(part, in, rows, {to.y + part.out_offset, to.stride, to.accumulate});
  table.all_reduce(stream, {.x = to.y, .count = std::int64_t{rows} * to.stride, .rank = 0, .world = 1});
}

void StepOps::norm(const float* x, const NormWeights& w, std::int32_t rows, const Rows& to) const {
  const NormSpec& n = spec.norm;
  if (n.kind == ops::NormKind::kRms && w.bias == nullptr && to.x != x) {
    return table.rms_norm(stream, {.x = x,
                                   .weight = w.weight,
                                   .weight_offset = n.offset,
                                   .eps = n.eps,
                                   .rows = rows,
                                   .dim = spec.hidden,
                                   .out = to.x,
                                   .prepared = to.produced()});
  }
  table.norm(stream, {.kind = n.kind,
                      .x = x,
                      .x_stride = spec.hidden,
                      .weight = w.weight,
                      .weight_stride = 0,
                      .bias = w.bias,
                      .weight_offset = n.offset,
                      .eps = n.eps,
                      .rows = rows,
                      .groups = 1,
                      .dim = spec.hidden,
                      .out = to.x,
                      .out_stride = spec.hidden,
                      .prepared = to.produced()});
}

void StepOps::scale(float* x, std::int32_t rows, float factor) const {
  table.scale_logits(stream, {.x = x,
                              .x_stride = spec.hidden,
                              .rows = rows,
                              .dim = spec.hidden,
                              .scale = factor,
                              .softcap = 0,
                              .block_max = nullptr});
}

Rows StepOps::activated(const Step& s, const Projection& up, const Rows& h) const {
  linear(up.parts[0], h, s.rows, {s.act.x, up.n});
  table.gate_mul(stream, {.gate = s.act.x,
                          .up = nullptr,
                          .in_stride = up.n,
                          .rows = s.rows,
                          .dim = up.n,
                          .out = s.act.x,
                          .activation = spec.activation});
  return s.act;
}

Rows StepOps::gated(const Step& s, const Projection& gate_up, const Projection& reader, const Rows& h,
                    std::optional<float> cut) const {
  const ProjectionPart &gate = gate_up.parts[0], &up = gate_up.parts[1];
  const std::int32_t width = gate.weight.n;
  if (gate.weight.dtype == up.weight.dtype && gate.order == up.order && spec.feed_gate_scale == 1 && !cut) {
    const Rows act = wanted(reader, s.act);
    table.gated_linear(stream, {.gate = gate.weight,
                                .up = up.weight,
                                .recipe = recipe,
                                .x = input(gate, h, s.rows),
                                .rows = s.rows,
                                .x_stride = gate.weight.k,
                                .gate_bias = gate.bias,
                                .up_bias = up.bias,
                                .out = act.x,
                                .prepared_out = act.produced(),
                                .workspace = h.prepared,
                                .prepared = h.produced(),
                                .activation = spec.activation});
    return act;
  }
  linear(gate, h, s.rows, {s.act.x, width});
  linear(up, h, s.rows, {s.up, width});
  if (cut) table.cut_gate(stream, {.x = s.act.x, .rows = s.rows, .dim = width, .deviations = *cut});
  table.gate_mul(stream, {.gate = s.act.x,
                          .up = s.up,
                          .in_stride = width,
                          .rows = s.rows,
                          .dim = width,
                          .out = s.act.x,
                          .activation = spec.activation,
                          .gate_scale = spec.feed_gate_scale});
  return s.act;
}

}  // namespace barg::model
