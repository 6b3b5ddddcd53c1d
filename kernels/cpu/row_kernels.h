// The row operations, written once for the vector back ends over Wide (avx2.h, avx512.h), whose 16 lanes are
// those of the contract. Their namesakes in ops_scalar.cpp are the specification.
//
// Include from one translation unit of each instruction set, after its Wide; everything is in an unnamed
// namespace for the reason given there. Thread rule: rows are independent, threads take ranges of them.
#pragma once

#include "cpu/layout.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

// --- norms and pointwise ---------------------------------------------------------------------------------

/// Ones in the first `count` lanes.
inline std::uint32_t first_bits(std::int32_t count) { return count >= kLanes ? 0xffffu : (1u << count) - 1u; }

inline float norm_mean(const NormParams& p, const float* x) {
  if (p.kind == NormKind::kRms) return 0.0f;
  Wide::Reg lanes = Wide::zero();
  for (std::int32_t i = 0; i < p.dim; i += kLanes)
    lanes = Wide::add(lanes, Wide::load_some(x + i, p.dim - i));
  return Wide::fold(lanes) / static_cast<float>(p.dim);
}

inline void norm_part(const NormParams& p, std::int32_t r, std::int32_t g) {
  const float* x = p.x + r * p.x_stride + std::int64_t{g} * p.dim;
  const float* weight = p.weight + g * p.weight_stride;
  const Wide::Reg mean = Wide::set(norm_mean(p, x));
  Wide::Reg lanes = Wide::zero();
  std::int32_t whole = 0;
  for (; whole + kLanes <= p.dim; whole += kLanes) {
    const Wide::Reg v = Wide::sub(Wide::load(x + whole), mean);
    lanes = Wide::fma(v, v, lanes);
  }
  if (whole < p.dim) {  // a missing lane adds +0 to a sum >= 0
    const Wide::Reg v = Wide::sub(Wide::load_some(x + whole, p.dim - whole), mean);
    const Wide::Reg some = Wide::keep(Wide::mask(first_bits(p.dim - whole)), v);
    lanes = Wide::fma(some, some, lanes);
  }
  const float variance = Wide::fold(lanes) / static_cast<float>(p.dim);
  const Wide::Reg inverse = Wide::set(1.0f / __builtin_sqrtf(variance + p.eps));
  const Wide::Reg offset = Wide::set(p.weight_offset);
  const auto value = [&](std::int32_t i) {
    const std::int32_t count = p.dim - i;
    const Wide::Reg w = Wide::add(Wide::load_some(weight + i, count), offset);
    const Wide::Reg v = Wide::mul(Wide::mul(Wide::sub(Wide::load_some(x + i, count), mean), inverse), w);
    return p.bias != nullptr ? Wide::add(v, Wide::load_some(p.bias + i, count)) : v;
  };
  if (p.out != nullptr) {
    float* out = p.out + r * p.out_stride + std::int64_t{g} * p.dim;
    for (std::int32_t i = 0; i < p.dim; i += kLanes) Wide::store_some(out + i, p.dim - i, value(i));
  }
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, p.rows, p.dim);
  for (std::int32_t i = 0; i < p.dim; i += kQuantBlock) {
    Wide::quantise(value(i), value(i + kLanes), prepared, r, i / kQuantBlock);
  }
}

inline void run_norm(Stream& s, const NormParams& p) {
  parallel_rows(s, p.rows, p.groups * p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      for (std::int32_t g = 0; g < p.groups; ++g) norm_part(p, r, g);
    }
  });
}

inline void run_rms_norm(Stream& s, const RmsNormParams& p) { run_norm(s, whole_rows(p)); }

inline void run_gate_mul(Stream& s, const GateMulParams& p) {
  parallel_rows(s, p.rows, p.dim * 4, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      const float* gate = p.gate + r * p.in_stride;
      const float* up = p.up == nullptr ? nullptr : p.up + r * up_stride(p);
      float* out = p.out + std::int64_t{r} * p.dim;
      const Wide::Reg scale = Wide::set(p.gate_scale);
      for (std::int32_t i = 0; i < p.dim; i += kLanes) {
        const Wide::Reg g = Wide::mul(Wide::load_some(gate + i, p.dim - i), scale);
        Wide::Reg v = activate_by<Wide>(p.activation, g);
        if (up != nullptr) v = Wide::mul(v, Wide::load_some(up + i, p.dim - i));
        Wide::store_some(out + i, p.dim - i, v);
      }
    }
  });
}

inline void run_add_scaled(Stream& s, const AddScaledParams& p) {
  constexpr std::int64_t kPart = 4096;
  const Wide::Reg scale = Wide::set(p.scale);
  const auto parts = static_cast<std::int32_t>((p.count + kPart - 1) / kPart);
  parallel_rows(s, parts, kPart, [&](std::int32_t begin, std::int32_t end) {
    const std::int64_t last = min_of(end * kPart, p.count);
    for (std::int64_t i = begin * kPart; i < last; i += kLanes) {
      const auto count = static_cast<int>(min_of<std::int64_t>(last - i, kLanes));
      const Wide::Reg sum =
          Wide::fma(Wide::load_some(p.y + i, count), scale, Wide::load_some(p.x + i, count));
      Wide::store_some(p.x + i, count, sum);
    }
  });
}

inline void run_scale_rows(Stream& s, const ScaleRowsParams& p) {
  parallel_rows(s, p.rows, p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      float* x = p.x + r * p.x_stride;
      const Wide::Reg scale = Wide::set(p.scales[r]);
      for (std::int32_t i = 0; i < p.dim; i += kLanes) {
        Wide::store_some(x + i, p.dim - i, Wide::mul(Wide::load_some(x + i, p.dim - i), scale));
      }
    }
  });
}

// --- largest ---------------------------------------------------------------------------------------------

struct Top {
  float max;
  bool any_nan;
};

inline Top row_max(const float* x, std::int32_t dim) {
  constexpr int kChains = 4;  // the largest is the largest in any order
  const Wide::Reg none = Wide::set(-__builtin_inff());
  Wide::Reg max[kChains] = {none, none, none, none};
  std::uint32_t nan = 0;
  std::int32_t i = 0;
  for (; i + kChains * kLanes <= dim; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      const Wide::Reg v = Wide::load(x + i + c * kLanes);
      max[c] = Wide::max(v, max[c]);  // a NaN loses
      nan |= Wide::nans(v);
    }
  }
  for (; i < dim; i += kLanes) {
    const Wide::Reg v = Wide::load_some(x + i, dim - i);
    max[0] = Wide::max(Wide::select(Wide::mask(first_bits(dim - i)), v, none), max[0]);
    nan |= Wide::nans(v);
  }
  const Wide::Reg all = Wide::max(Wide::max(max[0], max[1]), Wide::max(max[2], max[3]));
  return {Wide::max_of(all), nan != 0};
}

/// The lowest index that equals max (0 and -0 are equal).
inline std::int32_t first_equal(const float* x, std::int32_t dim, float max) {
  const Wide::Reg m = Wide::set(max);
  for (std::int32_t i = 0; i < dim; i += kLanes) {
    const std::uint32_t equal = Wide::equal(Wide::load_some(x + i, dim - i), m) & first_bits(dim - i);
    if (equal != 0) return i + __builtin_ctz(equal);
  }
  return 0;
}

// --- logits ----------------------------------------------------------------------------------------------

/// The largest of one block, as the specification finds it: the first of equals, or the first NaN.
inline float block_maximum(const float* x, std::int32_t count) {
  const Top top = row_max(x, count);
  if (!top.any_nan && top.max != 0.0f) return top.max;
  float max = -__builtin_inff();
  for (std::int32_t i = 0; i < count; ++i) {
    if (x[i] != x[i]) return x[i];
    if (x[i] > max) max = x[i];
  }
  return max;
}

/// Whole blocks of one row.
inline void scale_logits_part(const ScaleLogitsParams& p, float* x, std::int32_t dim, float* block_max) {
  const Wide::Reg scale = Wide::set(p.scale);
  const Wide::Reg cap = Wide::set(p.softcap);
  const Wide::Reg inverse = Wide::set(1.0f / p.softcap);
  for (std::int32_t i = 0; i < dim; i += kLanes) {
    Wide::Reg v = Wide::mul(Wide::load_some(x + i, dim - i), scale);
    if (p.softcap > 0.0f) v = Wide::mul(Wide::tanh(Wide::mul(v, inverse)), cap);
    Wide::store_some(x + i, dim - i, v);
  }
  if (block_max == nullptr) return;
  for (std::int32_t i = 0; i < dim; i += kBlockMax)
    block_max[i / kBlockMax] = block_maximum(x + i, min_of(kBlockMax, dim - i));
}

inline void run_scale_logits(Stream& s, const ScaleLogitsParams& p) {
  constexpr std::int32_t kPart = 64 * kBlockMax;
  const std::int32_t parts = (p.dim + kPart - 1) / kPart;
  const std::int64_t blocks = (p.dim + kBlockMax - 1) / kBlockMax;
  parallel_rows(s, p.rows * parts, kPart, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int32_t r = i / parts, from = i % parts * kPart;
      float* max = p.block_max == nullptr ? nullptr : p.block_max + r * blocks + from / kBlockMax;
      scale_logits_part(p, p.x + r * p.x_stride + from, min_of(kPart, p.dim - from), max);
    }
  });
}

// --- row statistics --------------------------------------------------------------------------------------

inline void row_stats_row(const RowStatsParams& p, std::int32_t r) {
  const float* x = p.x + r * p.x_stride;
  const Top top = row_max(x, p.dim);
  const Wide::Reg m = Wide::set(top.max);
  Wide::Reg lanes = Wide::zero();
  std::int32_t i = 0;
  for (; i + kLanes <= p.dim; i += kLanes) {
    lanes = Wide::add(lanes, Wide::exp(Wide::sub(Wide::load(x + i), m)));
  }
  if (i < p.dim) {
    const Wide::Reg e = Wide::exp(Wide::sub(Wide::load_some(x + i, p.dim - i), m));
    lanes = Wide::add(lanes, Wide::keep(Wide::mask(first_bits(p.dim - i)), e));
  }
  const float inf = __builtin_inff();
  const std::int32_t argmax = top.max > -inf ? first_equal(x, p.dim, top.max) : 0;
  p.max[r] = top.max == 0.0f ? x[argmax] : top.max;  // the sign of a zero is that of the first one
  p.argmax[r] = argmax;
  p.logsumexp[r] = log(Wide::fold(lanes)) + top.max;
  p.finite[r] = !top.any_nan && top.max > -inf && top.max < inf ? 1 : 0;
}

inline void run_row_stats(Stream& s, const RowStatsParams& p) {
  parallel_rows(s, p.rows, p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) row_stats_row(p, r);
  });
}

}  // namespace
}  // namespace barg::ops::cpu
