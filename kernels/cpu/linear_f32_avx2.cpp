// linear, recipe f32, AVX2: each output is one chain of FMAs over k = 0, 1, 2, ...
//
// Lanes are output columns, so nothing is summed across lanes and every register shape (MR rows x NP panels)
// performs the same operations per output. K is walked in chunks to keep a dequantised tile in L1: the
// accumulators are stored and reloaded between chunks, which changes no bit.
#include "cpu/avx2.h"

namespace barg::ops::cpu {
namespace {

constexpr int kRowsPerItem = 48;  // their activations stay in L2 while panels pass by
constexpr int kTileElements = 256 * kPanel;
constexpr int kMaxRows = 6;  // 12 accumulators + 2 weights + 1 activation of 16 registers

/// acc[MR][NP * 16] += x[MR][count] * w[NP][count][16].
template <int MR, int NP, class W>
void chain(const std::byte* const* w, int count, const float* x, std::int64_t x_stride, float* acc) {
  __m256 a[MR][NP * 2];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int c = 0; c < NP * 2; ++c) a[m][c] = _mm256_loadu_ps(acc + m * NP * kPanel + c * 8);
  }
  for (int k = 0; k < count; ++k) {
    if constexpr (NP == 1) {  // few weights, many activations: weights stay in registers
      const __m256 low = W::load(w[0] + std::int64_t{k} * kPanel * W::kBytes);
      const __m256 high = W::load(w[0] + (std::int64_t{k} * kPanel + 8) * W::kBytes);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        const __m256 activation = _mm256_broadcast_ss(x + m * x_stride + k);
        a[m][0] = _mm256_fmadd_ps(activation, low, a[m][0]);
        a[m][1] = _mm256_fmadd_ps(activation, high, a[m][1]);
        asm volatile("" : "+x"(a[m][0]), "+x"(a[m][1]));  // keeps GCC from hoisting the broadcasts
      }
    } else {
#pragma GCC unroll 8
      for (int c = 0; c < NP * 2; ++c) {
        const __m256 weight = W::load(w[c / 2] + (std::int64_t{k} * kPanel + c % 2 * 8) * W::kBytes);
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) {
          a[m][c] = _mm256_fmadd_ps(_mm256_broadcast_ss(x + m * x_stride + k), weight, a[m][c]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int c = 0; c < NP * 2; ++c) _mm256_storeu_ps(acc + m * NP * kPanel + c * 8, a[m][c]);
  }
}

template <int NP, class W>
void chain_rows(int rows, const std::byte* const* w, int count, const float* x, std::int64_t x_stride,
                float* acc) {
  if constexpr (NP <= 2) {
    if (rows == 3) return chain<3, NP, W>(w, count, x, x_stride, acc);
    if (rows == 2) return chain<2, NP, W>(w, count, x, x_stride, acc);
  }
  if constexpr (NP == 1) {
    if (rows == 6) return chain<6, NP, W>(w, count, x, x_stride, acc);
    if (rows == 5) return chain<5, NP, W>(w, count, x, x_stride, acc);
    if (rows == 4) return chain<4, NP, W>(w, count, x, x_stride, acc);
  }
  chain<1, NP, W>(w, count, x, x_stride, acc);
}

template <class W>
void widen(const std::byte* src, int count, float* tile) {
  for (int i = 0; i < count * kPanel; i += 8) _mm256_storeu_ps(tile + i, W::load(src + i * W::kBytes));
}

/// d * q (+ m) of eight columns to one row of the tile.
template <DType T>
inline void put(__m256i q, __m256 d, __m256 m, float* out) {
  if constexpr (T == DType::kQ4_0) q = _mm256_sub_epi32(q, _mm256_set1_epi32(8));
  __m256 w = _mm256_mul_ps(d, _mm256_cvtepi32_ps(q));
  if constexpr (T == DType::kQ4_1) w = _mm256_add_ps(w, m);
  _mm256_storeu_ps(out, w);
}

/// One block of 32 k x 16 columns: a 32-bit lane of a packed unit holds four k of a column, the tile one.
template <DType T>
void dequantise_block(const std::byte* block, float* tile) {
  constexpr int kFields = T == DType::kQ4_1 ? 2 : 1;
  const __m256i nibble = _mm256_set1_epi32(15);
  for (int half = 0; half < 2; ++half) {
    const std::byte* units = block + kFields * kPanel * 2 + half * 32;
    const __m256 d = F16::load(block + half * 16);
    const __m256 m = T == DType::kQ4_1 ? F16::load(block + kPanel * 2 + half * 16) : _mm256_setzero_ps();
    for (int u = 0; u < (T == DType::kQ8_0 ? 8 : 4); ++u) {
      const __m256i v = load_i(units + u * kPanel * 4);
      float* out = tile + u * 4 * kPanel + half * 8;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if constexpr (T == DType::kQ8_0) {
          put<T>(_mm256_srai_epi32(_mm256_slli_epi32(v, 24 - 8 * i), 24), d, m, out + i * kPanel);
        } else {
          put<T>(_mm256_and_si256(_mm256_srli_epi32(v, 8 * i), nibble), d, m, out + i * kPanel);
          put<T>(_mm256_and_si256(_mm256_srli_epi32(v, 8 * i + 4), nibble), d, m, out + (16 + i) * kPanel);
        }
      }
    }
  }
}

template <DType T>
void dequantise(const std::byte* src, int count, float* tile) {
  for (int k = 0; k < count; k += kQuantBlock) {
    dequantise_block<T>(src, tile + k * kPanel);
    src += panel_bytes(T, kQuantBlock);
  }
}

void fill_tile(DType type, const std::byte* src, int count, float* tile) {
  switch (type) {
    case DType::kF32:
      return;  // read in place
    case DType::kF16:
      return widen<F16>(src, count, tile);
    case DType::kBF16:
      return widen<BF16>(src, count, tile);
    case DType::kQ8_0:
      return dequantise<DType::kQ8_0>(src, count, tile);
    case DType::kQ4_0:
      return dequantise<DType::kQ4_0>(src, count, tile);
    case DType::kQ4_1:
      return dequantise<DType::kQ4_1>(src, count, tile);
  }
}

/// Rows [row, row + rows) of panels [panel, panel + NP), through f32 tiles (or in place for f32 weights).
template <int NP>
void item_tiled(const LinearParams& p, int row, int rows, int panel) {
  constexpr int kCount = kTileElements / kPanel / NP;
  alignas(64) float tile[kTileElements];
  alignas(64) float acc[(NP == 1 ? kRowsPerItem : 3) * NP * kPanel];
  const DType type = p.weight.dtype;
  for (int i = 0; i < rows * NP * kPanel; ++i) acc[i] = 0.0f;
  for (int k = 0; k < p.weight.k; k += kCount) {
    const int count = min_of(kCount, p.weight.k - k);
    const std::byte* w[NP];
    for (int i = 0; i < NP; ++i) {
      const std::byte* src = panel_data(p.weight, panel + i) + panel_bytes(type, k);
      float* dst = tile + i * kCount * kPanel;
      fill_tile(type, src, count, dst);
      w[i] = type == DType::kF32 ? src : reinterpret_cast<const std::byte*>(dst);
    }
    const int groups = (rows + kMaxRows - 1) / kMaxRows;
    for (int g = 0; g < groups; ++g) {  // 8 rows are 4 + 4, not 6 + 2
      const int begin = rows * g / groups;
      const int end = rows * (g + 1) / groups;
      chain_rows<NP, F32>(end - begin, w, count, p.x + (row + begin) * p.x_stride + k, p.x_stride,
                          acc + begin * NP * kPanel);
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < NP; ++i) store_panel(p, row + r, panel + i, acc + (r * NP + i) * kPanel);
  }
}

/// The same for at most kMaxRows rows of 16-bit weights: widened in registers, no tile.
template <int NP, class W>
void item_direct(const LinearParams& p, int panel) {
  alignas(64) float acc[kMaxRows * NP * kPanel] = {};
  const std::byte* w[NP];
  for (int i = 0; i < NP; ++i) w[i] = panel_data(p.weight, panel + i);
  chain_rows<NP, W>(p.rows, w, p.weight.k, p.x, p.x_stride, acc);
  for (int r = 0; r < p.rows; ++r) {
    for (int i = 0; i < NP; ++i) store_panel(p, r, panel + i, acc + (r * NP + i) * kPanel);
  }
}

template <int NP>
void item(const LinearParams& p, int row, int rows, int panel) {
  if (p.rows <= kMaxRows && p.weight.dtype == DType::kF16) return item_direct<NP, F16>(p, panel);
  if (p.rows <= kMaxRows && p.weight.dtype == DType::kBF16) return item_direct<NP, BF16>(p, panel);
  item_tiled<NP>(p, row, rows, panel);
}

}  // namespace

void linear_f32_avx2(Stream& s, const LinearParams& p) {
  const int panels = num_panels(p.weight.n);
  const int np = panels_per_item(p.rows, panels, s.pool.threads());
  const int per_group = (panels + np - 1) / np;
  const int groups = (p.rows + kRowsPerItem - 1) / kRowsPerItem;
  parallel_for(s, groups * per_group, [&](int i) {
    const int row = static_cast<int>(std::int64_t{p.rows} * (i / per_group) / groups);
    const int rows = static_cast<int>(std::int64_t{p.rows} * (i / per_group + 1) / groups) - row;
    const int panel = i % per_group * np;
    if (panel + np <= panels) {
      if (np == 4) return item<4>(p, row, rows, panel);
      if (np == 2) return item<2>(p, row, rows, panel);
    }
    for (int j = panel; j < min_of(panel + np, panels); ++j) item<1>(p, row, rows, j);
  });
}

}  // namespace barg::ops::cpu
