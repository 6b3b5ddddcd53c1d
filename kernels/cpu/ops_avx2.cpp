// The AVX2 back end (with FMA and F16C): the table and the row operations. Same bits as ops_scalar.cpp.
#include "cpu/avx2.h"
#include "cpu/philox.h"

namespace barg::ops::cpu {
namespace {

// --- embed -----------------------------------------------------------------------------------------------

template <class W>
float stored(const std::byte* p) {
  if constexpr (W::kBytes == 4) {
    float v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  const std::uint16_t h = load_u16(p);
  return __is_same(W, F16) ? _cvtsh_ss(h) : bf16_to_f32(h);
}

template <class W>
void gather_float(const PackedWeight& w, std::int32_t id, float scale, float* out) {
  const std::byte* src = panel_data(w, id / kPanel) + id % kPanel * W::kBytes;
  for (std::int32_t i = 0; i < w.k; ++i) {
    out[i] = stored<W>(src + std::int64_t{i} * kPanel * W::kBytes) * scale;
  }
}

/// Column id % 16 of every block: 8 (or 4) units of four bytes, 64 bytes apart.
template <DType T>
void gather_blocks(const PackedWeight& w, std::int32_t id, float scale, float* out) {
  constexpr int kHeader = (T == DType::kQ4_1 ? 2 : 1) * kPanel * 2;
  const int c = id % kPanel;
  const std::byte* block = panel_data(w, id / kPanel);
  for (std::int32_t b = 0; b < w.k / kQuantBlock; ++b, block += panel_bytes(T, kQuantBlock)) {
    const __m256 d = _mm256_set1_ps(_cvtsh_ss(load_u16(block + c * 2)));
    const __m256 m = T == DType::kQ4_1 ? _mm256_set1_ps(_cvtsh_ss(load_u16(block + (kPanel + c) * 2)))
                                       : _mm256_setzero_ps();
    alignas(32) std::int8_t q[kQuantBlock];
    for (int u = 0; u < (T == DType::kQ8_0 ? 8 : 4); ++u) {
      __builtin_memcpy(q + u * 4, block + kHeader + (u * kPanel + c) * 4, 4);
    }
    if constexpr (T != DType::kQ8_0) {
      const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(q));
      const __m128i nibble = _mm_set1_epi8(15);
      _mm_store_si128(reinterpret_cast<__m128i*>(q), _mm_and_si128(bytes, nibble));
      _mm_store_si128(reinterpret_cast<__m128i*>(q + 16), _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
    }
    for (int i = 0; i < kQuantBlock; i += 8) {
      __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(q + i)));
      if constexpr (T == DType::kQ4_0) v = _mm256_sub_epi32(v, _mm256_set1_epi32(8));
      __m256 y = _mm256_mul_ps(d, _mm256_cvtepi32_ps(v));
      if constexpr (T == DType::kQ4_1) y = _mm256_add_ps(y, m);
      _mm256_storeu_ps(out + b * kQuantBlock + i, _mm256_mul_ps(y, _mm256_set1_ps(scale)));
    }
  }
}

void embed_row(const EmbedParams& p, std::int32_t r) {
  const PackedWeight& w = p.table;
  float* out = p.out + std::int64_t{r} * w.k;
  switch (w.dtype) {
    case DType::kF32:
      return gather_float<F32>(w, p.ids[r], p.scale, out);
    case DType::kF16:
      return gather_float<F16>(w, p.ids[r], p.scale, out);
    case DType::kBF16:
      return gather_float<BF16>(w, p.ids[r], p.scale, out);
    case DType::kQ8_0:
      return gather_blocks<DType::kQ8_0>(w, p.ids[r], p.scale, out);
    case DType::kQ4_0:
      return gather_blocks<DType::kQ4_0>(w, p.ids[r], p.scale, out);
    case DType::kQ4_1:
      return gather_blocks<DType::kQ4_1>(w, p.ids[r], p.scale, out);
  }
}

void embed(Stream& s, const EmbedParams& p) {
  parallel_rows(s, p.rows, p.table.k, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) embed_row(p, r);
  });
}

// --- norms and pointwise ---------------------------------------------------------------------------------

/// Eight lanes of which the first `count` exist; the others read as zero.
inline __m256 load_some(const float* p, std::int32_t count) {
  return count >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, lane_mask(count));
}
inline void store_some(float* p, std::int32_t count, __m256 v) {
  if (count >= 8) {
    _mm256_storeu_ps(p, v);
  } else {
    _mm256_maskstore_ps(p, lane_mask(count), v);
  }
}

/// f(i, elements left, half) for i = 0, 8, 16, ...; half says which eight of the 16 lanes i belongs to, as a
/// constant once inlined.
template <class F>
inline void by_lanes(std::int32_t dim, F&& f) {
  std::int32_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    f(i, 8, 0);
    f(i + 8, 8, 1);
  }
  if (i < dim) f(i, dim - i, 0);
  if (i + 8 < dim) f(i + 8, dim - i - 8, 1);
}

void rms_norm_row(const RmsNormParams& p, std::int32_t r) {
  const float* x = p.x + std::int64_t{r} * p.dim;
  float* out = p.out != nullptr ? p.out + std::int64_t{r} * p.dim : nullptr;
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  by_lanes(p.dim, [&](std::int32_t i, std::int32_t count, int half) {
    const __m256 v = load_some(x + i, count);
    lanes[half] = _mm256_fmadd_ps(v, v, lanes[half]);  // a missing lane adds +0 to a sum >= 0
  });
  const float mean = fold16(lanes[0], lanes[1]) / static_cast<float>(p.dim);
  const __m256 inverse = _mm256_set1_ps(1.0f / __builtin_sqrtf(mean + p.eps));
  const __m256 offset = _mm256_set1_ps(p.weight_offset);
  const auto value = [&](std::int32_t i) {
    const __m256 w = _mm256_add_ps(load_some(p.weight + i, p.dim - i), offset);
    return _mm256_mul_ps(_mm256_mul_ps(load_some(x + i, p.dim - i), inverse), w);
  };
  if (out != nullptr) {
    for (std::int32_t i = 0; i < p.dim; i += 8) store_some(out + i, p.dim - i, value(i));
  }
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, p.rows, p.dim);
  for (std::int32_t i = 0; i < p.dim; i += kQuantBlock)
    quantise_block(value(i), value(i + 8), value(i + 16), value(i + 24), prepared, r, i / kQuantBlock);
}

void rms_norm(Stream& s, const RmsNormParams& p) {
  parallel_rows(s, p.rows, p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) rms_norm_row(p, r);
  });
}

void silu_mul(Stream& s, const SiluMulParams& p) {
  parallel_rows(s, p.rows, p.dim * 4, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      const float* gate = p.gate + r * p.in_stride;
      const float* up = p.up + r * p.in_stride;
      float* out = p.out + std::int64_t{r} * p.dim;
      for (std::int32_t i = 0; i < p.dim; i += 8) {
        const __m256 v = silu8(load_some(gate + i, p.dim - i));
        store_some(out + i, p.dim - i, _mm256_mul_ps(v, load_some(up + i, p.dim - i)));
      }
    }
  });
}

// --- row statistics --------------------------------------------------------------------------------------

struct Top {
  float max;
  bool any_nan;
};

Top row_max(const float* x, std::int32_t dim) {
  const __m256 none = _mm256_set1_ps(-__builtin_inff());
  __m256 max[2] = {none, none};
  __m256 nan = _mm256_setzero_ps();
  by_lanes(dim, [&](std::int32_t i, std::int32_t count, int half) {
    __m256 v = load_some(x + i, count);
    if (count < 8) v = _mm256_blendv_ps(none, v, _mm256_castsi256_ps(lane_mask(count)));
    max[half] = _mm256_max_ps(v, max[half]);  // a NaN loses
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  });
  return {max8(_mm256_max_ps(max[0], max[1])), _mm256_movemask_ps(nan) != 0};
}

/// The lowest index that equals max (0 and -0 are equal).
std::int32_t first_equal(const float* x, std::int32_t dim, float max) {
  const __m256 m = _mm256_set1_ps(max);
  for (std::int32_t i = 0; i < dim; i += 8) {
    int equal = _mm256_movemask_ps(_mm256_cmp_ps(load_some(x + i, dim - i), m, _CMP_EQ_OQ));
    if (dim - i < 8) equal &= (1 << (dim - i)) - 1;
    if (equal != 0) return i + __builtin_ctz(static_cast<unsigned>(equal));
  }
  return 0;
}

void row_stats_row(const RowStatsParams& p, std::int32_t r) {
  const float* x = p.x + r * p.x_stride;
  const Top top = row_max(x, p.dim);
  const __m256 m = _mm256_set1_ps(top.max);
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  by_lanes(p.dim, [&](std::int32_t i, std::int32_t count, int half) {
    __m256 e = exp8(_mm256_sub_ps(load_some(x + i, count), m));
    if (count < 8) e = _mm256_and_ps(e, _mm256_castsi256_ps(lane_mask(count)));
    lanes[half] = _mm256_add_ps(lanes[half], e);
  });
  const float inf = __builtin_inff();
  const std::int32_t argmax = top.max > -inf ? first_equal(x, p.dim, top.max) : 0;
  p.max[r] = top.max == 0.0f ? x[argmax] : top.max;  // the sign of a zero is that of the first one
  p.argmax[r] = argmax;
  p.logsumexp[r] = log(fold16(lanes[0], lanes[1])) + top.max;
  p.finite[r] = !top.any_nan && top.max > -inf && top.max < inf ? 1 : 0;
}

void row_stats(Stream& s, const RowStatsParams& p) {
  parallel_rows(s, p.rows, p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) row_stats_row(p, r);
  });
}

void linear(Stream& s, const LinearParams& p) {
  if (prepared_form(p.recipe, p.weight.dtype) == Form::kInt8) return linear_int8_avx2(s, p);
  linear_f32_avx2(s, p);
}

void gated_linear(Stream& s, const GatedLinearParams& p) {
  if (prepared_form(p.recipe, p.gate.dtype) == Form::kInt8) return gated_int8_avx2(s, p);
  gated_f32_avx2(s, p);
}

}  // namespace

const OpTable& avx2_ops() {
  static const OpTable kTable = {
      .name = "cpu-avx2",
      .layout_id = kLayoutId,
      .packed_bytes = packed_bytes,
      .pack = pack,
      .prepared_bytes = prepared_bytes,
      .attention_workspace_bytes = attention_workspace_bytes,
      .kv_head_bytes = kv_head_bytes,
      .embed = embed,
      .rms_norm = rms_norm,
      .linear = linear,
      .gated_linear = gated_linear,
      .rope_kv_write = rope_kv_write_avx2,
      .attention = attention_avx2,
      .silu_mul = silu_mul,
      .row_stats = row_stats,
      .gumbel_filter = gumbel_filter_avx2,
      .copy_blocks = copy_blocks,
      .all_reduce = all_reduce,
  };
  return kTable;
}

}  // namespace barg::ops::cpu
