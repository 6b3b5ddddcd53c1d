// Recipe f32 for every vector width: linear and gated_linear with weights of any type, behind a trait V of
// the instruction set. Include only from linear_f32_*.cpp. f32_dot in ops_scalar.cpp is the specification.
//
// Each output is one chain of FMAs over k = 0, 1, 2, ... Lanes are output columns, so nothing is summed
// across lanes and every register shape (MR rows x NP panels) performs the same operations per output.
// Independent chains hide the latency of an FMA: few rows work on several panels at once.
//
//   few rows    one pass over K; weights go from memory to registers and are widened or dequantised there
//   many rows   K is walked in chunks that stay in L1 while all rows of the item use them: as they are
//   (16-bit
//               floats are widened again for each group of rows, which costs less than a tile of f32), or for
//               quantised weights as a tile of f32. Accumulators are stored and reloaded between chunks,
//               which changes no bit. Meanwhile the next chunk is fetched into L2: without that, reading and
//               multiplying take turns.
//
// Items, and what is done with their products, are in linear_items.h.
//
// Everything is in an unnamed namespace, for the reason given in avx2.h. Thread rule: as ops.h.
#pragma once

#include "cpu/linear_items.h"

namespace barg::ops::cpu {
namespace {

constexpr int kChunkDepth = 256;   // two panels in f32 are 32 KiB
constexpr int kQuantisedRows = 6;  // up to here weights are dequantised in registers

/// An item and what its panels are multiplied with.
struct F32Item : Item {
  DType type;
  std::int32_t k;
  const float* x;  ///< its first row
  std::int64_t x_stride;
};

/// Part of an item: NP panels, from the file's bytes or from a tile, and what to prefetch meanwhile.
template <int NP>
struct Part {
  const std::byte* panel[NP];
  const std::byte* next[NP];
  std::int64_t next_step;  ///< bytes of each `next` a k
  const float* x;
  std::int64_t x_stride;
  float* acc;

  Part rows_from(int row) const {
    Part p = *this;
    p.x += row * x_stride;
    p.acc += row * kAccStride;
    return p;
  }
};

// --- chains ----------------------------------------------------------------------------------------------

template <class V, int MR, int NP>
struct Sums {
  using Vec = typename V::Vec;
  static constexpr int kVecs = kPanel / V::kWidth;  // of a panel
  static constexpr int kColumns = NP * kVecs;
  Vec a[MR][kColumns];

  [[gnu::always_inline]] void load(const float* from) {
    repeat<MR>([&](auto m) __attribute__((always_inline)) {
      repeat<kColumns>([&](auto c) __attribute__((always_inline)) {
        a[m][c] = V::load(from + m * kAccStride + c * V::kWidth);
      });
    });
  }
  [[gnu::always_inline]] void store(float* to) const {
    repeat<MR>([&](auto m) __attribute__((always_inline)) {
      repeat<kColumns>([&](auto c) __attribute__((always_inline)) {
        V::store(to + m * kAccStride + c * V::kWidth, a[m][c]);
      });
    });
  }
  /// a[m][c] += activation * w, at this place in the code: the barrier keeps GCC from hoisting loads.
  [[gnu::always_inline]] void add(int m, int c, Vec activation, Vec w) {
    a[m][c] = V::fma(activation, w, a[m][c]);
    V::pin(a[m][c]);
  }
  /// One k: a[m][c] += x[m] * weight(c). The fewer operands stay in registers, the others pass by.
  template <class Weight>
  [[gnu::always_inline]] void step(const float* x, std::int64_t stride, Weight&& weight) {
    if constexpr (MR <= kColumns) {
      Vec activation[MR];
      repeat<MR>([&](auto m) __attribute__((always_inline)) { activation[m] = V::set1(x[m * stride]); });
      repeat<kColumns>([&](auto c) __attribute__((always_inline)) {
        const Vec w = weight(c);
        repeat<MR>([&](auto m) __attribute__((always_inline)) { add(m, c, activation[m], w); });
      });
    } else {
      Vec w[kColumns];
      repeat<kColumns>([&](auto c) __attribute__((always_inline)) { w[c] = weight(c); });
      repeat<MR>([&](auto m) __attribute__((always_inline)) {
        const Vec activation = V::set1(x[m * stride]);
        repeat<kColumns>([&](auto c) __attribute__((always_inline)) { add(m, c, activation, w[c]); });
      });
    }
  }
};

/// acc[MR][NP * 16] += x[MR][count] * panels[NP][count][16], weights stored as W's.
template <class V, class W, int NP, int MR>
void chain_float(const Part<NP>& part, int count) {
  using S = Sums<V, MR, NP>;
  S sums;
  sums.load(part.acc);
  const std::byte* w[NP];
  const std::byte* next[NP];
  for (int i = 0; i < NP; ++i) w[i] = part.panel[i];
  for (int i = 0; i < NP; ++i) next[i] = part.next[i];
  const float* x = part.x;
  const std::int64_t stride = part.x_stride;
  const std::int64_t next_step = part.next_step;
  for (int k = 0; k < count; ++k) {
    const std::int64_t at = std::int64_t{k} * kPanel * W::kBytes;
    if constexpr (MR > 1) {  // a single row does nothing but read, which the hardware sees
      repeat<NP>([&](auto i) __attribute__((always_inline)) {
        __builtin_prefetch(next[i], 0, 2);  // to L2
        next[i] += next_step;
      });
    }
    sums.step(
        x + k, stride, [&](auto c) __attribute__((always_inline)) {
          return W::load(w[c / S::kVecs] + at + c % S::kVecs * V::kWidth * W::kBytes);
        });
  }
  sums.store(part.acc);
}

/// d * q, or d * q + m, of one block's columns. V::number gives q * 2^24, so the scale takes the factor back:
/// both are powers of two and change no bit of the product.
template <class V>
typename V::Vec block_scale(const std::byte* field) {
  return V::mul(V::F16::load(field), V::set1(5.9604644775390625e-8f));
}

/// The same from packed blocks: a 32-bit lane of a unit holds four k of a column. count % 32 == 0.
template <class V, DType T, int NP, int MR>
void chain_quantised(const Part<NP>& part, int count) {
  using S = Sums<V, MR, NP>;
  using Vec = typename V::Vec;
  constexpr int kFieldBytes = kPanel * 2;
  constexpr int kHeader = (T == DType::kQ4_1 ? 2 : 1) * kFieldBytes;
  constexpr int kHalves = T == DType::kQ8_0 ? 1 : 2;  // of a byte
  constexpr int kUnits = T == DType::kQ8_0 ? 8 : 4;
  S sums;
  sums.load(part.acc);
  const std::byte* w[NP];
  for (int i = 0; i < NP; ++i) w[i] = part.panel[i];
  const float* x = part.x;
  const std::int64_t stride = part.x_stride;
  for (int b = 0; b < count / kQuantBlock; ++b) {
    Vec scale[S::kColumns];
    Vec minimum[S::kColumns];
    repeat<S::kColumns>([&](auto c) __attribute__((always_inline)) {
      const std::byte* field = w[c / S::kVecs] + c % S::kVecs * V::kWidth * 2;
      scale[c] = block_scale<V>(field);
      if constexpr (T == DType::kQ4_1) minimum[c] = V::F16::load(field + kFieldBytes);
    });
    repeat<kHalves>([&](auto half) __attribute__((always_inline)) {
      for (int u = 0; u < kUnits; ++u, x += 4) {
        typename V::Ints unit[S::kColumns];
        repeat<S::kColumns>([&](auto c) __attribute__((always_inline)) {
          unit[c] = V::template bytes<T>(
              V::load_ints(w[c / S::kVecs] + kHeader + (u * kPanel + c % S::kVecs * V::kWidth) * 4), half);
        });
        repeat<4>([&](auto i) __attribute__((always_inline)) {
          sums.step(
              x + i, stride, [&](auto c) __attribute__((always_inline)) {
                const Vec value = V::mul(scale[c], V::template number<T>(unit[c], i));
                return T == DType::kQ4_1 ? V::add(value, minimum[c]) : value;
              });
        });
      }
    });
    for (int i = 0; i < NP; ++i) w[i] += panel_bytes(T, kQuantBlock);
  }
  sums.store(part.acc);
}

/// The same from converted blocks: scale * code, or + minimum.
template <class V, DType T, int NP, int MR>
void chain_converted(const Part<NP>& part, int count) {
  using S = Sums<V, MR, NP>;
  using Vec = typename V::Vec;
  S sums;
  sums.load(part.acc);
  const std::byte* w[NP];
  for (int i = 0; i < NP; ++i) w[i] = part.panel[i];
  const float* x = part.x;
  const std::int64_t stride = part.x_stride;
  for (int b = 0; b < count / kQuantBlock; ++b) {
    repeat<2>([&](auto half) __attribute__((always_inline)) {
      Vec scale[S::kColumns];
      Vec minimum[S::kColumns];
      repeat<S::kColumns>([&](auto c) __attribute__((always_inline)) {
        const std::byte* block = w[c / S::kVecs] + c % S::kVecs * V::kWidth * 4;
        scale[c] = V::template scales<T>(block, half);
        if constexpr (has_minimum(T)) minimum[c] = V::template minima<T>(block, half);
      });
      repeat<4>([&](auto u) __attribute__((always_inline)) {
        typename V::Ints unit[S::kColumns];
        repeat<S::kColumns>([&](auto c) __attribute__((always_inline)) {
          unit[c] = V::template codes<T>(w[c / S::kVecs] + c % S::kVecs * V::kWidth * 4, half * 4 + u);
        });
        repeat<4>([&](auto i) __attribute__((always_inline)) {
          sums.step(
              x + i, stride, [&](auto c) __attribute__((always_inline)) {
                const Vec value = V::mul(scale[c], V::template code<T>(unit[c], i));
                return has_minimum(T) ? V::add(value, minimum[c]) : value;
              });
        });
        x += 4;
      });
    });
    for (int i = 0; i < NP; ++i) w[i] += panel_bytes(T, kQuantBlock);
  }
  sums.store(part.acc);
}

/// Calls Chain::run<rows>, rows in 1 .. MR.
template <class Chain, int MR, int NP>
void with_rows(const Part<NP>& part, int rows, int count) {
  if constexpr (MR > 1) {
    if (rows < MR) return with_rows<Chain, MR - 1>(part, rows, count);
  }
  Chain::template run<MR>(part, count);
}

template <class V, class W>
struct FloatChain {
  template <int MR, int NP>
  static void run(const Part<NP>& part, int count) {
    chain_float<V, W, NP, MR>(part, count);
  }
};
template <class V, DType T>
struct QuantisedChain {
  template <int MR, int NP>
  static void run(const Part<NP>& part, int count) {
    chain_quantised<V, T, NP, MR>(part, count);
  }
};

template <class V, DType T>
struct ConvertedChain {
  template <int MR, int NP>
  static void run(const Part<NP>& part, int count) {
    chain_converted<V, T, NP, MR>(part, count);
  }
};

/// f(Type<T>{}) of a converted type.
template <DType T>
struct Type {
  static constexpr DType kType = T;
};
template <class F>
void with_converted(DType type, F&& f) {
  switch (type) {
    case DType::kS8Per16:
      return f(Type<DType::kS8Per16>{});
    case DType::kS8Min:
      return f(Type<DType::kS8Min>{});
    case DType::kU5Min:
      return f(Type<DType::kU5Min>{});
    case DType::kU4Min:
      return f(Type<DType::kU4Min>{});
    case DType::kU2MinPer16:
      return f(Type<DType::kU2MinPer16>{});
    case DType::kS3Per16:
      return f(Type<DType::kS3Per16>{});
    case DType::kIQ4:
      return f(Type<DType::kIQ4>{});
    case DType::kFP4:
      return f(Type<DType::kFP4>{});
    case DType::kFP4Per16:
      return f(Type<DType::kFP4Per16>{});
    case DType::kFP8:
      return f(Type<DType::kFP8>{});
    default:
      break;
  }
}

// --- few rows --------------------------------------------------------------------------------------------

/// Panels of converted types side by side: a code costs so many operations that two chains are enough.
constexpr int kConvertedPanels = 2;

template <class V, int NP>
constexpr int direct_rows(DType type) {
  constexpr int kMax = V::max_rows(NP);
  if (is_converted(type))
    return 1;  // more rows share a tile: ten types times their shapes take long to compile
  return is_quantised(type) && kMax > kQuantisedRows ? kQuantisedRows : kMax;
}

/// `rows`, at most direct_rows(), by `count` k of NP panels of `type`.
template <class V, int NP>
void multiply_rows(DType type, const Part<NP>& part, int rows, int count) {
  constexpr int kMax = direct_rows<V, NP>(DType::kF32);
  constexpr int kMaxQuantised = direct_rows<V, NP>(DType::kQ8_0);
  switch (type) {
    case DType::kF32:
      return with_rows<FloatChain<V, typename V::F32>, kMax>(part, rows, count);
    case DType::kF16:
      return with_rows<FloatChain<V, typename V::F16>, kMax>(part, rows, count);
    case DType::kBF16:
      return with_rows<FloatChain<V, typename V::BF16>, kMax>(part, rows, count);
    case DType::kQ8_0:
      return with_rows<QuantisedChain<V, DType::kQ8_0>, kMaxQuantised>(part, rows, count);
    case DType::kQ4_0:
      return with_rows<QuantisedChain<V, DType::kQ4_0>, kMaxQuantised>(part, rows, count);
    case DType::kQ4_1:
      return with_rows<QuantisedChain<V, DType::kQ4_1>, kMaxQuantised>(part, rows, count);
    default:
      if constexpr (NP <= kConvertedPanels) {
        return with_converted(
            type, [&](auto t) { with_rows<ConvertedChain<V, t.kType>, 1>(part, rows, count); });
      }
      break;
  }
}

// --- many rows -------------------------------------------------------------------------------------------

template <class V, DType T>
void dequantise(const std::byte* block, int count, float* tile) {
  constexpr int kFieldBytes = kPanel * 2;
  constexpr int kHeader = (T == DType::kQ4_1 ? 2 : 1) * kFieldBytes;
  constexpr int kHalves = T == DType::kQ8_0 ? 1 : 2;
  for (int k = 0; k < count; k += kQuantBlock, block += panel_bytes(T, kQuantBlock)) {
    for (int c = 0; c < kPanel; c += V::kWidth) {
      const typename V::Vec scale = block_scale<V>(block + c * 2);
      const typename V::Vec minimum =
          T == DType::kQ4_1 ? V::F16::load(block + kFieldBytes + c * 2) : V::set1(0.0f);
      for (int u = 0; u < 8 / kHalves; ++u) {
        const typename V::Ints unit = V::load_ints(block + kHeader + (u * kPanel + c) * 4);
        repeat<kHalves>([&](auto half) __attribute__((always_inline)) {
          const typename V::Ints bytes = V::template bytes<T>(unit, half);
          repeat<4>([&](auto i) __attribute__((always_inline)) {
            typename V::Vec w = V::mul(scale, V::template number<T>(bytes, i));
            if constexpr (T == DType::kQ4_1) w = V::add(w, minimum);
            V::store(tile + (k + half * 16 + u * 4 + i) * kPanel + c, w);
          });
        });
      }
    }
  }
}

template <class V, DType T>
void dequantise_converted(const std::byte* block, int count, float* tile) {
  for (int k = 0; k < count; k += kQuantBlock, block += panel_bytes(T, kQuantBlock)) {
    for (int c = 0; c < kPanel; c += V::kWidth) {
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        constexpr int kHalf = g / 4;
        const typename V::Vec scale = V::template scales<T>(block + c * 4, kHalf);
        const typename V::Ints unit = V::template codes<T>(block + c * 4, g);
        repeat<4>([&](auto i) __attribute__((always_inline)) {
          typename V::Vec w = V::mul(scale, V::template code<T>(unit, i));
          if constexpr (has_minimum(T)) w = V::add(w, V::template minima<T>(block + c * 4, kHalf));
          V::store(tile + (k + g * 4 + i) * kPanel + c, w);
        });
      });
    }
  }
}

template <class V>
void fill_tile(DType type, const std::byte* src, int count, float* tile) {
  switch (type) {
    case DType::kQ8_0:
      return dequantise<V, DType::kQ8_0>(src, count, tile);
    case DType::kQ4_0:
      return dequantise<V, DType::kQ4_0>(src, count, tile);
    case DType::kQ4_1:
      return dequantise<V, DType::kQ4_1>(src, count, tile);
    default:  // floats are read in place
      return with_converted(type, [&](auto t) { dequantise_converted<V, t.kType>(src, count, tile); });
  }
}

template <class V, int NP>
void chunked(const F32Item& item, const Part<NP>& whole, const std::byte* const* after) {
  alignas(64) float tile[NP * kChunkDepth * kPanel];
  constexpr int kMax = V::max_rows(NP);
  const int groups = (item.rows + kMax - 1) / kMax;
  const int chunks = (item.k + kChunkDepth - 1) / kChunkDepth;
  const int depth = ((item.k + chunks - 1) / chunks + kQuantBlock - 1) / kQuantBlock * kQuantBlock;
  const bool in_place = !is_quantised(item.type);
  for (std::int32_t k = 0; k < item.k; k += depth) {
    const int count = min_of(depth, item.k - k);
    // Each group of rows fetches its share of the next chunk.
    const auto next_bytes = static_cast<std::int64_t>(panel_bytes(item.type, depth));
    Part<NP> part = whole;
    part.next_step = next_bytes / (std::int64_t{groups} * depth);
    for (int i = 0; i < NP; ++i) {
      const std::byte* src = whole.panel[i] + panel_bytes(item.type, k);
      float* dst = tile + i * kChunkDepth * kPanel;
      if (!in_place) fill_tile<V>(item.type, src, count, dst);
      part.panel[i] = in_place ? src : reinterpret_cast<const std::byte*>(dst);
      part.next[i] = k + depth < item.k ? src + next_bytes : after[i];
    }
    part.x += k;
    for (int g = 0; g < groups; ++g) {  // 14 rows are 7 + 7, not 12 + 2
      const int begin = item.rows * g / groups;
      const int end = item.rows * (g + 1) / groups;
      multiply_rows<V>(in_place ? item.type : DType::kF32, part.rows_from(begin), end - begin, count);
      for (int i = 0; i < NP; ++i) part.next[i] += next_bytes / groups;
    }
  }
}

/// Panels [first, first + NP) of an item.
template <class V, int NP>
void multiply_panels(const F32Item& item, int first) {
  constexpr std::int64_t kAhead = 4096;  // bytes of the stream that `direct` fetches in advance
  Part<NP> part{};
  const std::byte* after[NP];
  for (int i = 0; i < NP; ++i) {
    part.panel[i] = item.panel[first + i];
    part.next[i] = part.panel[i] + kAhead;
    after[i] = item.after(first, NP, i);
  }
  part.next_step = static_cast<std::int64_t>(panel_bytes(item.type, kQuantBlock)) / kQuantBlock;
  part.x = item.x;
  part.x_stride = item.x_stride;
  part.acc = item.acc + first * kPanel;
  if constexpr (NP > 2) {
    multiply_rows<V>(item.type, part, item.rows, item.k);
  } else {
    if (item.rows <= direct_rows<V, NP>(item.type)) {
      return multiply_rows<V>(item.type, part, item.rows, item.k);
    }
    chunked<V>(item, part, after);
  }
}

/// acc = the item's products.
template <class V>
void multiply(const F32Item& item) {
  for (int r = 0; r < item.rows; ++r) {
    for (int c = 0; c < item.panels * kPanel; c += V::kWidth) {
      V::store(item.acc + r * kAccStride + c, V::set1(0.0f));
    }
  }
  const bool wide = !is_converted(item.type) && (V::kWideQuantised || !is_quantised(item.type));
  if (wide && item.rows <= V::max_rows(4)) {
    if (item.panels == 4) return multiply_panels<V, 4>(item, 0);
    if (item.panels == 3) return multiply_panels<V, 3>(item, 0);
  }
  const bool pairs = V::kPairs || item.rows <= V::max_rows(2);
  for (int i = 0; i < item.panels;) {
    if (pairs && i + 2 <= item.panels) {
      multiply_panels<V, 2>(item, i);
      i += 2;
    } else {
      multiply_panels<V, 1>(item, i);
      i += 1;
    }
  }
}

template <class V>
void linear_f32(Stream& s, const LinearParams& p) {
  linear_by_items<V>(s, p, [&](const Item& item) {
    multiply<V>(F32Item{item, p.weight.dtype, p.weight.k, p.x + item.row * p.x_stride, p.x_stride});
  });
}

template <class V>
void gated_f32(Stream& s, const GatedLinearParams& p) {
  gated_by_items<V>(s, p, [&](const Item& item) {
    multiply<V>(F32Item{item, p.gate.dtype, p.gate.k, p.x + item.row * p.x_stride, p.x_stride});
  });
}

}  // namespace
}  // namespace barg::ops::cpu
