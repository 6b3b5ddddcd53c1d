// Mixture of experts: the choice of experts, and their matrices on the rows that chose them. Written once, in
// plain operations of math.h, and compiled for every instruction set: so the bits are the same everywhere, and
// this file is the specification too. The matrix products are those of the table's linear and gated_linear.
//
// Rows are gathered expert by expert. A product's row depends on that row alone, so what an expert gives a row
// does not depend on who else chose it; and a row's experts are added in the order in which it chose them.
//
// Everything is in an unnamed namespace, for the reason given in avx2.h. Thread rule: as ops.h.
#pragma once

#include "cpu/layout.h"
#include "cpu/moe.h"
#include "cpu/moe_layout.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

// --- the router ------------------------------------------------------------------------------------------

/// p[i] = exp(x[i] - max) / sum; the sum over 16 lanes, as in row_stats.
void softmax(const float* x, std::int32_t count, float* p) {
  float max = x[0];
  for (std::int32_t i = 1; i < count; ++i) max = x[i] > max ? x[i] : max;
  for (std::int32_t i = 0; i < count; ++i) p[i] = exp(x[i] - max);
  float lanes[kLanes] = {};
  for (std::int32_t i = 0; i < count; ++i) lanes[i % kLanes] += p[i];
  const float sum = fold_lanes(lanes);
  for (std::int32_t i = 0; i < count; ++i) p[i] = p[i] / sum;
}

/// The index of the largest of key[i] with open[i], the first of equal ones; with a NaN, still one that is open.
/// REQUIRES that one is.
std::int32_t best_open(const float* key, const bool* open, std::int32_t count) {
  std::int32_t best = -1;
  for (std::int32_t i = 0; i < count; ++i) {
    if (open[i] && (best < 0 || key[i] > key[best])) best = i;
  }
  return best;
}

/// The two largest added, the larger first; or the largest.
float group_key(const float* key, std::int32_t count, bool top2) {
  bool open[kMaxExperts];
  for (std::int32_t i = 0; i < count; ++i) open[i] = true;
  const std::int32_t first = best_open(key, open, count);
  if (!top2 || count == 1) return key[first];
  open[first] = false;
  return key[first] + key[best_open(key, open, count)];
}

/// Closes the experts of the groups that are not kept.
void close_groups(const RouteParams& p, const float* key, bool* open) {
  const std::int32_t size = p.experts / p.groups;
  float group[kMaxExperts];
  bool left[kMaxExperts];
  for (std::int32_t g = 0; g < p.groups; ++g) {
    group[g] = group_key(key + g * size, size, p.group_top2);
    left[g] = true;
  }
  for (std::int32_t e = 0; e < p.experts; ++e) open[e] = false;
  for (std::int32_t i = 0; i < p.kept_groups; ++i) {
    const std::int32_t g = best_open(group, left, p.groups);
    left[g] = false;
    for (std::int32_t e = g * size; e < (g + 1) * size; ++e) open[e] = true;
  }
}

void route_row(const RouteParams& p, std::int64_t row) {
  const float* logits = p.logits + row * p.experts;
  float score[kMaxExperts];
  float key[kMaxExperts];
  bool open[kMaxExperts];
  if (p.score == RouterScore::kSoftmax) softmax(logits, p.experts, score);
  for (std::int32_t e = 0; e < p.experts; ++e) {
    if (p.score == RouterScore::kSigmoid) score[e] = 1.0f / (1.0f + exp(-logits[e]));
    if (p.score == RouterScore::kChosenSoftmax) score[e] = logits[e];
    key[e] = p.bias != nullptr ? score[e] + p.bias[e] : score[e];
    open[e] = true;
  }
  if (p.kept_groups < p.groups) close_groups(p, key, open);
  std::int32_t* ids = p.ids + row * p.chosen;
  float* weights = p.weights + row * p.chosen;
  for (std::int32_t j = 0; j < p.chosen; ++j) {
    ids[j] = best_open(key, open, p.experts);
    open[ids[j]] = false;
    weights[j] = score[ids[j]];
  }
  if (p.score == RouterScore::kChosenSoftmax) softmax(weights, p.chosen, weights);
  if (p.normalise) {
    float sum = weights[0];
    for (std::int32_t j = 1; j < p.chosen; ++j) sum = sum + weights[j];
    sum = sum + p.norm_epsilon;
    for (std::int32_t j = 0; j < p.chosen; ++j) weights[j] = weights[j] / sum;
  }
  for (std::int32_t j = 0; j < p.chosen; ++j) weights[j] = weights[j] * p.scale;
  if (p.expert_scales == nullptr) return;
  for (std::int32_t j = 0; j < p.chosen; ++j) weights[j] = weights[j] * p.expert_scales[ids[j]];
}

void run_route(Stream& s, const RouteParams& p) {
  parallel_rows(s, p.rows, p.experts * (8 + p.chosen), [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) route_row(p, r);
  });
}

// --- the experts -----------------------------------------------------------------------------------------

/// Fills first, active, row and place; returns how many experts are active.
std::int32_t sort_pairs(const ExpertsParams& p, std::int32_t begin, std::int32_t rows, Pass& pass) {
  const std::int32_t experts = p.gate.count;
  const std::int32_t* ids = p.ids + std::int64_t{begin} * p.chosen;
  pass.pairs = rows * p.chosen;
  for (std::int32_t e = 0; e <= experts; ++e) pass.first[e] = 0;
  for (std::int32_t i = 0; i < pass.pairs; ++i) ++pass.first[ids[i] + 1];
  std::int32_t active = 0;
  for (std::int32_t e = 0; e < experts; ++e) {
    if (pass.first[e + 1] > 0) pass.active[active++] = e;
    pass.first[e + 1] += pass.first[e];
  }
  // Places are handed out from each expert's first pair; that moves every `first` to the next expert's.
  for (std::int32_t i = 0; i < pass.pairs; ++i) {
    pass.place[i] = pass.first[ids[i]]++;
    pass.row[pass.place[i]] = begin + i / p.chosen;
  }
  for (std::int32_t e = experts; e > 0; --e) pass.first[e] = pass.first[e - 1];
  pass.first[0] = 0;
  return active;
}

void clamped_glu(const float* gate, const float* up, std::int64_t count, float alpha, float limit, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    float g = gate[i];
    float u = up[i];
    g = g > limit ? limit : g;  // written so that a NaN passes
    u = u > limit ? limit : u;
    u = u < -limit ? -limit : u;
    out[i] = (u + 1.0f) * (g / (1.0f + exp(-(alpha * g))));
  }
}

/// One expert's matrices on its pairs; the results go to pass.x. `s` shares out the products.
void run_expert(Stream& s, const ExpertsParams& p, const OpTable& ops, const Pass& pass, std::int32_t expert) {
  const PackedWeight gate = p.gate.at(expert), up = p.up.at(expert), down = p.down.at(expert);
  const std::int32_t begin = pass.first[expert], rows = pass.first[expert + 1] - begin;
  const std::int64_t hidden = gate.k, ffn = gate.n;
  float* const x = pass.x + begin * hidden;
  float* const act = pass.act + begin * ffn;
  for (std::int32_t i = 0; i < rows; ++i) {
    const float* from = p.x + pass.row[begin + i] * hidden;
    __builtin_memcpy(x + i * hidden, from, static_cast<std::size_t>(hidden) * sizeof(float));
  }
  std::byte* const x_scratch = pass.x_scratch + static_cast<std::size_t>(begin) * pass.x_step;
  std::byte* const act_scratch = pass.act_scratch + static_cast<std::size_t>(begin) * pass.act_step;
  const auto bias = [&](const float* all, std::int64_t n) { return all != nullptr ? all + expert * n : nullptr; };
  const void* prepared = nullptr;
  if (p.glu == ExpertGlu::kActivation && gate.dtype == up.dtype) {
    const bool prepares = prepared_form(p.recipe, down.dtype) == Form::kInt8;
    prepared = prepares ? act_scratch : nullptr;
    ops.gated_linear(s, {.gate = gate,
                         .up = up,
                         .recipe = p.recipe,
                         .x = x,
                         .rows = rows,
                         .x_stride = hidden,
                         .gate_bias = bias(p.gate_bias, ffn),
                         .up_bias = bias(p.up_bias, ffn),
                         .out = prepares ? nullptr : act,
                         .prepared_out = prepares ? act_scratch : nullptr,
                         .workspace = x_scratch,
                         .activation = p.activation});
  } else {
    float* const other = pass.up + begin * ffn;
    const auto product = [&](const PackedWeight& w, const float* b, float* out) {
      ops.linear(s, {.weight = w,
                     .recipe = p.recipe,
                     .x = x,
                     .rows = rows,
                     .x_stride = hidden,
                     .bias = b,
                     .out = out,
                     .out_stride = ffn,
                     .workspace = x_scratch});
    };
    product(gate, bias(p.gate_bias, ffn), act);
    product(up, bias(p.up_bias, ffn), other);
    if (p.glu == ExpertGlu::kClampedSilu) {
      parallel_rows(s, rows, gate.n * 4, [&](std::int32_t from, std::int32_t to) {
        const std::int64_t at = from * ffn;
        clamped_glu(act + at, other + at, (to - from) * ffn, p.alpha, p.limit, act + at);
      });
    } else {
      ops.gate_mul(s, {.gate = act,
                       .up = other,
                       .in_stride = ffn,
                       .rows = rows,
                       .dim = gate.n,
                       .out = act,
                       .activation = p.activation});
    }
  }
  ops.linear(s, {.weight = down,
                 .recipe = p.recipe,
                 .x = act,
                 .rows = rows,
                 .x_stride = ffn,
                 .bias = bias(p.down_bias, hidden),
                 .out = x,
                 .out_stride = hidden,
                 .workspace = act_scratch,
                 .prepared = prepared});
}

/// out[r] (+)= sum of weight * result over the row's choices, in their order.
void combine(Stream& s, const ExpertsParams& p, const Pass& pass, std::int32_t begin, std::int32_t rows) {
  const std::int32_t dim = p.down.first.n;
  parallel_rows(s, rows, dim * p.chosen, [&](std::int32_t from, std::int32_t to) {
    constexpr std::int32_t kRun = 64;
    for (std::int32_t r = from; r < to; ++r) {
      const std::int32_t* place = pass.place + std::int64_t{r} * p.chosen;
      const float* weights = p.weights + std::int64_t{begin + r} * p.chosen;
      float* out = p.out + std::int64_t{begin + r} * dim;
      for (std::int32_t i = 0; i < dim; i += kRun) {
        const std::int32_t count = min_of(kRun, dim - i);
        float sum[kRun] = {};
        for (std::int32_t j = 0; j < p.chosen; ++j) {
          const float* y = pass.x + std::int64_t{place[j]} * dim + i;
          const float w = weights[j];
          if (j == 0) {
            for (std::int32_t c = 0; c < count; ++c) sum[c] = w * y[c];
          } else {
            for (std::int32_t c = 0; c < count; ++c) sum[c] = sum[c] + w * y[c];
          }
        }
        if (p.accumulate) {
          for (std::int32_t c = 0; c < count; ++c) sum[c] = out[i + c] + sum[c];
        }
        __builtin_memcpy(out + i, sum, static_cast<std::size_t>(count) * sizeof(float));
      }
    }
  });
}

/// Whole matrices for every thread, if there are enough of them to end together; else all threads share each.
inline bool one_each(const Stream& s, std::int32_t matrices) {
  return s.pool.threads() > 1 && matrices >= 3 * s.pool.threads();
}

/// f with a stream of this thread alone: operations inside of an item choose their shapes for one thread.
template <class F>
void alone(F&& f) {
  on_one_thread([](Stream& one, void* context) { (*static_cast<F*>(context))(one); }, &f);
}

void run_experts(Stream& s, const ExpertsParams& p, const OpTable& ops) {
  const std::int32_t step = pass_rows(p.rows, p.chosen);
  Pass pass = lay_out(p.workspace, p.rows, p.chosen, p.gate.count, p.gate.first.k, p.gate.first.n, p.recipe);
  for (std::int32_t begin = 0; begin < p.rows; begin += step) {
    const std::int32_t rows = min_of(step, p.rows - begin);
    const std::int32_t active = sort_pairs(p, begin, rows, pass);
    if (one_each(s, active)) {
      parallel_for(s, active, [&](int i) {
        alone([&](Stream& one) { run_expert(one, p, ops, pass, pass.active[i]); });
      });
    } else {
      for (std::int32_t i = 0; i < active; ++i) run_expert(s, p, ops, pass, pass.active[i]);
    }
    combine(s, p, pass, begin, rows);
  }
}

// --- an expert behind a gate of the row ------------------------------------------------------------------

float row_gate(const float* x, const float* weight, std::int32_t width) {
  float lanes[kLanes] = {};
  std::int32_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    for (std::int32_t i = 0; i < kLanes; ++i) lanes[i] = fma(x[k + i], weight[k + i], lanes[i]);
  }
  for (std::int32_t i = 0; k + i < width; ++i) lanes[i] = fma(x[k + i], weight[k + i], lanes[i]);
  return sigmoid(fold_lanes(lanes));
}

void run_row_gate(Stream& s, const RowGateParams& p) {
  parallel_rows(s, p.rows, p.width + p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      const float gate = row_gate(p.x + std::int64_t{r} * p.width, p.weight, p.width);
      const float* y = p.y + std::int64_t{r} * p.dim;
      float* out = p.out + std::int64_t{r} * p.dim;
      for (std::int32_t i = 0; i < p.dim; ++i) {
        const float v = y[i] * gate;
        out[i] = p.accumulate ? out[i] + v : v;
      }
    }
  });
}

// --- one matrix a head -----------------------------------------------------------------------------------

void run_stacked(Stream& s, const StackedLinearParams& p, const OpTable& ops) {
  const std::size_t scratch = align64(prepared_bytes(p.rows, p.weight.first.k, p.recipe));
  const auto head = [&](Stream& stream, int i) {
    ops.linear(stream, {.weight = p.weight.at(i),
                        .recipe = p.recipe,
                        .x = p.x + i * p.x_head_stride,
                        .rows = p.rows,
                        .x_stride = p.x_stride,
                        .bias = nullptr,
                        .out = p.out + i * p.out_head_stride,
                        .out_stride = p.out_stride,
                        .workspace = static_cast<std::byte*>(p.workspace) + static_cast<std::size_t>(i) * scratch});
  };
  if (one_each(s, p.weight.count)) {
    return parallel_for(s, p.weight.count, [&](int i) { alone([&](Stream& one) { head(one, i); }); });
  }
  for (int i = 0; i < p.weight.count; ++i) head(s, i);
}

}  // namespace
}  // namespace barg::ops::cpu
