// The scalar back end: the specification. Every other table must return these bits, so this file states the
// order of every rounding and is written to be read, not to be fast. It runs on any x86-64.
//
// Notation: fma(a, b, c) rounds once; every other operation rounds by itself, in the order written.
#include <cstring>

#include "cpu/attention.h"
#include "cpu/layout.h"
#include "cpu/moe.h"
#include "cpu/philox.h"
#include "cpu/pool.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

template <class F>
void parallel_for(Stream& s, int items, F&& f) {
  s.pool.run(
      items, [](void* context, int i) { (*static_cast<F*>(context))(i); }, &f);
}

float minus_infinity() { return -__builtin_inff(); }
bool is_nan(float x) { return x != x; }

// --- weights ---------------------------------------------------------------------------------------------

/// Quantised integer of element e (0 .. 31), column c of a packed block: q8_0 the byte, q4_1 the nibble,
/// q4_0 the nibble - 8.
int quantised_element(DType type, const std::byte* block, int e, int c) {
  if (is_converted(type)) return converted_code(type, PanelWords{block, c}, e);
  const int fields = type == DType::kQ4_1 ? 2 : 1;
  const std::byte* units = block + fields * kPanel * 2;
  if (type == DType::kQ8_0) return static_cast<std::int8_t>(units[(e / 4 * kPanel + c) * 4 + e % 4]);
  const int low = e % 16;
  const auto byte = static_cast<unsigned>(units[(low / 4 * kPanel + c) * 4 + low % 4]);
  const int nibble = static_cast<int>(e < 16 ? byte & 15u : byte >> 4);
  return type == DType::kQ4_0 ? nibble - 8 : nibble;
}

float block_scale(DType type, const std::byte* block, int c, int half) {
  if (is_converted(type)) return converted_scale(type, PanelWords{block, c}, half);
  return f16_to_f32(load_u16(block + c * 2));
}
float block_minimum(DType type, const std::byte* block, int c, int half) {
  if (is_converted(type)) return converted_minimum(type, PanelWords{block, c}, half);
  return f16_to_f32(load_u16(block + (kPanel + c) * 2));
}

/// Weight (k, column c) of a panel as f32. Quantised: d * q, or d * q + m with two roundings (ggml's values).
float weight_at(DType type, const std::byte* panel, std::int32_t k, int c) {
  if (type == DType::kF32) {
    float v;
    std::memcpy(&v, panel + (std::int64_t{k} * kPanel + c) * 4, 4);
    return v;
  }
  if (type == DType::kF16) return f16_to_f32(load_u16(panel + (std::int64_t{k} * kPanel + c) * 2));
  if (type == DType::kBF16) return bf16_to_f32(load_u16(panel + (std::int64_t{k} * kPanel + c) * 2));
  const std::byte* block = panel + panel_bytes(type, k / kQuantBlock * kQuantBlock);
  if (is_converted(type)) return converted_weight(type, PanelWords{block, c}, k % kQuantBlock);
  const auto q = static_cast<float>(quantised_element(type, block, k % kQuantBlock, c));
  const float scaled = block_scale(type, block, c, 0) * q;
  return type == DType::kQ4_1 ? scaled + block_minimum(type, block, c, 0) : scaled;
}

/// Weight (k, column c) of a panel of bf16 pairs; k may be one more than there are, a zero then.
float paired_weight(const std::byte* panel, std::int32_t k, int c) {
  return bf16_to_f32(load_u16(panel + (std::int64_t{k / 2} * kPanel + c) * 4 + k % 2 * 2));
}

void embed(Stream&, const EmbedParams& p) {
  const PackedWeight& w = p.table;
  for (std::int32_t r = 0; r < p.rows; ++r) {
    const std::byte* panel = panel_data(w, p.ids[r] / kPanel);
    const int c = p.ids[r] % kPanel;
    float* out = p.out + std::int64_t{r} * w.k;
    for (std::int32_t i = 0; i < w.k; ++i) {
      const bool pairs = w.packing == Packing::kBF16Pairs;
      out[i] = (pairs ? paired_weight(panel, i, c) : weight_at(w.dtype, panel, i, c)) * p.scale;
    }
  }
}

// --- linear ----------------------------------------------------------------------------------------------

/// Recipe f32: acc = 0; acc = fma(x[k], W[n, k], acc) for k = 0, 1, 2, ...
float f32_dot(const PackedWeight& w, int n, const float* x) {
  const std::byte* panel = panel_data(w, n / kPanel);
  float acc = 0.0f;
  for (std::int32_t k = 0; k < w.k; ++k) acc = fma(x[k], weight_at(w.dtype, panel, k, n % kPanel), acc);
  return acc;
}

/// x, or a zero of its sign where |x| is below the normal range.
float normal_or_zero(float x) {
  const std::uint32_t bits = float_bits(x);
  return (bits & 0x7f800000u) == 0 ? bits_float(bits & 0x80000000u) : x;
}

/// fma(a, b, acc) as vdpbf16ps computes it: an operand below the normal range is a zero, and so is a result
/// that lies below it when rounded to 24 bits with no end to the exponents. REQUIRES acc normal or zero.
float bf16_fma(float a, float b, float acc) {
  a = normal_or_zero(a);
  b = normal_or_zero(b);
  const float v = fma(a, b, acc);
  if (!(__builtin_fabsf(v) <= 1.17549435e-38f)) return v;
  constexpr float kScale = 18446744073709551616.0f;  // 2^64: far from both ends of the exponents
  const float wide = fma(a * kScale, b, acc * kScale);
  if (!(__builtin_fabsf(wide) < 1.17549435e-38f * kScale)) return v;
  return bits_float(float_bits(wide) & 0x80000000u);
}

/// Recipe bf16: acc = 0; for i = 0, 2, 4, ...: acc = fma(x[i], W[n, i], fma(x[i + 1], W[n, i + 1], acc)) by
/// bf16_fma; of an odd k the last pair ends with zeros. `x` is a row that bf16_row has rounded.
float bf16_dot(const PackedWeight& w, int n, const std::uint16_t* x) {
  const std::byte* panel = panel_data(w, n / kPanel);
  const int c = n % kPanel;
  float acc = 0.0f;
  for (std::int32_t i = 0; i < w.k; i += 2) {
    acc = bf16_fma(bf16_to_f32(x[i + 1]), paired_weight(panel, i + 1, c), acc);
    acc = bf16_fma(bf16_to_f32(x[i]), paired_weight(panel, i, c), acc);
  }
  return acc;
}

/// A row of `k` activations as bf16, and a zero after an odd k. Below the normal range: zeros.
void bf16_row(const float* x, std::int32_t k, std::uint16_t* out) {
  for (std::int32_t i = 0; i < k; ++i) out[i] = f32_to_bf16(normal_or_zero(x[i]));
  if (k % 2 != 0) out[k] = 0;
}

/// Half a block, 16 activations: d = max |x| / 127; q = round_half_even(x * (1 / d)) clamped to +-127.
/// A maximum so small that d is not a normal number counts as zero; a NaN or inf makes d NaN or inf, so that
/// the outputs are not finite either.
void quantise_half(const float* x, std::int8_t* q, float& scale, std::int32_t& q_sum) {
  std::uint32_t max_bits = 0;  // magnitudes compare like integers, and a NaN is above them all
  for (int i = 0; i < kHalfBlock; ++i) {
    const std::uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  float d = bits_float(max_bits) / 127.0f;
  float inverse = 1.0f / d;
  if (d < 1.17549435e-38f) d = inverse = 0.0f;
  std::int32_t sum = 0;
  for (int i = 0; i < kHalfBlock; ++i) {
    float t = x[i] * inverse;
    t = t < 127.0f ? t : 127.0f;  // NaN gives 127
    t = t > -127.0f ? t : -127.0f;
    q[i] = static_cast<std::int8_t>((t + math::kRound) - math::kRound);
    sum += q[i];
  }
  scale = d;
  q_sum = sum;
}

void quantise_block(const float* x, const QuantisedRows& out, std::int64_t row, int b) {
  std::int8_t* q = out.q + row * out.k + b * kQuantBlock;
  float* d = out.scale + out.half(row, b);
  std::int32_t* sum = out.sum + out.half(row, b);
  for (int h = 0; h < 2; ++h) quantise_half(x + h * kHalfBlock, q + h * kHalfBlock, d[h], sum[h]);
  out.scaled_sum[out.block(row, b)] =
      fma(d[1], static_cast<float>(sum[1]), d[0] * static_cast<float>(sum[0]));
}

/// Recipe int8: per block of 32 weights, in order, with s0 and s1 the exact integer sums of w q over its
/// halves (w of q4_0 is nibble - 8) and d0 and d1 the halves' activation scales:
///   t = fma(float(s1), d1, float(s0) * d0);  acc = fma(d_w, t, acc)
///   with a minimum: then acc = fma(m_w, scaled_sum, acc)
/// and at the end + bias. Where the halves have scales (and minima) of their own, for h = 0, 1:
///   acc = fma(d_w[h], float(s_h) * d_h, acc)
///   with minima: then acc = fma(m_w[h], float(the half's sum of q) * d_h, acc)
float int8_dot(const PackedWeight& w, int n, const QuantisedRows& x, std::int64_t row) {
  const std::byte* panel = panel_data(w, n / kPanel);
  const int c = n % kPanel;
  float acc = 0.0f;
  for (int b = 0; b < w.k / kQuantBlock; ++b) {
    const std::byte* block = panel + panel_bytes(w.dtype, b * kQuantBlock);
    const std::int8_t* q = x.row_q(row) + b * kQuantBlock;
    std::int32_t sum[2] = {0, 0};
    for (int e = 0; e < kQuantBlock; ++e)
      sum[e / kHalfBlock] += quantised_element(w.dtype, block, e, c) * q[e];
    const float* d = x.scale + x.half(row, b);
    for (int h = 0; h < 2 && per_16(w.dtype); ++h) {
      acc = fma(block_scale(w.dtype, block, c, h), static_cast<float>(sum[h]) * d[h], acc);
      const auto q_sum = static_cast<float>(x.sum[x.half(row, b) + h]);
      if (has_minimum(w.dtype)) acc = fma(block_minimum(w.dtype, block, c, h), q_sum * d[h], acc);
    }
    if (per_16(w.dtype)) continue;
    const float t = fma(static_cast<float>(sum[1]), d[1], static_cast<float>(sum[0]) * d[0]);
    acc = fma(block_scale(w.dtype, block, c, 0), t, acc);
    if (has_minimum(w.dtype))
      acc = fma(block_minimum(w.dtype, block, c, 0), x.scaled_sum[x.block(row, b)], acc);
  }
  return acc;
}

/// One row of activations in Form::kInt8.
void prepare_row(const float* x, const QuantisedRows& out, std::int64_t row) {
  for (int b = 0; b < out.k / kQuantBlock; ++b) quantise_block(x + b * kQuantBlock, out, row, b);
}

/// The rows a matrix product reads: as they are, quantised (by somebody before, or here), or rounded to bf16.
struct Input {
  Form form;
  const float* x;
  std::int64_t x_stride;
  QuantisedRows q;
  const std::uint16_t* bf16;

  float dot(const PackedWeight& w, int n, std::int64_t row) const {
    if (bf16 != nullptr) return bf16_dot(w, n, bf16 + row * 2 * num_pairs(w.k));
    return form == Form::kInt8 ? int8_dot(w, n, q, row) : f32_dot(w, n, x + row * x_stride);
  }
};

template <class Params>
Input linear_input(const Params& p, const PackedWeight& w) {
  Input in{prepared_form(p.recipe, w.dtype), p.x, p.x_stride, {}, nullptr};
  if (p.recipe == Recipe::kBF16) {
    auto* rows = static_cast<std::uint16_t*>(p.workspace);
    for (std::int32_t r = 0; r < p.rows; ++r)
      bf16_row(p.x + r * p.x_stride, w.k, rows + std::int64_t{r} * 2 * num_pairs(w.k));
    in.bf16 = rows;
    return in;
  }
  if (in.form == Form::kF32) return in;
  if (p.prepared != nullptr) {
    in.q = quantised_rows(const_cast<void*>(p.prepared), p.rows, w.k);
    return in;
  }
  in.q = quantised_rows(p.workspace, p.rows, w.k);
  for (std::int32_t r = 0; r < p.rows; ++r) prepare_row(p.x + r * p.x_stride, in.q, r);
  return in;
}

/// The first of the largest of each 64 of a row, or the first NaN.
void block_maxima(const float* x, std::int32_t dim, float* maxima) {
  for (std::int32_t b = 0; b < (dim + kBlockMax - 1) / kBlockMax; ++b) {
    float max = minus_infinity();
    for (std::int32_t n = b * kBlockMax; n < (b + 1) * kBlockMax && n < dim; ++n) {
      if (x[n] > max || is_nan(x[n])) max = x[n];
      if (is_nan(max)) break;
    }
    maxima[b] = max;
  }
}

/// out = v or out + v, v = the dot product + bias.
void linear(Stream& s, const LinearParams& p) {
  const PackedWeight& w = p.weight;
  const Input in = linear_input(p, w);
  parallel_for(s, num_panels(w.n), [&](int panel) {
    for (int n = panel * kPanel; n < (panel + 1) * kPanel && n < w.n; ++n) {
      for (std::int32_t r = 0; r < p.rows; ++r) {
        float v = in.dot(w, n, r);
        if (p.bias != nullptr) v = v + p.bias[n];
        float& out = p.out[r * p.out_stride + n];
        out = p.accumulate ? out + v : v;
      }
    }
  });
  if (p.block_max == nullptr) return;
  const std::int32_t blocks = (w.n + kBlockMax - 1) / kBlockMax;
  for (std::int32_t r = 0; r < p.rows; ++r)
    block_maxima(p.out + r * p.out_stride, w.n, p.block_max + std::int64_t{r} * blocks);
}

float activate(Activation activation, float x) {
  if (activation == Activation::kSilu) return silu(x);
  return activation == Activation::kGeluTanh ? gelu_tanh(x) : gelu_erf(x);
}

void gated_linear(Stream& s, const GatedLinearParams& p) {
  const Input in = linear_input(p, p.gate);
  const std::int32_t dim = p.gate.n;
  QuantisedRows prepared{};
  if (p.prepared_out != nullptr) prepared = quantised_rows(p.prepared_out, p.rows, dim);
  parallel_for(s, (dim + kQuantBlock - 1) / kQuantBlock, [&](int b) {
    for (std::int32_t r = 0; r < p.rows; ++r) {
      float v[kQuantBlock];
      for (int n = b * kQuantBlock; n < (b + 1) * kQuantBlock && n < dim; ++n) {
        float g = in.dot(p.gate, n, r);
        float u = in.dot(p.up, n, r);
        if (p.gate_bias != nullptr) g = g + p.gate_bias[n];
        if (p.up_bias != nullptr) u = u + p.up_bias[n];
        v[n % kQuantBlock] = activate(p.activation, g) * u;
        if (p.out != nullptr) p.out[std::int64_t{r} * dim + n] = v[n % kQuantBlock];
      }
      if (p.prepared_out != nullptr) quantise_block(v, prepared, r, b);
    }
  });
}

// --- rows ------------------------------------------------------------------------------------------------

/// The mean of kLayer: the sum over 16 lanes / dim. kRms has 0 in its place.
float norm_mean(const NormParams& p, const float* x) {
  if (p.kind == NormKind::kRms) return 0.0f;
  float lanes[kLanes] = {};
  for (std::int32_t i = 0; i < p.dim; ++i) lanes[i % kLanes] += x[i];
  return fold_lanes(lanes) / static_cast<float>(p.dim);
}

/// c = x - mean; the sum of its squares over 16 lanes by fma; inverse = 1 / sqrt(sum / dim + eps);
/// out = (c * inverse) * (weight + offset) (+ bias).
void norm_part(const NormParams& p, std::int32_t r, std::int32_t g) {
  const float* x = p.x + r * p.x_stride + std::int64_t{g} * p.dim;
  const float* weight = p.weight + g * p.weight_stride;
  const float mean = norm_mean(p, x);
  float lanes[kLanes] = {};
  for (std::int32_t i = 0; i < p.dim; ++i)
    lanes[i % kLanes] = fma(x[i] - mean, x[i] - mean, lanes[i % kLanes]);
  const float inverse = 1.0f / __builtin_sqrtf(fold_lanes(lanes) / static_cast<float>(p.dim) + p.eps);
  const auto value = [&](std::int32_t i) {
    const float v = ((x[i] - mean) * inverse) * (weight[i] + p.weight_offset);
    return p.bias != nullptr ? v + p.bias[i] : v;
  };
  float* out = p.out + r * p.out_stride + std::int64_t{g} * p.dim;
  for (std::int32_t i = 0; p.out != nullptr && i < p.dim; ++i) out[i] = value(i);
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, p.rows, p.dim);
  for (int b = 0; b < p.dim / kQuantBlock; ++b) {
    float v[kQuantBlock];
    for (int i = 0; i < kQuantBlock; ++i) v[i] = value(b * kQuantBlock + i);
    quantise_block(v, prepared, r, b);
  }
}

void norm(Stream&, const NormParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    for (std::int32_t g = 0; g < p.groups; ++g) norm_part(p, r, g);
  }
}

void rms_norm(Stream& s, const RmsNormParams& p) { norm(s, whole_rows(p)); }

void gate_mul(Stream&, const GateMulParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    for (std::int32_t i = 0; i < p.dim; ++i) {
      const float gate = activate(p.activation, p.gate[r * p.in_stride + i] * p.gate_scale);
      p.out[std::int64_t{r} * p.dim + i] = p.up == nullptr ? gate : gate * p.up[r * up_stride(p) + i];
    }
  }
}

void add_scaled(Stream&, const AddScaledParams& p) {
  for (std::int64_t i = 0; i < p.count; ++i) p.x[i] = fma(p.y[i], p.scale, p.x[i]);
}

void scale_rows(Stream&, const ScaleRowsParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    for (std::int32_t i = 0; i < p.dim; ++i) p.x[r * p.x_stride + i] = p.x[r * p.x_stride + i] * p.scales[r];
  }
}

/// tanh(v * inverse) * cap, inverse = 1 / cap.
float soft_capped(float v, float cap) { return tanh(v * (1.0f / cap)) * cap; }

void scale_logits(Stream&, const ScaleLogitsParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    float* x = p.x + r * p.x_stride;
    for (std::int32_t i = 0; i < p.dim; ++i) {
      x[i] = x[i] * p.scale;
      if (p.softcap > 0.0f) x[i] = soft_capped(x[i], p.softcap);
    }
    if (p.block_max != nullptr)
      block_maxima(x, p.dim, p.block_max + std::int64_t{r} * ((p.dim + kBlockMax - 1) / kBlockMax));
  }
}

/// logsumexp = log(sum over 16 lanes of exp(x - max)) + max.
void row_stats(Stream&, const RowStatsParams& p) {
  for (std::int32_t r = 0; r < p.rows; ++r) {
    const float* x = p.x + r * p.x_stride;
    float max = minus_infinity();
    std::int32_t argmax = 0;
    bool valid = true;
    for (std::int32_t i = 0; i < p.dim; ++i) {
      if (is_nan(x[i])) valid = false;
      if (x[i] > max) {
        max = x[i];
        argmax = i;
      }
    }
    valid = valid && max > minus_infinity() && max < -minus_infinity();
    float lanes[kLanes] = {};
    for (std::int32_t i = 0; i < p.dim; ++i) lanes[i % kLanes] += exp(x[i] - max);
    p.max[r] = max;
    p.argmax[r] = argmax;
    p.logsumexp[r] = log(fold_lanes(lanes)) + max;
    p.finite[r] = valid ? 1 : 0;
  }
}

// --- attention -------------------------------------------------------------------------------------------

/// An element, or a code in the kernels' unit.
float kv_load(DType type, const std::byte* plane, std::int64_t index) {
  if (type == DType::kF8E4M3) return f8_to_f32_256th(static_cast<std::uint8_t>(plane[index]));
  if (type == DType::kI8) return static_cast<std::int8_t>(plane[index]);
  if (type == DType::kF16) return f16_to_f32(load_u16(plane + index * 2));
  if (type == DType::kBF16) return bf16_to_f32(load_u16(plane + index * 2));
  float v;
  std::memcpy(&v, plane + index * 4, 4);
  return v;
}

void kv_store(DType type, std::byte* plane, std::int64_t index, float v) {
  if (type == DType::kF32) {
    std::memcpy(plane + index * 4, &v, 4);
    return;
  }
  const std::uint16_t h = type == DType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
  std::memcpy(plane + index * 2, &h, 2);
}

/// What the scores of a key, or the weights of a value, are multiplied with.
float kv_scale(const KvLayerView& kv, const std::byte* plane, std::int32_t slot) {
  float scale;
  std::memcpy(&scale, plane + scales_offset(kv) + slot * 4, 4);
  return scale * code_unit(kv.dtype);
}

/// K (stride: the block's tokens) or V (stride 1) of one token and head: number d goes to index + d * stride.
/// Codes: the scale from token_scale; t = x * inverse; the code is t rounded half to even, within the limit.
void kv_store_token(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* x,
                    std::int64_t index, std::int64_t stride) {
  if (!has_token_scales(kv.dtype)) {
    for (std::int32_t d = 0; d < kv.head_dim; ++d) kv_store(kv.dtype, plane, index + d * stride, x[d]);
    return;
  }
  std::uint32_t max_bits = 0;  // magnitudes compare like integers, and a NaN is above them all
  for (std::int32_t d = 0; d < kv.head_dim; ++d) {
    const std::uint32_t bits = float_bits(x[d]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const TokenScale scale = token_scale(kv.dtype, max_bits);
  std::memcpy(plane + scales_offset(kv) + slot * 4, &scale.scale, 4);
  for (std::int32_t d = 0; d < kv.head_dim; ++d) {
    std::uint8_t code = 0;
    if (scale.inverse != 0.0f) {
      float t = x[d] * scale.inverse;
      const float limit = code_limit(kv.dtype);
      t = t < limit ? t : limit;
      t = t > -limit ? t : -limit;
      code = kv.dtype == DType::kF8E4M3
                 ? f32_to_f8(t)
                 : static_cast<std::uint8_t>(static_cast<std::int8_t>((t + math::kRound) - math::kRound));
    }
    plane[index + d * stride] = static_cast<std::byte>(code);
  }
}

/// Pairs (i, i + half): a' = a cos - b sin, b' = b cos + a sin, both products rounded.
void rotate(float* x, const float* cos, const float* sin, std::int32_t half) {
  for (std::int32_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

void rope_kv_write(Stream&, const RopeKvParams& p) {
  const KvLayerView& kv = p.kv;
  const std::int32_t dim = kv.head_dim;
  const std::int32_t half = p.rotary_dim / 2;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const Segment& segment = p.segments[s];
    for (std::int32_t i = 0; i < segment.row_count; ++i) {
      const std::int64_t row = segment.row_begin + i;
      const std::int32_t position = segment.pos_begin + i;
      const BlockId block = segment.block_table[position / kv.block_tokens];
      const std::int32_t slot = position % kv.block_tokens;
      const float* cos = p.cos + row * half;
      const float* sin = p.sin + row * half;
      for (std::int32_t h = 0; h < p.num_q_heads; ++h)
        rotate(p.q + row * p.q_stride + h * dim, cos, sin, half);
      for (std::int32_t h = 0; h < kv.num_kv_heads; ++h) {
        float* k = p.k + row * p.kv_stride + h * dim;
        const float* v = p.v + row * p.kv_stride + h * dim;
        rotate(k, cos, sin, half);
        std::byte* k_plane = kv_plane(kv, block, h);
        std::byte* v_plane = k_plane + kv.v_offset;
        kv_store_token(kv, k_plane, slot, k, slot, kv.block_tokens);
        kv_store_token(kv, v_plane, slot, v, std::int64_t{slot} * dim, 1);
      }
    }
  }
}

/// One (row, head): what it has seen so far, as a softmax relative to `max`.
struct Partial {
  float max = minus_infinity();
  float sum = 0.0f;
  float acc[kMaxHeadDim] = {};
};

struct Query {
  const float* q;
  std::int32_t first, last;  ///< visible keys, inclusive
  const BlockId* block_table;
  std::int32_t kv_head;
};

/// Keys [begin, end) of one split, tile after tile. In a tile: scores = (chain of fma over d) * scale; the
/// running maximum moves; c = exp(old max - new max); e_j = exp(score_j - new max), 0 where masked;
/// lane l of the sum = fma(lane, c, e_l + e_(l+16)); acc = acc * c, then fma(e_j, v_j, acc) over visible keys
/// in ascending order. Key j of the tile belongs to lane j % 16. Where K and V are codes, a score is
/// ((chain over codes) * the key's scale) * scale, and a weight is (e_j * the value's scale).
Partial attend_split(const AttentionParams& p, const Query& query, std::int32_t begin, std::int32_t end) {
  const KvLayerView& kv = p.kv;
  Partial out;
  float lanes[kLanes] = {};
  for (std::int32_t tile = begin; tile < end; tile += kTileKeys) {
    const std::int32_t from = tile > query.first ? tile : query.first;
    const std::int32_t to = tile + kTileKeys - 1 < query.last ? tile + kTileKeys - 1 : query.last;
    if (from > to) continue;
    float e[kTileKeys] = {};
    float max = out.max;
    for (std::int32_t j = from; j <= to; ++j) {
      const std::byte* plane = kv_plane(kv, query.block_table[j / kv.block_tokens], query.kv_head);
      const std::int32_t slot = j % kv.block_tokens;
      float dot = 0.0f;
      for (std::int32_t d = 0; d < kv.head_dim; ++d) {
        dot = fma(query.q[d], kv_load(kv.dtype, plane, std::int64_t{d} * kv.block_tokens + slot), dot);
      }
      if (has_token_scales(kv.dtype)) dot = dot * kv_scale(kv, plane, slot);
      e[j - tile] = dot * p.scale;
      if (p.softcap > 0.0f) e[j - tile] = soft_capped(e[j - tile], p.softcap);
      max = e[j - tile] > max ? e[j - tile] : max;
    }
    const float c = exp(out.max - max);
    out.max = max;
    for (std::int32_t j = from; j <= to; ++j) e[j - tile] = exp(e[j - tile] - max);
    for (int l = 0; l < kLanes; ++l) lanes[l] = fma(lanes[l], c, e[l] + e[l + kLanes]);
    for (std::int32_t d = 0; d < kv.head_dim; ++d) out.acc[d] *= c;
    for (std::int32_t j = from; j <= to; ++j) {
      const std::byte* plane =
          kv_plane(kv, query.block_table[j / kv.block_tokens], query.kv_head) + kv.v_offset;
      const std::int32_t slot = j % kv.block_tokens;
      const float weight = has_token_scales(kv.dtype) ? e[j - tile] * kv_scale(kv, plane, slot) : e[j - tile];
      for (std::int32_t d = 0; d < kv.head_dim; ++d) {
        const float v = kv_load(kv.dtype, plane, std::int64_t{slot} * kv.head_dim + d);
        out.acc[d] = fma(weight, v, out.acc[d]);
      }
    }
  }
  out.sum = fold_lanes(lanes);
  return out;
}

/// total = total joined with the next split: a = exp(total.max - m), b = exp(next.max - m) with m the larger;
/// every number x becomes fma(x, a, next's x * b).
void fold(Partial& total, const Partial& next, std::int32_t dim) {
  const float max = next.max > total.max ? next.max : total.max;
  const float a = exp(total.max - max);
  const float b = exp(next.max - max);
  total.max = max;
  total.sum = fma(total.sum, a, next.sum * b);
  for (std::int32_t d = 0; d < dim; ++d) total.acc[d] = fma(total.acc[d], a, next.acc[d] * b);
}

/// Rows of the batch: what the prepared form is laid out for.
std::int32_t all_rows(const AttentionParams& p) {
  std::int32_t rows = 0;
  for (std::int32_t i = 0; i < p.num_segments; ++i) rows += p.segments[i].row_count;
  return rows;
}

/// Splits in ascending order, folded left from the first; out = acc * output_factor.
void attend(const AttentionParams& p, const Segment& segment, std::int32_t i, std::int32_t head) {
  const std::int32_t group = p.num_q_heads / p.kv.num_kv_heads;
  const std::int32_t dim = p.kv.head_dim;
  const std::int64_t row = segment.row_begin + i;
  const std::int32_t first = first_key(p, segment.pos_begin + i), last = last_key(p, segment, i);
  const Query query{p.q + row * p.q_stride + std::int64_t{head} * dim, first, last, segment.block_table,
                    head / group};
  Partial total;
  for (std::int32_t split = first / kSplitKeys; split <= last / kSplitKeys; ++split) {
    const Partial next = attend_split(p, query, split * kSplitKeys, (split + 1) * kSplitKeys);
    if (split == first / kSplitKeys) {
      total = next;
    } else {
      fold(total, next, dim);
    }
  }
  const float factor = output_factor(p, head, total.max, total.sum);
  for (std::int32_t d = 0; d < dim; ++d) total.acc[d] = total.acc[d] * factor;
  if (p.out != nullptr) std::memcpy(p.out + row * p.out_stride + head * dim, total.acc, sizeof(float) * dim);
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, all_rows(p), p.num_q_heads * dim);
  for (int b = 0; b < dim / kQuantBlock; ++b)
    quantise_block(total.acc + b * kQuantBlock, prepared, row, head * dim / kQuantBlock + b);
}

void attention(Stream& s, const AttentionParams& p) {
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    const Segment& segment = p.segments[i];
    parallel_for(s, segment.row_count * p.num_q_heads,
                 [&](int item) { attend(p, segment, item / p.num_q_heads, item % p.num_q_heads); });
  }
}

}  // namespace

const OpTable& scalar_ops() {
  static constexpr OpTable kTable = {
      .name = "cpu-scalar",
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
      .rms_norm = rms_norm,
      .linear = linear,
      .gated_linear = gated_linear,
      .rope_kv_write = rope_kv_write,
      .attention = attention,
      .gate_mul = gate_mul,
      .norm = norm,
      .add_scaled = add_scaled,
      .scale_rows = scale_rows,
      .scale_logits = scale_logits,
      .route = route_scalar,
      .experts = experts_scalar,
      .row_gate = row_gate_scalar,
      .stacked_linear = stacked_linear_scalar,
      .latent_write = latent_write_scalar,
      .latent_attention = latent_attention_scalar,
      .sigmoid_mul = sigmoid_mul_scalar,
      .conv1d = conv1d_scalar,
      .delta_net = delta_net_scalar,
      .mamba2 = mamba2_scalar,
      .gated_norm = gated_norm_scalar,
      .predict_streams = predict_streams_scalar,
      .correct_streams = correct_streams_scalar,
      .match_magnitude = match_magnitude_scalar,
      .cut_gate = cut_gate_scalar,
      .row_stats = row_stats,
      .gumbel_filter = gumbel_filter_scalar,
      .gather_columns = gather_columns,
      .rope_angles = rope_angles,
      .keep_rows = keep_rows,
      .copy_blocks = copy_blocks,
      .all_reduce = all_reduce,
  };
  return kTable;
}

}  // namespace barg::ops::cpu
