// Byte layouts of the CPU back end: packed weights, quantised activations, KV planes.
//
// Weights. A panel is 16 output columns (rows of the file's matrix; n is padded to 16 with zero bytes),
// panels follow one another, and inside a panel K runs sequentially, so one output is one chain whatever the
// batch:
//
//   f32, f16, bf16   [k][16]
//   per block of 32 k:
//   q8_0             [16] f16 scale,                [8][16][4] s8       unit (g, c): elements 4g .. 4g+3
//   q4_0             [16] f16 scale,                [4][16][4] bytes    low nibbles: units g,
//   q4_1             [16] f16 scale, [16] f16 min,  [4][16][4] bytes    high nibbles: units g + 4
//   converted        [words of the block (ops.h)][16] u32
//
// The number of bytes is that of the file, so packing costs no memory traffic.
//
// Any type as Packing::kBF16Pairs: [(k + 1) / 2][16][2] bf16, elements 2i and 2i + 1 side by side; an odd k
// ends with a zero. Rows for it: [rows][(k + 1) / 2][2] bf16.
//
// KV planes of one head in one block of B tokens: K transposed, [D][B], so that vector lanes are keys; V is
// [B][D], so that lanes are head dimensions. Of fp8 and int8 these are codes of one byte, and each plane ends
// with its scales, [B] f32.
//
// Everything here is static: see math.h. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/blocks.h"
#include "math.h"
#include "ops.h"

namespace barg::ops::cpu {

inline constexpr int kPanel = 16;       ///< columns of a panel
inline constexpr int kQuantBlock = 32;  ///< weights per scale
inline constexpr int kHalfBlock = 16;   ///< activations per scale: two for each block of weights
inline constexpr int kMaxHeadDim = 512;
inline constexpr const char* kLayoutId = "cpu-k_dt-v_td-1";
inline constexpr std::uint32_t kFeatures = kFeatureHostMemory | kFeatureLayerNorm | kFeatureLogitScale | kFeatureNorms | kFeatureActivations | kFeatureSoftcap |
                                           kFeatureExperts | kFeatureLatent | kFeatureSinks |
                                           kFeatureRecurrent | kFeatureStreams | kFeatureEncoders;

static constexpr bool is_quantised(DType t) { return block_elements(t) == kQuantBlock; }

static constexpr int num_panels(std::int32_t n) { return (n + kPanel - 1) / kPanel; }

/// Bytes of `k` consecutive k of one panel; k is a multiple of the block size.
static constexpr std::size_t panel_bytes(DType t, std::int32_t k) {
  if (has_token_scales(t)) return 0;  // no weights
  return block_bytes(t) * kPanel * (static_cast<std::size_t>(k) / block_elements(t));
}

static constexpr std::int32_t num_pairs(std::int32_t k) { return k / 2 + k % 2; }

/// Bytes of a whole panel.
static constexpr std::size_t panel_bytes(DType t, std::int32_t k, Packing packing) {
  return packing == Packing::kStored ? panel_bytes(t, k) : std::size_t{4} * kPanel * num_pairs(k);
}

static inline const std::byte* panel_data(const PackedWeight& w, int panel) {
  return static_cast<const std::byte*>(w.data) + panel_bytes(w.dtype, w.k, w.packing) * panel;
}

static inline std::uint16_t load_u16(const std::byte* p) {
  std::uint16_t v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

/// Activations of recipe int8 as `linear` keeps them in its workspace: five arrays over rows.
struct QuantisedRows {
  std::int8_t* q;     ///< [rows][k], each in -127 .. 127
  std::int16_t* q16;  ///< [rows][k], the same numbers; a back end may leave it unused
  float* scale;       ///< [rows][k / 16]
  std::int32_t* sum;  ///< [rows][k / 16], sum of q over the half block
  float* scaled_sum;  ///< [rows][k / 32], fma(scale1, float(sum1), scale0 * float(sum0)) of a block's halves
  std::int32_t k;

  const std::int8_t* row_q(std::int64_t row) const { return q + row * k; }
  std::int64_t block(std::int64_t row, int b) const { return row * (k / kQuantBlock) + b; }
  std::int64_t half(std::int64_t row, int b) const { return row * (k / kHalfBlock) + 2 * b; }
};

static constexpr std::size_t align64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

static constexpr std::size_t quantised_rows_bytes(std::int64_t rows, std::int32_t k) {
  const auto blocks = static_cast<std::size_t>(rows) * ((k + kQuantBlock - 1) / kQuantBlock);
  return align64(blocks * kQuantBlock) + align64(blocks * kQuantBlock * 2) + 2 * align64(blocks * 8) +
         align64(blocks * 4);
}

static inline QuantisedRows quantised_rows(void* workspace, std::int64_t rows, std::int32_t k) {
  auto* bytes = static_cast<std::byte*>(workspace);
  const auto blocks = static_cast<std::size_t>(rows) * (k / kQuantBlock);
  QuantisedRows out{};
  out.k = k;
  out.q = reinterpret_cast<std::int8_t*>(bytes);
  bytes += align64(blocks * kQuantBlock);
  out.q16 = reinterpret_cast<std::int16_t*>(bytes);
  bytes += align64(blocks * kQuantBlock * 2);
  out.scale = reinterpret_cast<float*>(bytes);
  bytes += align64(blocks * 8);
  out.sum = reinterpret_cast<std::int32_t*>(bytes);
  bytes += align64(blocks * 8);
  out.scaled_sum = reinterpret_cast<float*>(bytes);
  return out;
}

static constexpr std::size_t bf16_rows_bytes(std::int64_t rows, std::int32_t k) {
  return align64(static_cast<std::size_t>(rows) * num_pairs(k) * 4);
}

/// Of an element of K or V.
static constexpr std::size_t element_bytes(DType kv_type) {
  return kv_type == DType::kF32 ? 4 : has_token_scales(kv_type) ? 1 : 2;
}

/// How a token's K or V of one head becomes codes: stored in `scale`, code = round(x * inverse).
struct TokenScale {
  float scale, inverse;
};

/// The largest code.
static constexpr float code_limit(DType t) { return t == DType::kF8E4M3 ? 448.0f : 127.0f; }

/// What kernels multiply the stored scale with, because of the unit in which they read codes.
static constexpr float code_unit(DType t) { return t == DType::kF8E4M3 ? 256.0f : 1.0f; }

/// d = max |x| / limit, from the largest of the magnitudes' bits. So small a maximum that d is not a normal
/// number counts as zero. With a NaN or an infinity among the x the scale is NaN: then so is every score, or
/// every weighted value, of whoever reads the token.
static inline TokenScale token_scale(DType t, std::uint32_t max_bits) {
  if (max_bits >= 0x7f800000u) return {bits_float(0x7fc00000u), 0.0f};
  const float d = bits_float(max_bits) / code_limit(t);
  if (d < 1.17549435e-38f) return {0.0f, 0.0f};
  return {d, 1.0f / d};
}

/// Bytes from a plane of codes to its scales.
static constexpr std::int64_t scales_offset(const KvLayerView& kv) {
  return std::int64_t{kv.block_tokens} * kv.head_dim;
}

/// Start of the K plane of `head` in physical block `block`; the V plane is v_offset bytes further.
static inline std::byte* kv_plane(const KvLayerView& kv, BlockId block, std::int32_t head) {
  return kv.base + static_cast<std::int64_t>(block) * kv.block_stride + head * kv.head_stride;
}

/// The norm of whole, dense rows.
static constexpr NormParams whole_rows(const RmsNormParams& p) {
  return {.kind = NormKind::kRms,
          .x = p.x,
          .x_stride = p.dim,
          .weight = p.weight,
          .weight_stride = 0,
          .bias = nullptr,
          .weight_offset = p.weight_offset,
          .eps = p.eps,
          .rows = p.rows,
          .groups = 1,
          .dim = p.dim,
          .out = p.out,
          .out_stride = p.dim,
          .prepared = p.prepared};
}

static constexpr std::int64_t up_stride(const GateMulParams& p) {
  return p.up_stride != 0 ? p.up_stride : p.in_stride;
}

// Operations without arithmetic: one copy serves every table (common.cpp, pack.cpp, attention.cpp).
std::size_t packed_bytes(DType type, std::int32_t n, std::int32_t k, Packing packing);
void pack(Stream& stream, const PackParams& p);
DType stored_type(const char* name, DType converted);
Form prepared_form(Recipe recipe, DType weight);
std::size_t prepared_bytes(std::int32_t rows, std::int32_t k, Recipe recipe);
std::size_t attention_workspace_bytes(std::int32_t rows, std::int32_t num_q_heads, std::int32_t head_dim);
std::size_t kv_head_bytes(DType type, std::int32_t block_tokens, std::int32_t head_dim);
void gather_columns(Stream& stream, const GatherColumnsParams& p);
void rope_angles(Stream& stream, const RopeAnglesParams& p);
void keep_rows(Stream& stream, const KeepRowsParams& p);
void copy_blocks(Stream& stream, const BlockCopyParams& p);
void all_reduce(Stream& stream, const AllReduceParams& p);

// Recurrent mixers (recurrent_*.cpp).
void sigmoid_mul_scalar(Stream& stream, const SigmoidMulParams& p);
void conv1d_scalar(Stream& stream, const Conv1dParams& p);
void delta_net_scalar(Stream& stream, const DeltaNetParams& p);
void mamba2_scalar(Stream& stream, const Mamba2Params& p);
void gated_norm_scalar(Stream& stream, const GatedNormParams& p);
void sigmoid_mul_avx2(Stream& stream, const SigmoidMulParams& p);
void conv1d_avx2(Stream& stream, const Conv1dParams& p);
void delta_net_avx2(Stream& stream, const DeltaNetParams& p);
void mamba2_avx2(Stream& stream, const Mamba2Params& p);
void gated_norm_avx2(Stream& stream, const GatedNormParams& p);
void sigmoid_mul_avx512(Stream& stream, const SigmoidMulParams& p);
void conv1d_avx512(Stream& stream, const Conv1dParams& p);
void delta_net_avx512(Stream& stream, const DeltaNetParams& p);
void mamba2_avx512(Stream& stream, const Mamba2Params& p);
void gated_norm_avx512(Stream& stream, const GatedNormParams& p);

// Streams and gates that are cut (streams_*.cpp).
void predict_streams_scalar(Stream& stream, const PredictStreamsParams& p);
void correct_streams_scalar(Stream& stream, const CorrectStreamsParams& p);
void match_magnitude_scalar(Stream& stream, const MatchMagnitudeParams& p);
void cut_gate_scalar(Stream& stream, const CutGateParams& p);
void predict_streams_avx2(Stream& stream, const PredictStreamsParams& p);
void correct_streams_avx2(Stream& stream, const CorrectStreamsParams& p);
void match_magnitude_avx2(Stream& stream, const MatchMagnitudeParams& p);
void cut_gate_avx2(Stream& stream, const CutGateParams& p);
void predict_streams_avx512(Stream& stream, const PredictStreamsParams& p);
void correct_streams_avx512(Stream& stream, const CorrectStreamsParams& p);
void match_magnitude_avx512(Stream& stream, const MatchMagnitudeParams& p);
void cut_gate_avx512(Stream& stream, const CutGateParams& p);

const OpTable& scalar_ops();
const OpTable& avx2_ops();
const OpTable& avx512_ops();

}  // namespace barg::ops::cpu
