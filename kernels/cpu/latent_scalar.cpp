// Latent attention, scalar: the specification.
#include "cpu/latent.h"

#include <cstring>

#include "cpu/moe.h"
#include "cpu/parallel.h"

namespace barg::ops::cpu {
namespace {

/// Number d of a stored token; of codes, one product of code and scale.
float latent_value(const LatentAttentionParams& p, std::byte* plane, std::int32_t slot, std::int32_t d) {
  const KvLayerView& kv = p.kv;
  const std::byte* at = plane + (std::int64_t{slot} * kv.head_dim + d) *
                                    static_cast<std::int64_t>(element_bytes(kv.dtype));
  float v;
  if (kv.dtype == DType::kF32) {
    std::memcpy(&v, at, 4);
    return v;
  }
  if (kv.dtype == DType::kF16) return f16_to_f32(load_u16(at));
  if (kv.dtype == DType::kBF16) return bf16_to_f32(load_u16(at));
  float scale;
  std::memcpy(&scale, latent_scales(kv, plane, d < p.value_dim ? 0 : 1) + slot * 4, 4);
  v = kv.dtype == DType::kF8E4M3 ? f8_to_f32_256th(static_cast<std::uint8_t>(*at))
                                 : static_cast<float>(static_cast<std::int8_t>(*at));
  return v * (scale * code_unit(kv.dtype));
}

struct LatentPartial {
  float max = -__builtin_inff();
  float sum = 0.0f;
  float acc[kMaxLatentDim] = {};
};

/// Keys [begin, end) of one split up to `last`, tile after tile. In a tile: score = (chain of fma over d) * scale;
/// the running maximum moves; c = exp(old max - new max); e_j = exp(score_j - new max);
/// sum = fma(sum, c, ((e_0 + e_1) + e_2) + ...); acc = acc * c, then fma(e_j, v_j, acc), keys ascending.
LatentPartial latent_split(const LatentAttentionParams& p, const Segment& segment, const float* q,
                           std::int32_t begin, std::int32_t end, std::int32_t last) {
  const std::int32_t tokens = p.kv.block_tokens;
  const auto plane = [&](std::int32_t j) { return kv_plane(p.kv, segment.block_table[j / tokens], 0); };
  LatentPartial out;
  for (std::int32_t tile = begin; tile < end && tile <= last; tile += kTileKeys) {
    const std::int32_t to = tile + kTileKeys - 1 < last ? tile + kTileKeys - 1 : last;
    float e[kTileKeys];
    float max = out.max;
    for (std::int32_t j = tile; j <= to; ++j) {
      float dot = 0.0f;
      for (std::int32_t d = 0; d < p.kv.head_dim; ++d) dot = fma(q[d], latent_value(p, plane(j), j % tokens, d), dot);
      e[j - tile] = dot * p.scale;
      max = e[j - tile] > max ? e[j - tile] : max;
    }
    const float c = exp(out.max - max);
    out.max = max;
    float sum = 0.0f;
    for (std::int32_t j = tile; j <= to; ++j) {
      e[j - tile] = exp(e[j - tile] - max);
      sum = sum + e[j - tile];
    }
    out.sum = fma(out.sum, c, sum);
    for (std::int32_t d = 0; d < p.value_dim; ++d) {
      float acc = out.acc[d] * c;
      for (std::int32_t j = tile; j <= to; ++j) acc = fma(e[j - tile], latent_value(p, plane(j), j % tokens, d), acc);
      out.acc[d] = acc;
    }
  }
  return out;
}

/// As `fold` in ops_scalar.cpp.
void latent_fold(LatentPartial& total, const LatentPartial& next, std::int32_t dim) {
  const float max = next.max > total.max ? next.max : total.max;
  const float a = exp(total.max - max);
  const float b = exp(next.max - max);
  total.max = max;
  total.sum = fma(total.sum, a, next.sum * b);
  for (std::int32_t d = 0; d < dim; ++d) total.acc[d] = fma(total.acc[d], a, next.acc[d] * b);
}

/// Splits in ascending order, folded left from the first; out = acc * (1 / sum).
void latent_attend(const LatentAttentionParams& p, const Segment& segment, std::int32_t i, std::int32_t head) {
  const std::int64_t at = std::int64_t{segment.row_begin + i} * p.num_q_heads + head;
  const std::int32_t last = segment.pos_begin + i;
  LatentPartial total;
  for (std::int32_t split = 0; split <= last; split += kSplitKeys) {
    const LatentPartial next =
        latent_split(p, segment, p.q + at * p.kv.head_dim, split, split + kSplitKeys, last);
    if (split == 0) {
      total = next;
    } else {
      latent_fold(total, next, p.value_dim);
    }
  }
  const float inverse = 1.0f / total.sum;
  for (std::int32_t d = 0; d < p.value_dim; ++d) p.out[at * p.value_dim + d] = total.acc[d] * inverse;
}

}  // namespace

void latent_write_scalar(Stream&, const LatentWriteParams& p) {
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    for (std::int32_t i = 0; i < p.segments[s].row_count; ++i) latent_row(p, p.segments[s], i);
  }
}

void latent_attention_scalar(Stream& s, const LatentAttentionParams& p) {
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    const Segment& segment = p.segments[i];
    parallel_for(s, segment.row_count * p.num_q_heads, [&](int item) {
      latent_attend(p, segment, item / p.num_q_heads, item % p.num_q_heads);
    });
  }
}

}  // namespace barg::ops::cpu
