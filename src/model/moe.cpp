#include "model/moe.h"

#include <algorithm>

namespace barg::model {
namespace {

struct Scratch {
  std::size_t logits, ids, weights, shared, work, result, total;
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
  const bool beside = std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return layer.feed == FeedKind::kDenseAndExperts;
  });
  l.result = plan.numbers(beside ? spec.hidden : 0);
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

/// Where a step's numbers lie.
struct Buffers {
  float* logits;
  std::int32_t* ids;
  float *weights, *shared, *result;
  void* work;
};
Buffers buffers(const StepOps& ops, const Step& s) {
  const Scratch l = lay_out(ops.spec, ops.table, ops.recipe, s.rows);
  auto* const base = static_cast<std::byte*>(s.experts);
  const auto floats = [&](std::size_t at) { return reinterpret_cast<float*>(base + at); };
  return {floats(l.logits), reinterpret_cast<std::int32_t*>(base + l.ids), floats(l.weights),
          floats(l.shared), floats(l.result), base + l.work};
}

/// Each row's experts and their weights, from what the router sees of it.
void choose(const StepOps& ops, const Step& s, const ExpertWeights& e, const Rows& h) {
  const ExpertSpec& spec = ops.spec.experts;
  const Buffers b = buffers(ops, s);
  // Which expert comes first may hang on the last bit: logits are of full precision in every recipe.
  ops.table.linear(ops.stream, {.weight = e.router,
                                .recipe = Recipe::kF32,
                                .x = h.x,
                                .rows = s.rows,
                                .x_stride = ops.spec.hidden,
                                .bias = e.router_bias,
                                .out = b.logits,
                                .out_stride = spec.count,
                                .workspace = nullptr});
  ops.table.route(ops.stream, {.logits = b.logits,
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
                               .ids = b.ids,
                               .weights = b.weights,
                               .expert_scales = e.scales});
}

/// What the chosen ones make of h.
void run_chosen(const StepOps& ops, const Step& s, const ExpertWeights& e, const Rows& h, const Output& to) {
  const ExpertSpec& spec = ops.spec.experts;
  const Buffers b = buffers(ops, s);
  ops.table.experts(ops.stream, {.x = h.x,
                                 .rows = s.rows,
                                 .chosen = spec.chosen,
                                 .ids = b.ids,
                                 .weights = b.weights,
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
                                 .accumulate = to.accumulate,
                                 .workspace = b.work});
  ops.table.all_reduce(ops.stream,
                       {.x = to.y, .count = std::int64_t{s.rows} * to.stride, .rank = 0, .world = 1});
}

}  // namespace

std::size_t experts_scratch_bytes(const DecoderSpec& spec, const ops::OpTable& ops, Recipe recipe,
                                  std::int32_t max_rows) {
  return spec.experts.count > 0 ? lay_out(spec, ops, recipe, max_rows).total : 0;
}

void experts_half(const StepOps& ops, const Step& s, const LayerWeights& w, const Rows& h, const Output& to) {
  const ExpertWeights& e = w.experts;
  const bool shared = ops.spec.experts.shared_ffn > 0;
  if (shared) shared_expert(ops, s, e, h, buffers(ops, s).shared, to);
  choose(ops, s, e, h);
  run_chosen(ops, s, e, h, {to.y, to.stride, to.accumulate || shared});
}

void dense_and_experts_half(const StepOps& ops, const Step& s, const LayerWeights& w) {
  const Rows h{s.h.x, s.h.prepared, false, s.h.gathered};
  const std::int64_t hidden = ops.spec.hidden;
  const auto read = [&](const NormWeights& norm) { ops.norm(s.x, norm, s.rows, {h.x, nullptr}); };
  const auto norm = [&](float* x, const NormWeights& weights) { ops.norm(x, weights, s.rows, {x, nullptr}); };
  float* const result = buffers(ops, s).result;
  read({w.experts.router_norm});
  choose(ops, s, w.experts, h);
  read(w.experts_norm);
  run_chosen(ops, s, w.experts, h, {result, hidden});
  norm(result, w.experts_post_norm);
  read(w.ffn_norm);
  ops.project(w.down, ops.gated(s, w.gate_up, w.down, h), s.rows, {s.sub, hidden});
  norm(s.sub, w.dense_post_norm);
  ops.table.add_scaled(ops.stream, {.x = s.sub, .y = result, .scale = 1, .count = s.rows * hidden});
}

}  // namespace barg::model
