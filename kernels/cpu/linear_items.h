// What linear and gated_linear of every recipe with float accumulators share, for every vector width: how the
// work is cut into items, and what happens to an item's products: bias, residual, block maxima, act(gate) *
// up, prepared rows. V is a trait of the instruction set. Include only from linear_*.h and linear_*.cpp.
//
// An item of the pool is at most kItemPanels panels (64 columns, an entry of block_max; or gate and up of 32)
// times at most kItemRows rows.
//
// Everything is in an unnamed namespace, for the reason given in avx2.h. Thread rule: as ops.h.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

constexpr int kItemPanels = 4;
constexpr int kItemRows = 96;  // their activations stay in L2 while panels pass by
constexpr int kAccStride = kItemPanels * kPanel;

/// acc[r] = row `row` + r times the panels, kAccStride floats a row, panel after panel. Who multiplies fills
/// acc.
struct Item {
  const std::byte* panel[kItemPanels];  ///< of one matrix or of two
  int panels;
  std::int64_t pitch;  ///< bytes from a panel to its place in the next item
  int row, rows;
  float* acc;

  /// What is read after these panels, to be prefetched: the next of this item, or the first of the next item.
  const std::byte* after(int first_panel, int count, int i) const {
    const int next = first_panel + count + i;
    return next < panels ? panel[next] : panel[i] + pitch;
  }
};

template <int I>
struct Index {
  constexpr operator int() const { return I; }
};

/// f(Index<0>), f(Index<1>), ... f(Index<N - 1>). Loops over registers are written with it: GCC 12 unrolls
/// its own too late to take an array of 24 accumulators out of memory.
template <int N, class F>
[[gnu::always_inline]] inline void repeat(F&& f) {
  if constexpr (N > 0) {
    repeat<N - 1>(f);
    f(Index<N - 1>{});
  }
}

// --- linear ----------------------------------------------------------------------------------------------

/// Sixteen accumulators of one row to columns [16 panel, ...) of `out`; the padding columns are dropped.
template <class V>
void finish_panel(const LinearParams& p, std::int64_t row, int panel, const float* acc) {
  const int n = panel * kPanel;
  float* out = p.out + row * p.out_stride + n;
  if (n + kPanel <= p.weight.n) {
    for (int c = 0; c < kPanel; c += V::kWidth) {
      typename V::Vec v = V::load(acc + c);
      if (p.bias != nullptr) v = V::add(v, V::load(p.bias + n + c));
      if (p.accumulate) v = V::add(V::load(out + c), v);
      V::store(out + c, v);
    }
    return;
  }
  for (int c = 0; n + c < p.weight.n; ++c) {
    const float v = p.bias != nullptr ? acc[c] + p.bias[n + c] : acc[c];
    out[c] = p.accumulate ? out[c] + v : v;
  }
}

/// The specification's loop: the first of equal zeros, or the first NaN.
inline float ordered_max(const float* v, int count) {
  float max = -__builtin_inff();
  for (int i = 0; i < count; ++i) {
    if (v[i] != v[i]) return v[i];
    if (v[i] > max) max = v[i];
  }
  return max;
}

template <class V>
float block_max(const float* v, int count) {
  if (count < kBlockMax) return ordered_max(v, count);
  typename V::Vec max = V::load(v);
  bool nan = V::any_nan(max);
  for (int i = V::kWidth; i < kBlockMax; i += V::kWidth) {
    const typename V::Vec next = V::load(v + i);
    nan |= V::any_nan(next);
    max = V::max(max, next);
  }
  const float largest = V::largest(max);
  return nan || largest == 0.0f ? ordered_max(v, count) : largest;
}

/// Panels of an item: as many as possible while every thread gets its part of the work.
inline int item_panels(int panels, int row_groups, int threads) {
  const std::int64_t ideal = (std::int64_t{panels} * row_groups + threads - 1) / threads;
  int best = kItemPanels;
  std::int64_t best_cost = INT64_MAX;
  for (int width = kItemPanels; width >= 1; --width) {
    const std::int64_t items = std::int64_t{row_groups} * ((panels + width - 1) / width);
    const std::int64_t cost = (items + threads - 1) / threads * width;
    if (cost * 16 <= ideal * 17) return width;  // within 1 / 16 of an even split
    if (cost >= best_cost) continue;
    best = width;
    best_cost = cost;
  }
  return best;
}

/// f(first row, rows, first panel, panels) over all panels and rows.
template <class F>
void for_items(Stream& s, std::int32_t rows, int panels, int width, F&& f) {
  const int per_group = (panels + width - 1) / width;
  const int groups = (rows + kItemRows - 1) / kItemRows;
  parallel_for_rows(s, groups * per_group, [&](int i) {
    const int row = static_cast<int>(std::int64_t{rows} * (i / per_group) / groups);
    const int end = static_cast<int>(std::int64_t{rows} * (i / per_group + 1) / groups);
    const int panel = i % per_group * width;
    f(row, end - row, panel, min_of(width, panels - panel));
  });
}

/// linear, where multiply(item) computes the products of an item.
template <class V, class F>
void linear_by_items(Stream& s, const LinearParams& p, F&& multiply) {
  const PackedWeight& w = p.weight;
  const int panels = num_panels(w.n);
  const int groups = (p.rows + kItemRows - 1) / kItemRows;
  const int width = p.block_max != nullptr || s.pool.threads() == 1
                        ? kItemPanels
                        : item_panels(panels, groups, s.pool.threads());
  for_items(s, p.rows, panels, width, [&](int row, int rows, int panel, int count) {
    alignas(64) float acc[kItemRows * kAccStride];
    const auto bytes = static_cast<std::int64_t>(panel_bytes(w.dtype, w.k, w.packing));
    Item item{{}, count, bytes * count, row, rows, acc};
    for (int i = 0; i < count; ++i) item.panel[i] = panel_data(w, panel + i);
    multiply(item);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < count; ++i) {
        finish_panel<V>(p, row + r, panel + i, acc + r * kAccStride + i * kPanel);
      }
      if (p.block_max == nullptr) continue;
      const int n = panel * kPanel;
      const std::int64_t blocks = (w.n + kBlockMax - 1) / kBlockMax;
      p.block_max[(row + r) * blocks + n / kBlockMax] =
          block_max<V>(p.out + (row + r) * p.out_stride + n, min_of(kBlockMax, w.n - n));
    }
  });
}

// --- gated_linear ----------------------------------------------------------------------------------------

constexpr int kGatedPanels = kItemPanels / 2;  // of gate, and as many of up: a block of prepared rows

/// act(gate + bias) * (up + bias) of `count` panels.
template <class V>
void finish_gated(const GatedLinearParams& p, std::int64_t row, int panel, int count, const float* acc,
                  const float* bias, const QuantisedRows& prepared) {
  constexpr int kVecs = kPanel / V::kWidth;
  const int n = panel * kPanel;
  typename V::Vec v[kGatedPanels * kVecs];
  for (int c = 0; c < count * kVecs; ++c) {
    const int up = count * kPanel + c * V::kWidth;
    typename V::Vec g = V::load(acc + c * V::kWidth);
    typename V::Vec u = V::load(acc + up);
    if (p.gate_bias != nullptr) g = V::add(g, V::load(bias + c * V::kWidth));
    if (p.up_bias != nullptr) u = V::add(u, V::load(bias + up));
    v[c] = gate_by<V>(p.activation, g, u);
  }
  if (p.prepared_out != nullptr) V::quantise(v, prepared, row, n / kQuantBlock);
  if (p.out == nullptr) return;
  float* out = p.out + row * p.gate.n + n;
  if (n + count * kPanel <= p.gate.n) {
    for (int c = 0; c < count * kVecs; ++c) V::store(out + c * V::kWidth, v[c]);
    return;
  }
  alignas(64) float values[kGatedPanels * kPanel];
  for (int c = 0; c < count * kVecs; ++c) V::store(values + c * V::kWidth, v[c]);
  for (int c = 0; n + c < p.gate.n; ++c) out[c] = values[c];
}

/// Biases of gate, then of up, of an item's columns; zeros in the padding.
inline void gather_bias(const GatedLinearParams& p, int panel, int count, float* bias) {
  const float* const from[2] = {p.gate_bias, p.up_bias};
  for (int i = 0; i < 2; ++i) {
    for (int c = 0; c < count * kPanel; ++c) {
      const int n = panel * kPanel + c;
      bias[i * count * kPanel + c] = from[i] != nullptr && n < p.gate.n ? from[i][n] : 0.0f;
    }
  }
}

/// gated_linear, where multiply(item) computes the products of an item.
template <class V, class F>
void gated_by_items(Stream& s, const GatedLinearParams& p, F&& multiply) {
  const PackedWeight& w = p.gate;
  QuantisedRows prepared{};
  if (p.prepared_out != nullptr) prepared = quantised_rows(p.prepared_out, p.rows, w.n);
  for_items(s, p.rows, num_panels(w.n), kGatedPanels, [&](int row, int rows, int panel, int count) {
    alignas(64) float acc[kItemRows * kAccStride];
    alignas(64) float bias[kAccStride];
    const auto bytes = static_cast<std::int64_t>(panel_bytes(w.dtype, w.k, w.packing));
    Item item{{}, 2 * count, bytes * count, row, rows, acc};
    for (int i = 0; i < count; ++i) {
      item.panel[i] = panel_data(p.gate, panel + i);
      item.panel[count + i] = panel_data(p.up, panel + i);
    }
    gather_bias(p, panel, count, bias);
    multiply(item);
    for (int r = 0; r < rows; ++r) {
      finish_gated<V>(p, row + r, panel, count, acc + r * kAccStride, bias, prepared);
    }
  });
}

}  // namespace
}  // namespace barg::ops::cpu
