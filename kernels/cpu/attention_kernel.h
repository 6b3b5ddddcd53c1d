// Attention, written once for the vector back ends over Wide, the 16 lanes of avx2.h or avx512.h.
// `attend_split` and `fold` in ops_scalar.cpp are the specification.
//
// An item (attention.h) walks its keys in groups of 64, and in each group its kv heads one after the other,
// so that it reads a block's memory front to back; the bytes of the next head or group are fetched meanwhile.
// For one kv head and group: scores with lanes over keys, softmax of every query, then P V with lanes over
// head dimensions. Each K or V vector that is loaded serves several queries from registers. Prefill and
// decode are this one routine; what a query computes depends on its own position only, because the keys it
// does not see are masked in the scores and skipped in P V.
//
// Include from one translation unit of each instruction set, after its Wide; everything is in an unnamed
// namespace for the reason given there. Thread rule: items run on any thread and share nothing.
#pragma once

#include "cpu/attention.h"
#include "cpu/parallel.h"
#include "math.h"

namespace barg::ops::cpu {
namespace {

using Reg = Wide::Reg;

constexpr int kHalf = 16;  // the smallest block: the unit in which keys are addressed
constexpr int kHalves = kGroupKeys / kHalf;
constexpr int kTiles = kGroupKeys / kTileKeys;
constexpr int kPiece = 16;  // steps of a loop between two looks at what to fetch
static_assert(kTileKeys == 2 * kHalf && kSplitKeys % kGroupKeys == 0);

inline int larger(int a, int b) { return a > b ? a : b; }

/// Tiles of a group, inclusive.
struct Tiles {
  int first, last;
};

/// What an item keeps while it walks a split; on the stack of the thread that runs it (about 60 KiB).
struct State {
  const AttentionParams* p;
  const AttentionItem* item;
  const Segment* segment;
  int count;  ///< queries of a kv head, rows ascending
  int dim, width;
  const float* q[kMaxHeadQueries];         ///< on the first kv head of the item
  std::uint64_t visible[kMaxHeadQueries];  ///< keys of the group that a query sees
  float max[kMaxItemQueries];
  alignas(64) float lanes[kMaxItemQueries][kLanes];
  alignas(64) float scores[kMaxHeadQueries][kGroupKeys];
  alignas(64) float k_scale[kGroupKeys], v_scale[kGroupKeys];  ///< of codes
  alignas(64) float new_max[kTiles][kMaxHeadQueries];
  alignas(64) float correction[kTiles][kMaxHeadQueries];
  alignas(64) float acc[kMaxItemFloats];  ///< [kv head][query][width]
};

/// Keys of tile t that query i sees: one run of bits.
inline std::uint32_t tile_bits(const State& s, int i, int t) {
  return static_cast<std::uint32_t>(s.visible[i] >> (t * kTileKeys));
}

/// The halves (16 keys each) of a group in memory, of one kv head. A half that no query sees repeats another.
struct GroupView {
  const std::byte* k[kHalves];  ///< element (d, key) of a half: d * k_stride + key
  const std::byte* v[kHalves];  ///< element (key, d): key * dim + d
  std::int64_t k_stride;
  const std::byte* k_scale[kHalves];
  const std::byte* v_scale[kHalves];
};

/// Fetches the blocks of a kv head that will be read soon, piece by piece between pieces of arithmetic.
struct Ahead {
  const KvLayerView* kv = nullptr;
  const BlockId* table = nullptr;
  std::int32_t head = 0;
  std::int32_t next = 0, last = -1;  ///< blocks not yet begun, inclusive
  const std::byte* at = nullptr;
  std::int64_t left = 0;
  const std::byte* values = nullptr;  ///< the V plane of a block of codes, not yet begun

  /// What a loop of arithmetic prefetches: at, at + step, ... (nothing to do: one line again and again).
  struct Piece {
    const std::byte* at;
    std::int64_t step;

    template <int Bytes>
    void fetch() {
#pragma GCC unroll 8
      for (int i = 0; i < Bytes; i += 64)
        __builtin_prefetch(at + i, 0, 2);  // to L2: misses of L1 are few at a time
      at += step;
    }
  };

  /// A block, or a plane of codes: so that pieces end where planes do. Its scales are fetched at once.
  bool begin() {
    if (values == nullptr && next > last) return false;
    const bool scaled = has_token_scales(kv->dtype);
    if (values != nullptr) {
      at = values;
      values = nullptr;
    } else {
      at = kv_plane(*kv, table[next++], head);
      if (scaled) values = at + kv->v_offset;
    }
    left = scaled ? scales_offset(*kv) : 2 * kv->v_offset;
    for (std::int64_t i = left; scaled && i < kv->v_offset; i += 64) __builtin_prefetch(at + i, 0, 3);
    return true;
  }

  /// The next `steps` steps of `bytes` each.
  Piece take(int steps, int bytes) {
    if (left <= 0 && !begin()) return {reinterpret_cast<const std::byte*>(this), 0};
    const Piece piece{at, bytes};
    at += std::int64_t{steps} * bytes;
    left -= std::int64_t{steps} * bytes;
    return piece;
  }
};

/// f(Int<n>) for n in 1 .. Max.
template <int N>
struct Int {
  static constexpr int value = N;
};
template <int Max, class F>
inline void with_count(int n, F&& f) {
  if constexpr (Max > 1) {
    if (n < Max) return with_count<Max - 1>(n, f);
  }
  f(Int<Max>{});
}

/// f(begin, Int<n>) over [0, count) in parts of at most Most, as equal as can be.
template <int Most, class F>
inline void in_parts(int count, F&& f) {
  const int parts = (count + Most - 1) / Most;
  for (int i = 0, begin = 0; i < parts; ++i) {
    const int n = (count - begin) / (parts - i);
    with_count<Most>(n, [&](auto size) { f(begin, size); });
    begin += n;
  }
}

// --- scores ----------------------------------------------------------------------------------------------

/// Scores of MR queries and NK vectors of keys from `half`.
template <int MR, int NK, class W>
[[gnu::noinline]] void score(State& s, int begin, std::int64_t q_offset, const GroupView& view, int half,
                             Ahead& ahead) {
  constexpr int kParts = kHalf / Native::kLanes;  // vectors of a half
  constexpr int kBytes = NK * Native::kLanes * W::kBytes;
  Native::Reg a[MR][NK];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < NK; ++c) a[m][c] = Native::zero();
  }
  const float* q[MR];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) q[m] = s.q[begin + m] + q_offset;
  const std::byte* k[NK];
#pragma GCC unroll 4
  for (int c = 0; c < NK; ++c) k[c] = view.k[half + c / kParts] + c % kParts * Native::kLanes * W::kBytes;
  const std::int64_t stride = view.k_stride * W::kBytes;
  for (int d = 0; d < s.dim;) {
    const int end = min_of(d + kPiece, s.dim);
    Ahead::Piece piece = ahead.take(end - d, kBytes);
    for (; d < end; ++d) {
      piece.fetch<kBytes>();
      Native::Reg x[MR];
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) x[m] = Native::set(q[m][d]);
#pragma GCC unroll 4
      for (int c = 0; c < NK; ++c) {
        const Native::Reg key = W::load(k[c] + d * stride);
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) Native::fma(x[m], key, a[m][c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    float* scores = &s.scores[begin + m][half * kHalf];
#pragma GCC unroll 4
    for (int c = 0; c < NK; ++c) Native::store(scores + c * Native::kLanes, a[m][c]);
  }
}

template <class W>
void score_all(State& s, std::int64_t q_offset, const GroupView& view, int first_tile, int last_tile,
               Ahead& ahead) {
  constexpr int kTile = kTileKeys / Native::kLanes;
  Ahead none;
  in_parts<Native::kRows>(s.count, [&](int begin, auto rows) {
    Ahead& fetch = begin == 0 ? ahead : none;
    if constexpr (Native::kColumns == kTiles * kTile) {
      if (last_tile > first_tile)
        return score<rows.value, kTiles * kTile, W>(s, begin, q_offset, view, 0, fetch);
    }
    for (int t = first_tile; t <= last_tile; ++t) {
      score<rows.value, kTile, W>(s, begin, q_offset, view, 2 * t, fetch);
    }
  });
}

// --- softmax ---------------------------------------------------------------------------------------------

inline Reg soft_capped(Reg score, float cap) {
  return Wide::mul(Wide::tanh(Wide::mul(score, Wide::set(1.0f / cap))), Wide::set(cap));
}

/// Scores of the tile t of query i, scaled and masked; returns the largest.
template <class W>
inline float scale_tile(State& s, int i, int t, Reg scale) {
  float* scores = s.scores[i] + t * kTileKeys;
  const std::uint32_t bits = tile_bits(s, i, t);
  const Reg none = Wide::set(-__builtin_inff());
  Reg e0 = Wide::load(scores);
  Reg e1 = Wide::load(scores + kHalf);
  if constexpr (has_token_scales(W::kType)) {
    e0 = Wide::mul(e0, Wide::load(s.k_scale + t * kTileKeys));
    e1 = Wide::mul(e1, Wide::load(s.k_scale + t * kTileKeys + kHalf));
  }
  e0 = Wide::mul(e0, scale);
  e1 = Wide::mul(e1, scale);
  if (s.p->softcap > 0.0f) {
    e0 = soft_capped(e0, s.p->softcap);
    e1 = soft_capped(e1, s.p->softcap);
  }
  if (bits != 0xffffffffu) {
    e0 = Wide::select(Wide::mask(bits & 0xffffu), e0, none);
    e1 = Wide::select(Wide::mask(bits >> 16), e1, none);
  }
  Wide::store(scores, e0);
  Wide::store(scores + kHalf, e1);
  return Wide::max_of(Wide::max(e1, Wide::max(e0, none)));  // a NaN score loses, as in the specification
}

/// Scores become weights e, which are 0 where masked; the lanes move to the new maximum. The scales of codes
/// become part of the weights.
template <class W>
inline void weigh_tile(State& s, int i, int t, float* lanes) {
  float* scores = s.scores[i] + t * kTileKeys;
  const std::uint32_t bits = tile_bits(s, i, t);
  const Reg max = Wide::set(s.new_max[t][i]);
  Reg e0 = Wide::exp(Wide::sub(Wide::load(scores), max));
  Reg e1 = Wide::exp(Wide::sub(Wide::load(scores + kHalf), max));
  if (bits != 0xffffffffu) {
    e0 = Wide::keep(Wide::mask(bits & 0xffffu), e0);
    e1 = Wide::keep(Wide::mask(bits >> 16), e1);
  }
  if constexpr (has_token_scales(W::kType)) {
    // A masked weight may become NaN here, by a stale scale: nobody reads it.
    Wide::store(scores, Wide::mul(e0, Wide::load(s.v_scale + t * kTileKeys)));
    Wide::store(scores + kHalf, Wide::mul(e1, Wide::load(s.v_scale + t * kTileKeys + kHalf)));
  } else {
    Wide::store(scores, e0);
    Wide::store(scores + kHalf, e1);
  }
  Wide::store(lanes, Wide::fma(Wide::load(lanes), Wide::set(s.correction[t][i]), Wide::add(e0, e1)));
}

/// The exponentials of the corrections are taken for 16 queries at once. A tile that a query does not see
/// corrects by exp(0) = 1.
template <class W>
void soften(State& s, int kv, int first_tile, int last_tile) {
  float* max = s.max + kv * s.count;
  const Reg scale = Wide::set(s.p->scale);
  for (int i = 0; i < s.count; ++i) {
    for (int t = first_tile; t <= last_tile; ++t) {
      const float tile_max = scale_tile<W>(s, i, t, scale);
      const float new_max = tile_max > max[i] ? tile_max : max[i];
      const bool seen = tile_bits(s, i, t) != 0;
      s.correction[t][i] = seen ? max[i] - new_max : 0.0f;
      s.new_max[t][i] = new_max;
      max[i] = new_max;
    }
  }
  for (int t = first_tile; t <= last_tile; ++t) {
    for (int i = 0; i < s.count; i += kLanes) {
      float* c = s.correction[t] + i;
      Wide::store_some(c, s.count - i, Wide::exp(Wide::load_some(c, s.count - i)));
    }
  }
  for (int i = 0; i < s.count; ++i) {
    for (int t = first_tile; t <= last_tile; ++t) weigh_tile<W>(s, i, t, s.lanes[kv * s.count + i]);
  }
}

// --- P V -------------------------------------------------------------------------------------------------

/// How much of a vector of head dimensions a head has.
enum class Extent { kWhole, kHalf, kFew };

/// A vector of stored values: whole, eight of 16, or the last `few`; zeros above them.
template <class W, Extent E>
inline Native::Reg load_values(const std::byte* p, int few) {
  if constexpr (E == Extent::kWhole) return W::load(p);
  if constexpr (E == Extent::kHalf) return W::load_half(p);
  alignas(64) std::byte values[Native::kLanes * W::kBytes] = {};
  __builtin_memcpy(values, p, static_cast<std::size_t>(few) * W::kBytes);
  return W::load(values);
}

/// For tiles first .. last: acc *= correction, then acc += e_j v_j over the keys that these queries see (all
/// of them the same), ascending. MR queries; NV vectors of head dimensions from d, the last one to extent E.
template <int MR, int NV, class W, Extent E>
[[gnu::noinline]] void weigh(State& s, int begin, float* acc, const GroupView& view, int d, Tiles tiles,
                             Ahead& ahead) {
  constexpr int kBytes = NV * Native::kLanes * W::kBytes;
  Native::Reg a[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) a[m][c] = Native::load(acc + m * s.width + d + c * Native::kLanes);
  }
  for (int t = tiles.first; t <= tiles.last; ++t) {
    const std::uint32_t visible = tile_bits(s, begin, t);
    if (visible == 0) continue;
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const Native::Reg x = Native::set(s.correction[t][begin + m]);
#pragma GCC unroll 4
      for (int c = 0; c < NV; ++c) a[m][c] = Native::mul(a[m][c], x);
    }
    int key = t * kTileKeys + __builtin_ctz(visible);
    const int last = t * kTileKeys + 31 - __builtin_clz(visible);
    while (key <= last) {
      const int end = min_of(key / kHalf * kHalf + kHalf, last + 1);
      const std::byte* v = view.v[key / kHalf] + (std::int64_t{key % kHalf} * s.dim + d) * W::kBytes;
      Ahead::Piece piece = ahead.take(end - key, kBytes);
      for (; key < end; ++key, v += s.dim * W::kBytes) {
        piece.fetch<kBytes>();
        Native::Reg x[MR];
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) x[m] = Native::set(s.scores[begin + m][key]);
#pragma GCC unroll 4
        for (int c = 0; c < NV; ++c) {
          const Native::Reg y = load_values<W, E>(v + c * Native::kLanes * W::kBytes, s.dim - d);
#pragma GCC unroll 8
          for (int m = 0; m < MR; ++m) Native::fma(x[m], y, a[m][c]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) Native::store(acc + m * s.width + d + c * Native::kLanes, a[m][c]);
  }
}

/// The same for all head dimensions.
template <int MR, class W>
void weigh_dims(State& s, int kv, int begin, const GroupView& view, Tiles tiles, Ahead& ahead) {
  float* acc = s.acc + (kv * s.count + begin) * s.width;
  in_parts<Native::kColumns>(s.dim / Native::kLanes, [&](int first, auto columns) {
    weigh<MR, columns.value, W, Extent::kWhole>(s, begin, acc, view, first * Native::kLanes, tiles, ahead);
  });
  const int rest = s.dim % Native::kLanes;
  if (rest == 0) return;
  if constexpr (Native::kLanes == 16) {
    if (rest == 8) return weigh<MR, 1, W, Extent::kHalf>(s, begin, acc, view, s.dim - 8, tiles, ahead);
  }
  weigh<MR, 1, W, Extent::kFew>(s, begin, acc, view, s.dim - rest, tiles, ahead);
}

/// Queries that see the same keys go together.
template <class W>
void weigh_all(State& s, int kv, const GroupView& view, int first_tile, int last_tile, Ahead& ahead) {
  Ahead none;
  in_parts<Native::kRows>(s.count, [&](int begin, auto rows) {
    const int end = begin + rows.value;
    Ahead& fetch = begin == 0 ? ahead : none;
    // Rows ascend, so all are alike if the first and the last are.
    if (s.visible[begin] == s.visible[end - 1]) {
      return weigh_dims<rows.value, W>(s, kv, begin, view, {first_tile, last_tile}, fetch);
    }
    for (int t = first_tile; t <= last_tile; ++t) {
      for (int i = begin; i < end;) {
        int n = 1;
        while (i + n < end && tile_bits(s, i, t) == tile_bits(s, i + n, t)) ++n;
        with_count<rows.value>(n, [&](auto size) {
          weigh_dims<size.value, W>(s, kv, i, view, {t, t}, i == 0 ? fetch : none);
        });
        i += n;
      }
    }
  });
}

// --- the walk --------------------------------------------------------------------------------------------

/// Sets what each query sees of the group that starts at key `group`; returns what any of them sees.
std::uint64_t clip(State& s, std::int32_t group) {
  std::uint64_t any = 0;
  int i = 0;
  for (int r = 0; r < s.item->rows; ++r) {
    const std::int32_t row = s.item->row + r;
    const std::int32_t from = larger(first_key(*s.p, s.segment->pos_begin + row) - group, 0);
    const std::int32_t to = min_of(last_key(*s.p, *s.segment, row) - group, kGroupKeys - 1);
    std::uint64_t visible = 0;
    if (from <= to) visible = (~std::uint64_t{0} >> (kGroupKeys - 1 - (to - from))) << from;
    any |= visible;
    for (int h = 0; h < s.item->heads; ++h) s.visible[i++] = visible;
  }
  return any;
}

/// Addresses of the halves that somebody sees. The others may have no block, or stale bytes.
GroupView view_group(const State& s, std::int32_t group, std::int32_t kv_head, int first, int last) {
  const KvLayerView& kv = s.p->kv;
  GroupView view{};
  view.k_stride = kv.block_tokens;
  const auto bytes = static_cast<std::int64_t>(element_bytes(kv.dtype));
  for (int half = first; half <= last; ++half) {
    const std::int32_t key = group + half * kHalf;
    const std::byte* plane = kv_plane(kv, s.segment->block_table[key / kv.block_tokens], kv_head);
    const std::int64_t slot = key % kv.block_tokens;
    view.k[half] = plane + slot * bytes;
    view.v[half] = plane + kv.v_offset + slot * kv.head_dim * bytes;
    view.k_scale[half] = plane + scales_offset(kv) + slot * 4;
    view.v_scale[half] = view.k_scale[half] + kv.v_offset;
  }
  for (int half = 0; half < kHalves; ++half) {
    const int other = half < first ? first : half > last ? last : half;
    view.k[half] = view.k[other];
    view.v[half] = view.v[other];
    view.k_scale[half] = view.k_scale[other];
    view.v_scale[half] = view.v_scale[other];
  }
  return view;
}

/// The scales of a group's codes, in the kernels' unit.
void load_scales(State& s, const GroupView& view, float unit) {
  const Reg wide = Wide::set(unit);
  for (int half = 0; half < kHalves; ++half) {
    const auto* k = reinterpret_cast<const float*>(view.k_scale[half]);
    const auto* v = reinterpret_cast<const float*>(view.v_scale[half]);
    Wide::store(s.k_scale + half * kHalf, Wide::mul(Wide::load(k), wide));
    Wide::store(s.v_scale + half * kHalf, Wide::mul(Wide::load(v), wide));
  }
}

/// The blocks that the walk reads after kv head `kv` of `group`.
Ahead ahead_of(const State& s, std::int32_t group, int kv) {
  const KvLayerView& kv_view = s.p->kv;
  const bool next_head = kv + 1 < s.item->kv_heads;
  const std::int32_t from = next_head ? group : group + kGroupKeys;
  const std::int32_t last = last_key(*s.p, *s.segment, s.item->row + s.item->rows - 1);
  const std::int32_t first = first_key(*s.p, s.segment->pos_begin + s.item->row);
  Ahead ahead;
  ahead.kv = &kv_view;
  ahead.table = s.segment->block_table;
  ahead.head = s.item->kv_head + (next_head ? kv + 1 : 0);
  ahead.next = larger(from, first) / kv_view.block_tokens;
  ahead.last = min_of(from + kGroupKeys - 1, last) / kv_view.block_tokens;
  if (from > last) ahead.last = ahead.next - 1;
  return ahead;
}

template <class W>
void walk_groups(State& s, std::int32_t split) {
  for (std::int32_t group = split; group < split + kSplitKeys; group += kGroupKeys) {
    const std::uint64_t any = clip(s, group);
    if (any == 0) continue;
    const int first = __builtin_ctzll(any) / kHalf;
    const int last = (63 - __builtin_clzll(any)) / kHalf;
    for (int kv = 0; kv < s.item->kv_heads; ++kv) {
      const GroupView view = view_group(s, group, s.item->kv_head + kv, first, last);
      Ahead ahead = ahead_of(s, group, kv);
      const std::int64_t q_offset =
          std::int64_t{kv} * (s.p->num_q_heads / s.p->kv.num_kv_heads) * s.p->kv.head_dim;
      score_all<W>(s, q_offset, view, first / 2, last / 2, ahead);
      if constexpr (has_token_scales(W::kType)) load_scales(s, view, code_unit(W::kType));
      soften<W>(s, kv, first / 2, last / 2);
      weigh_all<W>(s, kv, view, first / 2, last / 2, ahead);
    }
  }
}

void begin_item(State& s, const AttentionParams& p, const AttentionItem& item) {
  s.p = &p;
  s.item = &item;
  s.segment = &p.segments[item.segment];
  s.count = item.queries_per_head();
  s.dim = p.kv.head_dim;
  s.width = padded_dim(s.dim);
  const std::int64_t head = item.kv_head * (p.num_q_heads / p.kv.num_kv_heads) + item.head;
  for (int i = 0; i < s.count; ++i) {
    const std::int64_t row = s.segment->row_begin + item.row + i / item.heads;
    s.q[i] = p.q + row * p.q_stride + (head + i % item.heads) * s.dim;
  }
}

void walk_split(State& s, std::int32_t split) {
  const int queries = s.item->queries();
  for (int i = 0; i < queries; ++i) {
    s.max[i] = -__builtin_inff();
    Wide::store(s.lanes[i], Wide::zero());
  }
  for (int i = 0; i < queries * s.width; i += 16) Wide::store(s.acc + i, Wide::zero());
  if (s.p->kv.dtype == DType::kF32) return walk_groups<F32>(s, split);
  if (s.p->kv.dtype == DType::kF16) return walk_groups<F16>(s, split);
  if (s.p->kv.dtype == DType::kF8E4M3) return walk_groups<F8>(s, split);
  if (s.p->kv.dtype == DType::kI8) return walk_groups<I8>(s, split);
  walk_groups<BF16>(s, split);
}

// --- splits together -------------------------------------------------------------------------------------

/// Where a query's softmax stands after some splits.
struct Total {
  float max, sum;
  float* acc;  ///< [width]
};

/// Row (of its segment), query head and visible keys of query i of an item.
struct Place {
  std::int32_t row, head, first, last;

  Place(const AttentionParams& p, const AttentionItem& item, int i) {
    const int n = item.queries_per_head();
    row = item.row + i % n / item.heads;
    head = (item.kv_head + i / n) * (p.num_q_heads / p.kv.num_kv_heads) + item.head + i % item.heads;
    const Segment& segment = p.segments[item.segment];
    last = last_key(p, segment, row);
    first = first_key(p, segment.pos_begin + row);
  }
  bool sees(std::int32_t split) const { return first < split + kSplitKeys && last >= split; }
};

/// The split as query i saw it.
Total split_result(State& s, int i) {
  return {s.max[i], Wide::fold(Wide::load(s.lanes[i])), s.acc + i * s.width};
}

/// `fold` of ops_scalar.cpp; `begins` says that `total` holds nothing yet.
void fold(Total& total, const Total& next, int width, bool begins) {
  if (begins) {
    total.max = next.max;
    total.sum = next.sum;
    for (int d = 0; d < width; d += 16) Wide::store(total.acc + d, Wide::load(next.acc + d));
    return;
  }
  const float max = next.max > total.max ? next.max : total.max;
  const float a = exp(total.max - max);
  const float b = exp(next.max - max);
  total.max = max;
  total.sum = fma(total.sum, a, next.sum * b);
  const Reg wide_a = Wide::set(a);
  const Reg wide_b = Wide::set(b);
  for (int d = 0; d < width; d += 16) {
    const Reg scaled = Wide::mul(Wide::load(next.acc + d), wide_b);
    Wide::store(total.acc + d, Wide::fma(Wide::load(total.acc + d), wide_a, scaled));
  }
}

/// acc becomes the result, and goes where the caller wants it.
void write_out(const AttentionParams& p, const AttentionPlan& plan, const AttentionItem& item,
               const Place& place, const Total& total) {
  const int dim = p.kv.head_dim;
  const Reg factor = Wide::set(output_factor(p, place.head, total.max, total.sum));
  for (int d = 0; d < dim; d += 16) Wide::store(total.acc + d, Wide::mul(Wide::load(total.acc + d), factor));
  const std::int64_t row = p.segments[item.segment].row_begin + place.row;
  if (p.out != nullptr) {
    float* out = p.out + row * p.out_stride + std::int64_t{place.head} * dim;
    for (int d = 0; d < dim; d += 16) Wide::store_some(out + d, dim - d, Wide::load(total.acc + d));
  }
  if (p.prepared == nullptr) return;
  const QuantisedRows prepared = quantised_rows(p.prepared, plan.rows, p.num_q_heads * dim);
  for (int d = 0; d < dim; d += kQuantBlock) {
    const int block = (place.head * dim + d) / kQuantBlock;
    Wide::quantise(Wide::load(total.acc + d), Wide::load(total.acc + d + 16), prepared, row, block);
  }
}

/// All splits of an item, folded as they come.
void run_item(const AttentionParams& p, const AttentionPlan& plan, const AttentionItem& item) {
  State s;
  alignas(64) float memory[kMaxItemFloats];
  float max[kMaxItemQueries] = {};
  float sum[kMaxItemQueries] = {};
  begin_item(s, p, item);
  const int queries = item.queries();
  const Place begin(p, item, 0);  // rows ascend, so do their ranges
  const Place end(p, item, queries - 1);
  for (std::int32_t split = begin.first / kSplitKeys * kSplitKeys; split <= end.last; split += kSplitKeys) {
    walk_split(s, split);
    for (int i = 0; i < queries; ++i) {
      const Place place(p, item, i);
      if (!place.sees(split)) continue;
      Total total{max[i], sum[i], memory + i * s.width};
      fold(total, split_result(s, i), s.width, place.first >= split);
      max[i] = total.max;
      sum[i] = total.sum;
    }
  }
  for (int i = 0; i < queries; ++i) {
    write_out(p, plan, item, Place(p, item, i), {max[i], sum[i], memory + i * s.width});
  }
}

/// The slots of a query of a wide item: 0 holds its total, 1 + i split i of a round.
float* slot_of(const AttentionPlan& plan, int width, std::int32_t query, std::int32_t slot) {
  return plan.slots + (std::int64_t{query} * (plan.splits + 1) + slot) * (width + kSlotHeader);
}
Total load_slot(float* slot) { return {slot[0], slot[1], slot + kSlotHeader}; }
void store_slot(float* slot, const Total& total, int width) {
  slot[0] = total.max;
  slot[1] = total.sum;
  if (total.acc == slot + kSlotHeader) return;
  for (int d = 0; d < width; d += 16) Wide::store(slot + kSlotHeader + d, Wide::load(total.acc + d));
}

void split_to_slots(const AttentionParams& p, const AttentionPlan& plan, const AttentionItem& item,
                    std::int32_t split, std::int32_t slot) {
  const int queries = item.queries();
  if (split > Place(p, item, queries - 1).last || split + kSplitKeys <= Place(p, item, 0).first) return;
  State s;
  begin_item(s, p, item);
  walk_split(s, split);
  for (int i = 0; i < queries; ++i) {
    if (!Place(p, item, i).sees(split)) continue;
    store_slot(slot_of(plan, s.width, item.first_slot + i, slot), split_result(s, i), s.width);
  }
}

void fold_slots(const AttentionParams& p, const AttentionPlan& plan, const AttentionItem& item,
                std::int32_t round) {
  const int width = padded_dim(p.kv.head_dim);
  for (int i = 0; i < item.queries(); ++i) {
    const Place place(p, item, i);
    float* first = slot_of(plan, width, item.first_slot + i, 0);
    Total total = load_slot(first);
    for (std::int32_t slot = 0; slot < plan.splits; ++slot) {
      const std::int32_t split = round + slot * kSplitKeys;
      if (!place.sees(split)) continue;
      fold(total, load_slot(slot_of(plan, width, item.first_slot + i, slot + 1)), width,
           place.first >= split);
    }
    store_slot(first, total, width);
    const bool over = place.last >= round && place.last < round + plan.splits * kSplitKeys;
    if (over) write_out(p, plan, item, place, total);
  }
}

void run_attention(Stream& stream, const AttentionParams& p) {
  const AttentionPlan plan = plan_attention(p, stream.pool.threads());
  if (!plan.worth_sharing) {
    for (std::int32_t i = 0; i < plan.count; ++i) run_item(p, plan, plan.items[i]);
    return;
  }
  // Wide items give the smallest pieces: they fill the end of a region evenly. Rounds bound the slots.
  std::int32_t narrow = plan.count - plan.wide;
  for (std::int32_t round = plan.begin; narrow > 0 || round < plan.end; round += plan.splits * kSplitKeys) {
    parallel_for(stream, narrow + plan.wide * plan.splits, [&](int i) {
      if (i < narrow) return run_item(p, plan, plan.items[plan.wide + i]);
      const std::int32_t slot = (i - narrow) % plan.splits;
      const AttentionItem& item = plan.items[(i - narrow) / plan.splits];
      split_to_slots(p, plan, item, round + slot * kSplitKeys, slot + 1);
    });
    narrow = 0;
    if (plan.wide == 0) return;
    parallel_for(stream, plan.wide, [&](int i) { fold_slots(p, plan, plan.items[i], round); });
  }
}

}  // namespace
}  // namespace barg::ops::cpu
