#include "model/altup.h"

#include <algorithm>
#include <cmath>

namespace barg::model {
namespace {

constexpr float kLeastSquare = 1e-5f;  // of a stream's magnitude, where it is divided by

struct Scratch {
  std::size_t modalities, coefs, low, total;
};

Scratch lay_out(const DecoderSpec& s, std::int32_t rows) {
  const std::int64_t streams = s.streams.count;
  ScratchPlan plan(rows);
  Scratch l{};
  l.modalities = plan.numbers(streams);
  l.coefs = plan.numbers(streams * streams);
  l.low = plan.numbers(s.streams.laurel_rank);
  l.total = plan.end();
  return l;
}

float* scratch(const Step& s, std::size_t at) {
  return reinterpret_cast<float*>(static_cast<std::byte*>(s.between) + at);
}

float* stream(const Step& s, std::int32_t i) { return s.streams + i * s.stream_stride; }

/// y [rows, n] = W x by one of the small matrices, in full precision in every recipe, as a router's.
void multiply(const StepOps& ops, const ops::PackedWeight& w, const float* x, std::int32_t rows, float* y) {
  ops.table.linear(ops.stream, {.weight = w,
                                .recipe = Recipe::kF32,
                                .x = x,
                                .rows = rows,
                                .x_stride = w.k,
                                .bias = nullptr,
                                .out = y,
                                .out_stride = w.n,
                                .workspace = nullptr});
}

/// Coefficients [rows, n of `mix`] of streams, from x.
float* coefficients(const StepOps& ops, const Step& s, const StreamWeights& w, const float* x,
                    const ops::PackedWeight& mix) {
  const Scratch l = lay_out(ops.spec, s.rows);
  float *const modalities = scratch(s, l.modalities), *const coefs = scratch(s, l.coefs);
  const std::int32_t streams = ops.spec.streams.count;
  ops.norm(x, {w.router_norm}, s.rows, {s.h.x, nullptr});
  multiply(ops, w.router, s.h.x, s.rows, modalities);
  // A cap of 1 makes it the tanh.
  ops.table.scale_logits(ops.stream, {.x = modalities,
                                      .x_stride = streams,
                                      .rows = s.rows,
                                      .dim = streams,
                                      .scale = 1,
                                      .softcap = 1,
                                      .block_max = nullptr});
  multiply(ops, mix, modalities, s.rows, coefs);
  return coefs;
}

/// to = W x, with the magnitude of `like`.
void project_like(const StepOps& ops, const Step& s, const Projection& p, float* x, const float* like,
                  float* to) {
  ops.project(p, {x, s.h.prepared, false, s.h.gathered}, s.rows, {to, ops.spec.hidden});
  ops.table.match_magnitude(
      ops.stream, {.x = to, .like = like, .rows = s.rows, .dim = ops.spec.hidden, .least = kLeastSquare});
}

void add(const StepOps& ops, float* x, const float* y, std::int32_t rows) {
  ops.table.add_scaled(ops.stream,
                       {.x = x, .y = y, .scale = 1, .count = std::int64_t{rows} * ops.spec.hidden});
}

}  // namespace

std::size_t altup_scratch_bytes(const DecoderSpec& spec, std::int32_t max_rows) {
  return spec.streams.count > 1 || spec.streams.laurel_rank > 0 ? lay_out(spec, max_rows).total : 0;
}

void begin_streams(const StepOps& ops, const Step& s, const Weights& w) {
  std::copy_n(s.x, std::int64_t{s.rows} * ops.spec.hidden, stream(s, 0));
  for (std::int32_t i = 1; i < ops.spec.streams.count; ++i)
    project_like(ops, s, w.to_streams[static_cast<std::size_t>(i - 1)], s.x, s.x, stream(s, i));
}

void predict_streams(const StepOps& ops, const Step& s, const StreamWeights& w) {
  const StreamSpec& spec = ops.spec.streams;
  const float* coefs = coefficients(ops, s, w, stream(s, spec.active), w.predict);
  ops.table.predict_streams(ops.stream, {.x = s.streams,
                                         .stream_stride = s.stream_stride,
                                         .streams = spec.count,
                                         .active = spec.active,
                                         .coefs = coefs,
                                         .rows = s.rows,
                                         .dim = ops.spec.hidden,
                                         .out = s.x});
}

void correct_streams(const StepOps& ops, const Step& s, const StreamWeights& w, const float* scale) {
  const StreamSpec& spec = ops.spec.streams;
  const float* coefs = coefficients(ops, s, w, s.x, w.correct);
  ops.table.correct_streams(ops.stream, {.x = s.streams,
                                         .stream_stride = s.stream_stride,
                                         .streams = spec.count,
                                         .active = spec.active,
                                         .activated = s.x,
                                         .coefs = coefs,
                                         .scale = scale,
                                         .rows = s.rows,
                                         .dim = ops.spec.hidden,
                                         .out = s.x});
}

void add_to_streams(const StepOps& ops, const Step& s) {
  for (std::int32_t i = 1; i < ops.spec.streams.count; ++i) add(ops, stream(s, i), s.sub, s.rows);
}

void end_streams(const StepOps& ops, const Step& s, const Weights& w) {
  const float* const first = stream(s, 0);
  std::copy_n(first, std::int64_t{s.rows} * ops.spec.hidden, s.x);
  for (std::int32_t i = 1; i < ops.spec.streams.count; ++i) {
    project_like(ops, s, w.from_streams[static_cast<std::size_t>(i - 1)], stream(s, i), first, s.sub);
    add(ops, s.x, s.sub, s.rows);
  }
  ops.scale(s.x, s.rows, 1.0f / static_cast<float>(ops.spec.streams.count));
}

void begin_laurel(const StepOps& ops, const Step& s, const StreamWeights& w, const Rows& h) {
  float* const low = scratch(s, lay_out(ops.spec, s.rows).low);
  for (const ProjectionPart& part : w.laurel_left.parts)
    ops.linear(part, h, s.rows, {low + part.out_offset, ops.spec.streams.laurel_rank});
  ops.project(w.laurel_right, {low, s.h.prepared, false, s.h.gathered}, s.rows, {s.laurel, ops.spec.hidden});
  ops.norm(s.laurel, w.laurel_norm, s.rows, {s.laurel, nullptr});
  add(ops, s.laurel, h.x, s.rows);
}

void end_laurel(const StepOps& ops, const Step& s) {
  add(ops, s.x, s.laurel, s.rows);
  ops.scale(s.x, s.rows, static_cast<float>(1 / std::sqrt(2.0)));
}

}  // namespace barg::model
