// Attention and the KV write, AVX2. `attend_split` and `fold` in ops_scalar.cpp are the specification.
//
// An item is up to kMaxQueries queries (rows of one segment times the query heads of one kv head) that walk the
// same keys. Per tile of 32 keys: scores with lanes over keys, softmax per query, then P V with lanes over head
// dimensions. Each loaded K or V vector serves three queries from registers. Prefill and decode are this one
// routine; what a query computes depends on its own position only, because the keys it does not see are masked
// in the scores and skipped in P V.
#include "cpu/avx2.h"

namespace barg::ops::cpu {
namespace {

constexpr int kMaxQueries = 16;
constexpr int kHalf = kTileKeys / 2;  // the smallest block: the unit in which keys are addressed
constexpr int kShare = 3;             // queries that share a load: 12 accumulators of 16 registers

struct Query {
  const float* q;
  float* out;
  std::int32_t first, last;      ///< visible keys, inclusive
  std::int32_t from, to;         ///< visible keys of the current tile, relative to it; from > to: none
  float max, sum;                ///< of the current split
  float total_max, total_sum;    ///< of the splits before it
  bool started;                  ///< total_* and the total accumulators hold something
};

/// Everything an item keeps; lives on the stack of the thread that runs it (about 100 KiB).
struct State {
  int count;
  int dim;
  Query query[kMaxQueries];
  alignas(64) float scores[kMaxQueries][kTileKeys];
  alignas(64) float lanes[kMaxQueries][kLanes];
  alignas(64) float acc[kMaxQueries * kMaxHeadDim];    ///< [count][dim]
  alignas(64) float total[kMaxQueries * kMaxHeadDim];  ///< [count][dim]
  alignas(64) float k_tile[kTileKeys * kMaxHeadDim];   ///< [dim][32], when K is widened
  alignas(64) float v_tile[kTileKeys * kMaxHeadDim];   ///< [32][dim]
};

/// The two halves (16 keys each) of a tile in memory. A half that no query sees repeats the other one.
struct TileView {
  const std::byte* k[2];       ///< element (d, key) of a half: d * k_stride + key
  const std::byte* v[2];       ///< element (key, d): key * dim + d
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
  for (int d = 0; d < s.dim; d += 8) _mm256_store_ps(acc + d, _mm256_mul_ps(_mm256_load_ps(acc + d), correction));
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
    int n = 1;
    while (n < kShare && i + n < s.count && s.query[i + n].from == query.from && s.query[i + n].to == query.to) ++n;
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
void attend_tile(const AttentionParams& p, State& s, TileView tile) {
  const bool widened = W::kBytes == 2 && s.count > kShare;
  if (widened) widen_tile<W>(s, tile);
  if (widened) score_all<F32>(s, tile);
  else score_all<W>(s, tile);
  for (int i = 0; i < s.count; ++i) {
    if (s.query[i].from <= s.query[i].to) soften(s, i, p.scale);
  }
  if (widened) weigh_all<F32>(s, tile);
  else weigh_all<W>(s, tile);
}

/// Sets every query's visible part of the tile that starts at `tile`; returns their union in from, to.
struct Range {
  std::int32_t from, to;
};
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
TileView view_tile(const KvLayerView& kv, const BlockId* table, std::int32_t head, std::int32_t tile, Range seen) {
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

/// Folds the split that ends here into the totals of the queries that saw a part of it.
void end_split(State& s, std::int32_t begin) {
  for (int i = 0; i < s.count; ++i) {
    Query& query = s.query[i];
    if (query.last < begin || query.first >= begin + kSplitKeys) continue;
    const float sum = fold16(_mm256_load_ps(s.lanes[i]), _mm256_load_ps(s.lanes[i] + 8));
    const float* acc = s.acc + i * s.dim;
    float* total = s.total + i * s.dim;
    if (!query.started) {
      query.started = true;
      query.total_max = query.max;
      query.total_sum = sum;
      for (int d = 0; d < s.dim; d += 8) _mm256_store_ps(total + d, _mm256_load_ps(acc + d));
      continue;
    }
    const float max = query.max > query.total_max ? query.max : query.total_max;
    const float a = exp(query.total_max - max);
    const float b = exp(query.max - max);
    query.total_max = max;
    query.total_sum = fma(query.total_sum, a, sum * b);
    for (int d = 0; d < s.dim; d += 8) {
      const __m256 next = _mm256_mul_ps(_mm256_load_ps(acc + d), _mm256_set1_ps(b));
      _mm256_store_ps(total + d, _mm256_fmadd_ps(_mm256_load_ps(total + d), _mm256_set1_ps(a), next));
    }
  }
}

/// Walks the splits and tiles that any query of `s` sees.
template <class W>
void attend(const AttentionParams& p, State& s, const BlockId* table, std::int32_t kv_head) {
  const std::int32_t first = s.query[0].first;  // rows ascend, so do both ends of their ranges
  const std::int32_t last = s.query[s.count - 1].last;
  for (std::int32_t split = first / kSplitKeys * kSplitKeys; split <= last; split += kSplitKeys) {
    begin_split(s);
    for (std::int32_t tile = split; tile < split + kSplitKeys; tile += kTileKeys) {
      const Range seen = clip(s, tile);
      if (seen.from > seen.to) continue;
      attend_tile<W>(p, s, view_tile(p.kv, table, kv_head, tile, seen));
    }
    end_split(s, split);
  }
  for (int i = 0; i < s.count; ++i) {
    const __m256 inverse = _mm256_set1_ps(1.0f / s.query[i].total_sum);
    for (int d = 0; d < s.dim; d += 8) {
      _mm256_storeu_ps(s.query[i].out + d, _mm256_mul_ps(_mm256_load_ps(s.total + i * s.dim + d), inverse));
    }
  }
}

/// Rows [row, row + rows) of a segment and query heads [head, head + heads) of one kv head.
struct Item {
  const Segment* segment;
  std::int32_t row, rows;
  std::int32_t head, heads;
  std::int32_t kv_head;
};

void run_item(const AttentionParams& p, const Item& item) {
  State s;
  s.count = 0;
  s.dim = p.kv.head_dim;
  for (std::int32_t r = item.row; r < item.row + item.rows; ++r) {
    const std::int64_t row = item.segment->row_begin + r;
    const std::int32_t last = item.segment->pos_begin + r;
    const std::int32_t first = p.window > 0 && last - p.window + 1 > 0 ? last - p.window + 1 : 0;
    for (std::int32_t h = item.head; h < item.head + item.heads; ++h) {
      Query& query = s.query[s.count++];
      query = {};
      query.q = p.q + row * p.q_stride + std::int64_t{h} * s.dim;
      query.out = p.out + row * p.out_stride + std::int64_t{h} * s.dim;
      query.first = first;
      query.last = last;
    }
  }
  const BlockId* table = item.segment->block_table;
  if (p.kv.dtype == DType::kF32) return attend<F32>(p, s, table, item.kv_head);
  if (p.kv.dtype == DType::kF16) return attend<F16>(p, s, table, item.kv_head);
  attend<BF16>(p, s, table, item.kv_head);
}

}  // namespace

void attention_avx2(Stream& s, const AttentionParams& p) {
  struct Chunk {
    std::int32_t segment, row;
  };
  const std::int32_t group = p.num_q_heads / p.kv.num_kv_heads;
  const std::int32_t heads = min_of(group, kMaxQueries);
  const std::int32_t parts = (group + heads - 1) / heads;
  const std::int32_t rows = kMaxQueries / heads;
  auto* chunks = static_cast<Chunk*>(p.workspace);
  std::int32_t count = 0;
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    for (std::int32_t r = 0; r < p.segments[i].row_count; r += rows) chunks[count++] = {i, r};
  }
  const std::int32_t per_chunk = p.kv.num_kv_heads * parts;
  parallel_for(s, count * per_chunk, [&](int i) {
    const Chunk& chunk = chunks[count - 1 - i / per_chunk];  // the late rows of a prefill cost most: first
    const Segment& segment = p.segments[chunk.segment];
    const std::int32_t kv_head = i % per_chunk / parts;
    const std::int32_t head = i % parts * heads;
    run_item(p, {&segment, chunk.row, min_of(rows, segment.row_count - chunk.row), kv_head * group + head,
                 min_of(heads, group - head), kv_head});
  });
}

// --- rope and the KV write -------------------------------------------------------------------------------

namespace {

void rotate(float* x, const float* cos, const float* sin, std::int32_t half) {
  std::int32_t i = 0;
  for (; i + 8 <= half; i += 8) {
    const __m256 a = _mm256_loadu_ps(x + i);
    const __m256 b = _mm256_loadu_ps(x + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i);
    const __m256 s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(x + half + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

/// Eight floats to 16 bits, round to nearest even.
template <DType T>
inline __m128i narrow(__m256 v) {
  if constexpr (T == DType::kF16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i out = _mm256_blendv_epi8(rounded, quiet, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}

template <DType T>
void store_kv(const KvLayerView& kv, std::byte* plane, std::int32_t slot, const float* k, const float* v) {
  std::byte* values = plane + kv.v_offset;
  for (std::int32_t d = 0; d < kv.head_dim; d += 8) {
    const __m256 k8 = _mm256_loadu_ps(k + d);
    const __m256 v8 = _mm256_loadu_ps(v + d);
    const std::int64_t at = std::int64_t{d} * kv.block_tokens + slot;
    if constexpr (T == DType::kF32) {
      float* out = reinterpret_cast<float*>(plane) + at;
      for (int i = 0; i < 8; ++i) out[i * kv.block_tokens] = k[d + i];
      _mm256_storeu_ps(reinterpret_cast<float*>(values) + slot * kv.head_dim + d, v8);
    } else {
      alignas(16) std::uint16_t half[8];
      _mm_store_si128(reinterpret_cast<__m128i*>(half), narrow<T>(k8));
      auto* out = reinterpret_cast<std::uint16_t*>(plane) + at;
      for (int i = 0; i < 8; ++i) out[i * kv.block_tokens] = half[i];
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(reinterpret_cast<std::uint16_t*>(values) + slot * kv.head_dim + d),
          narrow<T>(v8));
    }
  }
}

void rope_row(const RopeKvParams& p, const Segment& segment, std::int32_t i) {
  const KvLayerView& kv = p.kv;
  const std::int64_t row = segment.row_begin + i;
  const std::int32_t position = segment.pos_begin + i;
  const BlockId block = segment.block_table[position / kv.block_tokens];
  const std::int32_t slot = position % kv.block_tokens;
  const std::int32_t half = p.rotary_dim / 2;
  const float* cos = p.cos + row * half;
  const float* sin = p.sin + row * half;
  for (std::int32_t h = 0; h < p.num_q_heads; ++h) {
    rotate(p.q + row * p.q_stride + std::int64_t{h} * kv.head_dim, cos, sin, half);
  }
  for (std::int32_t h = 0; h < kv.num_kv_heads; ++h) {
    float* k = p.k + row * p.kv_stride + std::int64_t{h} * kv.head_dim;
    const float* v = p.v + row * p.kv_stride + std::int64_t{h} * kv.head_dim;
    rotate(k, cos, sin, half);
    std::byte* plane = kv_plane(kv, block, h);
    if (kv.dtype == DType::kF32) store_kv<DType::kF32>(kv, plane, slot, k, v);
    if (kv.dtype == DType::kF16) store_kv<DType::kF16>(kv, plane, slot, k, v);
    if (kv.dtype == DType::kBF16) store_kv<DType::kBF16>(kv, plane, slot, k, v);
  }
}

}  // namespace

void rope_kv_write_avx2(Stream& s, const RopeKvParams& p) {
  const std::int32_t per_row = (p.num_q_heads + 2 * p.kv.num_kv_heads) * p.kv.head_dim;
  for (std::int32_t i = 0; i < p.num_segments; ++i) {
    const Segment& segment = p.segments[i];
    parallel_rows(s, segment.row_count, per_row, [&](std::int32_t begin, std::int32_t end) {
      for (std::int32_t r = begin; r < end; ++r) rope_row(p, segment, r);
    });
  }
}

}  // namespace barg::ops::cpu
