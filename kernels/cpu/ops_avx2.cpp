// The AVX2 back end (with FMA and F16C): the table, and rows of the embedding. Same bits as ops_scalar.cpp.
#include "cpu/avx2.h"
#include "cpu/moe.h"
#include "cpu/philox.h"
// Needs the vector types of the header above.
#include "cpu/row_kernels.h"

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

void gather_pairs(const PackedWeight& w, std::int32_t id, float scale, float* out) {
  const std::byte* src = panel_data(w, id / kPanel) + id % kPanel * 4;
  for (std::int32_t i = 0; i < w.k; ++i)
    out[i] = bf16_to_f32(load_u16(src + std::int64_t{i / 2} * kPanel * 4 + i % 2 * 2)) * scale;
}

void gather_converted(const PackedWeight& w, std::int32_t id, float scale, float* out) {
  const std::byte* block = panel_data(w, id / kPanel);
  for (std::int32_t i = 0; i < w.k; i += kQuantBlock, block += panel_bytes(w.dtype, kQuantBlock)) {
    for (int e = 0; e < kQuantBlock; ++e)
      out[i + e] = converted_weight(w.dtype, PanelWords{block, id % kPanel}, e) * scale;
  }
}

void embed_row(const EmbedParams& p, std::int32_t r) {
  const PackedWeight& w = p.table;
  float* out = p.out + std::int64_t{r} * w.k;
  if (w.packing == Packing::kBF16Pairs) return gather_pairs(w, p.ids[r], p.scale, out);
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
    default:
      return gather_converted(w, p.ids[r], p.scale, out);
  }
}

void embed(Stream& s, const EmbedParams& p) {
  parallel_rows(s, p.rows, p.table.k, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) embed_row(p, r);
  });
}

// --- the table -------------------------------------------------------------------------------------------

void linear(Stream& s, const LinearParams& p) {
  if (p.recipe == Recipe::kBF16) __builtin_trap();  // see recipe_supported
  if (prepared_form(p.recipe, p.weight.dtype) == Form::kInt8) return linear_int8_avx2(s, p);
  linear_f32_avx2(s, p);
}

void gated_linear(Stream& s, const GatedLinearParams& p) {
  if (p.recipe == Recipe::kBF16) __builtin_trap();
  if (prepared_form(p.recipe, p.gate.dtype) == Form::kInt8) return gated_int8_avx2(s, p);
  gated_f32_avx2(s, p);
}

}  // namespace

const OpTable& avx2_ops() {
  static const OpTable kTable = {
      .name = "cpu-avx2",
      .layout_id = kLayoutId,
      .features = kFeatures,
      .stored_type = stored_type,
      .packed_bytes = packed_bytes,
      .pack = pack,
      .prepared_form = prepared_form,
      .prepared_bytes = prepared_bytes,
      .attention_workspace_bytes = attention_workspace_bytes,
      .kv_head_bytes = kv_head_bytes,
      .latent_bytes = latent_bytes,
      .latent_workspace_bytes = latent_workspace_bytes,
      .experts_workspace_bytes = experts_workspace_bytes,
      .stacked_workspace_bytes = stacked_workspace_bytes,
      .embed = embed,
      .rms_norm = run_rms_norm,
      .linear = linear,
      .gated_linear = gated_linear,
      .rope_kv_write = rope_kv_write_avx2,
      .attention = attention_avx2,
      .gate_mul = run_gate_mul,
      .norm = run_norm,
      .add_scaled = run_add_scaled,
      .scale_rows = run_scale_rows,
      .scale_logits = run_scale_logits,
      .route = route_avx2,
      .experts = experts_avx2,
      .row_gate = row_gate_avx2,
      .stacked_linear = stacked_linear_avx2,
      .latent_write = latent_write_avx2,
      .latent_attention = latent_attention_avx2,
      .sigmoid_mul = sigmoid_mul_avx2,
      .conv1d = conv1d_avx2,
      .delta_net = delta_net_avx2,
      .mamba2 = mamba2_avx2,
      .gated_norm = gated_norm_avx2,
      .predict_streams = predict_streams_avx2,
      .correct_streams = correct_streams_avx2,
      .match_magnitude = match_magnitude_avx2,
      .cut_gate = cut_gate_avx2,
      .row_stats = run_row_stats,
      .gumbel_filter = gumbel_filter_avx2,
      .gather_columns = gather_columns,
      .rope_angles = rope_angles,
      .keep_rows = keep_rows,
      .copy_blocks = copy_blocks,
      .all_reduce = all_reduce,
  };
  return kTable;
}

}  // namespace barg::ops::cpu
