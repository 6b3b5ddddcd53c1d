// linear and gated_linear, recipe bf16, with vdpbf16ps. bf16_dot in ops_scalar.cpp is the specification; the
// instruction is its bf16_fma twice, the odd k first.
//
// Rows are rounded to bf16 in the workspace first. Each output is then one chain over pairs of k; lanes are
// output columns, and every register shape performs the same operations per output:
//
//   few rows    four panels side by side, one pass over K
//   many rows   six at a time; K is walked in chunks that stay in L1 while all rows of the item use them, and
//               meanwhile the next chunk is fetched into L2. Accumulators are stored and reloaded between
//               chunks, which changes no bit. (Twelve rows by two panels load more: up to 7 % slower.)
//
// At the right edge of a matrix fewer panels are left, and more rows share them.
//
// Items, and what is done with their products, are in linear_items.h. Thread rule: as ops.h.
#include "cpu/linear_avx512.h"
// Needs the lanes above.
#include "cpu/linear_items.h"

namespace barg::ops::cpu {
namespace {

constexpr int kPairBytes = 4 * kPanel;  // of a panel
constexpr int kChunkBytes = 32 << 10;   // of the panels that are multiplied at one time

/// Rows of a register shape: at most 24 accumulators of 32 registers.
constexpr int max_rows(int panels) { return panels <= 2 ? 12 : 24 / panels; }

struct PairItem : Item {
  std::int32_t pairs;
  const std::uint32_t* x;  ///< [rows][pairs]
};

/// Part of an item: NP panels, and what to prefetch meanwhile.
template <int NP>
struct Part {
  const std::byte* panel[NP];
  const std::byte* next[NP];
  std::int64_t next_step;  ///< bytes of each `next` a pair
  const std::uint32_t* x;
  std::int64_t x_stride;
  float* acc;
};

/// acc[MR][NP * 16] += x[MR][count] * panels[NP][count].
template <int NP, int MR>
void chain(const Part<NP>& part, int count) {
  __m512 acc[MR][NP];
  repeat<MR>([&](auto m) __attribute__((always_inline)) {
    repeat<NP>([&](auto c) __attribute__((always_inline)) {
      acc[m][c] = _mm512_loadu_ps(part.acc + m * kAccStride + c * kPanel);
    });
  });
  const std::byte* w[NP];
  const std::byte* next[NP];
  for (int i = 0; i < NP; ++i) w[i] = part.panel[i];
  for (int i = 0; i < NP; ++i) next[i] = part.next[i];
  const std::uint32_t* x = part.x;
  const std::int64_t stride = part.x_stride;
  const std::int64_t next_step = part.next_step;
  for (std::int64_t k = 0; k < count; ++k) {
    if constexpr (MR > 1) {  // a single row does nothing but read, which the hardware sees
      repeat<NP>([&](auto i) __attribute__((always_inline)) {
        __builtin_prefetch(next[i], 0, 2);  // to L2
        next[i] += next_step;
      });
    }
    __m512bh weight[NP];
    repeat<NP>([&](auto c) __attribute__((always_inline)) {
      weight[c] = (__m512bh)_mm512_loadu_si512(w[c] + k * kPairBytes);
    });
    repeat<MR>([&](auto m) __attribute__((always_inline)) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<std::int32_t>(x[m * stride + k]));
      repeat<NP>([&](auto c) __attribute__((always_inline)) {
        acc[m][c] = _mm512_dpbf16_ps(acc[m][c], weight[c], pair);
        Avx512Lanes::pin(acc[m][c]);  // keeps GCC from hoisting loads
      });
    });
  }
  repeat<MR>([&](auto m) __attribute__((always_inline)) {
    repeat<NP>([&](auto c) __attribute__((always_inline)) {
      _mm512_storeu_ps(part.acc + m * kAccStride + c * kPanel, acc[m][c]);
    });
  });
}

/// chain of `rows`, 1 .. MR, rows.
template <int NP, int MR = max_rows(NP)>
void with_rows(const Part<NP>& part, int rows, int count) {
  if constexpr (MR > 1) {
    if (rows < MR) return with_rows<NP, MR - 1>(part, rows, count);
  }
  chain<NP, MR>(part, count);
}

template <int NP>
void chunked(const PairItem& item, const Part<NP>& whole, const std::byte* const* after) {
  constexpr int kMax = max_rows(NP);
  const int groups = (item.rows + kMax - 1) / kMax;
  constexpr int kMost = kChunkBytes / (NP * kPairBytes);
  const int chunks = (item.pairs + kMost - 1) / kMost;
  const int depth = (item.pairs + chunks - 1) / chunks;
  const std::int64_t chunk_bytes = std::int64_t{depth} * kPairBytes;
  for (std::int32_t k = 0; k < item.pairs; k += depth) {
    const int count = min_of(depth, item.pairs - k);
    for (int g = 0; g < groups; ++g) {  // 14 rows are 7 + 7, not 12 + 2
      const int begin = item.rows * g / groups;
      const int end = item.rows * (g + 1) / groups;
      Part<NP> part = whole;
      part.x += begin * whole.x_stride + k;
      part.acc += begin * kAccStride;
      // Each group of rows fetches its share of the next chunk.
      part.next_step = chunk_bytes / (std::int64_t{groups} * depth);
      for (int i = 0; i < NP; ++i) {
        part.panel[i] += std::int64_t{k} * kPairBytes;
        part.next[i] = k + depth < item.pairs ? part.panel[i] + chunk_bytes : after[i];
        part.next[i] += g * (chunk_bytes / groups);
      }
      with_rows(part, end - begin, count);
    }
  }
}

/// An item of NP panels.
template <int NP>
void multiply_panels(const PairItem& item) {
  constexpr std::int64_t kAhead = 4096;  // bytes that one pass over K fetches in advance
  Part<NP> part{};
  const std::byte* after[NP];
  for (int i = 0; i < NP; ++i) {
    part.panel[i] = item.panel[i];
    part.next[i] = part.panel[i] + kAhead;
    after[i] = item.after(0, NP, i);
  }
  part.next_step = kPairBytes;
  part.x = item.x;
  part.x_stride = item.pairs;
  part.acc = item.acc;
  if (item.rows <= max_rows(NP)) return with_rows(part, item.rows, item.pairs);
  chunked(item, part, after);
}

/// acc = the item's products.
void multiply(const PairItem& item) {
  for (int r = 0; r < item.rows; ++r) {
    for (int i = 0; i < item.panels; ++i) {
      _mm512_storeu_ps(item.acc + r * kAccStride + i * kPanel, _mm512_setzero_ps());
    }
  }
  if (item.panels == 4) return multiply_panels<4>(item);
  if (item.panels == 3) return multiply_panels<3>(item);
  if (item.panels == 2) return multiply_panels<2>(item);
  multiply_panels<1>(item);
}

/// bf16_row: both conversions round to nearest even and take numbers below the normal range for zeros.
void round_row(const float* x, std::int32_t k, std::uint32_t* out) {
  std::int32_t i = 0;
  for (; i + 32 <= k; i += 32, out += 16) {
    const __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16), _mm512_loadu_ps(x + i));
    _mm512_storeu_si512(out, (__m512i)pairs);
  }
  for (; i < k; i += 16, out += 8) {
    const int count = min_of(16, k - i);
    const __m256bh pairs = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lane_mask(count), x + i));
    const auto used = static_cast<__mmask8>((1u << num_pairs(count)) - 1u);
    _mm256_mask_storeu_epi32(out, used, (__m256i)pairs);
  }
}

/// The rows of a product, rounded, in its workspace.
template <class Params>
const std::uint32_t* round_rows(Stream& s, const Params& p, std::int32_t k) {
  auto* out = static_cast<std::uint32_t*>(p.workspace);
  parallel_rows(s, p.rows, k, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t r = begin; r < end; ++r)
      round_row(p.x + r * p.x_stride, k, out + std::int64_t{r} * num_pairs(k));
  });
  return out;
}

}  // namespace

void linear_bf16_avx512(Stream& s, const LinearParams& p) {
  const std::uint32_t* x = round_rows(s, p, p.weight.k);
  const std::int32_t pairs = num_pairs(p.weight.k);
  linear_by_items<Avx512Lanes>(s, p, [&](const Item& item) {
    multiply({item, pairs, x + std::int64_t{item.row} * pairs});
  });
}

void gated_bf16_avx512(Stream& s, const GatedLinearParams& p) {
  const std::uint32_t* x = round_rows(s, p, p.gate.k);
  const std::int32_t pairs = num_pairs(p.gate.k);
  gated_by_items<Avx512Lanes>(s, p, [&](const Item& item) {
    multiply({item, pairs, x + std::int64_t{item.row} * pairs});
  });
}

}  // namespace barg::ops::cpu
