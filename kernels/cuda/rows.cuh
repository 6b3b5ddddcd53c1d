// What is done to rows between the large kernels: a choice of them, 16-bit copies, a result's way to the residual stream,
// the scale of logits. Each thread has its own numbers, so any of them may be done in place.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

inline constexpr int kRowsThreads = 256;

// ---- keep_rows: row i = row wanted[i], in place

template <class T>
struct KeepRowsArgs {
  T* rows;
  std::int64_t stride;         ///< in T
  std::int32_t width;          ///< of a row, in T
  const std::int32_t* wanted;  ///< [count], ascending; wanted[i] >= i
  std::int32_t count;
};

inline constexpr int kKeepThreads = 64;
inline constexpr int kKeepAtOnce = 8;  ///< rows that a thread has under way

/// `element`: bytes of a T.
BARG_DEVICE constexpr LaunchShape keep_rows_launch(int width, int element) {
  return {.grid_x = (width * element + 16 * kKeepThreads - 1) / (16 * kKeepThreads), .threads = kKeepThreads};
}

BARG_DEVICE Vec16 keep_load(const Vec16* p) { return load16(p); }
BARG_DEVICE void keep_store(Vec16* p, const Vec16& v) { store16(p, v); }
template <class T>
BARG_DEVICE T keep_load(const T* p) {
  return *p;
}
template <class T>
BARG_DEVICE void keep_store(T* p, const T& v) {
  *p = v;
}

/// One column of all rows, in ascending order: what a row has is read before a later one comes there, as none comes from
/// above.
template <class V>
BARG_DEVICE void keep_column(V* column, std::int64_t stride, const std::int32_t* wanted, int count) {
  for (int first = 0; first < count; first += kKeepAtOnce) {
    int from[kKeepAtOnce];
    V held[kKeepAtOnce];
    BARG_UNROLL
    for (int j = 0; j < kKeepAtOnce; ++j) {
      from[j] = first + j < count ? wanted[first + j] : first + j;
      if (from[j] != first + j) held[j] = keep_load(column + from[j] * stride);
    }
    BARG_UNROLL
    for (int j = 0; j < kKeepAtOnce; ++j) {
      if (from[j] != first + j) keep_store(column + (first + j) * stride, held[j]);
    }
  }
}

/// Wide where rows are whole vectors of 16 bytes.
template <class T>
BARG_KERNEL keep_rows_kernel(KeepRowsArgs<T> p) {
  constexpr int kWide = 16 / sizeof(T);
  const bool wide = p.width % kWide == 0 && p.stride % kWide == 0 && reinterpret_cast<std::uintptr_t>(p.rows) % 16 == 0;
  const int columns = wide ? p.width / kWide : p.width;
  for (int i = block_x() * kKeepThreads + thread_id(); i < columns; i += grid_x() * kKeepThreads) {
    if (wide) {
      keep_column(reinterpret_cast<Vec16*>(p.rows) + i, p.stride / kWide, p.wanted, p.count);
    } else {
      keep_column(p.rows + i, p.stride, p.wanted, p.count);
    }
  }
}

// ---- half_rows: rows in 16 bits, as the GEMM reads them

struct HalfRowsArgs {
  const float* x;          ///< [R, K], row stride x_stride floats: a multiple of 4, as K; 16-byte aligned
  std::int64_t x_stride;
  std::int32_t rows, dim;  ///< R, K; R * K < 2^33
  std::uint16_t* half;     ///< [R, K] dense; 8-byte aligned
};

BARG_DEVICE constexpr LaunchShape half_rows_launch(int rows, int dim) {
  return {.grid_x = static_cast<int>((std::int64_t{rows} * (dim / 4) + kRowsThreads - 1) / kRowsThreads),
          .threads = kRowsThreads};
}

template <Half T>
BARG_KERNEL half_rows_kernel(HalfRowsArgs p) {
  const int quads = p.dim / 4;
  const int i = block_x() * kRowsThreads + thread_id();
  if (i >= p.rows * quads) return;
  const int row = i / quads;
  const Vec16 v = load16(p.x + row * p.x_stride + 4 * (i - row * quads));
  store8(p.half + std::int64_t{4} * i, {{pack2<T>(bits_float(v.x[0]), bits_float(v.x[1])),
                                         pack2<T>(bits_float(v.x[2]), bits_float(v.x[3]))}});
}

// ---- add_scaled: x[i] = fma(y[i], scale, x[i])

struct AddScaledArgs {
  float* x;  ///< [count], 16-byte aligned, as y
  const float* y;
  float scale;
  std::int64_t count;  ///< below 2^33
};

BARG_DEVICE constexpr LaunchShape add_scaled_launch(std::int64_t count) {
  return {.grid_x = static_cast<int>((count + 4 * kRowsThreads - 1) / (4 * kRowsThreads)), .threads = kRowsThreads};
}

BARG_KERNEL add_scaled_kernel(AddScaledArgs p) {
  const std::int64_t at = 4 * (std::int64_t{block_x()} * kRowsThreads + thread_id());
  if (at + 4 <= p.count) {
    Vec16 x = load16(p.x + at);
    const Vec16 y = load16(p.y + at);
    BARG_UNROLL
    for (int e = 0; e < 4; ++e)
      x.x[e] = float_bits(fma(bits_float(y.x[e]), seeded("add.scale", p.scale), bits_float(x.x[e])));
    store16(p.x + at, x);
  } else {
    for (std::int64_t i = at; i < p.count; ++i) p.x[i] = fma(p.y[i], p.scale, p.x[i]);
  }
}

// ---- scale_logits: x[r, i] = x[r, i] * scale

struct ScaleLogitsArgs {
  float* x;  ///< [R, V], row stride x_stride floats
  std::int64_t x_stride;
  std::int32_t rows, dim;  ///< R, V
  float scale;
};

inline constexpr int kScaleUnroll = 4;
inline constexpr int kScaleTile = kScaleUnroll * kRowsThreads;  ///< numbers of a row that a block takes

BARG_DEVICE constexpr LaunchShape scale_logits_launch(int rows, int dim) {
  return {.grid_x = rows, .grid_y = (dim + kScaleTile - 1) / kScaleTile, .threads = kRowsThreads};
}

/// Rows begin anywhere, so neighbours take single numbers side by side.
BARG_KERNEL scale_logits_kernel(ScaleLogitsArgs p) {
  float* const x = p.x + block_x() * p.x_stride;
  const int first = block_y() * kScaleTile + thread_id();
  BARG_UNROLL
  for (int j = 0; j < kScaleUnroll; ++j) {
    const int i = first + j * kRowsThreads;
    if (i < p.dim) x[i] = x[i] * p.scale;
  }
}

}  // namespace barg::cuda
