// linear, recipe int8, AVX2: int8 activations with a scale per 16, exact integers inside a half block, the
// halves and then the blocks added in order. int8_dot in ops_scalar.cpp is the specification.
//
// 4-bit weights are unsigned nibbles: vpmaddubsw(u8 weight, s8 activation) adds two products of at most
// 15 * 127, and the four of a half block fit 16 bits (4 * 2 * 15 * 127 = 15240), so one vpmaddwd per half
// does. The low nibbles of a packed block are its first half, the high nibbles its second. 8-bit weights need
// 32-bit sums: |w| as unsigned and the sign moved to the activation for one row, 16-bit pairs and vpmaddwd
// for several rows (the widening is paid once per panel). Converted blocks go one way or the other: codes
// below 32 are unsigned, and four pairs of them fit 16 bits (4 * 2 * 31 * 127 = 31496).
#include "cpu/avx2.h"
#include "cpu/blocks_avx2.h"
#include "cpu/linear_int8.h"

namespace barg::ops::cpu {
namespace {

constexpr int kTileBlocks = 16;  // 512 k: at most 16 KiB of unpacked weights
constexpr int kMaxRows = 4;      // 8 integer accumulators, weights, activation, constants

// --- one row ---------------------------------------------------------------------------------------------

/// Activations times their scales against the integers of one packed block, both halves added:
/// fma(float(s1), d1, float(s0) * d0) of columns 0-7 and 8-15.
struct FloatPair {
  __m256 low, high;
};

template <DType T>
inline FloatPair block_sums(const std::byte* units, const std::int8_t* q, const float* d,
                            const std::int32_t* q_sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i sum[2][2] = {{_mm256_setzero_si256(), _mm256_setzero_si256()},
                       {_mm256_setzero_si256(), _mm256_setzero_si256()}};
  if constexpr (T == DType::kQ8_0) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i a = broadcast4(q + g * 4);
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const __m256i w = load_i(units + g * 64 + c * 32);
        const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
        sum[g / 4][c] = _mm256_add_epi32(sum[g / 4][c], _mm256_madd_epi16(products, ones));
        asm volatile("" : "+x"(sum[g / 4][c]));  // see tile_rows
      }
    }
  } else {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m256i a_low = broadcast4(q + g * 4);
      const __m256i a_high = broadcast4(q + 16 + g * 4);
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const __m256i w = load_i(units + g * 64 + c * 32);
        const __m256i low = _mm256_and_si256(w, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble);
        sum[0][c] = _mm256_add_epi16(sum[0][c], _mm256_maddubs_epi16(low, a_low));
        sum[1][c] = _mm256_add_epi16(sum[1][c], _mm256_maddubs_epi16(high, a_high));
        asm volatile("" : "+x"(sum[0][c]), "+x"(sum[1][c]));  // see tile_rows
      }
    }
  }
  __m256 t[2];
#pragma GCC unroll 2
  for (int c = 0; c < 2; ++c) {
    __m256i s[2];
    for (int h = 0; h < 2; ++h) {
      s[h] = T == DType::kQ8_0 ? sum[h][c] : _mm256_madd_epi16(sum[h][c], ones);
      if constexpr (T == DType::kQ4_0) s[h] = _mm256_sub_epi32(s[h], _mm256_set1_epi32(8 * q_sum[h]));
    }
    t[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[1]), _mm256_set1_ps(d[1]),
                           _mm256_mul_ps(_mm256_cvtepi32_ps(s[0]), _mm256_set1_ps(d[0])));
  }
  return {t[0], t[1]};
}

/// Integer sums of half a block of eight columns.
template <DType T>
inline __m256i converted_sum(const std::byte* block, int half, const std::int8_t* q, std::int32_t q_sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int u = 0; u < 4; ++u) {
    const __m256i a = broadcast4(q + half * kHalfBlock + u * 4);
    const __m256i w = converted_codes<T>(block, half * 4 + u);
    if constexpr (signed_codes(T)) {
      const __m256i products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
    } else {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, a));
    }
    asm volatile("" : "+x"(sum));  // see tile_rows
  }
  if constexpr (signed_codes(T)) return sum;
  sum = _mm256_madd_epi16(sum, ones);
  if constexpr (code_offset(T) != 0) sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(code_offset(T) * q_sum));
  return sum;
}

template <DType T>
void converted_row(const std::byte* panel, const QuantisedRows& x, std::int64_t row, float* out) {
  __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int b = 0; b < x.k / kQuantBlock; ++b) {
    const std::int8_t* q = x.row_q(row) + b * kQuantBlock;
    const float* d = x.scale + x.half(row, b);
    const std::int32_t* q_sum = x.sum + x.half(row, b);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      const std::byte* block = panel + panel_bytes(T, b * kQuantBlock) + c * 32;
      const __m256 s0 = _mm256_cvtepi32_ps(converted_sum<T>(block, 0, q, q_sum[0]));
      const __m256 s1 = _mm256_cvtepi32_ps(converted_sum<T>(block, 1, q, q_sum[1]));
      const __m256 t = _mm256_mul_ps(s0, _mm256_set1_ps(d[0]));
      if constexpr (per_16(T)) {
        acc[c] = _mm256_fmadd_ps(converted_scales<T>(block, 0), t, acc[c]);
        if constexpr (has_minimum(T)) {
          const float minimum_of = static_cast<float>(q_sum[0]) * d[0];
          acc[c] = _mm256_fmadd_ps(converted_minima<T>(block, 0), _mm256_set1_ps(minimum_of), acc[c]);
        }
        acc[c] =
            _mm256_fmadd_ps(converted_scales<T>(block, 1), _mm256_mul_ps(s1, _mm256_set1_ps(d[1])), acc[c]);
        if constexpr (has_minimum(T)) {
          const float minimum_of = static_cast<float>(q_sum[1]) * d[1];
          acc[c] = _mm256_fmadd_ps(converted_minima<T>(block, 1), _mm256_set1_ps(minimum_of), acc[c]);
        }
      } else {
        acc[c] = _mm256_fmadd_ps(converted_scales<T>(block, 0), _mm256_fmadd_ps(s1, _mm256_set1_ps(d[1]), t),
                                 acc[c]);
        if constexpr (has_minimum(T)) {
          const __m256 scaled_sum = _mm256_set1_ps(x.scaled_sum[x.block(row, b)]);
          acc[c] = _mm256_fmadd_ps(converted_minima<T>(block, 0), scaled_sum, acc[c]);
        }
      }
    }
  }
  _mm256_store_ps(out, acc[0]);
  _mm256_store_ps(out + 8, acc[1]);
}

template <DType T>
void one_row(const std::byte* panel, const QuantisedRows& x, std::int64_t row, float* out) {
  if constexpr (is_converted(T)) return converted_row<T>(panel, x, row, out);
  __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  const std::int8_t* q = x.row_q(row);
  for (int b = 0; b < x.k / kQuantBlock; ++b, q += kQuantBlock) {
    const std::int64_t half = x.half(row, b);
    const std::byte* block = panel + panel_bytes(T, b * kQuantBlock);
    const FloatPair sums = block_sums<T>(block + kHeaderBytes<T>, q, x.scale + half, x.sum + half);
    acc[0] = _mm256_fmadd_ps(F16::load(block), sums.low, acc[0]);
    acc[1] = _mm256_fmadd_ps(F16::load(block + 16), sums.high, acc[1]);
    if constexpr (T == DType::kQ4_1) {
      const __m256 scaled_sum = _mm256_set1_ps(x.scaled_sum[x.block(row, b)]);
      acc[0] = _mm256_fmadd_ps(F16::load(block + 32), scaled_sum, acc[0]);
      acc[1] = _mm256_fmadd_ps(F16::load(block + 48), scaled_sum, acc[1]);
    }
  }
  _mm256_store_ps(out, acc[0]);
  _mm256_store_ps(out + 8, acc[1]);
}

// --- several rows ----------------------------------------------------------------------------------------

/// A run of blocks of one panel, unpacked: nibbles as bytes [8][16][4], or bytes as 16-bit pairs [16][16][2].
struct Tile {
  alignas(64) std::byte weights[kTileBlocks * kQuantBlock * kPanel * 2];
  alignas(64) float scale[kTileBlocks * kPanel];
  alignas(64) float minimum[kTileBlocks * kPanel];
  alignas(64) float scale1[kTileBlocks * kPanel];  ///< of the second halves, where they have one
  alignas(64) float minimum1[kTileBlocks * kPanel];
};

template <DType T>
void unpack_converted(const std::byte* block, int blocks, Tile& tile) {
  auto* out = reinterpret_cast<__m256i*>(tile.weights);
  for (int b = 0; b < blocks; ++b, block += panel_bytes(T, kQuantBlock)) {
    for (int c = 0; c < 2; ++c) {
      const std::byte* columns = block + c * 32;
      const int at = b * kPanel + c * 8;
      _mm256_store_ps(tile.scale + at, converted_scales<T>(columns, 0));
      if constexpr (has_minimum(T)) _mm256_store_ps(tile.minimum + at, converted_minima<T>(columns, 0));
      if constexpr (per_16(T)) {
        _mm256_store_ps(tile.scale1 + at, converted_scales<T>(columns, 1));
        if constexpr (has_minimum(T)) _mm256_store_ps(tile.minimum1 + at, converted_minima<T>(columns, 1));
      }
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        const __m256i codes = converted_codes<T>(columns, g);
        if constexpr (signed_codes(T)) {
          // Bytes 0, 1 and then 2, 3 of each lane as 16-bit pairs.
          const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8),
                        high = _mm256_srai_epi16(codes, 8);
          _mm256_store_si256(out + g * 4 + c, _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa));
          _mm256_store_si256(out + g * 4 + 2 + c, _mm256_blend_epi16(_mm256_srli_epi32(low, 16), high, 0xaa));
        } else {
          _mm256_store_si256(out + g * 2 + c, codes);
        }
      }
    }
    out += signed_codes(T) ? 32 : 16;
  }
}

template <DType T>
void unpack(const std::byte* block, int blocks, Tile& tile) {
  if constexpr (is_converted(T)) return unpack_converted<T>(block, blocks, tile);
  const __m256i nibble = _mm256_set1_epi8(15);
  // Bytes 0, 1 (or 2, 3) of each 32-bit lane to the upper halves of its two 16-bit lanes.
  const __m256i even =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
  const __m256i odd = _mm256_add_epi8(even, _mm256_set1_epi16(0x0200));
  auto* out = reinterpret_cast<__m256i*>(tile.weights);
  for (int b = 0; b < blocks; ++b, block += panel_bytes(T, kQuantBlock)) {
    for (int half = 0; half < 2; ++half) {
      _mm256_store_ps(tile.scale + b * kPanel + half * 8, F16::load(block + half * 16));
      if constexpr (T == DType::kQ4_1) {
        _mm256_store_ps(tile.minimum + b * kPanel + half * 8, F16::load(block + 32 + half * 16));
      }
    }
    for (int g = 0; g < (T == DType::kQ8_0 ? 8 : 4); ++g) {
      for (int c = 0; c < 2; ++c) {
        const __m256i w = load_i(block + kHeaderBytes<T> + g * 64 + c * 32);
        if constexpr (T == DType::kQ8_0) {
          _mm256_store_si256(out + g * 4 + c, _mm256_srai_epi16(_mm256_shuffle_epi8(w, even), 8));
          _mm256_store_si256(out + g * 4 + 2 + c, _mm256_srai_epi16(_mm256_shuffle_epi8(w, odd), 8));
        } else {
          _mm256_store_si256(out + g * 2 + c, _mm256_and_si256(w, nibble));
          _mm256_store_si256(out + 8 + g * 2 + c, _mm256_and_si256(_mm256_srli_epi16(w, 4), nibble));
        }
      }
    }
    out += T == DType::kQ8_0 ? 32 : 16;
  }
}

/// Integer sums of half a block for MR rows, as floats times the half's activation scale.
template <DType T, int MR>
inline void half_sums(const __m256i* w, const QuantisedRows& x, std::int64_t k, const std::int64_t* half,
                      __m256 (*t)[2], bool second) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[MR][2];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < (signed_codes(T) ? 8 : 4); ++g, w += 2) {
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
      if constexpr (signed_codes(T)) {
        const __m256i a = broadcast4(x.q16 + k + std::int64_t{m} * x.k + g * 2);
        sum[m][0] = _mm256_add_epi32(sum[m][0], _mm256_madd_epi16(w[0], a));
        sum[m][1] = _mm256_add_epi32(sum[m][1], _mm256_madd_epi16(w[1], a));
      } else {
        const __m256i a = broadcast4(x.q + k + std::int64_t{m} * x.k + g * 4);
        sum[m][0] = _mm256_add_epi16(sum[m][0], _mm256_maddubs_epi16(w[0], a));
        sum[m][1] = _mm256_add_epi16(sum[m][1], _mm256_maddubs_epi16(w[1], a));
      }
      // Without this GCC reassociates the integer sums and spills the products.
      asm volatile("" : "+x"(sum[m][0]), "+x"(sum[m][1]));
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
    const __m256 d = _mm256_set1_ps(x.scale[half[m]]);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      __m256i s = sum[m][c];
      if constexpr (!signed_codes(T)) s = _mm256_madd_epi16(s, ones);
      if constexpr (code_offset(T) != 0)
        s = _mm256_sub_epi32(s, _mm256_set1_epi32(code_offset(T) * x.sum[half[m]]));
      const __m256 f = _mm256_cvtepi32_ps(s);
      t[m][c] = second ? _mm256_fmadd_ps(f, d, t[m][c]) : _mm256_mul_ps(f, d);
    }
  }
}

/// acc += scale * t, of halves with a scale of their own; + minimum * the half's activations.
template <DType T, int MR>
inline void add_half(const float* scale, const float* minimum, const QuantisedRows& x,
                     const std::int64_t* half, __m256 (*t)[2], float* acc) {
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      float* slot = acc + m * kAccStride + c * 8;
      __m256 a = _mm256_fmadd_ps(_mm256_load_ps(scale + c * 8), t[m][c], _mm256_load_ps(slot));
      if constexpr (has_minimum(T)) {
        const float sum = static_cast<float>(x.sum[half[m]]) * x.scale[half[m]];
        a = _mm256_fmadd_ps(_mm256_load_ps(minimum + c * 8), _mm256_set1_ps(sum), a);
      }
      _mm256_store_ps(slot, a);
    }
  }
}

/// 16 columns of acc[MR][kAccStride] += blocks [b0, b0 + blocks) of rows [row, row + MR). Meanwhile the
/// weights at `ahead` are fetched, as many as these (nullptr: none).
template <DType T, int MR>
void tile_rows(const Tile& tile, const QuantisedRows& x, std::int64_t row, int b0, int blocks,
               const std::byte* ahead, float* acc) {
  constexpr int kHalfUnits = signed_codes(T) ? 16 : 8;
  const auto* w = reinterpret_cast<const __m256i*>(tile.weights);
  for (int b = 0; b < blocks; ++b, w += 2 * kHalfUnits) {
    if (ahead != nullptr) {
      for (std::size_t i = 0; i < panel_bytes(T, kQuantBlock); i += 64)
        __builtin_prefetch(ahead + panel_bytes(T, b * kQuantBlock) + i);
    }
    const std::int64_t k = row * x.k + (b0 + b) * kQuantBlock;
    std::int64_t half[MR];
    for (int m = 0; m < MR; ++m) half[m] = x.half(row + m, b0 + b);
    __m256 t[MR][2];
    half_sums<T, MR>(w, x, k, half, t, false);
    if constexpr (per_16(T)) {
      add_half<T, MR>(tile.scale + b * kPanel, tile.minimum + b * kPanel, x, half, t, acc);
      for (int m = 0; m < MR; ++m) ++half[m];
      half_sums<T, MR>(w + kHalfUnits, x, k + kHalfBlock, half, t, false);
      add_half<T, MR>(tile.scale1 + b * kPanel, tile.minimum1 + b * kPanel, x, half, t, acc);
      continue;
    }
    for (int m = 0; m < MR; ++m) ++half[m];
    half_sums<T, MR>(w + kHalfUnits, x, k + kHalfBlock, half, t, true);
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        float* slot = acc + m * kAccStride + c * 8;
        __m256 a =
            _mm256_fmadd_ps(_mm256_load_ps(tile.scale + b * kPanel + c * 8), t[m][c], _mm256_load_ps(slot));
        if constexpr (has_minimum(T)) {
          a = _mm256_fmadd_ps(_mm256_load_ps(tile.minimum + b * kPanel + c * 8),
                              _mm256_set1_ps(x.scaled_sum[x.block(row + m, b0 + b)]), a);
        }
        _mm256_store_ps(slot, a);
      }
    }
  }
}

/// 16 columns of acc[rows][kAccStride] = rows of x times one panel.
template <DType T>
void panel_rows(const std::byte* panel, const QuantisedRows& x, std::int64_t row, int rows, float* acc) {
  Tile tile;
  for (int r = 0; r < rows; ++r) {
    _mm256_store_ps(acc + r * kAccStride, _mm256_setzero_ps());
    _mm256_store_ps(acc + r * kAccStride + 8, _mm256_setzero_ps());
  }
  const int total = x.k / kQuantBlock;
  for (int b = 0; b < total; b += kTileBlocks) {
    const int blocks = min_of(kTileBlocks, total - b);
    unpack<T>(panel + panel_bytes(T, b * kQuantBlock), blocks, tile);
    // The first rows ask for the next tile, of this panel or of the one behind it.
    const std::byte* ahead = panel + panel_bytes(T, (b + blocks) * kQuantBlock);
    int r = 0;
    for (; r + kMaxRows <= rows; r += kMaxRows) {
      tile_rows<T, kMaxRows>(tile, x, row + r, b, blocks, r == 0 ? ahead : nullptr, acc + r * kAccStride);
    }
    if (r > 0) ahead = nullptr;
    if (rows - r == 3) tile_rows<T, 3>(tile, x, row + r, b, blocks, ahead, acc + r * kAccStride);
    if (rows - r == 2) tile_rows<T, 2>(tile, x, row + r, b, blocks, ahead, acc + r * kAccStride);
    if (rows - r == 1) tile_rows<T, 1>(tile, x, row + r, b, blocks, ahead, acc + r * kAccStride);
  }
}

template <DType T>
void several_rows(const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows, float* acc) {
  for (int i = 0; i < panels.count; ++i) panel_rows<T>(panels.data[i], x, row, rows, acc + i * kPanel);
}

}  // namespace

void linear_int8_avx2(Stream& s, const LinearParams& p) { linear_int8(s, p); }
void gated_int8_avx2(Stream& s, const GatedLinearParams& p) { gated_int8(s, p); }

}  // namespace barg::ops::cpu
