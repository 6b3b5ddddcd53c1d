// From a file's rows to the packed units of gemm.h: a thread makes 16 bytes. Loading alone runs it, at the speed of the bus
// that brings the rows; so it reads bytes where they lie, and the caches make sectors of them.
#pragma once

#include "cuda/gemm.h"
#include "cuda/prelude.cuh"

namespace barg::cuda {

/// The numbers that a file stores of a matrix. Beyond it all are 0.
template <GemmFormat F>
class GemmFile {
 public:
  BARG_DEVICE explicit GemmFile(const GemmRepackArgs& p) : p_(p) {}

  /// 16 bits, a byte, or the lowest four bits of a code.
  BARG_DEVICE std::uint32_t code(int row, int k) const {
    if (row >= p_.count || k >= p_.k) return 0;
    const std::byte* const b = block(row, k);
    const int e = k % kBlock;
    if constexpr (F == GemmFormat::kF16 || F == GemmFormat::kBF16) {
      return two(b);
    } else if constexpr (F == GemmFormat::kQ8_0) {
      return byte(b + 2 + e);
    } else if constexpr (F == GemmFormat::kQ6_K) {
      return nibble(b + e / 128 * 64 + e % 64, e / 64 % 2);
    } else if constexpr (F == GemmFormat::kQ4_K) {
      return nibble(b + 16 + e / 64 * 32 + e % 32, e / 32 % 2);
    } else {
      return nibble(b + kBlockBytes - 16 + e % 16, e / 16);
    }
  }
  /// Bits 4 and 5 of a code of Q6_K.
  BARG_DEVICE std::uint32_t high(int row, int k) const {
    if (row >= p_.count || k >= p_.k) return 0;
    const int e = k % kBlock;
    return byte(block(row, k) + 128 + e / 128 * 32 + e % 32) >> 2 * (e / 32 % 4) & 3u;
  }
  /// f16 number i of a block, or of Q6_K the one behind all else.
  BARG_DEVICE std::uint32_t half(int row, int k, int i) const {
    if (row >= p_.count || k >= p_.k) return 0;
    return two(block(row, k) + (F == GemmFormat::kQ6_K ? 208 : 2 * i));
  }
  /// The factor of 32 columns of Q4_K (or of their minimum), of 16 of Q6_K: a byte.
  BARG_DEVICE std::uint32_t factor(int row, int k, bool minimum) const {
    if (row >= p_.count || k >= p_.k) return 0;
    const std::byte* const b = block(row, k);
    if constexpr (F == GemmFormat::kQ6_K) return byte(b + 192 + k % kBlock / 16);
    const std::byte* const s = b + 4;  // 12 bytes: six bits each of eight scales and eight minima
    const int i = k % kBlock / 32;
    if (i < 4) return byte(s + i + (minimum ? 4 : 0)) & 63u;
    return nibble(s + i + 4, minimum) | byte(s + i - (minimum ? 0 : 4)) >> 6 << 4;
  }

 private:
  static constexpr int kBlock = gemm_layout(F).block, kBlockBytes = gemm_layout(F).block_bytes;

  BARG_DEVICE const std::byte* block(int row, int k) const {
    return p_.rows + (static_cast<std::int64_t>(row) * (p_.k / kBlock) + k / kBlock) * kBlockBytes;
  }
  static BARG_DEVICE std::uint32_t byte(const std::byte* p) { return static_cast<std::uint32_t>(*p); }
  static BARG_DEVICE std::uint32_t two(const std::byte* p) { return byte(p) | byte(p + 1) << 8; }
  static BARG_DEVICE std::uint32_t nibble(const std::byte* p, int upper) {
    return byte(p) >> 4 * seeded("gemm.nibble", upper) & 15u;
  }

  const GemmRepackArgs& p_;
};

template <GemmFormat F>
class GemmRepack {
 public:
  static constexpr int kPieces = gemm_layout(F).bytes() / 16, kColumns = gemm_layout(F).columns;

  BARG_DEVICE explicit GemmRepack(const GemmRepackArgs& p) : file_(p) {}

  /// Word w of the unit that begins at (row, k).
  BARG_DEVICE std::uint32_t word(int row, int k, int w) const {
    if (w < kHigh) return codes(row, k, w);
    if (w < kScales) return high(row, k, w - kHigh);
    if (w < kSupers) return scales(row, k, w - kScales);
    return supers(row, k, w - kSupers);
  }

 private:
  static constexpr int kCodeWords = gemm_layout(F).code_words;
  static constexpr int kScaleWords = kCodeWords == 8 ? 1 : gemm_layout(F).scale_words;
  static constexpr int kHigh = gemm_layout(F).high_at() / 4;
  static constexpr int kScales = gemm_layout(F).scales_at() / 4;
  static constexpr int kSupers = gemm_layout(F).supers_at() / 4;

  /// Where register r, half h of a lane lies in a step's tile.
  static BARG_DEVICE int row_of(int lane, int r) { return 2 * (lane / 4) + r % 2; }
  static BARG_DEVICE int column_of(int lane, int r, int h) { return 2 * (lane % 4) + r / 2 * 8 + h; }

  BARG_DEVICE std::uint32_t codes(int row, int k, int w) const {
    std::uint32_t out = 0;
    if constexpr (kCodeWords == 8) {
      const int step = w / 128, lane = w / 4 % 32, r = w % 4;
      for (int h = 0; h < 2; ++h) out |= code(row, k, step, lane, r, h) << 16 * h;
    } else if constexpr (kCodeWords == 4) {
      const int step = w / 128 * 2 + w / 2 % 2, lane = w / 4 % 32;
      for (int i = 0; i < 4; ++i) out |= code(row, k, step, lane, w % 2 * 2 + i % 2, i / 2) << 8 * i;
    } else {
      const int step = w / 64 * 2 + w % 2, lane = w / 2 % 32;
      for (int i = 0; i < 8; ++i) out |= code(row, k, step, lane, i % 4, i / 4) << 4 * i;
    }
    return out;
  }
  BARG_DEVICE std::uint32_t code(int row, int k, int step, int lane, int r, int h) const {
    return file_.code(row + row_of(lane, r), k + 16 * step + column_of(lane, r, h));
  }

  BARG_DEVICE std::uint32_t high(int row, int k, int w) const {
    std::uint32_t out = 0;
    const int lane = w % 32;
    for (int i = 0; i < 16; ++i) {
      const int e = i % 8, step = w / 32 * 2 + e / 4;
      out |= file_.high(row + row_of(lane, e % 4), k + 16 * step + column_of(lane, e % 4, i / 8)) << (2 * e + i / 8 * 16);
    }
    return out;
  }

  BARG_DEVICE std::uint32_t scales(int row, int k, int w) const {
    const int first = row + w % 8 * 2, which = w / 8 % kScaleWords, column = k + w / (8 * kScaleWords) * 32;
    std::uint32_t out = 0;
    if constexpr (F == GemmFormat::kQ4_K || F == GemmFormat::kQ6_K) {
      for (int i = 0; i < 4; ++i) {
        const int part = i / 2;
        out |= file_.factor(first + i % 2, column + (F == GemmFormat::kQ6_K ? 16 * part : 0), part == 1) << 8 * i;
      }
    } else {
      for (int i = 0; i < 2; ++i) out |= file_.half(first + i, column, which) << 16 * i;
    }
    return out;
  }

  BARG_DEVICE std::uint32_t supers(int row, int k, int w) const {
    std::uint32_t out = 0;
    for (int i = 0; i < 2; ++i) {
      out |= (F == GemmFormat::kQ4_K ? file_.half(row + w, k, i) : file_.half(row + 2 * w + i, k, 0)) << 16 * i;
    }
    return out;
  }

  GemmFile<F> file_;
};

template <GemmFormat F>
BARG_KERNEL gemm_repack_kernel(GemmRepackArgs p) {
  constexpr int kPieces = GemmRepack<F>::kPieces, kColumns = GemmRepack<F>::kColumns;
  const int tiles = (p.count + kGemmTileRows - 1) / kGemmTileRows, units = (p.k + kColumns - 1) / kColumns;
  const std::int64_t at = static_cast<std::int64_t>(block_x()) * kGemmRepackThreads + thread_id();
  const int piece = static_cast<int>(at % kPieces), unit = static_cast<int>(at / kPieces % units);
  const int tile = static_cast<int>(at / kPieces / units);
  if (tile >= tiles) return;
  const GemmRepack<F> repack(p);
  Vec16 v;
  BARG_UNROLL
  for (int i = 0; i < 4; ++i) v.x[i] = repack.word(tile * kGemmTileRows, unit * kColumns, 4 * piece + i);
  const std::int64_t to = static_cast<std::int64_t>(p.first_tile + tile) * units + unit;
  store16(p.weight + (to * kPieces + piece) * 16, v);
}

}  // namespace barg::cuda
