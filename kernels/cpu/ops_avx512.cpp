// The AVX-512 back end (F, BW, DQ, VL and VNNI): the table. Same bits as ops_scalar.cpp.
#include "cpu/avx512.h"
#include "cpu/moe.h"
#include "cpu/philox.h"
// Needs the vector types of the header above.
#include "cpu/row_kernels.h"

namespace barg::ops::cpu {
namespace {

void linear(Stream& s, const LinearParams& p) {
  if (p.recipe == Recipe::kBF16) return linear_bf16_avx512(s, p);
  if (prepared_form(p.recipe, p.weight.dtype) == Form::kInt8) return linear_int8_avx512(s, p);
  linear_f32_avx512(s, p);
}

void gated_linear(Stream& s, const GatedLinearParams& p) {
  if (p.recipe == Recipe::kBF16) return gated_bf16_avx512(s, p);
  if (prepared_form(p.recipe, p.gate.dtype) == Form::kInt8) return gated_int8_avx512(s, p);
  gated_f32_avx512(s, p);
}

}  // namespace

const OpTable& avx512_ops() {
  static const OpTable kTable = [] {
    OpTable t = avx2_ops();
    t.name = "cpu-avx512";
    t.gumbel_filter = gumbel_filter_avx512;
    t.linear = linear;
    t.gated_linear = gated_linear;
    t.attention = attention_avx512;
    t.rope_kv_write = rope_kv_write_avx512;
    t.rms_norm = run_rms_norm;
    t.gate_mul = run_gate_mul;
    t.norm = run_norm;
    t.add_scaled = run_add_scaled;
    t.scale_rows = run_scale_rows;
    t.scale_logits = run_scale_logits;
    t.route = route_avx512;
    t.experts = experts_avx512;
    t.row_gate = row_gate_avx512;
    t.stacked_linear = stacked_linear_avx512;
    t.latent_write = latent_write_avx512;
    t.latent_attention = latent_attention_avx512;
    t.sigmoid_mul = sigmoid_mul_avx512;
    t.conv1d = conv1d_avx512;
    t.delta_net = delta_net_avx512;
    t.mamba2 = mamba2_avx512;
    t.gated_norm = gated_norm_avx512;
    t.predict_streams = predict_streams_avx512;
    t.correct_streams = correct_streams_avx512;
    t.match_magnitude = match_magnitude_avx512;
    t.cut_gate = cut_gate_avx512;
    t.row_stats = run_row_stats;
    return t;
  }();
  return kTable;
}

}  // namespace barg::ops::cpu
