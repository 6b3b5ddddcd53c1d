// Recipe int8 for every vector width: what surrounds the kernels of linear_int8_*.cpp (one_row and
// several_rows), behind Wide (avx2.h or avx512.h, which the file includes first). int8_dot in ops_scalar.cpp
// is the specification.
//
// What is multiplied at once is up to four panels (64 columns, an entry of block_max; or 32 of gate and the
// same 32 of up, a block of prepared rows) times up to kItemRows rows: an item of the pool, or with one row a
// part of one. The kernel leaves the sums in L1, and they are finished there: bias, residual, largest of 64,
// act * up, next rows as int8. No two items write the same number, and no result depends on how items are
// cut.
//
// Everything is in an unnamed namespace, for the reason given in avx2.h. Thread rule: as ops.h.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

constexpr int kItemPanels = 4;
constexpr int kItemRows = 64;  // sums of 16 KiB, a third of L1
constexpr int kAccStride = kItemPanels * kPanel;

/// What one item multiplies: up to kItemPanels panels of one or two matrices of the same k and type.
struct Panels {
  const std::byte* data[kItemPanels];
  int count;
  std::ptrdiff_t next;  ///< bytes from here to the panels this thread is likely to read next
};

constexpr std::ptrdiff_t kAhead =
    2560;  ///< bytes: how far ahead of several rows' arithmetic weights are asked for

template <DType T>
constexpr int kHeaderBytes = is_converted(T) ? header_words(T) * kPanel * 4
                                             : (T == DType::kQ4_1 ? 2 : 1) * kPanel * 2;

/// Asks for the weights that lie `kAhead` behind block b, in these panels or the next ones: hardware
/// prefetchers restart at every panel and do not keep four streams ahead of many rows of arithmetic.
template <DType T>
[[gnu::always_inline]] inline void fetch_ahead(const Panels& panels, int b, int blocks) {
  constexpr std::ptrdiff_t kBlock = panel_bytes(T, kQuantBlock);
  const int at = b + static_cast<int>((kAhead + kBlock - 1) / kBlock);
  const std::ptrdiff_t offset = at < blocks ? at * kBlock : panels.next + (at - blocks) * kBlock;
  for (int i = 0; i < panels.count; ++i) {
#pragma GCC unroll 9
    for (std::ptrdiff_t j = 0; j < kBlock; j += 64)
      __builtin_prefetch(panels.data[i] + offset + j, 0, 2);  // to L2
  }
}

// --- the kernels -----------------------------------------------------------------------------------------

/// acc[16] = one row of x times a panel.
template <DType T>
void one_row(const std::byte* panel, const QuantisedRows& x, std::int64_t row, float* acc);

/// acc[rows][kItemPanels][16] = rows of x times the panels that there are.
template <DType T>
void several_rows(const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows, float* acc);

template <DType T>
void multiply_type(const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows, float* acc) {
  if (rows > 1) return several_rows<T>(panels, x, row, rows, acc);
  // One after the other: a single stream through memory, which the processor reads ahead by itself and twice
  // as fast as four panels side by side with prefetches (those share the few misses that a first-level cache
  // may wait for).
  for (int i = 0; i < panels.count; ++i) one_row<T>(panels.data[i], x, row, acc + i * kPanel);
}

void multiply(DType type, const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows,
              float* acc) {
  switch (type) {
    case DType::kQ8_0:
      return multiply_type<DType::kQ8_0>(panels, x, row, rows, acc);
    case DType::kQ4_0:
      return multiply_type<DType::kQ4_0>(panels, x, row, rows, acc);
    case DType::kQ4_1:
      return multiply_type<DType::kQ4_1>(panels, x, row, rows, acc);
    case DType::kS8Per16:
      return multiply_type<DType::kS8Per16>(panels, x, row, rows, acc);
    case DType::kS8Min:
      return multiply_type<DType::kS8Min>(panels, x, row, rows, acc);
    case DType::kU5Min:
      return multiply_type<DType::kU5Min>(panels, x, row, rows, acc);
    case DType::kU4Min:
      return multiply_type<DType::kU4Min>(panels, x, row, rows, acc);
    case DType::kU2MinPer16:
      return multiply_type<DType::kU2MinPer16>(panels, x, row, rows, acc);
    case DType::kS3Per16:
      return multiply_type<DType::kS3Per16>(panels, x, row, rows, acc);
    case DType::kIQ4:
      return multiply_type<DType::kIQ4>(panels, x, row, rows, acc);
    case DType::kFP4:
      return multiply_type<DType::kFP4>(panels, x, row, rows, acc);
    case DType::kFP4Per16:
      return multiply_type<DType::kFP4Per16>(panels, x, row, rows, acc);
    default:
      __builtin_trap();  // not in this form (ops.h, prepared_form)
  }
}

// --- what becomes of the sums ----------------------------------------------------------------------------

/// The largest of up to kBlockMax outputs: NaN if one is NaN, and of equal zeros the first.
float largest_of(const float* x, int count) {
  float max = -__builtin_inff();
  if (count == kBlockMax) {
    Wide::Reg wide = Wide::load(x);
    std::uint32_t nans = Wide::nans(wide);
    for (int i = kPanel; i < kBlockMax; i += kPanel) {
      const Wide::Reg v = Wide::load(x + i);
      nans |= Wide::nans(v);
      wide = Wide::max(v, wide);
    }
    max = Wide::max_of(wide);
    if (nans == 0 && max != 0.0f) return max;
    max = -__builtin_inff();
  }
  for (int i = 0; i < count; ++i) {
    if (x[i] != x[i]) return x[i];
    if (x[i] > max) max = x[i];
  }
  return max;
}

/// Sums of `panels` panels to one row of `out`: bias, residual, the largest. Padding columns are dropped.
void finish(const LinearParams& p, std::int64_t row, int panel, int panels, const float* acc) {
  float* out = p.out + row * p.out_stride;
  for (int i = 0; i < panels; ++i) {
    const int n = (panel + i) * kPanel;
    const int count = min_of(kPanel, p.weight.n - n);
    Wide::Reg v = Wide::load(acc + i * kPanel);
    if (p.bias != nullptr) v = Wide::add(v, Wide::load_some(p.bias + n, count));
    if (p.accumulate) v = Wide::add(Wide::load_some(out + n, count), v);
    Wide::store_some(out + n, count, v);
  }
  if (p.block_max == nullptr) return;
  const std::int64_t blocks = (p.weight.n + kBlockMax - 1) / kBlockMax;
  const int n = panel * kPanel;
  p.block_max[row * blocks + n / kBlockMax] = largest_of(out + n, min_of(kBlockMax, p.weight.n - n));
}

/// act(gate) * up of block b of 32 columns: `acc` holds its panels of gate, then those of up.
void finish(const GatedLinearParams& p, const QuantisedRows& prepared, std::int64_t row, int b, int panels,
            const float* acc) {
  Wide::Reg v[2] = {Wide::zero(), Wide::zero()};
  for (int i = 0; i < panels; ++i) {
    const int n = b * kQuantBlock + i * kPanel;
    const int count = min_of(kPanel, p.gate.n - n);
    Wide::Reg g = Wide::load(acc + i * kPanel);
    Wide::Reg u = Wide::load(acc + (panels + i) * kPanel);
    if (p.gate_bias != nullptr) g = Wide::add(g, Wide::load_some(p.gate_bias + n, count));
    if (p.up_bias != nullptr) u = Wide::add(u, Wide::load_some(p.up_bias + n, count));
    v[i] = gate_by<Wide>(p.activation, g, u);
    if (p.out != nullptr) Wide::store_some(p.out + row * p.gate.n + n, count, v[i]);
  }
  if (p.prepared_out != nullptr) Wide::quantise(v[0], v[1], prepared, row, b);
}

// --- items -----------------------------------------------------------------------------------------------

/// The rows as int8: prepared by somebody before, or here in the workspace.
template <class Params>
QuantisedRows prepared_rows(Stream& s, const Params& p, std::int32_t k) {
  if (p.prepared != nullptr) return quantised_rows(const_cast<void*>(p.prepared), p.rows, k);
  const QuantisedRows x = quantised_rows(p.workspace, p.rows, k);
  parallel_rows(s, p.rows, k, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) quantise_row(p.x + r * p.x_stride, x, r);
  });
  return x;
}

inline int row_groups(std::int32_t rows) { return (rows + kItemRows - 1) / kItemRows; }

/// [0, units) in runs that threads take one after the other: long ones first, so that a thread reads on where
/// it is and claims seldom; short ones last, so that all end together. `even` units go together well.
struct Runs {
  static constexpr int kMost = 4096;  // of any number of threads: a run halves what is left to each
  int count = 0;
  int begin[kMost + 1];

  Runs(int units, int even, int threads) {
    int size = 0;
    for (int at = 0; at < units; ++count) {
      if (count % threads == 0) size = size_of(units - at, even, threads);
      begin[count] = at;
      at = count + 1 < kMost ? min_of(at + size, units) : units;
    }
    begin[count] = units;
  }
  /// Where the thread that takes run i is likely to go on: all take turns.
  int after(int i, int threads) const { return begin[min_of(i + threads, count)]; }

 private:
  static int size_of(int units, int even, int threads) {
    const int size = units / (2 * threads);
    return size < 1 ? 1 : size >= even ? size / even * even : size;
  }
};

/// f(first unit, units, first row, rows, next unit) for all units of a matrix and all rows; one group of rows
/// after the other, because units cost more to bring in than rows. `even` units go together well.
template <class F>
void for_items(Stream& s, std::int32_t rows, int units, int even, F&& f) {
  const int threads = s.pool.threads();
  if (rows == 1) {
    const Runs runs(units, even, threads);
    return parallel_for(s, runs.count, [&](int i) {
      const int end = runs.begin[i + 1];
      for (int unit = runs.begin[i]; unit < end; unit += even) {
        const int next = unit + even < end ? unit + even : runs.after(i, threads);
        f(unit, min_of(even, end - unit), 0, 1, next);
      }
    });
  }
  const int groups = row_groups(rows);
  const int columns = (units + even - 1) / even;
  parallel_for_rows(s, groups * columns, [&](int i) {
    const int row = static_cast<int>(std::int64_t{rows} * (i / columns) / groups);
    const int end = static_cast<int>(std::int64_t{rows} * (i / columns + 1) / groups);
    const int unit = i % columns * even;
    f(unit, min_of(even, units - unit), row, end - row, unit + even * threads);
  });
}

/// Panels that `linear` multiplies at once: four, or fewer where items of four would leave threads without
/// work at the end.
int item_panels(const LinearParams& p, int panels, int threads) {
  if (p.block_max != nullptr || p.rows == 1) return kItemPanels;
  const auto rounds = [&](int width) {
    const int items = row_groups(p.rows) * ((panels + width - 1) / width);
    return (items + threads - 1) / threads * width;
  };
  int best = kItemPanels;
  for (int width = kItemPanels / 2; width >= 1; width /= 2) {
    if (rounds(width) * 16 < rounds(best) * 15) best = width;  // narrow items cost a little more
  }
  return best;
}

void linear_int8(Stream& s, const LinearParams& p) {
  const QuantisedRows x = prepared_rows(s, p, p.weight.k);
  const int panels = num_panels(p.weight.n);
  const auto pitch = static_cast<std::ptrdiff_t>(panel_bytes(p.weight.dtype, p.weight.k));
  // An entry of block_max belongs to one item.
  const int unit = p.block_max != nullptr ? kItemPanels : 1;
  const int even = item_panels(p, panels, s.pool.threads()) / unit;
  for_items(s, p.rows, (panels + unit - 1) / unit, even, [&](int at, int units, int row, int rows, int next) {
    alignas(64) float acc[kItemRows * kAccStride];
    const int panel = at * unit;
    Panels w{{}, min_of(units * unit, panels - panel), pitch * unit * (next - at)};
    for (int i = 0; i < w.count; ++i) w.data[i] = panel_data(p.weight, panel + i);
    multiply(p.weight.dtype, w, x, row, rows, acc);
    for (int r = 0; r < rows; ++r) finish(p, row + r, panel, w.count, acc + r * kAccStride);
  });
}

void gated_int8(Stream& s, const GatedLinearParams& p) {
  const QuantisedRows x = prepared_rows(s, p, p.gate.k);
  const int panels = num_panels(p.gate.n);
  const auto pitch = static_cast<std::ptrdiff_t>(panel_bytes(p.gate.dtype, p.gate.k));
  QuantisedRows prepared{};
  if (p.prepared_out != nullptr) prepared = quantised_rows(p.prepared_out, p.rows, p.gate.n);
  for_items(s, p.rows, (panels + 1) / 2, 1, [&](int b, int, int row, int rows, int next) {
    alignas(64) float acc[kItemRows * kAccStride];
    const int half = min_of(2, panels - b * 2);
    Panels w{{}, 2 * half, pitch * 2 * (next - b)};
    for (int i = 0; i < half; ++i) {
      w.data[i] = panel_data(p.gate, b * 2 + i);
      w.data[half + i] = panel_data(p.up, b * 2 + i);
    }
    multiply(p.gate.dtype, w, x, row, rows, acc);
    for (int r = 0; r < rows; ++r) finish(p, prepared, row + r, b, half, acc + r * kAccStride);
  });
}

}  // namespace
}  // namespace barg::ops::cpu
