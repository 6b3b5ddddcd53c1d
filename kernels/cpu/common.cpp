// Operations that are one code for every instruction set: they move numbers, or compute a few in f64.
#include <algorithm>
#include <cstring>

#include "cpu/layout.h"
#include "cpu/pool.h"
#include "math.h"

namespace barg::ops::cpu {

DType stored_type(const char*, DType converted) { return converted; }

Form prepared_form(Recipe recipe, DType weight) { return ops::prepared_form(recipe, weight); }

std::size_t prepared_bytes(std::int32_t rows, std::int32_t k, Recipe recipe) {
  if (recipe == Recipe::kBF16) return bf16_rows_bytes(rows, k);
  return recipe == Recipe::kInt8 ? quantised_rows_bytes(rows, k) : 0;
}

std::size_t kv_head_bytes(DType type, std::int32_t block_tokens, std::int32_t head_dim) {
  const std::size_t scale = has_token_scales(type) ? sizeof(float) : 0;
  return 2 * static_cast<std::size_t>(block_tokens) *
         (static_cast<std::size_t>(head_dim) * element_bytes(type) + scale);
}

void gather_columns(Stream& stream, const GatherColumnsParams& p) {
  const auto one_row = [](void* context, int row) {
    const auto& g = *static_cast<const GatherColumnsParams*>(context);
    const float* x = g.x + row * g.x_stride;
    float* out = g.out + std::int64_t{row} * g.dim;
    for (std::int32_t j = 0; j < g.dim; ++j) out[j] = x[g.order[j]];
  };
  GatherColumnsParams params = p;
  stream.pool.run(p.rows, one_row, &params);
}

void rope_angles(Stream& stream, const RopeAnglesParams& p) {
  const auto one_row = [](void* context, int row) {
    const auto& a = *static_cast<const RopeAnglesParams*>(context);
    const double position = a.positions[row];
    const std::int64_t at = std::int64_t{row} * a.count;
    for (std::int32_t i = 0; i < a.count; ++i) {
      float sin, cos;
      sin_cos(position * static_cast<double>(a.frequencies[i]), &sin, &cos);
      a.cos[at + i] = cos * a.scale;
      a.sin[at + i] = sin * a.scale;
    }
  };
  RopeAnglesParams params = p;
  stream.pool.run(p.rows, one_row, &params);
}

void keep_rows(Stream&, const KeepRowsParams& p) {
  for (std::int32_t i = 0; i < p.count; ++i) {  // ascending: nothing is overwritten before it moves
    if (p.wanted[i] != i) std::copy_n(p.rows + p.wanted[i] * p.stride, p.width, p.rows + i * p.stride);
  }
}

void copy_blocks(Stream&, const BlockCopyParams& p) {
  for (std::int32_t i = 0; i < p.count; ++i) {
    if (p.src[i] == p.dst[i]) continue;
    std::memcpy(p.base + p.dst[i] * p.block_stride, p.base + p.src[i] * p.block_stride,
                static_cast<std::size_t>(p.block_stride));
  }
}

void all_reduce(Stream&, const AllReduceParams& p) {
  // A group of one holds the sum already. Larger groups do not exist on this back end yet.
  if (p.world != 1) __builtin_trap();
}

}  // namespace barg::ops::cpu
