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

inline void rms_norm_row(const RmsNormParams& p, std::int32_t r) {
  const float* x = p.x + std::int64_t{r} * p.dim;
  Wide::Reg lanes = Wide::zero();
  for (std::int32_t i = 0; i < p.dim; i += kLanes) {
    const Wide::Reg v = Wide::load_some(x + i, p.dim - i);
    lanes = Wide::fma(v, v, lanes);  // a missing lane adds +0 to a sum >= 0
  }
  const float mean = Wide::fold(lanes) / static_cast<float>(p.dim);
  const Wide::Reg inverse = Wide::set(1.0f / __builtin_sqrtf(mean + p.eps));
  const Wide::Reg offset = Wide::set(p.weight_offset);
  const auto value = [&](std::int32_t i) {
    const Wide::Reg w = Wide::add(Wide::load_some(p.weight + i, p.dim - i), offset);
    return Wide::mul(Wide::mul(Wide::load_some(x + i, p.dim - i), inverse), w);
  };
  if (p.out != nullptr) {
    float* out = p.out + std::int64_t{r} * p.dim;
    for (std::int32_t i = 0; i < p.dim; i += kLanes) Wide::store_some(out + i, p.dim - i, value(i));
  }
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, p.rows, p.dim);
  for (std::int32_t i = 0; i < p.dim; i += kQuantBlock) {
    Wide::quantise(value(i), value(i + kLanes), prepared, r, i / kQuantBlock);
  }
}

inline void run_rms_norm(Stream& s, const RmsNormParams& p) {
  parallel_rows(s, p.rows, p.dim, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) rms_norm_row(p, r);
  });
}

inline void run_silu_mul(Stream& s, const SiluMulParams& p) {
  parallel_rows(s, p.rows, p.dim * 4, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r) {
      const float* gate = p.gate + r * p.in_stride;
      const float* up = p.up + r * p.in_stride;
      float* out = p.out + std::int64_t{r} * p.dim;
      for (std::int32_t i = 0; i < p.dim; i += kLanes) {
        const Wide::Reg v = Wide::silu(Wide::load_some(gate + i, p.dim - i));
        Wide::store_some(out + i, p.dim - i, Wide::mul(v, Wide::load_some(up + i, p.dim - i)));
      }
    }
  });
}

// --- row statistics --------------------------------------------------------------------------------------

struct Top {
  float max;
  bool any_nan;
};

inline std::uint32_t first_bits(std::int32_t count) { return count >= kLanes ? 0xffffu : (1u << count) - 1u; }

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
