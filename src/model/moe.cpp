#include "model/moe.h"

namespace barg::model {
namespace {

struct Scratch {
  std::size_t logits, ids, weights, shared, work, total;
};

Scratch lay_out(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe, std::int32_t rows) {
  const ExpertSpec& e = spec.experts;
  ScratchPlan plan(rows);
  Scratch l{};
  l.logits = plan.numbers(e.count);
  l.ids = plan.numbers(e.chosen);
  l.weights = plan.numbers(e.chosen);
  l.shared = plan.numbers(e.shared_gate == SharedGate::kNone ? 0 : spec.hidden);
  l.work = plan.bytes(ops.experts_workspace_bytes(rows, e.chosen, e.count, spec.hidden, e.ffn, recipe));
  l.total = plan.end();
  return l;
}

/// The expert that every row goes through. `scratch`: room for its result before the gate.
void shared_expert(const StepOps& ops, const Step& s, const ExpertWeights& e, const Rows& h, float* scratch,
                   const Output& to) {
  const Rows act = ops.gated(s, e.shared_gate_up, e.shared_down, h);
  if (e.shared_gate == nullptr) return ops.project(e.shared_down, act, s.rows, to);
  const std::int32_t hidden = ops.spec.hidden;
  for (const ProjectionPart& part : e.shared_down.parts)
    ops.linear(part, act, s.rows, {scratch + part.out_offset, hidden});
  ops.table.row_gate(ops.stream, {.x = h.x,
                                  .weight = e.shared_gate,
                                  .width = hidden,
                                  .y = scratch,
                                  .rows = s.rows,
                                  .dim = hidden,
                                  .out = to.y,
                                  .accumulate = to.accumulate});
}

}  // namespace

std::size_t experts_scratch_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                  std::int32_t max_rows) {
  return spec.experts.count > 0 ? lay_out(spec, ops, recipe, max_rows).total : 0;
}

void experts_half(const StepOps& ops, const Step& s, const LayerWeights& w, const Rows& h, const Output& to) {
  const ExpertSpec& spec = ops.spec.experts;
  const ExpertWeights& e = w.experts;
  const Scratch l = lay_out(ops.spec, ops.table, ops.recipe, s.rows);
  auto* const base = static_cast<std::byte*>(s.experts);
  auto* const logits = reinterpret_cast<float*>(base + l.logits);
  auto* const ids = reinterpret_cast<std::int32_t*>(base + l.ids);
  auto* const weights = reinterpret_cast<float*>(base + l.weights);
  const bool shared = spec.shared_ffn > 0;
  if (shared) shared_expert(ops, s, e, h, reinterpret_cast<float*>(base + l.shared), to);
  // Which expert comes first may hang on the last bit: logits are of full precision in every recipe.
  ops.table.linear(ops.stream, {.weight = e.router,
                                .recipe = Recipe::kF32,
                                .x = h.x,
                                .rows = s.rows,
                                .x_stride = ops.spec.hidden,
                                .bias = e.router_bias,
                                .out = logits,
                                .out_stride = spec.count,
                                .workspace = nullptr});
  ops.table.route(ops.stream, {.logits = logits,
                               .bias = e.choice_bias,
                               .rows = s.rows,
                               .experts = spec.count,
                               .chosen = spec.chosen,
                               .groups = spec.groups,
                               .kept_groups = spec.kept_groups,
                               .group_top2 = spec.group_top2,
                               .score = spec.score,
                               .normalise = spec.normalise,
                               .norm_epsilon = spec.norm_epsilon,
                               .scale = spec.scale,
                               .ids = ids,
                               .weights = weights});
  ops.table.experts(ops.stream, {.x = h.x,
                                 .rows = s.rows,
                                 .chosen = spec.chosen,
                                 .ids = ids,
                                 .weights = weights,
                                 .gate = e.gate,
                                 .up = e.up,
                                 .down = e.down,
                                 .gate_bias = e.gate_bias,
                                 .up_bias = e.up_bias,
                                 .down_bias = e.down_bias,
                                 .recipe = ops.recipe,
                                 .glu = spec.glu,
                                 .activation = ops.spec.activation,
                                 .alpha = spec.alpha,
                                 .limit = spec.limit,
                                 .out = to.y,
                                 .accumulate = to.accumulate || shared,
                                 .workspace = base + l.work});
  ops.table.all_reduce(ops.stream,
                       {.x = to.y, .count = std::int64_t{s.rows} * to.stride, .rank = 0, .world = 1});
}

}  // namespace barg::model
