// Latent attention, written once for the vector back ends over Native and Wide (avx2.h, avx512.h).
// latent_scalar.cpp is the specification.
//
// All heads read the same keys, so lanes are heads: 16 of one row go together, every number of a key is
// broadcast to them, and nothing is summed across lanes. A tile of 32 keys becomes f32 once for 16 heads; both
// products read it from L2. Few rows share their splits out over the threads; the partial results lie in slots
// and are folded in order afterwards, so that how a call is cut changes no bit.
//
// Include from one translation unit of each instruction set, after its Wide; everything is in an unnamed
// namespace for the reason given there. Thread rule: items run on any thread and share nothing.
#pragma once

#include "cpu/latent.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

constexpr int kVecs = kLatentHeads / Native::kLanes;      // vectors of 16 heads
constexpr int kRun = 8 / kVecs;                           // keys, or dims, whose sums are in registers together
constexpr std::int32_t padded_latent(std::int32_t dim) { return (dim + 15) / 16 * 16 + 16; }
constexpr int kPitch = padded_latent(kMaxLatentDim);  // of the widest tile
static_assert(kLatentHeads % Native::kLanes == 0 && kTileKeys % kRun == 0);

/// The partial result of 16 heads of one row.
struct Slot {
  float* max;  ///< [16]
  float* sum;  ///< [16]
  float* acc;  ///< [value_dim][16]

  explicit Slot(float* memory) : max(memory), sum(memory + kLatentHeads), acc(memory + 2 * kLatentHeads) {}
};

/// 16 heads of one row.
struct LatentItem {
  const Segment* segment;
  std::int32_t row, last;  ///< of the batch; its position
  std::int32_t head, heads;
};

/// What a thread needs for an item besides slots; on its stack.
struct LatentState {
  alignas(64) float q[kMaxLatentDim][kLatentHeads];
  alignas(64) float tile[kTileKeys * kPitch];  ///< [keys][dim + 16]: rows do not meet in the cache
  alignas(64) float e[kTileKeys][kLatentHeads];
  alignas(64) float correction[kLatentHeads];
};

template <class W>
void widen(const std::byte* from, std::int32_t count, float scale, float* to) {
  const Native::Reg s = Native::set(scale);
  for (std::int32_t i = 0; i < count; i += Native::kLanes) {
    const std::int32_t few = min_of(Native::kLanes, count - i);
    Native::Reg v;
    if (few == Native::kLanes) {
      v = W::load(from + std::int64_t{i} * W::kBytes);
    } else {
      alignas(64) std::byte some[Native::kLanes * W::kBytes] = {};
      __builtin_memcpy(some, from + std::int64_t{i} * W::kBytes, static_cast<std::size_t>(few) * W::kBytes);
      v = W::load(some);
    }
    if constexpr (has_token_scales(W::kType)) v = Native::mul(v, s);
    Native::store(to + i, v);  // what is too much lies in the pitch
  }
}

/// The `keys` keys from `tile` on as f32.
template <class W>
void load_tile(const LatentAttentionParams& p, const LatentItem& item, std::int32_t tile, int keys,
               std::int32_t pitch, float* to) {
  const KvLayerView& kv = p.kv;
  for (int j = 0; j < keys; ++j) {
    const std::int32_t slot = (tile + j) % kv.block_tokens;
    std::byte* plane = kv_plane(kv, item.segment->block_table[(tile + j) / kv.block_tokens], 0);
    const std::byte* from = plane + std::int64_t{slot} * kv.head_dim * W::kBytes;
    float* key = to + j * pitch;
    if constexpr (has_token_scales(W::kType)) {
      float scale[2];
      for (int part = 0; part < 2; ++part) {
        __builtin_memcpy(&scale[part], latent_scales(kv, plane, part) + slot * 4, 4);
        scale[part] = scale[part] * code_unit(W::kType);
      }
      // The second part overwrites what the first left behind its end.
      widen<W>(from, p.value_dim, scale[0], key);
      widen<W>(from + p.value_dim, kv.head_dim - p.value_dim, scale[1], key + p.value_dim);
    } else {
      widen<W>(from, kv.head_dim, 1.0f, key);
    }
  }
}

/// e[N][16] = q . keys
template <int N>
[[gnu::noinline]] void latent_scores(const LatentState& s, const float* keys, std::int32_t pitch,
                                     std::int32_t dim, float (*e)[kLatentHeads]) {
  Native::Reg a[N][kVecs];
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) a[j][v] = Native::zero();
  }
  for (std::int32_t d = 0; d < dim; ++d) {
    Native::Reg q[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) q[v] = Native::load(s.q[d] + v * Native::kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      const Native::Reg k = Native::set(keys[j * pitch + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) Native::fma(q[v], k, a[j][v]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) Native::store(e[j] + v * Native::kLanes, a[j][v]);
  }
}

/// acc[N][16] = acc * correction, then + e_j v_j of `keys` keys.
template <int N>
[[gnu::noinline]] void latent_values(const LatentState& s, const float* values, std::int32_t pitch, int keys,
                                     float* acc) {
  Native::Reg a[N][kVecs];
#pragma GCC unroll 8
  for (int d = 0; d < N; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const int at = v * Native::kLanes;
      a[d][v] = Native::mul(Native::load(acc + d * kLatentHeads + at), Native::load(s.correction + at));
    }
  }
  for (int j = 0; j < keys; ++j) {
    Native::Reg e[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) e[v] = Native::load(s.e[j] + v * Native::kLanes);
#pragma GCC unroll 8
    for (int d = 0; d < N; ++d) {
      const Native::Reg x = Native::set(values[j * pitch + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) Native::fma(e[v], x, a[d][v]);
    }
  }
#pragma GCC unroll 8
  for (int d = 0; d < N; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) Native::store(acc + d * kLatentHeads + v * Native::kLanes, a[d][v]);
  }
}

/// Scores of `keys` keys become weights; max, sum and the correction move.
void latent_soften(const LatentAttentionParams& p, LatentState& s, int keys, Slot& to) {
  const Wide::Reg scale = Wide::set(p.scale);
  const Wide::Reg old = Wide::load(to.max);
  Wide::Reg max = old;
  for (int j = 0; j < keys; ++j) {
    const Wide::Reg x = Wide::mul(Wide::load(s.e[j]), scale);
    Wide::store(s.e[j], x);
    max = Wide::max(x, max);  // a NaN score loses
  }
  const Wide::Reg c = Wide::exp(Wide::sub(old, max));
  Wide::Reg sum = Wide::zero();
  for (int j = 0; j < keys; ++j) {
    const Wide::Reg e = Wide::exp(Wide::sub(Wide::load(s.e[j]), max));
    Wide::store(s.e[j], e);
    sum = Wide::add(sum, e);
  }
  Wide::store(to.max, max);
  Wide::store(to.sum, Wide::fma(Wide::load(to.sum), c, sum));
  Wide::store(s.correction, c);
}

template <class W>
void latent_walk(const LatentAttentionParams& p, LatentState& s, const LatentItem& item, std::int32_t split,
                 Slot& to) {
  const std::int32_t dim = p.kv.head_dim;
  const std::int32_t pitch = padded_latent(dim);
  for (std::int32_t tile = split; tile < split + kSplitKeys && tile <= item.last; tile += kTileKeys) {
    const int keys = min_of(kTileKeys, item.last + 1 - tile);
    load_tile<W>(p, item, tile, keys, pitch, s.tile);
    int j = 0;
    for (; j + kRun <= keys; j += kRun) latent_scores<kRun>(s, s.tile + j * pitch, pitch, dim, s.e + j);
    for (; j < keys; ++j) latent_scores<1>(s, s.tile + j * pitch, pitch, dim, s.e + j);
    latent_soften(p, s, keys, to);
    std::int32_t d = 0;
    for (; d + kRun <= p.value_dim; d += kRun)
      latent_values<kRun>(s, s.tile + d, pitch, keys, to.acc + d * kLatentHeads);
    for (; d < p.value_dim; ++d) latent_values<1>(s, s.tile + d, pitch, keys, to.acc + d * kLatentHeads);
  }
}

/// One split of an item.
void latent_split(const LatentAttentionParams& p, LatentState& s, const LatentItem& item, std::int32_t split,
                  Slot to) {
  Wide::store(to.max, Wide::set(-__builtin_inff()));
  Wide::store(to.sum, Wide::zero());
  for (std::int32_t d = 0; d < p.value_dim; ++d) Wide::store(to.acc + d * kLatentHeads, Wide::zero());
  switch (p.kv.dtype) {
    case DType::kF32:
      return latent_walk<F32>(p, s, item, split, to);
    case DType::kF16:
      return latent_walk<F16>(p, s, item, split, to);
    case DType::kF8E4M3:
      return latent_walk<F8>(p, s, item, split, to);
    case DType::kI8:
      return latent_walk<I8>(p, s, item, split, to);
    default:
      return latent_walk<BF16>(p, s, item, split, to);
  }
}

/// Transposed; lanes without a head are zero.
void load_queries(const LatentAttentionParams& p, const LatentItem& item, LatentState& s) {
  const std::int32_t dim = p.kv.head_dim;
  const float* q = p.q + (std::int64_t{item.row} * p.num_q_heads + item.head) * dim;
  for (std::int32_t d = 0; d < dim; ++d) {
    Wide::store(s.q[d], Wide::zero());
    for (std::int32_t h = 0; h < item.heads; ++h) s.q[d][h] = q[std::int64_t{h} * dim + d];
  }
}

/// `fold` of ops_scalar.cpp, of 16 heads.
void latent_fold(const LatentAttentionParams& p, Slot total, Slot next) {
  const Wide::Reg old = Wide::load(total.max), other = Wide::load(next.max);
  const Wide::Reg max = Wide::max(other, old);
  const Wide::Reg a = Wide::exp(Wide::sub(old, max));
  const Wide::Reg b = Wide::exp(Wide::sub(other, max));
  const auto join = [&](float* x, const float* y) {
    Wide::store(x, Wide::fma(Wide::load(x), a, Wide::mul(Wide::load(y), b)));
  };
  Wide::store(total.max, max);
  join(total.sum, next.sum);
  for (std::int32_t d = 0; d < p.value_dim; ++d) join(total.acc + d * kLatentHeads, next.acc + d * kLatentHeads);
}

void latent_finish(const LatentAttentionParams& p, const LatentItem& item, Slot total) {
  for (std::int32_t h = 0; h < item.heads; ++h) {
    const float inverse = 1.0f / total.sum[h];
    float* out = p.out + (std::int64_t{item.row} * p.num_q_heads + item.head + h) * p.value_dim;
    for (std::int32_t d = 0; d < p.value_dim; ++d) out[d] = total.acc[d * kLatentHeads + h] * inverse;
  }
}

/// Items of a call: rows times groups of 16 heads, the rows of all segments in order.
struct LatentItems {
  const LatentAttentionParams& p;
  std::int32_t groups, rows = 0, longest = 0;

  explicit LatentItems(const LatentAttentionParams& params)
      : p(params), groups((params.num_q_heads + kLatentHeads - 1) / kLatentHeads) {
    for (std::int32_t i = 0; i < p.num_segments; ++i) {
      const std::int32_t end = p.segments[i].pos_begin + p.segments[i].row_count;
      rows += p.segments[i].row_count;
      longest = end > longest ? end : longest;
    }
  }
  std::int32_t count() const { return rows * groups; }
  LatentItem at(std::int32_t i) const {
    std::int32_t row = i / groups;
    const Segment* s = p.segments;
    for (; row >= s->row_count; ++s) row -= s->row_count;
    const std::int32_t head = i % groups * kLatentHeads;
    return {s, s->row_begin + row, s->pos_begin + row, head, min_of(kLatentHeads, p.num_q_heads - head)};
  }
};

void run_latent_attention(Stream& stream, const LatentAttentionParams& p) {
  const LatentItems items(p);
  const auto floats = static_cast<std::int64_t>(latent_slot_floats(p.value_dim));
  const std::int32_t splits = (items.longest + kSplitKeys - 1) / kSplitKeys;
  const std::int32_t count = items.count();
  // Totals and at least two splits of each item must have slots.
  if (stream.pool.threads() == 1 || splits <= 1 || count >= 2 * stream.pool.threads() || 3 * count > kLatentSlots) {
    return parallel_for_rows(stream, count, [&](int i) {
      LatentState s;
      alignas(64) float memory[2][(kMaxLatentDim + 2) * kLatentHeads];
      const LatentItem item = items.at(i);
      load_queries(p, item, s);
      for (std::int32_t split = 0; split <= item.last; split += kSplitKeys) {
        latent_split(p, s, item, split, Slot(memory[split > 0 ? 1 : 0]));
        if (split > 0) latent_fold(p, Slot(memory[0]), Slot(memory[1]));
      }
      latent_finish(p, item, Slot(memory[0]));
    });
  }
  auto* const slots = static_cast<float*>(p.workspace);
  const std::int32_t at_once = kLatentSlots / count - 1;
  const auto total = [&](int i) { return Slot(slots + i * floats); };
  const auto part = [&](int i, int split) { return Slot(slots + (count + std::int64_t{i} * at_once + split) * floats); };
  for (std::int32_t first = 0; first < splits; first += at_once) {
    parallel_for(stream, count * at_once, [&](int i) {
      const LatentItem item = items.at(i / at_once);
      const std::int32_t split = (first + i % at_once) * kSplitKeys;
      if (split > item.last) return;
      LatentState s;
      load_queries(p, item, s);
      latent_split(p, s, item, split, split == 0 ? total(i / at_once) : part(i / at_once, i % at_once));
    });
    parallel_for(stream, count, [&](int i) {
      const LatentItem item = items.at(i);
      for (int j = 0; j < at_once; ++j) {
        const std::int32_t split = (first + j) * kSplitKeys;
        if (split > 0 && split <= item.last) latent_fold(p, total(i), part(i, j));
      }
      const std::int32_t end = (first + at_once) * kSplitKeys;
      if (item.last >= first * kSplitKeys && item.last < end) latent_finish(p, item, total(i));
    });
  }
}

void run_latent_write(Stream& stream, const LatentWriteParams& p) {
  std::int32_t rows = 0;
  for (std::int32_t i = 0; i < p.num_segments; ++i) rows += p.segments[i].row_count;
  const std::int32_t per_row = p.num_q_heads * p.rotary_dim + 4 * p.kv.head_dim;
  parallel_rows(stream, rows, per_row, [&](std::int32_t begin, std::int32_t end) {
    std::int32_t before = 0;  // rows of earlier segments
    for (std::int32_t i = 0; i < p.num_segments && before < end; ++i) {
      const Segment& segment = p.segments[i];
      const std::int32_t last = min_of(segment.row_count, end - before);
      for (std::int32_t r = begin > before ? begin - before : 0; r < last; ++r) latent_row(p, segment, r);
      before += segment.row_count;
    }
  });
}

}  // namespace
}  // namespace barg::ops::cpu
