// What the AVX2 translation units share: vector forms of math.h and loads of stored formats. Include only
// from
// *_avx2.cpp.
//
// Everything is static or in an unnamed namespace: code compiled with -mavx2 must never be the copy the
// linker picks for a machine without it. No standard container or algorithm is used for the same reason. Each
// function gives, lane for lane, the bits of its namesake in math.h or ops_scalar.cpp.
#pragma once

#include <immintrin.h>

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "cpu/quantise_avx2.h"
#include "math.h"

namespace barg::ops::cpu {

// One per translation unit.
void linear_f32_avx2(Stream& s, const LinearParams& p);
void gated_f32_avx2(Stream& s, const GatedLinearParams& p);
void linear_int8_avx2(Stream& s, const LinearParams& p);
void gated_int8_avx2(Stream& s, const GatedLinearParams& p);
void attention_avx2(Stream& s, const AttentionParams& p);
void rope_kv_write_avx2(Stream& s, const RopeKvParams& p);

namespace {

// Loads of eight stored elements as f32, of codes in the kernels' unit.
struct F32 {
  static constexpr DType kType = DType::kF32;
  static constexpr int kBytes = 4;
  static __m256 load(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr DType kType = DType::kF16;
  static constexpr int kBytes = 2;
  static __m256 load(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct BF16 {
  static constexpr DType kType = DType::kBF16;
  static constexpr int kBytes = 2;
  static __m256 load(const std::byte* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
};

struct F8 {
  static constexpr DType kType = DType::kF8E4M3;
  static constexpr int kBytes = 1;
  static __m256 load(const std::byte* p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    // The sign is in all of the upper bits, and one of them too many comes along.
    const __m128i mask = _mm_set1_epi16(static_cast<short>(0xbfff));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), mask));
  }
};
struct I8 {
  static constexpr DType kType = DType::kI8;
  static constexpr int kBytes = 1;
  static __m256 load(const std::byte* p) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  }
};

inline __m256i load_i(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

/// Four bytes in every 32-bit lane.
inline __m256i broadcast4(const void* p) {
  std::int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

/// All ones in lanes [0, count) of eight.
inline __m256i lane_mask(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline __m256 exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(math::kExpMin), x);  // a NaN is the second operand and passes
  x = _mm256_min_ps(_mm256_set1_ps(math::kExpMax), x);
  const __m256 round = _mm256_set1_ps(math::kRound);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(math::kLog2e), round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-math::kLn2Hi), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-math::kLn2Lo), r);
  __m256 p = _mm256_set1_ps(math::kExpP[0]);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(math::kExpP[1]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(math::kExpP[2]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(math::kExpP[3]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(math::kExpP[4]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(math::kExpP[5]));
  const __m256 y = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i in = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
  const __m256i n1 = _mm256_srai_epi32(in, 1);
  const __m256i n2 = _mm256_sub_epi32(in, n1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 s1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n1, bias), 23));
  const __m256 s2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n2, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(y, s1), s2);
}

inline __m256 silu8(__m256 x) {
  const __m256 e = exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

inline __m256 gelu_tanh8(__m256 x) {
  const __m256 slope = _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(math::kGeluCubic),
                                       _mm256_set1_ps(math::kGeluLinear));
  const __m256 e = exp8(_mm256_xor_ps(_mm256_mul_ps(x, slope), _mm256_set1_ps(-0.0f)));
  return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

inline __m256 tanh8(__m256 x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  const __m256 z = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(math::kTanhP[0]);
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(math::kTanhP[1]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(math::kTanhP[2]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(math::kTanhP[3]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(math::kTanhP[4]));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, z), x, x);
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 e = exp8(_mm256_add_ps(magnitude, magnitude));
  const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
  const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(math::kTanhSmall), _CMP_LT_OQ);
  return _mm256_blendv_ps(_mm256_or_ps(large, sign), small, is_small);
}

inline __m256 erf8(__m256 x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
  const __m256 z = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(math::kErfP[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(math::kErfP[i]));
  const __m256 small = _mm256_fmadd_ps(p, x, x);
  const __m256 t = _mm256_min_ps(_mm256_set1_ps(math::kErfMax), magnitude);  // a NaN is the second operand and passes
  __m256 q = _mm256_set1_ps(math::kErfQ[0]);
  for (int i = 1; i < 7; ++i) q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(math::kErfQ[i]));
  const __m256 large = _mm256_sub_ps(_mm256_set1_ps(1.0f), exp8(_mm256_xor_ps(q, _mm256_set1_ps(-0.0f))));
  const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(math::kErfSmall), _CMP_LT_OQ);
  return _mm256_blendv_ps(_mm256_or_ps(large, sign), small, is_small);
}

inline __m256 gelu_erf8(__m256 x) {
  const __m256 e = erf8(_mm256_mul_ps(x, _mm256_set1_ps(math::kSqrtHalf)));
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.5f), x), _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

inline __m256 sigmoid8(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return _mm256_div_ps(one, _mm256_add_ps(one, exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)))));
}

/// fold_lanes: lanes 0-7 in `low`, 8-15 in `high`.
inline float fold16(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float max8(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/// One register, for the inner loops of the kernels that are written once for every instruction set.
struct Native {
  using Reg = __m256;
  static constexpr int kLanes = 8;
  // Tile of a matrix product: kRows broadcasts and one of kColumns vectors beside the accumulators.
  static constexpr int kRows = 3;
  static constexpr int kColumns = 4;

  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg set(float x) { return _mm256_set1_ps(x); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  /// acc += a b, in its register: left alone, the compiler keeps one of the accumulators in memory.
  static void fma(Reg a, Reg b, Reg& acc) {
    acc = _mm256_fmadd_ps(a, b, acc);
    asm volatile("" : "+x"(acc));
  }
};

/// 16 lanes of f32, the unit of the kernels that are written once for every instruction set
/// (attention_kernel.h, row_kernels.h). Here: two registers.
struct Wide {
  struct Reg {
    __m256 low, high;
  };
  using Mask = Reg;  ///< all ones or zero in a lane

  static Reg zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Reg set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Reg load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, Reg a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
  }
  /// The first `count` lanes; the others read as zero and are not written.
  static Reg load_some(const float* p, int count) {
    if (count >= 16) return load(p);
    if (count <= 8) return {_mm256_maskload_ps(p, lane_mask(count)), _mm256_setzero_ps()};
    return {_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, lane_mask(count - 8))};
  }
  static void store_some(float* p, int count, Reg a) {
    if (count >= 16) return store(p, a);
    _mm256_maskstore_ps(p, lane_mask(count), a.low);
    if (count > 8) _mm256_maskstore_ps(p + 8, lane_mask(count - 8), a.high);
  }
  static Reg add(Reg a, Reg b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static Reg sub(Reg a, Reg b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static Reg mul(Reg a, Reg b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static Reg fma(Reg a, Reg b, Reg c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  /// a > b ? a : b, so that a NaN in `a` loses.
  static Reg max(Reg a, Reg b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static Reg exp(Reg a) { return {exp8(a.low), exp8(a.high)}; }
  static Reg silu(Reg a) { return {silu8(a.low), silu8(a.high)}; }
  static Reg gelu_tanh(Reg a) { return {gelu_tanh8(a.low), gelu_tanh8(a.high)}; }
  static Reg gelu_erf(Reg a) { return {gelu_erf8(a.low), gelu_erf8(a.high)}; }
  static Reg tanh(Reg a) { return {tanh8(a.low), tanh8(a.high)}; }
  static Reg sigmoid(Reg a) { return {sigmoid8(a.low), sigmoid8(a.high)}; }
  static float fold(Reg a) { return fold16(a.low, a.high); }
  static float max_of(Reg a) { return max8(_mm256_max_ps(a.low, a.high)); }

  /// Bit i of `bits` selects lane i.
  static Mask mask(std::uint32_t bits) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const auto spread = [&](std::uint32_t b) {
      const __m256i v = _mm256_set1_epi32(static_cast<int>(b));
      return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(v, lane), lane));
    };
    return {spread(bits), spread(bits >> 8)};
  }
  static Reg select(Mask m, Reg yes, Reg no) {
    return {_mm256_blendv_ps(no.low, yes.low, m.low), _mm256_blendv_ps(no.high, yes.high, m.high)};
  }
  static Reg keep(Mask m, Reg a) { return {_mm256_and_ps(a.low, m.low), _mm256_and_ps(a.high, m.high)}; }
  static std::uint32_t nans(Reg a) {
    return bits(a, a, [](__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_UNORD_Q); });
  }
  static std::uint32_t equal(Reg a, Reg b) {
    return bits(a, b, [](__m256 x, __m256 y) { return _mm256_cmp_ps(x, y, _CMP_EQ_OQ); });
  }
  /// 16 bits each, round to nearest even.
  static void store_f16(std::uint16_t* p, Reg a) {
    auto* out = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(out, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(out + 1, _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(std::uint16_t* p, Reg a) {
    const auto narrow = [](__m256 v) {
      const __m256i bits = _mm256_castps_si256(v);
      const __m256i top = _mm256_srli_epi32(bits, 16);
      const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
      const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd);
      const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
      const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
      const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
      return _mm256_blendv_epi8(rounded, quiet, is_nan);
    };
    const __m256i packed = _mm256_packus_epi32(narrow(a.low), narrow(a.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }

  /// The largest of the magnitudes' bits.
  static std::uint32_t max_magnitude(Reg a) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i eight = _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a.low), magnitude),
                                           _mm256_and_si256(_mm256_castps_si256(a.high), magnitude));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
  }
  /// a * inverse as codes of one byte. REQUIRES no NaN.
  static void store_f8(std::uint8_t* p, Reg a, float inverse) {
    const auto narrow = [&](__m256 v) {
      const __m256 t = limited(v, inverse, 448.0f);
      const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(t), _mm256_set1_epi32(0x7fffffff));
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
      const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7ffff - 0x3c000000), odd);
      const __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(magnitude, half), 20);
      const __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(16384.0f));
      const __m256i small = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x46800000));
      const __m256i is_normal = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x3c7fffff));
      const __m256i top = _mm256_srli_epi32(_mm256_castps_si256(t), 24);
      const __m256i sign = _mm256_and_si256(top, _mm256_set1_epi32(0x80));
      return _mm256_or_si256(sign, _mm256_blendv_epi8(small, normal, is_normal));
    };
    store_bytes(p, narrow(a.low), narrow(a.high));
  }
  static void store_i8(std::uint8_t* p, Reg a, float inverse) {
    const auto narrow = [&](__m256 v) {
      return _mm256_and_si256(_mm256_cvtps_epi32(limited(v, inverse, 127.0f)), _mm256_set1_epi32(0xff));
    };
    store_bytes(p, narrow(a.low), narrow(a.high));
  }

  /// The 32 elements of block b of a row in Form::kInt8.
  static void quantise(Reg v0, Reg v1, const QuantisedRows& out, std::int64_t row, int b) {
    quantise_block(v0.low, v0.high, v1.low, v1.high, out, row, b);
  }

 private:
  static __m256 limited(__m256 v, float inverse, float limit) {
    const __m256 t = _mm256_min_ps(_mm256_mul_ps(v, _mm256_set1_ps(inverse)), _mm256_set1_ps(limit));
    return _mm256_max_ps(t, _mm256_set1_ps(-limit));
  }
  /// Lanes of 0 .. 255 as bytes.
  static void store_bytes(std::uint8_t* p, __m256i low, __m256i high) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  template <class F>
  static std::uint32_t bits(Reg a, Reg b, F f) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(f(a.low, b.low)) |
                                      _mm256_movemask_ps(f(a.high, b.high)) << 8);
  }
};

}  // namespace
}  // namespace barg::ops::cpu
