// linear and gated_linear, recipe int8, AVX-512 with VNNI. int8_dot in ops_scalar.cpp is the specification:
// exact integers inside half a block, then halves and blocks added in order.
//
// vpdpbusd takes unsigned weights and signed activations. Nibbles are unsigned as stored; bytes become
// unsigned by flipping the sign bit, w + 128. The surplus (128, or 8 for q4_0, times the sum of the half's
// activations, which the rows carry) is taken off in advance: the accumulator starts there. Exact integers,
// so the bits are those of any other order.
//
// One row: a panel after the other, so that memory is read front to back. Several rows: a panel's block of weights
// stays unpacked in registers while the rows pass by, and the f32 accumulators wait in L1 between blocks; of more than
// a few rows two panels' blocks, and each activation is broadcast once for both. Nothing is unpacked to memory. The
// floor is 11 multiplier operations (q4_1: 12) for 8 of vpdpbusd.
#include "cpu/avx512.h"
#include "cpu/blocks_avx512.h"
#include "cpu/linear_int8.h"
#include "cpu/quantise_avx512.h"

namespace barg::ops::cpu {
namespace {

constexpr int kUnits = 8;  // groups of four k in a block

/// Unpacked weights of one block of a panel: eight units, unsigned.
template <DType T>
inline void unpack(const std::byte* block, __m512i (&w)[kUnits]) {
  const std::byte* units = block + kHeaderBytes<T>;
  if constexpr (is_converted(T)) {
#pragma GCC unroll 8
    for (int g = 0; g < kUnits; ++g) {
      w[g] = converted_codes<T>(block, g);
      if constexpr (signed_codes(T)) w[g] = _mm512_xor_si512(w[g], _mm512_set1_epi8(-128));
    }
  } else if constexpr (T == DType::kQ8_0) {
#pragma GCC unroll 8
    for (int g = 0; g < kUnits; ++g) w[g] = _mm512_xor_si512(load_i(units + g * 64), _mm512_set1_epi8(-128));
  } else {
    const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int g = 0; g < kUnits / 2; ++g) {
      __m512i bytes = load_i(units + g * 64);
      asm("" : "+v"(bytes));  // one load for both nibbles
      w[g] = _mm512_and_si512(bytes, nibble);
      w[g + 4] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
    }
  }
}

/// Where the integer sum of half a block starts.
template <DType T>
inline __m512i surplus(const std::int32_t* sum) {
  if constexpr (!signed_codes(T) && code_offset(T) == 0) return _mm512_setzero_si512();
  const __m512i negative = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_set1_epi32(*sum));
  return _mm512_slli_epi32(negative, signed_codes(T) ? 7 : code_offset(T) == 8 ? 3 : 2);
}

template <DType T>
inline __m512 scales(const std::byte* block, int half) {
  if constexpr (is_converted(T)) return converted_scales<T>(block, half);
  return F16::load(block);
}
template <DType T>
inline __m512 minima(const std::byte* block, int half) {
  if constexpr (is_converted(T)) return converted_minima<T>(block, half);
  return F16::load(block + kPanel * 2);
}

/// acc + both halves' sums times their scales, and what the minima add. `scale`, `minimum`: of a block or of
/// its halves; d, sum and scaled_sum are the activations'.
template <DType T>
[[gnu::always_inline]] inline __m512 add_block(__m512 acc, const __m512i* s, const __m512* scale,
                                               const __m512* minimum, const float* d, const std::int32_t* sum,
                                               const float* scaled_sum) {
  const __m512 t0 = _mm512_mul_ps(_mm512_cvtepi32_ps(s[0]), _mm512_set1_ps(d[0]));
  if constexpr (per_16(T)) {
    acc = _mm512_fmadd_ps(scale[0], t0, acc);
    if constexpr (has_minimum(T))
      acc = _mm512_fmadd_ps(minimum[0], _mm512_set1_ps(static_cast<float>(sum[0]) * d[0]), acc);
    acc = _mm512_fmadd_ps(scale[1], _mm512_mul_ps(_mm512_cvtepi32_ps(s[1]), _mm512_set1_ps(d[1])), acc);
    if constexpr (has_minimum(T))
      acc = _mm512_fmadd_ps(minimum[1], _mm512_set1_ps(static_cast<float>(sum[1]) * d[1]), acc);
  } else {
    acc = _mm512_fmadd_ps(scale[0], _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[1]), _mm512_set1_ps(d[1]), t0), acc);
    if constexpr (has_minimum(T)) acc = _mm512_fmadd_ps(minimum[0], _mm512_set1_ps(*scaled_sum), acc);
  }
  return acc;
}

// --- one row ---------------------------------------------------------------------------------------------

template <DType T>
void one_row(const std::byte* panel, const QuantisedRows& x, std::int64_t row, float* out) {
  __m512 acc = _mm512_setzero_ps();
  const std::int8_t* q = x.row_q(row);
  const float* d = x.scale + x.half(row, 0);
  const std::int32_t* sum = x.sum + x.half(row, 0);
  const float* scaled_sum = x.scaled_sum + x.block(row, 0);
  for (int b = 0; b < x.k / kQuantBlock; ++b) {
    const std::byte* block = panel + panel_bytes(T, b * kQuantBlock);
    __m512i w[kUnits];
    unpack<T>(block, w);
    __m512i s0 = surplus<T>(sum + 2 * b);
    __m512i s1 = surplus<T>(sum + 2 * b + 1);
#pragma GCC unroll 4
    for (int g = 0; g < kUnits / 2; ++g) {
      s0 = _mm512_dpbusd_epi32(s0, w[g], broadcast4(q + b * kQuantBlock + g * 4));
      s1 = _mm512_dpbusd_epi32(s1, w[g + 4], broadcast4(q + b * kQuantBlock + kHalfBlock + g * 4));
    }
    if constexpr (is_converted(T)) {
      const __m512i s[2] = {s0, s1};
      const __m512 scale[2] = {scales<T>(block, 0), scales<T>(block, 1)};
      const __m512 minimum[2] = {minima<T>(block, 0), minima<T>(block, 1)};
      acc = add_block<T>(acc, s, scale, minimum, d + 2 * b, sum + 2 * b, scaled_sum + b);
      continue;
    }
    const __m512 t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s1), _mm512_set1_ps(d[2 * b + 1]),
                                     _mm512_mul_ps(_mm512_cvtepi32_ps(s0), _mm512_set1_ps(d[2 * b])));
    acc = _mm512_fmadd_ps(F16::load(block), t, acc);
    if constexpr (T == DType::kQ4_1) {
      acc = _mm512_fmadd_ps(F16::load(block + kPanel * 2), _mm512_set1_ps(scaled_sum[b]), acc);
    }
  }
  _mm512_store_ps(out, acc);
}

// --- several rows ----------------------------------------------------------------------------------------

/// Block b of NP panels for `rows` rows: acc[r][kItemPanels][16] of panels 0 .. NP - 1.
template <DType T, int NP>
inline void block_rows(const std::byte* const* blocks, const QuantisedRows& x, std::int64_t row, int rows,
                       int b, float* acc) {
  __m512i w[NP][kUnits];
  constexpr int kScales = per_16(T) ? 2 : 1;
  __m512 scale[NP][kScales];
  __m512 minimum[NP][kScales];
#pragma GCC unroll 2
  for (int i = 0; i < NP; ++i) {
    unpack<T>(blocks[i], w[i]);
#pragma GCC unroll 2
    for (int h = 0; h < kScales; ++h) {
      scale[i][h] = scales<T>(blocks[i], h);
      minimum[i][h] = _mm512_setzero_ps();
      if constexpr (has_minimum(T)) minimum[i][h] = minima<T>(blocks[i], h);
    }
  }
  const std::int64_t first = x.block(row, b);
  const std::int64_t step = x.k / kQuantBlock;
  for (std::int64_t at = first; at < first + rows * step; at += step, acc += kAccStride) {
    const std::int8_t* q = x.q + at * kQuantBlock;
    const __m512i start[2] = {surplus<T>(x.sum + at * 2), surplus<T>(x.sum + at * 2 + 1)};
    __m512i s[NP][2];
#pragma GCC unroll 2
    for (int i = 0; i < NP; ++i) {
      s[i][0] = start[0];
      s[i][1] = start[1];
    }
#pragma GCC unroll 4
    for (int g = 0; g < kUnits / 2; ++g) {
      const __m512i a0 = broadcast4(q + g * 4);
      const __m512i a1 = broadcast4(q + kHalfBlock + g * 4);
#pragma GCC unroll 2
      for (int i = 0; i < NP; ++i) {
        s[i][0] = _mm512_dpbusd_epi32(s[i][0], w[i][g], a0);
        s[i][1] = _mm512_dpbusd_epi32(s[i][1], w[i][g + 4], a1);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < NP; ++i) {
      const __m512 y = add_block<T>(_mm512_load_ps(acc + i * kPanel), s[i], scale[i], minimum[i],
                                    x.scale + at * 2, x.sum + at * 2, x.scaled_sum + at);
      _mm512_store_ps(acc + i * kPanel, y);
    }
  }
}

/// Up to so many rows, reading weights takes longer than multiplying them.
constexpr int kFewRows = 8;

/// A panel after the other: one stream through memory.
template <DType T>
void few_rows(const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows, float* acc) {
  constexpr auto kBlock = static_cast<std::ptrdiff_t>(panel_bytes(T, kQuantBlock));
  for (int i = 0; i < panels.count; ++i) {
    for (int b = 0; b < x.k / kQuantBlock; ++b) {
      const std::byte* block = panels.data[i] + b * kBlock;
#pragma GCC unroll 9
      for (std::ptrdiff_t j = 0; j < kBlock; j += 64) __builtin_prefetch(block + kAhead + j);
      block_rows<T, 1>(&block, x, row, rows, b, acc + i * kPanel);
    }
  }
}

template <DType T>
void several_rows(const Panels& panels, const QuantisedRows& x, std::int64_t row, int rows, float* acc) {
  for (int i = 0; i < rows * kItemPanels; ++i) _mm512_store_ps(acc + i * kPanel, _mm512_setzero_ps());
  if (rows <= kFewRows) return few_rows<T>(panels, x, row, rows, acc);
  for (int b = 0; b < x.k / kQuantBlock; ++b) {
    fetch_ahead<T>(panels, b, x.k / kQuantBlock);
    const std::byte* blocks[kItemPanels];
    for (int i = 0; i < panels.count; ++i) blocks[i] = panels.data[i] + panel_bytes(T, b * kQuantBlock);
    int i = 0;
    for (; i + 2 <= panels.count; i += 2) block_rows<T, 2>(blocks + i, x, row, rows, b, acc + i * kPanel);
    if (i < panels.count) block_rows<T, 1>(blocks + i, x, row, rows, b, acc + i * kPanel);
  }
}

}  // namespace

void linear_int8_avx512(Stream& s, const LinearParams& p) { linear_int8(s, p); }
void gated_int8_avx512(Stream& s, const GatedLinearParams& p) { gated_int8(s, p); }

}  // namespace barg::ops::cpu
