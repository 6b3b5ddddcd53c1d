// Weights from rows to panels (layout.h). As stored, bytes only move: a panel is a transposition of 16 rows,
// of 32-bit units for quantised and converted blocks and f32, of 16-bit elements for f16 and bf16. As bf16
// pairs, rows become bf16 a stretch at a time (those that are bf16 stay where they are) and 32-bit units
// move.
//
// Sixteen rows are read side by side and everything of four columns (or eight) is moved in registers, which
// keeps up with memory. The vectors are the compiler's own, four or eight lanes wide: every machine has
// those.
#include <cstring>

#include "cpu/layout.h"
#include "cpu/pool.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

struct PackJob {
  const PackParams* params;
  std::size_t row_bytes;
  std::size_t panel;
};

typedef std::uint32_t Units __attribute__((vector_size(16)));
typedef std::uint16_t Halves __attribute__((vector_size(16)));

template <class V>
inline V load(const std::byte* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <class V>
inline void store(std::byte* p, V v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

/// Four units from `at` of each row to dst[unit][16].
inline void transpose_units(const std::byte* const* rows, std::size_t at, std::byte* dst) {
#pragma GCC unroll 4
  for (int c = 0; c < kPanel; c += 4) {
    const auto a = load<Units>(rows[c] + at), b = load<Units>(rows[c + 1] + at);
    const auto d = load<Units>(rows[c + 2] + at), e = load<Units>(rows[c + 3] + at);
    const Units ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Units ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Units de_low = __builtin_shufflevector(d, e, 0, 4, 1, 5);
    const Units de_high = __builtin_shufflevector(d, e, 2, 6, 3, 7);
    std::byte* out = dst + c * 4;
    store(out, __builtin_shufflevector(ab_low, de_low, 0, 1, 4, 5));
    store(out + 64, __builtin_shufflevector(ab_low, de_low, 2, 3, 6, 7));
    store(out + 128, __builtin_shufflevector(ab_high, de_high, 0, 1, 4, 5));
    store(out + 192, __builtin_shufflevector(ab_high, de_high, 2, 3, 6, 7));
  }
}

/// Eight 16-bit elements from `at` of each row to dst[element][16].
inline void transpose_halves(const std::byte* const* rows, std::size_t at, std::byte* dst) {
#pragma GCC unroll 2
  for (int c = 0; c < kPanel; c += 8) {
    Halves v[8], w[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) v[i] = load<Halves>(rows[c + i] + at);
      // Each pass interleaves row i with row i + 4: three of them transpose.
#pragma GCC unroll 3
    for (int pass = 0; pass < 3; ++pass) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        w[2 * i] = __builtin_shufflevector(v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) v[i] = w[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) store(dst + i * 32 + c * 2, v[i]);
  }
}

/// Where the panel's rows start; the padding repeats the last one and is cleared afterwards.
struct Rows {
  const std::byte* at[kPanel];
  int count;
};

Rows rows_of(const PackJob& job, int panel) {
  Rows rows;
  const int first = panel * kPanel;
  rows.count = job.params->n - first < kPanel ? job.params->n - first : kPanel;
  const auto* src = static_cast<const std::byte*>(job.params->src);
  for (int c = 0; c < kPanel; ++c) {
    const int row = first + (c < rows.count ? c : rows.count - 1);
    rows.at[c] = src + static_cast<std::size_t>(row) * job.row_bytes;
  }
  return rows;
}

/// `Fields` header values of 2 bytes go to [field][16], the `Units` units of 4 bytes after them to
/// [unit][16].
template <int Fields, int UnitCount>
void pack_quantised(const Rows& rows, std::int32_t k, std::byte* dst) {
  constexpr std::size_t kBlock = Fields * 2 + UnitCount * 4;
  for (std::size_t at = 0; at < static_cast<std::size_t>(k / kQuantBlock) * kBlock; at += kBlock) {
#pragma GCC unroll 16
    for (int c = 0; c < kPanel; ++c) {
#pragma GCC unroll 2
      for (int f = 0; f < Fields; ++f)
        __builtin_memcpy(dst + (f * kPanel + c) * 2, rows.at[c] + at + f * 2, 2);
    }
    dst += Fields * kPanel * 2;
#pragma GCC unroll 2
    for (int u = 0; u < UnitCount; u += 4, dst += 4 * kPanel * 4)
      transpose_units(rows.at, at + Fields * 2 + u * 4, dst);
  }
}

/// Floats of `Bytes` bytes, 16 bytes of each row at a time and what remains one by one.
template <int Bytes>
void pack_floats(const Rows& rows, std::int32_t k, std::byte* dst) {
  constexpr std::int32_t kStep = 16 / Bytes;
  std::int32_t i = 0;
  for (; i + kStep <= k; i += kStep, dst += 16 * kPanel) {
    const std::size_t at = static_cast<std::size_t>(i) * Bytes;
    if constexpr (Bytes == 4) {
      transpose_units(rows.at, at, dst);
    } else {
      transpose_halves(rows.at, at, dst);
    }
  }
  for (; i < k; ++i, dst += Bytes * kPanel) {
    for (int c = 0; c < kPanel; ++c)
      __builtin_memcpy(dst + c * Bytes, rows.at[c] + static_cast<std::size_t>(i) * Bytes, Bytes);
  }
}

constexpr int kStretch = 256;  ///< elements of sixteen rows at a time: 8 KiB

/// `count` elements of one row from element `first`, both multiples of 32 for blocks, rounded to bf16.
void round_row(DType type, const std::byte* row, std::int32_t first, int count, std::uint16_t* out) {
  const std::byte* src = row + static_cast<std::size_t>(first) / block_elements(type) * block_bytes(type);
  if (type == DType::kF32) {
    for (int i = 0; i < count; ++i) out[i] = f32_to_bf16(load<float>(src + i * 4));
    return;
  }
  if (type == DType::kF16) {
    for (int i = 0; i < count; ++i) out[i] = f32_to_bf16(f16_to_f32(load_u16(src + i * 2)));
    return;
  }
  for (; count > 0; count -= kQuantBlock, src += block_bytes(type), out += kQuantBlock) {
    if (is_converted(type)) {
      for (int i = 0; i < kQuantBlock; ++i) out[i] = f32_to_bf16(converted_weight(type, RowWords{src}, i));
      continue;
    }
    const float d = f16_to_f32(load_u16(src));
    if (type == DType::kQ8_0) {
      for (int i = 0; i < kQuantBlock; ++i)
        out[i] = f32_to_bf16(d * static_cast<float>(static_cast<std::int8_t>(src[2 + i])));
      continue;
    }
    float value[16];  // of a nibble
    for (int q = 0; q < 16; ++q) {
      value[q] = type == DType::kQ4_1 ? d * static_cast<float>(q) + f16_to_f32(load_u16(src + 2))
                                      : d * static_cast<float>(q - 8);
    }
    const std::byte* nibbles = src + (type == DType::kQ4_1 ? 4 : 2);
    for (int i = 0; i < kHalfBlock; ++i) {
      const auto byte = static_cast<unsigned>(nibbles[i]);
      out[i] = f32_to_bf16(value[byte & 15u]);
      out[i + kHalfBlock] = f32_to_bf16(value[byte >> 4]);
    }
  }
}

/// The panel's rows as pairs: a pair is a unit of 32 bits.
void pack_pairs(DType type, const Rows& rows, std::int32_t k, std::byte* dst) {
  std::uint16_t halves[kPanel][kStretch];
  for (std::int32_t first = 0; first < k; first += kStretch) {
    const int count = k - first < kStretch ? k - first : kStretch;
    Rows part = rows;
    for (int c = 0; c < kPanel; ++c) {
      part.at[c] += static_cast<std::size_t>(first) * 2;
      if (type == DType::kBF16) continue;
      round_row(type, rows.at[c], first, count, halves[c]);
      part.at[c] = reinterpret_cast<const std::byte*>(halves[c]);
    }
    pack_floats<4>(part, count / 2, dst);
    dst += static_cast<std::size_t>(count / 2) * 4 * kPanel;
    if (count % 2 == 0) continue;
    std::memset(dst, 0, 4 * kPanel);
    for (int c = 0; c < kPanel; ++c)
      __builtin_memcpy(dst + c * 4, part.at[c] + static_cast<std::size_t>(count - 1) * 2, 2);
  }
}

/// Columns [count, 16) of every line of `dst`: lines of `Bytes` bytes a column.
template <int Bytes>
std::byte* clear_columns(std::byte* dst, int lines, int count) {
  for (int i = 0; i < lines; ++i, dst += Bytes * kPanel)
    std::memset(dst + count * Bytes, 0, static_cast<std::size_t>(kPanel - count) * Bytes);
  return dst;
}

void clear_padding(DType type, std::int32_t k, int count, std::byte* dst) {
  if (type == DType::kF32) {
    clear_columns<4>(dst, k, count);
  } else if (is_converted(type)) {
    clear_columns<4>(dst, k / kQuantBlock * block_words(type), count);
  } else if (!is_quantised(type)) {
    clear_columns<2>(dst, k, count);
  } else {
    for (int b = 0; b < k / kQuantBlock; ++b) {
      dst = clear_columns<2>(dst, type == DType::kQ4_1 ? 2 : 1, count);
      dst = clear_columns<4>(dst, type == DType::kQ8_0 ? 8 : 4, count);
    }
  }
}

void pack_panel(void* context, int panel) {
  const PackJob& job = *static_cast<const PackJob*>(context);
  const PackParams& p = *job.params;
  std::byte* dst = static_cast<std::byte*>(p.dst) + job.panel * static_cast<std::size_t>(panel);
  const Rows rows = rows_of(job, panel);
  if (p.packing == Packing::kBF16Pairs) {
    pack_pairs(p.dtype, rows, p.k, dst);
    if (rows.count < kPanel) clear_columns<4>(dst, num_pairs(p.k), rows.count);
    return;
  }
  if (is_converted(p.dtype)) {
    pack_floats<4>(rows, p.k / kQuantBlock * block_words(p.dtype), dst);
    if (rows.count < kPanel) clear_padding(p.dtype, p.k, rows.count, dst);
    return;
  }
  switch (p.dtype) {
    case DType::kF32:
      pack_floats<4>(rows, p.k, dst);
      break;
    case DType::kF16:
    case DType::kBF16:
      pack_floats<2>(rows, p.k, dst);
      break;
    case DType::kQ8_0:
      pack_quantised<1, 8>(rows, p.k, dst);
      break;
    case DType::kQ4_0:
      pack_quantised<1, 4>(rows, p.k, dst);
      break;
    case DType::kQ4_1:
      pack_quantised<2, 4>(rows, p.k, dst);
      break;
    default:
      __builtin_trap();  // no weights
  }
  if (rows.count < kPanel) clear_padding(p.dtype, p.k, rows.count, dst);
}

}  // namespace

std::size_t packed_bytes(DType type, std::int32_t n, std::int32_t k, Packing packing) {
  return panel_bytes(type, k, packing) * static_cast<std::size_t>(num_panels(n));
}

void pack(Stream& stream, const PackParams& p) {
  PackJob job{&p, static_cast<std::size_t>(p.k) / block_elements(p.dtype) * block_bytes(p.dtype),
              panel_bytes(p.dtype, p.k, p.packing)};
  stream.pool.run(num_panels(p.n), pack_panel, &job);
}

}  // namespace barg::ops::cpu
