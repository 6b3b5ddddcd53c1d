// What a device can do at most, and memory to measure with: streams of reads and copies, launches of nothing, packed
// matrices and rows full of valid random numbers.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

inline constexpr int kProbeThreads = 256;

struct StreamArgs {
  const std::byte* from;  ///< [bytes], 16-byte aligned, bytes a multiple of 16
  std::byte* to;          ///< the same; of what is only read, 16 bytes
  std::int64_t bytes;
};

/// Four accesses of a thread under way together.
BARG_KERNEL stream_copy_kernel(StreamArgs p) {
  const std::int64_t step = static_cast<std::int64_t>(grid_x()) * kProbeThreads * 16;
  const std::int64_t first = (static_cast<std::int64_t>(block_x()) * kProbeThreads + thread_id()) * 16;
  for (std::int64_t at = first; at < p.bytes; at += 4 * step) {
    Vec16 v[4];
    BARG_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (at + i * step < p.bytes) v[i] = load16_stream(p.from + at + i * step);
    }
    BARG_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (at + i * step < p.bytes) store16(p.to + at + i * step, v[i]);
    }
  }
}

BARG_KERNEL stream_read_kernel(StreamArgs p) {
  const std::int64_t step = static_cast<std::int64_t>(grid_x()) * kProbeThreads * 16;
  const std::int64_t first = (static_cast<std::int64_t>(block_x()) * kProbeThreads + thread_id()) * 16;
  std::uint32_t all = 0;
  for (std::int64_t at = first; at < p.bytes; at += 4 * step) {
    Vec16 v[4] = {};
    BARG_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (at + i * step < p.bytes) v[i] = load16_stream(p.from + at + i * step);
    }
    BARG_UNROLL
    for (int i = 0; i < 4; ++i) all ^= (v[i].x[0] | v[i].x[1]) & (v[i].x[2] | v[i].x[3]);
  }
  if (all == 0x12345678u) store16(p.to, Vec16{{all, all, all, all}});  // so that nothing is left out
}

struct NothingArgs {
  std::int32_t unused;
};
BARG_KERNEL nothing_kernel(NothingArgs) {}

/// What a word of a fill is.
enum class FillKind : std::int32_t { kFloats, kF16, kBF16, kBits, kScales, kSixBits, kIgnored };

/// Words that repeat every `unit` words: up to `scales_at` codes, then scales, then supers.
struct FillArgs {
  std::uint32_t* words;
  std::int64_t count;
  std::int32_t unit, scales_at, supers_at;
  FillKind codes, scales, supers;
  std::uint64_t seed;
};

BARG_DEVICE std::uint32_t fill_random(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((x ^ x >> 31) >> 32);
}

BARG_DEVICE std::uint32_t fill_word(FillKind kind, std::uint32_t r) {
  switch (kind) {
    case FillKind::kFloats: return float_bits(static_cast<float>(static_cast<std::int32_t>(r)) * 0x1p-31f);  // within +-1
    case FillKind::kF16: return (r & 0x8fff8fffu) | 0x24002400u;   // 2^-6 to 2^-2, of both signs
    case FillKind::kBF16: return (r & 0x81ff81ffu) | 0x3c003c00u;  // 2^-7 to 2^-3, of both signs
    case FillKind::kScales: return (r & 0x03ff03ffu) | 0x1c001c00u;  // f16, 2^-8 to 2^-7
    case FillKind::kSixBits: return r & 0x3f3f3f3fu;
    case FillKind::kBits:
    case FillKind::kIgnored: break;
  }
  return r;
}

BARG_KERNEL fill_kernel(FillArgs p) {
  const std::int64_t step = static_cast<std::int64_t>(grid_x()) * kProbeThreads;
  for (std::int64_t i = static_cast<std::int64_t>(block_x()) * kProbeThreads + thread_id(); i < p.count; i += step) {
    const auto at = static_cast<std::int32_t>(i % p.unit);
    const FillKind kind = at < p.scales_at ? p.codes : at < p.supers_at ? p.scales : p.supers;
    p.words[i] = fill_word(kind, fill_random(p.seed + static_cast<std::uint64_t>(i)));
  }
}

}  // namespace barg::cuda
