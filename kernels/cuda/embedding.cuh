// Rows of the embedding table, dequantised: out[r, i] = table[ids[r], i] * scale. The table is as its file stores it.
//
// Blocks of quantised numbers have 18, 34 or 210 bytes, so a row begins anywhere: a block of threads fetches the bytes of
// its part of a row in whole vectors of 16 into shared memory and takes the numbers from there, four a thread. A weight
// has the bits that the CPU computes with: of a product and a sum, each is rounded once.
#pragma once

#include "cuda/prelude.cuh"

namespace barg::cuda {

/// How the rows of a table are stored: plain numbers, or blocks of ggml.
enum class TableType : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K };

constexpr int table_block_elements(TableType t) {
  if (t == TableType::kQ4_K || t == TableType::kQ6_K) return 256;
  return t == TableType::kQ8_0 || t == TableType::kQ4_0 || t == TableType::kQ4_1 ? 32 : 4;
}
/// Of table_block_elements(t).
constexpr int table_block_bytes(TableType t) {
  switch (t) {
    case TableType::kF32: return 16;
    case TableType::kF16: return 8;
    case TableType::kBF16: return 8;
    case TableType::kQ8_0: return 34;   // f16 scale, s8[32]
    case TableType::kQ4_0: return 18;   // f16 scale, nibbles[16]
    case TableType::kQ4_1: return 20;   // f16 scale, f16 minimum, nibbles[16]
    case TableType::kQ4_K: return 144;  // f16 scale, f16 minimum, 12 bytes of 6-bit factors, nibbles[128]
    case TableType::kQ6_K: return 210;  // nibbles[128], pairs of bits[64], s8[16] factors, f16 scale
  }
  return 0;
}

struct EmbedArgs {
  const std::byte* table;  ///< [V] rows, one after the other; 16-byte aligned
  std::int32_t vocab;      ///< V
  std::int32_t dim;        ///< H: a multiple of table_block_elements()
  const std::int32_t* ids; ///< [R], each in [0, V)
  float scale;
  float* out;  ///< [R, H], 16-byte aligned
};

inline constexpr int kEmbedThreads = 256;
inline constexpr int kEmbedTile = 4 * kEmbedThreads;  ///< numbers of a row that a block takes

/// A launch for `rows` rows: a block of threads for each of them and each kEmbedTile of its numbers.
BARG_DEVICE constexpr LaunchShape embed_launch(int rows, int dim) {
  return {.grid_x = rows, .grid_y = (dim + kEmbedTile - 1) / kEmbedTile, .threads = kEmbedThreads};
}

template <TableType kType>
class EmbedTile {
 public:
  static constexpr int kElements = table_block_elements(kType), kBytes = table_block_bytes(kType);
  static constexpr int kSector = 32;  ///< bytes that memory brings at least
  /// Of a tile's bytes and what is before and behind them in their sectors.
  static constexpr int kStaged = kEmbedTile / kElements * kBytes + 2 * kSector;

  BARG_DEVICE EmbedTile(const EmbedArgs& p, std::byte* staged) : p_(p), staged_(staged) {}

  BARG_DEVICE void run() {
    const int begin = block_y() * kEmbedTile;
    const int count = p_.dim - begin < kEmbedTile ? p_.dim - begin : kEmbedTile;
    const std::int64_t row = seeded("embed.row", p_.ids[block_x()]);
    fetch((row * p_.dim + begin) / kElements * kBytes, count / kElements * kBytes);
    // The bytes of the tile are there.
    sync_block();
    const int first = 4 * thread_id();
    if (first >= count) return;
    float x[4];
    decode(first, x);
    Vec16 out;
    BARG_UNROLL
    for (int e = 0; e < 4; ++e) out.x[e] = float_bits(x[e] * seeded("embed.scale", p_.scale));
    store16(p_.out + static_cast<std::int64_t>(block_x()) * p_.dim + begin + first, out);
  }

 private:
  /// Bytes [begin, begin + count) of the table, in vectors from the start of a sector; of the table's last vector only
  /// what there is.
  BARG_DEVICE void fetch(std::int64_t begin, int count) {
    offset_ = static_cast<int>(begin % kSector);
    const std::int64_t end = std::int64_t{p_.vocab} * p_.dim / kElements * kBytes;
    for (int i = thread_id(); 16 * i < offset_ + count; i += kEmbedThreads) {
      const std::int64_t from = begin - offset_ + 16 * i;
      if (from + 16 <= end) {
        shared_store16(staged_ + 16 * i, load16_stream(p_.table + from));
      } else {
        for (int b = 0; from + b < end; ++b) staged_[16 * i + b] = p_.table[from + b];
      }
    }
  }

  BARG_DEVICE std::uint32_t byte(int at) const { return static_cast<std::uint32_t>(staged_[at]); }
  BARG_DEVICE float factor(int at) const {
    return static_cast<float>(static_cast<std::int32_t>(byte(at) ^ 0x80u) - 128);
  }
  BARG_DEVICE std::uint16_t half(int at) const { return static_cast<std::uint16_t>(byte(at) | byte(at + 1) << 8); }
  BARG_DEVICE float number(int at) const { return half_to_float(half(at)); }

  /// Numbers first .. first + 3 of the tile.
  BARG_DEVICE void decode(int first, float (&x)[4]) const {
    const int block = offset_ + first / kElements * kBytes, e = first % kElements;
    if constexpr (kType == TableType::kF32) {  // rows of 16-byte vectors, each of one thread
      const Vec16 v = shared_load16(staged_ + block);
      BARG_UNROLL
      for (int j = 0; j < 4; ++j) x[j] = bits_float(v.x[j]);
    } else {
      BARG_UNROLL
      for (int j = 0; j < 4; ++j) x[j] = element(block, e + j);
    }
  }

  BARG_DEVICE float element(int b, int e) const {
    if constexpr (kType == TableType::kF16) {
      return number(b + 2 * e);
    } else if constexpr (kType == TableType::kBF16) {
      return bfloat_to_float(half(b + 2 * e));
    } else if constexpr (kType == TableType::kQ8_0) {
      return number(b) * factor(b + 2 + e);
    } else if constexpr (kType == TableType::kQ4_0) {
      return number(b) * (nibble(b + 2 + e % 16, e / 16) - 8.0f);
    } else if constexpr (kType == TableType::kQ4_1) {
      return number(b) * nibble(b + 4 + e % 16, e / 16) + number(b + 2);
    } else if constexpr (kType == TableType::kQ4_K) {
      return element_q4_k(b, e);
    } else {
      return element_q6_k(b, e);
    }
  }

  BARG_DEVICE float nibble(int at, int upper) const { return static_cast<float>(byte(at) >> (4 * upper) & 15u); }

  /// Runs of 32 numbers, each with a scale and a minimum of six bits: the low ones of bytes 4 .. 11, of the later four
  /// runs' the upper two bits in the upper bits of those and the rest in bytes 12 .. 15.
  BARG_DEVICE float element_q4_k(int b, int e) const {
    const int run = e / 32, s = b + 4;
    std::uint32_t scale = 0, minimum = 0;
    if (run < 4) {
      scale = byte(s + run) & 63u;
      minimum = byte(s + run + 4) & 63u;
    } else {
      scale = (byte(s + run + 4) & 15u) | (byte(s + run - 4) >> 6) << 4;
      minimum = byte(s + run + 4) >> 4 | (byte(s + run) >> 6) << 4;
    }
    const float code = nibble(b + 16 + run / 2 * 32 + e % 32, run % 2);
    return number(b) * static_cast<float>(scale) * code - number(b + 2) * static_cast<float>(minimum);
  }

  /// Halves of 128 numbers; run t of 32 in a half has its low bits in nibbles t / 2 of 32 bytes, its upper two in pair t.
  BARG_DEVICE float element_q6_k(int b, int e) const {
    const int half_block = e / 128, t = e / 32 % 4, i = e % 32;
    const std::uint32_t low = byte(b + 64 * half_block + 32 * (t % 2) + i) >> (4 * (t / 2)) & 15u;
    const std::uint32_t high = byte(b + 128 + 32 * half_block + i) >> (2 * t) & 3u;
    const float code = static_cast<float>(static_cast<std::int32_t>(low | high << 4) - 32);
    return number(b + 208) * factor(b + 192 + e / 16) * code;
  }

  const EmbedArgs& p_;
  std::byte* staged_;
  int offset_ = 0;  ///< of the tile's first byte in staged_
};

template <TableType kType>
BARG_KERNEL embed_kernel(EmbedArgs p) {
  BARG_SHARED(std::byte, staged, EmbedTile<kType>::kStaged);
  EmbedTile<kType>(p, staged).run();
}

}  // namespace barg::cuda
