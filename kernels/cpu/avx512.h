// What the AVX-512 translation units share (F, BW, DQ, VL, VNNI): vector forms of math.h and loads of stored
// formats, 16 lanes wide. Include only from *_avx512.cpp and *_avx512bf16.cpp.
//
// The rules are those of avx2.h: everything static or in an unnamed namespace, no standard containers or
// algorithms, and each function gives, lane for lane, the bits of its namesake in math.h or ops_scalar.cpp.
#pragma once

#include <immintrin.h>

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "cpu/quantise_avx512.h"
#include "math.h"

namespace barg::ops::cpu {

// One per translation unit.
void linear_f32_avx512(Stream& s, const LinearParams& p);
void gated_f32_avx512(Stream& s, const GatedLinearParams& p);
void linear_bf16_avx512(Stream& s, const LinearParams& p);
void gated_bf16_avx512(Stream& s, const GatedLinearParams& p);
void linear_int8_avx512(Stream& s, const LinearParams& p);
void gated_int8_avx512(Stream& s, const GatedLinearParams& p);
void attention_avx512(Stream& s, const AttentionParams& p);
void rope_kv_write_avx512(Stream& s, const RopeKvParams& p);

namespace {

// Loads of 16 stored elements as f32, of codes in the kernels' unit.
struct F32 {
  static constexpr DType kType = DType::kF32;
  static constexpr int kBytes = 4;
  static __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
  static __m512 load_half(const std::byte* p) {
    return _mm512_zextps256_ps512(_mm256_loadu_ps(reinterpret_cast<const float*>(p)));
  }
};
struct F16 {
  static constexpr DType kType = DType::kF16;
  static constexpr int kBytes = 2;
  static __m512 load(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m512 load_half(const std::byte* p) {
    return _mm512_zextps256_ps512(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
};
struct BF16 {
  static constexpr DType kType = DType::kBF16;
  static constexpr int kBytes = 2;
  static __m512 load(const std::byte* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static __m512 load_half(const std::byte* p) {
    const __m256i half = _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
};

/// Elements of one byte, which Code::widen makes f32.
template <class Code>
struct Codes {
  static constexpr int kBytes = 1;
  static __m512 load(const std::byte* p) {
    return Code::widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m512 load_half(const std::byte* p) {
    return Code::widen(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
};
struct F8 : Codes<F8> {
  static constexpr DType kType = DType::kF8E4M3;
  static __m512 widen(__m128i codes) {
    // The sign is in all of the upper bits, and one of them too many comes along.
    const __m256i halves = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(halves, _mm256_set1_epi16(static_cast<short>(0xbfff))));
  }
};
struct I8 : Codes<I8> {
  static constexpr DType kType = DType::kI8;
  static __m512 widen(__m128i codes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)); }
};

inline __m512i load_i(const void* p) { return _mm512_loadu_si512(p); }

/// Four bytes in every 32-bit lane.
inline __m512i broadcast4(const void* p) {
  std::int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}

/// Lanes [0, count) of 16.
inline __mmask16 lane_mask(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
}

inline __m512 exp16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(math::kExpMin), x);  // a NaN is the second operand and passes
  x = _mm512_min_ps(_mm512_set1_ps(math::kExpMax), x);
  const __m512 round = _mm512_set1_ps(math::kRound);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(math::kLog2e), round), round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-math::kLn2Hi), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-math::kLn2Lo), r);
  __m512 p = _mm512_set1_ps(math::kExpP[0]);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(math::kExpP[1]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(math::kExpP[2]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(math::kExpP[3]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(math::kExpP[4]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(math::kExpP[5]));
  const __m512 y = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, n);  // one rounding, as in the last of the two products of math.h
}

inline __m512 silu16(__m512 x) {
  const __m512 e = exp16(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

inline __m512 gelu_tanh16(__m512 x) {
  const __m512 slope = _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(math::kGeluCubic),
                                       _mm512_set1_ps(math::kGeluLinear));
  const __m512 e = exp16(_mm512_xor_ps(_mm512_mul_ps(x, slope), _mm512_set1_ps(-0.0f)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

inline __m512 tanh16(__m512 x) {
  const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
  const __m512 magnitude = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
  const __m512 z = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(math::kTanhP[0]);
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(math::kTanhP[1]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(math::kTanhP[2]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(math::kTanhP[3]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(math::kTanhP[4]));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp16(_mm512_add_ps(magnitude, magnitude));
  const __m512 large = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
  const __mmask16 is_small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(math::kTanhSmall), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(is_small, _mm512_or_ps(large, sign), small);
}

inline __m512 erf16(__m512 x) {
  const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
  const __m512 magnitude = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
  const __m512 z = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(math::kErfP[0]);
  for (int i = 1; i < 6; ++i) p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(math::kErfP[i]));
  const __m512 small = _mm512_fmadd_ps(p, x, x);
  const __m512 t = _mm512_min_ps(_mm512_set1_ps(math::kErfMax), magnitude);  // a NaN is the second operand and passes
  __m512 q = _mm512_set1_ps(math::kErfQ[0]);
  for (int i = 1; i < 7; ++i) q = _mm512_fmadd_ps(q, t, _mm512_set1_ps(math::kErfQ[i]));
  const __m512 large = _mm512_sub_ps(_mm512_set1_ps(1.0f), exp16(_mm512_xor_ps(q, _mm512_set1_ps(-0.0f))));
  const __mmask16 is_small = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(math::kErfSmall), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(is_small, _mm512_or_ps(large, sign), small);
}

inline __m512 gelu_erf16(__m512 x) {
  const __m512 e = erf16(_mm512_mul_ps(x, _mm512_set1_ps(math::kSqrtHalf)));
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.5f), x), _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

inline __m512 sigmoid16(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  return _mm512_div_ps(one, _mm512_add_ps(one, exp16(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)))));
}

/// Lanes 8-15.
inline __m256 upper8(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

/// fold_lanes.
inline float fold16(__m512 lanes) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), upper8(lanes));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// REQUIRES no NaN.
inline float max16(__m512 v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), upper8(v));
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/// One register, for the inner loops of the kernels that are written once for every instruction set.
struct Native {
  using Reg = __m512;
  static constexpr int kLanes = 16;
  // Tile of a matrix product: kRows broadcasts and one of kColumns vectors beside the accumulators.
  static constexpr int kRows = 6;
  static constexpr int kColumns = 4;

  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg set(float x) { return _mm512_set1_ps(x); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  /// acc += a b, in its register: left alone, the compiler keeps one of the accumulators in memory.
  static void fma(Reg a, Reg b, Reg& acc) {
    acc = _mm512_fmadd_ps(a, b, acc);
    asm volatile("" : "+v"(acc));
  }
};

/// 16 lanes of f32, the unit of the kernels that are written once for every instruction set
/// (attention_kernel.h, row_kernels.h). Here: one register.
struct Wide {
  using Reg = __m512;
  using Mask = __mmask16;

  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg set(float x) { return _mm512_set1_ps(x); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  /// The first `count` lanes; the others read as zero and are not written.
  static Reg load_some(const float* p, int count) { return _mm512_maskz_loadu_ps(lane_mask(count), p); }
  static void store_some(float* p, int count, Reg a) { _mm512_mask_storeu_ps(p, lane_mask(count), a); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  /// a > b ? a : b, so that a NaN in `a` loses.
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg exp(Reg a) { return exp16(a); }
  static Reg silu(Reg a) { return silu16(a); }
  static Reg gelu_tanh(Reg a) { return gelu_tanh16(a); }
  static Reg gelu_erf(Reg a) { return gelu_erf16(a); }
  static Reg tanh(Reg a) { return tanh16(a); }
  static Reg sigmoid(Reg a) { return sigmoid16(a); }
  static float fold(Reg a) { return fold16(a); }
  static float max_of(Reg a) { return max16(a); }

  /// Bit i of `bits` selects lane i.
  static Mask mask(std::uint32_t bits) { return static_cast<Mask>(bits); }
  static Reg select(Mask m, Reg yes, Reg no) { return _mm512_mask_blend_ps(m, no, yes); }
  static Reg keep(Mask m, Reg a) { return _mm512_maskz_mov_ps(m, a); }
  static std::uint32_t nans(Reg a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static std::uint32_t equal(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  /// 16 bits each, round to nearest even.
  static void store_f16(std::uint16_t* p, Reg a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(std::uint16_t* p, Reg a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i top = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd);
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __m512i quiet = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    const __m512i narrow = _mm512_mask_mov_epi32(rounded, static_cast<Mask>(nans(a)), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(narrow));
  }

  /// The largest of the magnitudes' bits.
  static std::uint32_t max_magnitude(Reg a) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff));
    return static_cast<std::uint32_t>(_mm512_reduce_max_epi32(bits));
  }
  /// a * inverse as codes of one byte. REQUIRES no NaN.
  static void store_f8(std::uint8_t* p, Reg a, float inverse) {
    const __m512i t = _mm512_castps_si512(limited(a, inverse, 448.0f));
    const __m512i magnitude = _mm512_and_si512(t, _mm512_set1_epi32(0x7fffffff));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(_mm512_set1_epi32(0x7ffff - 0x3c000000), odd);
    const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(magnitude, half), 20);
    const __m512 shifted = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_set1_ps(16384.0f));
    const __m512i small = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x46800000));
    const Mask is_normal = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x3c7fffff));
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(t, 24), _mm512_set1_epi32(0x80));
    store_bytes(p, _mm512_or_si512(sign, _mm512_mask_mov_epi32(small, is_normal, normal)));
  }
  static void store_i8(std::uint8_t* p, Reg a, float inverse) {
    store_bytes(p, _mm512_cvtps_epi32(limited(a, inverse, 127.0f)));
  }

  /// The 32 elements of block b of a row in Form::kInt8.
  static void quantise(Reg v0, Reg v1, const QuantisedRows& out, std::int64_t row, int b) {
    quantise_block(v0, v1, out, row, b);
  }

 private:
  static Reg limited(Reg a, float inverse, float limit) {
    const Reg t = _mm512_min_ps(_mm512_mul_ps(a, _mm512_set1_ps(inverse)), _mm512_set1_ps(limit));
    return _mm512_max_ps(t, _mm512_set1_ps(-limit));
  }
  static void store_bytes(std::uint8_t* p, __m512i lanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(lanes));
  }
};

}  // namespace
}  // namespace barg::ops::cpu
