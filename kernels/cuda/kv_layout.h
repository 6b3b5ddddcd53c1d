// How K and V of a block lie in the device's memory: what "layout_id" names, and what attention.cuh and rope_kv.cuh
// agree on. Constants and pure functions; any thread, host and device.
//
// The K plane of one head in one block of B tokens is [B][D], a token's numbers side by side, and so is the V plane
// behind it: 16-byte copies take a token's row in whole sectors, and the swizzle that ldmatrix wants is put on in shared
// memory. Of fp8 they are codes of one byte, and each plane ends with the scales of its tokens, [B] f32.
//
// Of f16 and bf16, V holds no NaN and no infinity: where a token's K or V has one, its K is NaN throughout and the bad
// numbers of V are 0. So a query that sees the token gets NaN, and one that does not (whose weight for it is 0, which the
// tensor cores multiply with V like any other) is as if it were not there. Of fp8 the scale is NaN, and the codes 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops.h"

namespace barg::cuda {

inline constexpr const char* kKvLayoutId = "cuda-k_td-v_td-1";

/// The KV types that there are kernels for.
enum class KvType : std::uint8_t { kF16, kBF16, kFp8 };

constexpr int kv_row_bytes(KvType type, int head_dim) { return type == KvType::kFp8 ? head_dim : 2 * head_dim; }

/// Of one head's K or V in a block: KvLayerView::v_offset. REQUIRES block_tokens 16, 32 or 64, head_dim a multiple of 32.
constexpr std::size_t kv_plane_bytes(KvType type, int block_tokens, int head_dim) {
  const int scale = type == KvType::kFp8 ? 4 : 0;
  return static_cast<std::size_t>(block_tokens) * static_cast<std::size_t>(kv_row_bytes(type, head_dim) + scale);
}

}  // namespace barg::cuda
