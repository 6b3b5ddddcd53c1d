// Movement of whole KV blocks: copies inside a group's memory, and between blocks that lie anywhere and a contiguous
// staging buffer that one transfer takes to or from a tier. Bytes only, 16 at a time, four accesses of a thread under way
// together. A block's part of a group is one contiguous run of all its layers, heads and planes.
#pragma once

#include "barg/types.h"
#include "cuda/prelude.cuh"

namespace barg::cuda {

/// Blocks src[i] to dst[i].
struct KvCopyArgs {
  std::byte* base;             ///< of the group; 16-byte aligned
  std::int64_t block_stride;   ///< bytes, a multiple of 16
  std::int64_t block_bytes;    ///< of a block, a multiple of 16
  const BlockId* src;          ///< [count]
  const BlockId* dst;          ///< [count]; none of them is in src, and each is there once
};

/// One group's part in what is staged.
struct KvStagedGroup {
  std::byte* base;              ///< as in KvCopyArgs
  std::int64_t block_stride, block_bytes;
  const BlockId* blocks;        ///< [count], each once; kNoBlock: the group has let go of it, nothing is moved
  std::int64_t staging_offset;  ///< of this group's part in a logical block, a multiple of 16
};

/// Logical block i lies at staging + i * staging_stride, the parts of its groups at their offsets.
struct KvStageArgs {
  const KvStagedGroup* groups;
  std::byte* staging;  ///< 16-byte aligned
  std::int64_t staging_stride;
};

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyUnroll = 4;
inline constexpr int kCopyTile = 16 * kCopyThreads * kCopyUnroll;  ///< bytes that a block of threads moves

/// A launch of kv_copy_kernel for `count` blocks (groups 1), or of kv_gather_kernel and kv_scatter_kernel for `count`
/// logical blocks of `groups` groups, the largest of whose blocks has `block_bytes`.
BARG_DEVICE constexpr LaunchShape kv_copy_launch(std::int64_t block_bytes, int count, int groups) {
  return {.grid_x = static_cast<int>((block_bytes + kCopyTile - 1) / kCopyTile), .grid_y = count, .grid_z = groups,
          .threads = kCopyThreads};
}

/// Tile block_x() of `bytes` bytes.
BARG_DEVICE void copy_tile(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const std::int64_t begin = static_cast<std::int64_t>(block_x()) * kCopyTile + 16 * thread_id();
  Vec16 v[kCopyUnroll];
  BARG_UNROLL
  for (int i = 0; i < kCopyUnroll; ++i) {
    const std::int64_t at = begin + 16 * kCopyThreads * i;
    if (at < bytes) v[i] = load16_stream(from + seeded("copy.from", at));
  }
  BARG_UNROLL
  for (int i = 0; i < kCopyUnroll; ++i) {
    const std::int64_t at = begin + 16 * kCopyThreads * i;
    if (at < seeded("copy.bytes", bytes)) store16(to + at, v[i]);
  }
}

BARG_KERNEL kv_copy_kernel(KvCopyArgs p) {
  const std::int64_t from = p.src[block_y()], to = seeded("copy.to", p.dst[block_y()]);
  copy_tile(p.base + to * p.block_stride, p.base + from * p.block_stride, p.block_bytes);
}

template <bool kGather>
BARG_DEVICE void move_staged(const KvStageArgs& p) {
  const KvStagedGroup& group = p.groups[block_z()];
  const std::int64_t block = group.blocks[block_y()];
  if (block == kNoBlock) return;
  std::byte* const stored = group.base + block * group.block_stride;
  std::byte* const staged = p.staging + block_y() * p.staging_stride + seeded("copy.offset", group.staging_offset);
  if constexpr (kGather) {
    copy_tile(staged, stored, group.block_bytes);
  } else {
    copy_tile(stored, staged, group.block_bytes);
  }
}

BARG_KERNEL kv_gather_kernel(KvStageArgs p) { move_staged<true>(p); }
BARG_KERNEL kv_scatter_kernel(KvStageArgs p) { move_staged<false>(p); }

}  // namespace barg::cuda
