// Attention, AVX2. `attend_split` and `fold` in ops_scalar.cpp are the specification.
//
// An item is up to kMaxQueries queries (rows of one segment times the query heads of one kv head) that walk
// the same keys. Per tile of 32 keys: scores with lanes over keys, softmax per query, then P V with lanes
// over head dimensions. Each loaded K or V vector serves three queries from registers. Prefill and decode are
// this one routine; what a query computes depends on its own position only, because the keys it does not see
// are masked in the scores and skipped in P V.
#include "cpu/avx2.h"

namespace barg::ops::cpu {
namespace {

constexpr int kMaxQueries = 16;
constexpr int kHalf = kTileKeys / 2;  // the smallest block: the unit in which keys are addressed
constexpr int kShare = 3;             // queries that share a load: 12 accumulators of 16 registers

struct Query {
  const float* q;
  float* out;
  std::int32_t first, last;  ///< visible keys, inclusive
  std::int32_t from, to;     ///< visible keys of the current tile, relative to it; from > to: none
  float max;                 ///< of the current split
};

/// Everything an item keeps; lives on the stack of the thread that runs it (about 100 KiB).
struct State {
  int count;
  int dim;
  Query query[kMaxQueries];
  alignas(64) float scores[kMaxQueries][kTileKeys];
  alignas(64) float lanes[kMaxQueries][kLanes];
  alignas(64) float acc[kMaxQueries * kMaxHeadDim];   ///< [count][dim]
  alignas(64) float k_tile[kTileKeys * kMaxHeadDim];  ///< [dim][32], when K is widened
  alignas(64) float v_tile[kTileKeys * kMaxHeadDim];  ///< [32][dim]
};

/// The two halves (16 keys each) of a tile in memory. A half that no query sees repeats the other one.
struct TileView {
  const std::byte* k[2];  ///< element (d, key) of a half: d * k_stride + key
  const std::byte* v[2];  ///< element (key, d): key * dim + d
  std::int64_t k_stride;
};

// --- scores ----------------------------------------------------------------------------------------------

template <int MR, class W>
void score(State& s, int begin, const TileView& tile) {
  __m256 a[MR][4];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) a[m][c] = _mm256_setzero_ps();
  }
  const float* q[MR];
  for (int m = 0; m < MR; ++m) q[m] = s.query[begin + m].q;
  for (int d = 0; d < s.dim; ++d) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const __m256 k = W::load(tile.k[c / 2] + (d * tile.k_stride + c % 2 * 8) * W::kBytes);
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) a[m][c] = _mm256_fmadd_ps(_mm256_broadcast_ss(q[m] + d), k, a[m][c]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) _mm256_store_ps(&s.scores[begin + m][c * 8], a[m][c]);
  }
}

template <class W>
void score_all(State& s, const TileView& tile) {
  int i = 0;
  for (; i + kShare <= s.count; i += kShare) score<kShare, W>(s, i, tile);
  if (s.count - i == 2) score<2, W>(s, i, tile);
  if (s.count - i == 1) score<1, W>(s, i, tile);
}

/// Scores of query i become weights e; max, lanes and acc move to the new maximum.
void soften(State& s, int i, float scale) {
  Query& query = s.query[i];
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 none = _mm256_set1_ps(-__builtin_inff());
  __m256 e[4];
  __m256 visible[4];
  __m256 max = none;
  for (int c = 0; c < 4; ++c) {
    const __m256i key = _mm256_add_epi32(index, _mm256_set1_epi32(c * 8));
    const __m256i hidden = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(query.from), key),
                                           _mm256_cmpgt_epi32(key, _mm256_set1_epi32(query.to)));
    visible[c] = _mm256_castsi256_ps(_mm256_xor_si256(hidden, _mm256_set1_epi32(-1)));
    e[c] = _mm256_mul_ps(_mm256_load_ps(&s.scores[i][c * 8]), _mm256_set1_ps(scale));
    e[c] = _mm256_blendv_ps(none, e[c], visible[c]);
    max = _mm256_max_ps(e[c], max);  // a NaN score loses, as in the specification
  }
  const float tile_max = max8(max);
  const float new_max = tile_max > query.max ? tile_max : query.max;
  const __m256 m = _mm256_set1_ps(new_max);
  for (int c = 0; c < 4; ++c) {
    e[c] = _mm256_and_ps(exp8(_mm256_sub_ps(e[c], m)), visible[c]);
    _mm256_store_ps(&s.scores[i][c * 8], e[c]);
  }
  const float c = exp(query.max - new_max);
  const __m256 correction = _mm256_set1_ps(c);
  query.max = new_max;
  for (int l = 0; l < 2; ++l) {
    float* lanes = &s.lanes[i][l * 8];
    _mm256_store_ps(lanes, _mm256_fmadd_ps(_mm256_load_ps(lanes), correction, _mm256_add_ps(e[l], e[l + 2])));
  }
  if (c == 1.0f) return;  // multiplying by one changes no bit
  float* acc = s.acc + i * s.dim;
  for (int d = 0; d < s.dim; d += 8) {
    _mm256_store_ps(acc + d, _mm256_mul_ps(_mm256_load_ps(acc + d), correction));
  }
}

// --- P V -------------------------------------------------------------------------------------------------

/// acc += e_j v_j over keys from .. to, ascending, for MR queries and NV * 8 head dimensions from d.
template <int MR, int NV, class W>
void weigh(State& s, int begin, const TileView& tile, int d) {
  __m256 a[MR][NV];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) a[m][c] = _mm256_load_ps(s.acc + (begin + m) * s.dim + d + c * 8);
  }
  const int to = s.query[begin].to;
  for (int j = s.query[begin].from; j <= to; ++j) {
    const std::byte* v = tile.v[j / kHalf] + (j % kHalf * s.dim + d) * W::kBytes;
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) {
      const __m256 value = W::load(v + c * 8 * W::kBytes);
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) {
        a[m][c] = _mm256_fmadd_ps(_mm256_broadcast_ss(&s.scores[begin + m][j]), value, a[m][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < NV; ++c) _mm256_store_ps(s.acc + (begin + m) * s.dim + d + c * 8, a[m][c]);
  }
}

template <int MR, class W>
void weigh_dims(State& s, int begin, const TileView& tile) {
  int d = 0;
  for (; d + 32 <= s.dim; d += 32) weigh<MR, 4, W>(s, begin, tile, d);
  for (; d < s.dim; d += 8) weigh<MR, 1, W>(s, begin, tile, d);
}

/// Queries that see the same keys of the tile go together.
template <class W>
void weigh_all(State& s, const TileView& tile) {
  for (int i = 0; i < s.count;) {
    const Query& query = s.query[i];
    if (query.from > query.to) {
      ++i;
      continue;
    }
    const auto alike = [&](const Query& other) { return other.from == query.from && other.to == query.to; };
    int n = 1;
    while (n < kShare && i + n < s.count && alike(s.query[i + n])) ++n;
    if (n == 3) weigh_dims<3, W>(s, i, tile);
    if (n == 2) weigh_dims<2, W>(s, i, tile);
    if (n == 1) weigh_dims<1, W>(s, i, tile);
    i += n;
  }
}

// --- the walk --------------------------------------------------------------------------------------------

/// Many queries read a tile of 16-bit numbers: widen it once.
template <class W>
void widen_tile(State& s, TileView& tile) {
  for (int half = 0; half < 2; ++half) {
    for (int d = 0; d < s.dim; ++d) {
      for (int c = 0; c < kHalf; c += 8) {
        _mm256_store_ps(s.k_tile + d * kTileKeys + half * kHalf + c,
                        W::load(tile.k[half] + (d * tile.k_stride + c) * W::kBytes));
      }
    }
    float* v = s.v_tile + half * kHalf * s.dim;
    for (int i = 0; i < kHalf * s.dim; i += 8) _mm256_store_ps(v + i, W::load(tile.v[half] + i * W::kBytes));
    tile.k[half] = reinterpret_cast<const std::byte*>(s.k_tile + half * kHalf);
    tile.v[half] = reinterpret_cast<const std::byte*>(v);
  }
  tile.k_stride = kTileKeys;
}

template <class W>
void attend_view(const AttentionParams& p, State& s, const TileView& tile) {
  score_all<W>(s, tile);
  for (int i = 0; i < s.count; ++i) {
    if (s.query[i].from <= s.query[i].to) soften(s, i, p.scale);
  }
  weigh_all<W>(s, tile);
}

template <class W>
void attend_tile(const AttentionParams& p, State& s, TileView tile) {
  if (W::kBytes == 2 && s.count > kShare) {
    widen_tile<W>(s, tile);
    return attend_view<F32>(p, s, tile);
  }
  attend_view<W>(p, s, tile);
}

/// Keys of a tile, relative to it, inclusive.
struct Range {
  std::int32_t from, to;
};

/// Sets every query's visible part of the tile that starts at `tile`; returns their union.
Range clip(State& s, std::int32_t tile) {
  Range all{kTileKeys, -1};
  for (int i = 0; i < s.count; ++i) {
    Query& query = s.query[i];
    query.from = query.first > tile ? query.first - tile : 0;
    query.to = query.last < tile + kTileKeys ? query.last - tile : kTileKeys - 1;
    if (query.from > query.to) continue;
    all.from = min_of(all.from, query.from);
    all.to = query.to > all.to ? query.to : all.to;
  }
  return all;
}

/// Addresses of the halves that somebody sees. The others may have no block, or stale bytes.
TileView view_tile(const KvLayerView& kv, const BlockId* table, std::int32_t head, std::int32_t tile,
                   Range seen) {
  TileView view{};
  view.k_stride = kv.block_tokens;
  const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(kv.dtype));
  const int first = seen.from / kHalf;
  const int last = seen.to / kHalf;
  for (int half = first; half <= last; ++half) {
    const std::int32_t key = tile + half * kHalf;
    const std::byte* plane = kv_plane(kv, table[key / kv.block_tokens], head);
    const std::int64_t slot = key % kv.block_tokens;
    view.k[half] = plane + slot * bytes;
    view.v[half] = plane + kv.v_offset + slot * kv.head_dim * bytes;
  }
  for (int half = 0; half < 2; ++half) {
    const int other = half < first ? first : half > last ? last : half;
    view.k[half] = view.k[other];
    view.v[half] = view.v[other];
  }
  return view;
}

void begin_split(State& s) {
  for (int i = 0; i < s.count; ++i) {
    s.query[i].max = -__builtin_inff();
    for (int l = 0; l < kLanes; ++l) s.lanes[i][l] = 0.0f;
  }
  for (int i = 0; i < s.count * s.dim; i += 8) _mm256_store_ps(s.acc + i, _mm256_setzero_ps());
}

/// Where a query's softmax stands after some splits.
struct Total {
  float max, sum;
  float* acc;  ///< [dim]
};

/// `fold` of ops_scalar.cpp; `first` says that `total` holds nothing yet.
void fold(Total& total, const Total& next, int dim, bool first) {
  if (first) {
    total.max = next.max;
    total.sum = next.sum;
    for (int d = 0; d < dim; d += 8) _mm256_store_ps(total.acc + d, _mm256_load_ps(next.acc + d));
    return;
  }
  const float max = next.max > total.max ? next.max : total.max;
  const float a = exp(total.max - max);
  const float b = exp(next.max - max);
  total.max = max;
  total.sum = fma(total.sum, a, next.sum * b);
  for (int d = 0; d < dim; d += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_load_ps(next.acc + d), _mm256_set1_ps(b));
    _mm256_store_ps(total.acc + d, _mm256_fmadd_ps(_mm256_load_ps(total.acc + d), _mm256_set1_ps(a), scaled));
  }
}

void write_out(const Query& query, const Total& total, int dim) {
  const __m256 inverse = _mm256_set1_ps(1.0f / total.sum);
  for (int d = 0; d < dim; d += 8) {
    _mm256_storeu_ps(query.out + d, _mm256_mul_ps(_mm256_load_ps(total.acc + d), inverse));
  }
}

/// Whether keys first .. last have a part in the split.
bool overlaps(std::int32_t first, std::int32_t last, std::int32_t split) {
  return first < split + kSplitKeys && last >= split;
}
bool sees(const Query& query, std::int32_t split) { return overlaps(query.first, query.last, split); }

/// The split as query i saw it.
Total split_result(State& s, int i) {
  return {s.query[i].max, fold16(_mm256_load_ps(s.lanes[i]), _mm256_load_ps(s.lanes[i] + 8)),
          s.acc + i * s.dim};
}

template <class W>
void walk_tiles(const AttentionParams& p, State& s, const BlockId* table, std::int32_t kv_head,
                std::int32_t split) {
  for (std::int32_t tile = split; tile < split + kSplitKeys; tile += kTileKeys) {
    const Range seen = clip(s, tile);
    if (seen.from > seen.to) continue;
    attend_tile<W>(p, s, view_tile(p.kv, table, kv_head, tile, seen));
  }
}

/// Rows [row, row + rows) of a segment and query heads [head, head + heads) of one kv head.
struct Item {
  const Segment* segment;
  std::int32_t row, rows;
  std::int32_t head, heads;
  std::int32_t kv_head;
};

/// The queries of an item, rows ascending; returns how many.
int list_queries(const AttentionParams& p, const Item& item, Query* queries) {
  int count = 0;
  for (std::int32_t r = item.row; r < item.row + item.rows; ++r) {
    const std::int64_t row = item.segment->row_begin + r;
    const std::int32_t last = item.segment->pos_begin + r;
    const std::int32_t first = p.window > 0 && last - p.window + 1 > 0 ? last - p.window + 1 : 0;
    for (std::int32_t h = item.head; h < item.head + item.heads; ++h) {
      Query& query = queries[count++];
      query = {};
      query.q = p.q + row * p.q_stride + std::int64_t{h} * p.kv.head_dim;
      query.out = p.out + row * p.out_stride + std::int64_t{h} * p.kv.head_dim;
      query.first = first;
      query.last = last;
    }
  }
  return count;
}

void walk_split(const AttentionParams& p, State& s, const Item& item, std::int32_t split) {
  const BlockId* table = item.segment->block_table;
  begin_split(s);
  if (p.kv.dtype == DType::kF32) return walk_tiles<F32>(p, s, table, item.kv_head, split);
  if (p.kv.dtype == DType::kF16) return walk_tiles<F16>(p, s, table, item.kv_head, split);
  walk_tiles<BF16>(p, s, table, item.kv_head, split);
}

/// All splits of an item, folded as they come.
void run_item(const AttentionParams& p, const Item& item) {
  State s;
  alignas(64) float memory[kMaxQueries * kMaxHeadDim];
  Total total[kMaxQueries];
  s.dim = p.kv.head_dim;
  s.count = list_queries(p, item, s.query);
  for (int i = 0; i < s.count; ++i) total[i].acc = memory + i * s.dim;
  const std::int32_t first = s.query[0].first / kSplitKeys * kSplitKeys;  // rows ascend, so do their ranges
  for (std::int32_t split = first; split <= s.query[s.count - 1].last; split += kSplitKeys) {
    walk_split(p, s, item, split);
    for (int i = 0; i < s.count; ++i) {
      if (sees(s.query[i], split)) fold(total[i], split_result(s, i), s.dim, s.query[i].first >= split);
    }
  }
  for (int i = 0; i < s.count; ++i) write_out(s.query[i], total[i], s.dim);
}

/// The same in two phases, for few rows behind long contexts: any thread takes any split and leaves its
/// result in a slot, then each item folds its slots in order. Slot 0 of a query holds its total, 1 + i split
/// i of a round.
struct Slots {
  float* memory;
  std::int32_t splits;  ///< of a round
  std::int32_t dim;

  float* at(std::int32_t query, std::int32_t slot) const {
    return memory + (std::int64_t{query} * (splits + 1) + slot) * (dim + kSlotHeader);
  }
  Total load(std::int32_t query, std::int32_t slot) const {
    float* f = at(query, slot);
    return {f[0], f[1], f + kSlotHeader};
  }
};

void split_to_slots(const AttentionParams& p, const Item& item, const Slots& slots, std::int32_t first_query,
                    std::int32_t split, std::int32_t slot) {
  State s;
  s.dim = p.kv.head_dim;
  s.count = list_queries(p, item, s.query);
  if (!overlaps(s.query[0].first, s.query[s.count - 1].last, split)) return;
  walk_split(p, s, item, split);
  for (int i = 0; i < s.count; ++i) {
    if (!sees(s.query[i], split)) continue;
    const Total result = split_result(s, i);
    float* out = slots.at(first_query + i, slot);
    out[0] = result.max;
    out[1] = result.sum;
    for (int d = 0; d < s.dim; d += 8) _mm256_store_ps(out + kSlotHeader + d, _mm256_load_ps(result.acc + d));
  }
}

void fold_slots(const AttentionParams& p, const Item& item, const Slots& slots, std::int32_t first_query,
                std::int32_t round) {
  Query queries[kMaxQueries];
  const int count = list_queries(p, item, queries);
  for (int i = 0; i < count; ++i) {
    Total total = slots.load(first_query + i, 0);
    for (std::int32_t slot = 0; slot < slots.splits; ++slot) {
      const std::int32_t split = round + slot * kSplitKeys;
      if (sees(queries[i], split)) {
        fold(total, slots.load(first_query + i, slot + 1), slots.dim, queries[i].first >= split);
      }
    }
    float* out = slots.at(first_query + i, 0);
    out[0] = total.max;
    out[1] = total.sum;
    if (queries[i].last < round + slots.splits * kSplitKeys) write_out(queries[i], total, slots.dim);
  }
}

/// How a call is cut into items: chunks of rows of one segment, times kv heads, times parts of a large group.
struct Cut {
  struct Chunk {
    std::int32_t segment, row;
  };
  const AttentionParams& p;
  std::int32_t group;     ///< query heads per kv head
  std::int32_t heads;     ///< query heads of an item
  std::int32_t parts;     ///< items per chunk and kv head
  std::int32_t rows = 0;  ///< rows of a chunk, at most
  Chunk* chunks;
  std::int32_t count = 0;  ///< chunks
  std::int32_t all_rows = 0;
  std::int32_t longest = 0;  ///< keys of the longest segment

  explicit Cut(const AttentionParams& params)
      : p(params),
        group(p.num_q_heads / p.kv.num_kv_heads),
        heads(min_of(group, kMaxQueries)),
        parts((group + heads - 1) / heads),
        chunks(static_cast<Chunk*>(p.workspace)) {
    for (std::int32_t i = 0; i < p.num_segments; ++i) {
      const Segment& segment = p.segments[i];
      rows = segment.row_count > rows ? segment.row_count : rows;
      all_rows += segment.row_count;
      const std::int32_t keys = segment.pos_begin + segment.row_count;
      longest = keys > longest ? keys : longest;
    }
    rows = min_of(rows, kMaxQueries / heads);
    for (std::int32_t i = 0; i < p.num_segments; ++i) {
      for (std::int32_t r = 0; r < p.segments[i].row_count; r += rows) chunks[count++] = {i, r};
    }
  }
  std::int32_t per_chunk() const { return p.kv.num_kv_heads * parts; }
  std::int32_t items() const { return count * per_chunk(); }
  std::int32_t queries_per_item() const { return rows * heads; }
  /// Splits whose results the workspace holds beside the totals.
  std::int32_t splits_per_round() const {
    const std::int64_t queries = std::int64_t{items()} * queries_per_item();
    return queries > 0 ? static_cast<std::int32_t>(kSlotRows * p.num_q_heads / queries) - 1 : 0;
  }

  /// The late rows of a prefill cost most and come first.
  Item item(std::int32_t i) const {
    const Chunk& chunk = chunks[count - 1 - i / per_chunk()];
    const Segment& segment = p.segments[chunk.segment];
    const std::int32_t kv_head = i % per_chunk() / parts;
    const std::int32_t head = i % parts * heads;
    return {&segment,
            chunk.row,
            min_of(rows, segment.row_count - chunk.row),
            kv_head * group + head,
            min_of(heads, group - head),
            kv_head};
  }
};

/// Splits in parallel. Rounds bound the slots, whatever the context.
void run_splits(Stream& stream, const AttentionParams& p, const Cut& cut) {
  auto* memory = static_cast<std::byte*>(p.workspace) + attention_chunk_bytes(cut.all_rows);
  const Slots slots{reinterpret_cast<float*>(memory), cut.splits_per_round(), p.kv.head_dim};
  const std::int32_t queries = cut.queries_per_item();
  for (std::int32_t round = 0; round < cut.longest; round += slots.splits * kSplitKeys) {
    parallel_for(stream, cut.items() * slots.splits, [&](int i) {
      const std::int32_t item = i / slots.splits;
      const std::int32_t slot = i % slots.splits;
      split_to_slots(p, cut.item(item), slots, item * queries, round + slot * kSplitKeys, slot + 1);
    });
    parallel_for(stream, cut.items(), [&](int i) { fold_slots(p, cut.item(i), slots, i * queries, round); });
  }
}

}  // namespace

void attention_avx2(Stream& stream, const AttentionParams& p) {
  const Cut cut(p);
  const int threads = stream.pool.threads();
  const bool few = cut.items() < 4 * threads && cut.splits_per_round() >= 2;
  if (threads > 1 && few && cut.longest > 2 * kSplitKeys) return run_splits(stream, p, cut);
  parallel_for(stream, cut.items(), [&](int i) { run_item(p, cut.item(i)); });
}

}  // namespace barg::ops::cpu
