// Several residual streams, and gates that are cut. Written once, in plain operations of math.h, and compiled
// for every instruction set: so the bits are the same everywhere, and this file is the specification too.
//
// Everything is in an unnamed namespace, for the reason given in avx2.h. Thread rule: rows are independent,
// threads take ranges of them.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

/// f(i) for the numbers of a row, kLanes at a time where there are so many: a loop that becomes vectors.
template <class F>
inline void each_number(std::int32_t dim, F&& f) {
  std::int32_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) f(i + l, l);
  }
  for (int l = 0; i + l < dim; ++l) f(i + l, l);
}

/// The mean of f(i) by lanes, `add` joining a number to its lane.
template <class Add>
inline float mean_by_lanes(std::int32_t dim, Add&& add) {
  float lanes[kLanes] = {};
  each_number(dim, [&](std::int32_t i, int l) { lanes[l] = add(i, lanes[l]); });
  return fold_lanes(lanes) / static_cast<float>(dim);
}

inline float mean_square(const float* x, std::int32_t dim) {
  return mean_by_lanes(dim, [x](std::int32_t i, float lane) { return fma(x[i], x[i], lane); });
}

template <class F>
inline void each_row(Stream& s, std::int32_t rows, std::int32_t elements, F&& f) {
  parallel_rows(s, rows, elements, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) f(std::int64_t{r});
  });
}

inline void predict_row(const PredictStreamsParams& p, std::int64_t r) {
  const float* coefs = p.coefs + r * p.streams * p.streams;
  float* const x = p.x + r * p.dim;
  for (std::int32_t i = 0; i < p.dim; i += kLanes) {
    const int count = min_of(kLanes, p.dim - i);
    float old[kMaxStreams][kLanes];
    for (std::int32_t s = 0; s < p.streams; ++s) {
      for (int l = 0; l < count; ++l) old[s][l] = x[s * p.stream_stride + i + l];
    }
    for (std::int32_t q = 0; q < p.streams; ++q) {
      float next[kLanes];
      for (int l = 0; l < count; ++l) next[l] = old[q][l];
      for (std::int32_t s = 0; s < p.streams; ++s) {
        const float c = coefs[q * p.streams + s];
        for (int l = 0; l < count; ++l) next[l] = fma(c, old[s][l], next[l]);
      }
      for (int l = 0; l < count; ++l) x[q * p.stream_stride + i + l] = next[l];
    }
    for (int l = 0; l < count; ++l) p.out[r * p.dim + i + l] = x[p.active * p.stream_stride + i + l];
  }
}

inline void correct_row(const CorrectStreamsParams& p, std::int64_t r) {
  float* const x = p.x + r * p.dim;
  float* const active = x + p.active * p.stream_stride;
  const float* activated = p.activated + r * p.dim;
  float* const out = p.out + r * p.dim;
  for (std::int32_t i = 0; i < p.dim; i += kLanes) {
    const int count = min_of(kLanes, p.dim - i);
    float e[kLanes];
    for (int l = 0; l < count; ++l) e[l] = activated[i + l] - active[i + l];
    for (std::int32_t q = 0; q < p.streams; ++q) {
      const float c = p.coefs[r * p.streams + q] + 1.0f;
      float* const to = x + q * p.stream_stride + i;
      for (int l = 0; l < count; ++l) to[l] = fma(e[l], c, to[l]);
    }
    for (int l = 0; l < count; ++l) out[i + l] = active[i + l] * p.scale[i + l];
  }
}

inline void match_row(const MatchMagnitudeParams& p, std::int64_t r) {
  float* const x = p.x + r * p.dim;
  const float own = mean_square(x, p.dim);
  const float factor = __builtin_sqrtf(mean_square(p.like + r * p.dim, p.dim)) /
                       __builtin_sqrtf(own < p.least ? p.least : own);  // written so that a NaN passes
  each_number(p.dim, [&](std::int32_t i, int) { x[i] = x[i] * factor; });
}

inline void cut_row(const CutGateParams& p, std::int64_t r) {
  float* const x = p.x + r * p.dim;
  const float mean = mean_by_lanes(p.dim, [x](std::int32_t i, float lane) { return lane + x[i]; });
  const float variance =
      mean_by_lanes(p.dim, [&](std::int32_t i, float lane) { return fma(x[i] - mean, x[i] - mean, lane); });
  const float cut = fma(__builtin_sqrtf(variance), p.deviations, mean);
  each_number(p.dim, [&](std::int32_t i, int) {
    const float above = x[i] - cut;
    x[i] = above < 0.0f ? 0.0f : above;
  });
}

void run_predict_streams(Stream& s, const PredictStreamsParams& p) {
  each_row(s, p.rows, p.dim * p.streams * 2, [&](std::int64_t r) { predict_row(p, r); });
}
void run_correct_streams(Stream& s, const CorrectStreamsParams& p) {
  each_row(s, p.rows, p.dim * p.streams, [&](std::int64_t r) { correct_row(p, r); });
}
void run_match_magnitude(Stream& s, const MatchMagnitudeParams& p) {
  each_row(s, p.rows, p.dim * 3, [&](std::int64_t r) { match_row(p, r); });
}
void run_cut_gate(Stream& s, const CutGateParams& p) {
  each_row(s, p.rows, p.dim * 3, [&](std::int64_t r) { cut_row(p, r); });
}

}  // namespace
}  // namespace barg::ops::cpu
