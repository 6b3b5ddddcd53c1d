// Paged attention: decode, chunked prefill and verification of drafts as one function of (query row, head).
//
// A block's rows are queries: query u of a segment is row u / group and head u % group of one kv head, so that a group of
// any size fills the tensor cores' 16 rows, and all of them read each byte of K and V once. Keys come in stages of 128,
// at absolute positions, of four tiles of 32. In a stage warp c % 4 computes the scores of tile c; the warps exchange the
// tiles' maxima and the weights through shared memory; then each adds up all 128 weighted values for its share of the
// head's dimensions, tile after tile:
//
//   m_t = max(m_(t-1), largest score of tile t)      c_t = 2^(m_(t-1) - m_t)      e_j = 2^(score_j - m_t)
//   sum = sum c_t + (the tile's e_j)                 acc = acc c_t + (e_j, in 16 bits) v_j
//
// After each split of 256 keys the result is joined with those before it (fold() below), or, where the splits of a query
// are shared out among blocks, left in a slot for the block that comes last, which folds them in the same order. So what
// a query computes depends on its own position and keys only: on no other query, block, chunk, block size or work list.
// A masked key has weight 0 and changes no bit; keys that no query of the block sees are not read.
//
// Copies: one stage of K and one of V lie in shared memory; the next K is fetched as soon as the scores are done, the
// next V as soon as the values are, also across the items of the work list. Several blocks share a multiprocessor. Where a
// block may not have that much shared memory, K and V take turns in one place, and nothing is fetched ahead.
//
// Queries and weights are rounded to the 16 bits of the KV type (fp8: bf16, in which its codes are exact; scales of keys
// multiply scores, scales of values weights); sums are f32.
#pragma once

#include "cuda/kv_layout.h"
#include "cuda/math.cuh"

namespace barg::cuda {

inline constexpr int kStageKeys = 128;
inline constexpr int kStageTiles = kStageKeys / kTileKeys;
static_assert(kTileKeys == 32 && kSplitKeys % kStageKeys == 0);

/// Work of a block: `queries` of one kv head (as many as a block holds and the segment has), on the keys of some splits.
struct AttentionItem {
  std::int32_t segment;
  std::int32_t query;  ///< the first
  std::int32_t kv_head;
  std::int32_t split, split_end;  ///< each holds a key that one of the queries sees
  std::int32_t parts;             ///< items of these queries; 1: nothing to exchange
  std::int32_t slot;              ///< of their first split, in units of 8 floats of `slots`
  std::int32_t counter;           ///< number in `counters`: one for all parts
};

/// Floats of a slot: [queries][dim] sums, [queries] maxima, [queries] sums of weights.
BARG_DEVICE constexpr int attention_slot_floats(int queries, int dim) { return (queries * (dim + 2) + 7) / 8 * 8; }

struct AttentionArgs {
  const float* q;  ///< [R, nq, D], row stride q_stride floats; both multiples of 16 bytes
  std::int64_t q_stride;
  float* out;  ///< [R, nq, D], row stride out_stride (a multiple of 4), or nullptr
  std::int64_t out_stride;
  std::uint16_t* half;  ///< also in 16 bits, [R, nq * D] dense, or nullptr
  Half half_type;
  float scale;          ///< what scores are multiplied with, times log2(e)
  std::int32_t window;  ///< keys visible to a query including itself; 0 = all
  std::int32_t group;   ///< query heads of a kv head
  ops::KvLayerView kv;
  const ops::Segment* segments;
  const AttentionItem* items;
  const std::int32_t* num_items;
  float* slots;
  std::int32_t* counters;  ///< all 0; a launch leaves them so
};

/// What follows from the template arguments: kMTiles tiles of 16 queries a warp, kGroups groups of four warps; whether K and V
/// share a place.
template <KvType kKv, int kHeadDim, int kMTilesOf, int kGroupsOf, bool kOnePlaceOf = false>
struct AttentionShape {
  static constexpr KvType kType = kKv;
  static constexpr bool kOnePlace = kOnePlaceOf;
  static constexpr int kAhead = kOnePlace ? 0 : 1;  ///< copies in flight behind the one that is waited for
  static constexpr Half kHalf = kKv == KvType::kF16 ? Half::kF16 : Half::kBF16;
  static constexpr bool kCodes = kKv == KvType::kFp8;
  static constexpr int kDim = kHeadDim, kMTiles = kMTilesOf, kGroups = kGroupsOf;
  static constexpr int kWarps = 4 * kGroups, kThreads = 32 * kWarps;
  static constexpr int kQueries = 16 * kMTiles * kGroups;
  static constexpr int kRowBytes = kv_row_bytes(kKv, kDim);
  static constexpr int kChunks = kRowBytes / 16;           ///< of a row of K or V
  static constexpr int kQueryChunks = kDim / 8;            ///< of a row of Q
  static constexpr int kWeightChunks = kStageKeys / 8;     ///< of a row of weights
  static constexpr int kRuns = kStageKeys / kWarps / 16;   ///< runs of 16 keys, each in one block, that a warp copies
  static constexpr int kUnits = kCodes ? kChunks : kDim / 8;  ///< of dimensions: 16 or 8, what a load of V brings
  static constexpr int kMine = (kUnits + 3) / 4;              ///< at most, of a warp: c, c + 4, ...
  static constexpr int kColumns = kMine * (kCodes ? 2 : 1);   ///< of 8 dimensions
  static constexpr int kRun = kCodes ? 4 : 2;  ///< dimensions side by side that a lane has of a row and unit

  // Dynamic shared memory, in bytes from its start.
  static constexpr int kKeysAt = 0;
  static constexpr int kValuesAt = kOnePlace ? kKeysAt : kKeysAt + kStageKeys * kRowBytes;
  static constexpr int kQueriesAt = kValuesAt + kStageKeys * kRowBytes;
  static constexpr int kWeightsAt = kQueriesAt + kQueries * kDim * 2;
  static constexpr int kFloatsAt = kWeightsAt + kQueries * kStageKeys * 2;
  static constexpr int kSharedBytes = kFloatsAt + 4 * (kQueries * (3 * kStageTiles + 5) + 4);

  static constexpr LaunchShape launch(int grid) {
    return {.grid_x = grid, .threads = kThreads, .dynamic_shared = static_cast<std::size_t>(kSharedBytes)};
  }
};

/// Up to 16 queries a block: decode and short drafts.
template <KvType kKv, int kDim>
using NarrowAttention = AttentionShape<kKv, kDim, 1, 1>;
/// 64 queries (32 of the widest heads): prefill.
template <KvType kKv, int kDim>
using WideAttention = AttentionShape<kKv, kDim, kDim <= 128 ? 2 : 1, 2>;

/// Shared memory that a block may have on every device that Barg runs on (compute capability 8.6, 8.9 and 12.0: 99 KiB).
inline constexpr int kLeastBlockShared = 99 << 10;
/// The same where K and V share a place.
template <class S>
using InOnePlace = AttentionShape<S::kType, S::kDim, S::kMTiles, S::kGroups, true>;

/// Place of 16-byte chunk `chunk` of `row` in a matrix of rows of kChunks chunks: the same chunk of eight rows that
/// follow one another lies in eight different sets of banks, and so do eight chunks that follow one another.
template <int kChunks>
BARG_DEVICE int swizzled(int row, int chunk) {
  static_assert(kChunks % 2 == 0);
  const int turn = kChunks % 8 == 0 ? row & 7 : kChunks % 4 == 0 ? row >> 1 & 3 : row >> 2 & 1;
  return seeded("attention.swizzle", row * kChunks + (chunk ^ turn));
}

/// How two partial results are joined: everything before is multiplied with `a`, what comes with `b`.
struct AttentionFold {
  float max, a, b;
};
BARG_DEVICE float larger(float a, float b) { return b > a ? b : a; }  // a NaN as b loses
BARG_DEVICE float finite_or_zero(float max) { return max == -infinity() ? 0.0f : max; }
BARG_DEVICE AttentionFold fold(float max, float next) {
  const float m = larger(max, next), base = finite_or_zero(m);
  return {m, exp2(max - base), exp2(next - base)};
}

template <class S>
class Attention {
 public:
  BARG_DEVICE explicit Attention(const AttentionArgs& p)
      : p_(p), count_(*p.num_items), column_(warp_id() % 4), row0_(warp_id() / 4 * 16 * S::kMTiles) {
    std::byte* const shared = dynamic_shared();
    keys_ = shared + S::kKeysAt;
    values_ = shared + S::kValuesAt;
    queries_ = shared + S::kQueriesAt;
    weights_ = shared + S::kWeightsAt;
    maxima_ = reinterpret_cast<float*>(shared + S::kFloatsAt);
    sums_ = maxima_ + kStageTiles * S::kQueries;
    corrections_ = sums_ + kStageTiles * S::kQueries;
    running_ = corrections_ + kStageTiles * S::kQueries;
    fold_a_ = running_ + S::kQueries;
    fold_b_ = fold_a_ + S::kQueries;
    inverse_ = fold_b_ + S::kQueries;
    newest_ = reinterpret_cast<int*>(inverse_ + S::kQueries);
    arrived_ = newest_ + S::kQueries;
  }

  BARG_DEVICE void run() {
    Feed feed{};
    feed.item = block_x();
    open(feed);
    look_up(feed);
    copy(feed, 0, keys_);
    cp_commit();
    if constexpr (!S::kOnePlace) {
      copy(feed, p_.kv.v_offset, values_);
      cp_commit();
    }
    for (int i = block_x(); i < count_; i += grid_x()) attend(p_.items[i], feed);
  }

 private:
  struct Span {
    int first, last;  ///< keys, inclusive
  };
  /// Where the copies are: a stage of an item; beyond the last item there is nothing to copy.
  struct Feed {
    int item, stage, last_stage;
    Span span;
    const BlockId* table;
    const std::byte* head;  ///< the K plane of the kv head in block 0
    BlockId blocks[S::kRuns];
  };

  /// Query of this lane's row h (0, 1) of tile i, counted in the block.
  BARG_DEVICE int row(int i, int h) const { return row0_ + 16 * i + lane_id() / 4 + 8 * h; }

  BARG_DEVICE int queries_of(const AttentionItem& item, const ops::Segment& segment) const {
    const int left = segment.row_count * p_.group - item.query;
    return left < S::kQueries ? left : S::kQueries;
  }
  /// What the item's queries see, one or another, in all splits.
  BARG_DEVICE Span keys_of(const AttentionItem& item, const ops::Segment& segment) const {
    const int first = segment.pos_begin + item.query / p_.group;
    const int last = segment.pos_begin + (item.query + queries_of(item, segment) - 1) / p_.group;
    return {p_.window > 0 && first >= p_.window ? first - p_.window + 1 : 0, last};
  }
  BARG_DEVICE Span in_splits(Span s, const AttentionItem& item) const {
    const int begin = item.split * kSplitKeys, end = item.split_end * kSplitKeys - 1;
    return {s.first > begin ? s.first : begin, s.last < end ? s.last : end};
  }

  // ---- copies

  BARG_DEVICE void open(Feed& f) const {
    if (f.item >= count_) return;
    const AttentionItem& item = p_.items[f.item];
    const ops::Segment& segment = p_.segments[item.segment];
    f.span = in_splits(keys_of(item, segment), item);
    f.stage = f.span.first / kStageKeys;
    f.last_stage = f.span.last / kStageKeys;
    f.table = segment.block_table;
    f.head = p_.kv.base + item.kv_head * p_.kv.head_stride;
  }

  BARG_DEVICE void advance(Feed& f) const {
    if (f.stage < f.last_stage) {
      ++f.stage;
    } else {
      f.item += grid_x();
      open(f);
    }
  }

  BARG_DEVICE void go_on(Feed& f) const {
    advance(f);
    look_up(f);
  }

  BARG_DEVICE int run_begin(int r) const { return (warp_id() * S::kRuns + r) * 16; }

  BARG_DEVICE void look_up(Feed& f) const {
    BARG_UNROLL
    for (int r = 0; r < S::kRuns; ++r) {
      const int key = f.stage * kStageKeys + run_begin(r);
      const bool wanted = f.item < count_ && key <= f.span.last && key + 15 >= f.span.first;
      f.blocks[r] = wanted ? f.table[seeded("attention.block", key / p_.kv.block_tokens)] : 0;
    }
  }

  /// This warp's part of the stage: K (plane 0) or V, zeros for keys that no query sees.
  BARG_DEVICE void copy(const Feed& f, std::int64_t plane, std::byte* to) const {
    if (f.item >= count_) return;
    BARG_UNROLL
    for (int r = 0; r < S::kRuns; ++r) {
      const int key0 = f.stage * kStageKeys + run_begin(r);
      const std::byte* const from = f.head + plane + f.blocks[r] * p_.kv.block_stride +
                                    static_cast<std::int64_t>(key0 % p_.kv.block_tokens) * S::kRowBytes;
      BARG_UNROLL
      for (int j = 0; j < S::kChunks / 2; ++j) {
        const int i = lane_id() + 32 * j, row = i / S::kChunks;
        const int place = swizzled<S::kChunks>(run_begin(r) + row, i % S::kChunks);
        const bool seen = key0 + row >= f.span.first && key0 + row <= f.span.last;
        cp_async16(to + 16 * seeded("attention.copy_to", place), from + 16 * i, seen);
      }
    }
  }

  // ---- an item

  /// Queries to shared memory, in 16 bits; rows that are not there are zeros and see nothing.
  BARG_DEVICE void begin(const AttentionItem& item, const ops::Segment& segment) {
    const int fill = seeded("attention.fill", S::kQueries);
    for (int i = thread_id(); i < fill * (S::kDim / 4); i += S::kThreads) {
      const int row = i / (S::kDim / 4), d = i % (S::kDim / 4) * 4;
      Vec16 v{};
      if (row < rows_) {
        const int u = item.query + row;
        const std::int64_t head = item.kv_head * p_.group + u % p_.group;
        v = load16(p_.q + (segment.row_begin + u / p_.group) * p_.q_stride + head * S::kDim + d);
      }
      const float x[4] = {bits_float(v.x[0]), bits_float(v.x[1]), bits_float(v.x[2]), bits_float(v.x[3])};
      if constexpr (S::kCodes) {
        // Dimensions 4t .. 4t + 3 of 16 go where load_keys() finds their codes: 2t, 2t + 8, 2t + 1, 2t + 9.
        const int at = d % 16;
        put_queries(row, d / 16 * 2, at, pack2<S::kHalf>(x[0], x[2]));
        put_queries(row, d / 16 * 2 + 1, at, pack2<S::kHalf>(x[1], x[3]));
      } else {
        const Vec8 pairs{{pack2<S::kHalf>(x[0], x[1]), pack2<S::kHalf>(x[2], x[3])}};
        shared_store8(queries_ + 16 * swizzled<S::kQueryChunks>(row, d / 8) + d % 8 * 2, pairs);
      }
    }
    if (thread_id() < S::kQueries) {
      const int u = item.query + thread_id();
      newest_[thread_id()] = thread_id() < rows_ ? segment.pos_begin + u / p_.group : -1;
      begin_split();
      total_max_ = -infinity();
      total_sum_ = 0;
    }
    clear(total_);
    clear(acc_);
  }
  BARG_DEVICE void put_queries(int row, int chunk, int byte, std::uint32_t pair) const {
    *reinterpret_cast<std::uint32_t*>(queries_ + 16 * swizzled<S::kQueryChunks>(row, chunk) + byte) = pair;
  }

  /// Of the row that this thread keeps the maximum and sum of.
  BARG_DEVICE void begin_split() {
    max_ = -infinity();
    sum_ = 0;
    running_[thread_id()] = max_;
  }

  BARG_DEVICE void attend(const AttentionItem& item, Feed& feed) {
    const ops::Segment& segment = p_.segments[item.segment];
    rows_ = queries_of(item, segment);
    const Span all = keys_of(item, segment), span = in_splits(all, item);
    begin(item, segment);
    const int last_stage = span.last / kStageKeys;
    for (int stage = span.first / kStageKeys; stage <= last_stage; ++stage) {
      if constexpr (!S::kOnePlace) go_on(feed);
      const int tile = stage * kStageKeys + column_ * kTileKeys;
      float key_scale = 0, value_scale = 0;
      if constexpr (S::kCodes) load_scales(item, segment, span, tile, key_scale, value_scale);
      // K of this stage has come, and the queries.
      cp_wait<S::kAhead>();
      sync_block();
      float s[S::kMTiles][4][4];
      score(s, tile, key_scale);
      // The maxima of all tiles are there, and K may be overwritten.
      sync_block();
      if constexpr (S::kOnePlace) {
        copy(feed, p_.kv.v_offset, values_);
      } else {
        copy(feed, 0, keys_);
      }
      cp_commit();
      if (thread_id() < S::kQueries) correct();
      soften(s, value_scale);
      // V has come, and weights, sums and corrections.
      cp_wait<S::kAhead>();
      sync_block();
      weigh();
      if (thread_id() < S::kQueries) add_sums();
      // V may be overwritten.
      sync_block();
      if constexpr (S::kOnePlace) {
        go_on(feed);
        copy(feed, 0, keys_);
      } else {
        copy(feed, p_.kv.v_offset, values_);
      }
      cp_commit();
      if ((stage + 1) % (kSplitKeys / kStageKeys) != 0 && stage < last_stage) continue;
      if (item.parts == 1) {
        join();
      } else {
        leave(slot(item, stage * kStageKeys / kSplitKeys - all.first / kSplitKeys));
      }
    }
    if (item.parts == 1) {
      finish(item, segment, [&](int i, int h) { return inverse_[row(i, h)]; });
    } else if (last_to_come(item)) {
      merge(item, segment, all);
    }
  }

  /// Of the key of this lane in its warp's tile. A lane whose key nobody sees reads its neighbour's; who sees none of them
  /// reads nothing.
  BARG_DEVICE void load_scales(const AttentionItem& item, const ops::Segment& segment, Span span, int tile, float& of_key,
                               float& of_value) const {
    if (tile > span.last || tile + kTileKeys <= span.first) return;
    const int last = tile + lane_id() < span.last ? tile + lane_id() : span.last;
    const int key = last > span.first ? last : span.first;
    const int tokens = p_.kv.block_tokens;
    const std::byte* const plane = p_.kv.base + segment.block_table[key / tokens] * p_.kv.block_stride +
                                   item.kv_head * p_.kv.head_stride + static_cast<std::int64_t>(tokens) * S::kDim;
    of_key = reinterpret_cast<const float*>(plane)[key % tokens];
    of_value = reinterpret_cast<const float*>(plane + p_.kv.v_offset)[key % tokens];
  }

  // ---- a stage

  /// The tile's keys at step k of 16 dimensions, as columns: b[n] of keys 8n .. 8n + 7.
  BARG_DEVICE void load_keys(std::uint32_t (&b)[4][2], int k) const {
    const int lane = lane_id(), tile = column_ * kTileKeys;
    std::uint32_t r[4];
    if constexpr (S::kCodes) {
      ldmatrix_x4(r, keys_ + 16 * swizzled<S::kChunks>(tile + lane, k));
      BARG_UNROLL
      for (int n = 0; n < 4; ++n) {
        b[n][0] = f8_pair_to_bfloat(r[n]);
        b[n][1] = f8_pair_to_bfloat(r[n] >> 8);
      }
    } else {
      BARG_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = tile + 16 * half + lane / 16 * 8 + lane % 8;
        ldmatrix_x4(r, keys_ + 16 * swizzled<S::kChunks>(row, 2 * k + lane / 8 % 2));
        b[2 * half][0] = r[0];
        b[2 * half][1] = r[1];
        b[2 * half + 1][0] = r[2];
        b[2 * half + 1][1] = r[3];
      }
    }
  }

  /// s = the scores of this warp's tile, scaled, -infinity where masked; their maxima to shared memory.
  BARG_DEVICE void score(float (&s)[S::kMTiles][4][4], int tile, float key_scale) const {
    const int lane = lane_id();
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int n = 0; n < 4; ++n) {
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) s[i][n][e] = 0;
      }
    }
    BARG_UNROLL
    for (int k = 0; k < S::kDim / 16; ++k) {
      std::uint32_t b[4][2];
      load_keys(b, k);
      BARG_UNROLL
      for (int i = 0; i < S::kMTiles; ++i) {
        std::uint32_t a[4];
        const int row = row0_ + 16 * i + lane % 16;
        ldmatrix_x4(a, queries_ + 16 * swizzled<S::kQueryChunks>(row, 2 * k + lane / 16));
        BARG_UNROLL
        for (int n = 0; n < 4; ++n) mma_16816<S::kHalf>(s[i][n], a, b[n]);
      }
    }
    const float scale = seeded("attention.scale", p_.scale);
    const unsigned width = static_cast<unsigned>(p_.window > 0 ? seeded("attention.window", p_.window) : 0x7fffffff);
    float scales[4][2];
    spread(scales, key_scale);
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int newest = seeded("attention.newest", newest_[row(i, h)]);
        float max = -infinity();
        BARG_UNROLL
        for (int n = 0; n < 4; ++n) {
          BARG_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& x = s[i][n][2 * h + e];
            if constexpr (S::kCodes) x = x * scales[n][e];
            const int age = newest - (tile + 8 * n + 2 * (lane % 4) + e);
            x = static_cast<unsigned>(age) < width ? x * scale : -infinity();
            max = larger(max, x);
          }
        }
        max = larger(max, shuffle_xor(max, 1));
        max = larger(max, shuffle_xor(max, 2));
        if (lane % 4 == 0) maxima_[column_ * S::kQueries + row(i, h)] = max;
      }
    }
  }

  /// Scales of the tile's keys, one a lane, to where the scores of these keys lie.
  BARG_DEVICE void spread(float (&scales)[4][2], float mine) const {
    if constexpr (S::kCodes) {
      BARG_UNROLL
      for (int n = 0; n < 4; ++n) {
        scales[n][0] = shuffle(mine, 8 * n + lane_id() % 4 * 2);
        scales[n][1] = shuffle(mine, 8 * n + lane_id() % 4 * 2 + 1);
      }
    }
  }

  /// How far each tile of the stage moves the maximum of this thread's row.
  BARG_DEVICE void correct() {
    BARG_UNROLL
    for (int x = 0; x < kStageTiles; ++x) {
      const float max = larger(max_, maxima_[x * S::kQueries + thread_id()]);
      const float c = exp2(max_ - finite_or_zero(max));
      corrections_[x * S::kQueries + thread_id()] = seeded("attention.correction", c);
      max_ = max;
    }
  }

  /// Scores become weights, in 16 bits, and their sums.
  BARG_DEVICE void soften(const float (&s)[S::kMTiles][4][4], float value_scale) const {
    const int lane = lane_id();
    float scales[4][2];
    spread(scales, value_scale);
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int h = 0; h < 2; ++h) {
        float max = running_[row(i, h)];
        for (int x = 0; x <= column_; ++x) max = larger(max, maxima_[x * S::kQueries + row(i, h)]);
        const float base = finite_or_zero(max);
        float sum = 0;
        BARG_UNROLL
        for (int n = 0; n < 4; ++n) {
          float e[2];
          BARG_UNROLL
          for (int x = 0; x < 2; ++x) e[x] = exp2(s[i][n][2 * h + x] - base);
          sum = sum + (e[0] + e[1]);
          if constexpr (S::kCodes) {
            // The scale of a key that this query does not see may be NaN.
            BARG_UNROLL
            for (int x = 0; x < 2; ++x) e[x] = e[x] == 0.0f ? 0.0f : e[x] * seeded("attention.value_scale", scales[n][x]);
          }
          const int at = 16 * swizzled<S::kWeightChunks>(row(i, h), column_ * 4 + n) + lane % 4 * 4;
          *reinterpret_cast<std::uint32_t*>(weights_ + at) = pack2<S::kHalf>(e[0], e[1]);
        }
        sum = sum + shuffle_xor(sum, 1);
        sum = sum + shuffle_xor(sum, 2);
        if (lane % 4 == 0) sums_[column_ * S::kQueries + row(i, h)] = sum;
      }
    }
  }

  /// acc of this warp's dimensions, over all tiles of the stage in order.
  BARG_DEVICE void weigh() {
    const int lane = lane_id();
    for (int x = 0; x < kStageTiles; ++x) {
      std::uint32_t a[S::kMTiles][2][4];
      BARG_UNROLL
      for (int i = 0; i < S::kMTiles; ++i) {
        BARG_UNROLL
        for (int k = 0; k < 2; ++k) {
          const int chunk = 4 * x + 2 * k + lane / 16;
          ldmatrix_x4(a[i][k], weights_ + 16 * swizzled<S::kWeightChunks>(row0_ + 16 * i + lane % 16, chunk));
        }
        BARG_UNROLL
        for (int h = 0; h < 2; ++h) {
          const float c = corrections_[x * S::kQueries + row(i, h)];
          BARG_UNROLL
          for (int n = 0; n < S::kColumns; ++n) {
            acc_[i][n][2 * h] = acc_[i][n][2 * h] * c;
            acc_[i][n][2 * h + 1] = acc_[i][n][2 * h + 1] * c;
          }
        }
      }
      BARG_UNROLL
      for (int j = 0; j < S::kMine; ++j) {
        if (!mine(j)) continue;
        std::uint32_t r[4];
        ldmatrix_x4_trans(r, values_ + 16 * swizzled<S::kChunks>(x * kTileKeys + lane, unit(j)));
        if constexpr (S::kCodes) {
          // Pairs of dimensions 2g, 2g + 1 of two keys become pairs of keys: even dimensions, then odd ones.
          BARG_UNROLL
          for (int odd = 0; odd < 2; ++odd) {
            std::uint32_t b[4];
            BARG_UNROLL
            for (int m = 0; m < 4; ++m) b[m] = f8_pair_to_bfloat(r[m] >> 8 * odd);
            multiply(2 * j + odd, a, b);
          }
        } else {
          multiply(j, a, r);
        }
      }
    }
  }
  BARG_DEVICE void multiply(int n, const std::uint32_t (&a)[S::kMTiles][2][4], const std::uint32_t (&b)[4]) {
    const std::uint32_t front[2] = {b[0], b[1]}, back[2] = {b[2], b[3]};
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      mma_16816<S::kHalf>(acc_[i][n], a[i][0], front);
      mma_16816<S::kHalf>(acc_[i][n], a[i][1], back);
    }
  }

  BARG_DEVICE void add_sums() {
    BARG_UNROLL
    for (int x = 0; x < kStageTiles; ++x) {
      const int at = x * S::kQueries + thread_id();
      sum_ = fma(sum_, corrections_[at], sums_[at]);
    }
    running_[thread_id()] = max_;
  }

  // ---- a split's end

  BARG_DEVICE int unit(int j) const { return column_ + 4 * j; }
  BARG_DEVICE bool mine(int j) const { return S::kUnits % 4 == 0 || unit(j) < S::kUnits; }
  /// The first of the dimensions that this lane has of unit j.
  BARG_DEVICE int dim(int j) const { return (4 * unit(j) + lane_id() % 4) * S::kRun; }
  using Accumulators = float[S::kMTiles][S::kColumns][4];
  /// Element e of these, in row h of tile i.
  static BARG_DEVICE float& element(Accumulators& x, int i, int j, int h, int e) {
    if constexpr (S::kCodes) return x[i][2 * j + e % 2][2 * h + e / 2];
    return x[i][j][2 * h + e];
  }
  static BARG_DEVICE void clear(Accumulators& x) {
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int n = 0; n < S::kColumns; ++n) {
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) x[i][n][e] = 0;
      }
    }
  }
  /// f(i, j, h) for everything that this lane has of queries that are there.
  template <class F>
  BARG_DEVICE void for_each_run(const F& f) {
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int h = 0; h < 2; ++h) {
        if (row(i, h) >= rows_) continue;
        BARG_UNROLL
        for (int j = 0; j < S::kMine; ++j) {
          if (mine(j)) f(i, j, h);
        }
      }
    }
  }

  /// Folds the split into the total of this block.
  BARG_DEVICE void join() {
    if (thread_id() < S::kQueries) {
      const AttentionFold f = fold(total_max_, max_);
      total_max_ = f.max;
      total_sum_ = fma(total_sum_, f.a, sum_ * f.b);
      fold_a_[thread_id()] = f.a;
      fold_b_[thread_id()] = f.b;
      inverse_[thread_id()] = divide(1.0f, total_sum_);
      begin_split();
    }
    // The factors are there.
    sync_block();
    for_each_run([&](int i, int j, int h) {
      const float a = fold_a_[row(i, h)], b = fold_b_[row(i, h)];
      BARG_UNROLL
      for (int e = 0; e < S::kRun; ++e) {
        element(total_, i, j, h, e) = fma(element(total_, i, j, h, e), a, element(acc_, i, j, h, e) * b);
      }
    });
    clear(acc_);
  }

  BARG_DEVICE float* slot(const AttentionItem& item, int split) const {
    return p_.slots + std::int64_t{8} * item.slot +
           static_cast<std::int64_t>(seeded("attention.slot", split)) * attention_slot_floats(rows_, S::kDim);
  }

  /// Leaves the split in its slot.
  BARG_DEVICE void leave(float* to) {
    if (thread_id() < S::kQueries) {
      if (thread_id() < rows_) {
        to[rows_ * S::kDim + thread_id()] = max_;
        to[rows_ * (S::kDim + 1) + thread_id()] = sum_;
      }
      begin_split();
    }
    for_each_run([&](int i, int j, int h) {
      float x[S::kRun];
      BARG_UNROLL
      for (int e = 0; e < S::kRun; ++e) x[e] = element(acc_, i, j, h, e);
      store_run(to + row(i, h) * S::kDim + dim(j), x);
    });
    clear(acc_);
  }

  /// Whether all other parts of these queries have left theirs.
  BARG_DEVICE bool last_to_come(const AttentionItem& item) const {
    // All of this block's splits are in their slots.
    sync_block();
    if (thread_id() == 0) *arrived_ = publish_count(p_.counters + item.counter);
    // The count is there, and with it the other blocks' slots.
    sync_block();
    return seeded("attention.arrived", *arrived_) == item.parts - 1;
  }

  /// Folds all splits in order, as join() does.
  BARG_DEVICE void merge(const AttentionItem& item, const ops::Segment& segment, Span all) {
    if (thread_id() == 0) p_.counters[item.counter] = 0;
    float max[S::kMTiles][2], sum[S::kMTiles][2];
    BARG_UNROLL
    for (int i = 0; i < S::kMTiles; ++i) {
      BARG_UNROLL
      for (int h = 0; h < 2; ++h) {
        max[i][h] = -infinity();
        sum[i][h] = 0;
      }
    }
    const int splits = all.last / kSplitKeys - all.first / kSplitKeys + 1;
    for (int x = 0; x < splits; ++x) {
      const float* const from = slot(item, seeded("attention.order", x));
      BARG_UNROLL
      for (int i = 0; i < S::kMTiles; ++i) {
        BARG_UNROLL
        for (int h = 0; h < 2; ++h) {
          if (row(i, h) >= rows_) continue;
          const AttentionFold f = fold(max[i][h], load_published(from + rows_ * S::kDim + row(i, h)));
          max[i][h] = f.max;
          sum[i][h] = fma(sum[i][h], f.a, load_published(from + rows_ * (S::kDim + 1) + row(i, h)) * f.b);
          BARG_UNROLL
          for (int j = 0; j < S::kMine; ++j) {
            if (!mine(j)) continue;
            float next[S::kRun];
            load_run(next, from + row(i, h) * S::kDim + dim(j));
            BARG_UNROLL
            for (int e = 0; e < S::kRun; ++e) {
              element(total_, i, j, h, e) = fma(element(total_, i, j, h, e), f.a, next[e] * f.b);
            }
          }
        }
      }
    }
    finish(item, segment, [&](int i, int h) { return divide(1.0f, sum[i][h]); });
  }

  template <class F>
  BARG_DEVICE void finish(const AttentionItem& item, const ops::Segment& segment, const F& inverse) {
    const int heads = p_.group * p_.kv.num_kv_heads;
    for_each_run([&](int i, int j, int h) {
      const int u = item.query + row(i, h);
      const std::int64_t at = segment.row_begin + u / p_.group;
      const std::int64_t head = item.kv_head * p_.group + u % p_.group;
      float x[S::kRun];
      BARG_UNROLL
      for (int e = 0; e < S::kRun; ++e) {
        // + 0: the sign of a zero is the only thing that tiles without a visible key can change.
        x[e] = fma(element(total_, i, j, h, e), inverse(i, h), 0.0f);
      }
      if (p_.out != nullptr) store_run(p_.out + at * p_.out_stride + head * S::kDim + dim(j), x);
      if (p_.half != nullptr) store_halves(p_.half + (at * heads + head) * S::kDim + dim(j), x);
    });
  }

  static BARG_DEVICE void store_run(float* to, const float (&x)[S::kRun]) {
    if constexpr (S::kRun == 4) {
      store16(to, {{float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3])}});
    } else {
      store8(to, {{float_bits(x[0]), float_bits(x[1])}});
    }
  }
  static BARG_DEVICE void load_run(float (&x)[S::kRun], const float* from) {
    if constexpr (S::kRun == 4) {
      const Vec16 v = load16_published(from);
      BARG_UNROLL
      for (int e = 0; e < S::kRun; ++e) x[e] = bits_float(v.x[e]);
    } else {
      const Vec8 v = load8_published(from);
      BARG_UNROLL
      for (int e = 0; e < S::kRun; ++e) x[e] = bits_float(v.x[e]);
    }
  }
  BARG_DEVICE std::uint32_t pack(float low, float high) const {
    return p_.half_type == Half::kBF16 ? pack2<Half::kBF16>(low, high) : pack2<Half::kF16>(low, high);
  }
  BARG_DEVICE void store_halves(std::uint16_t* to, const float (&x)[S::kRun]) const {
    if constexpr (S::kRun == 4) {
      store8(to, {{pack(x[0], x[1]), pack(x[2], x[3])}});
    } else {
      *reinterpret_cast<std::uint32_t*>(to) = pack(x[0], x[1]);
    }
  }

  const AttentionArgs& p_;
  int count_, column_, row0_;
  int rows_ = 0;  ///< queries of the item
  std::byte *keys_, *values_, *queries_, *weights_;
  float *maxima_, *sums_, *corrections_;             ///< [tile][query]
  float *running_, *fold_a_, *fold_b_, *inverse_;    ///< [query]; running_: the maximum before the stage
  int* newest_;                                      ///< [query] the last key that it sees, -1: it is not there
  int* arrived_;
  float max_ = 0, sum_ = 0, total_max_ = 0, total_sum_ = 0;  ///< of the query with this thread's number
  Accumulators acc_, total_;
};

template <class S>
BARG_KERNEL attention_kernel(AttentionArgs p) {
  Attention<S>(p).run();
}

}  // namespace barg::cuda
