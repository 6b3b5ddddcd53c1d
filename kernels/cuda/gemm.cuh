// The CUDA GEMM: out = x W^T for every number of rows, by mma.sync with the weights as the 16-row operand. gemm.h has its
// numerics and how weights lie.
//
// A block takes some tiles of 16 rows of W and some rows of x, and goes through its slices unit after unit: units of W and
// of x come through a ring of stages in shared memory, by copies of 16 bytes. Units of W lie there as they do in memory,
// which is as lanes read them; rows of x are swizzled for ldmatrix. Codes become 16-bit numbers in registers: their bits
// under the exponent of 2^7 (f16: 2^10), from which that power is subtracted.
//
// With few rows the time is that of reading W once, which wants many blocks and many copies under way: then each slice may
// have a block of its own, which leaves what it has in its place of `partials`, and the block that comes last folds them,
// in the order in which a block alone would have. In the same way the block that comes last with a part of a row of the
// result, or of a head, goes on with what follows the product: a launch less.
#pragma once

#include "cuda/elementwise.cuh"
#include "cuda/gemm.h"
#include "cuda/rope_kv.cuh"

namespace barg::cuda {

/// What follows from the template arguments: a warp has kRowTiles x kColTiles tiles of 16 x 8, a block kRowWarps x
/// kColWarps warps and as many stages, of those allowed, as fit kRingBytes.
template <GemmFormat F, Half T, int kRowTilesOf, int kColTilesOf, int kRowWarpsOf, int kColWarpsOf, int kRingBytes>
struct GemmShape {
  static constexpr GemmFormat kFormat = F;
  static constexpr Half kHalf = T;
  static constexpr int kRowTiles = kRowTilesOf, kColTiles = kColTilesOf, kRowWarps = kRowWarpsOf, kColWarps = kColWarpsOf;
  static constexpr int kWarps = kRowWarps * kColWarps, kThreads = 32 * kWarps;
  static constexpr int kBlockTiles = kRowTiles * kRowWarps;    ///< of W
  static constexpr int kBlockCols = 8 * kColTiles * kColWarps;  ///< rows of x
  static constexpr bool kSkips = kThreads < 256;  ///< columns that are not there; with many it is not worth asking
  static constexpr bool kBehind = kBlockCols <= kGemmBehindRows;  ///< norm or rotation may follow

  static constexpr bool kCodes = F != GemmFormat::kF16 && F != GemmFormat::kBF16;
  static constexpr bool kMinima = F == GemmFormat::kQ4_1 || F == GemmFormat::kQ4_K;
  static constexpr int kColumns = gemm_layout(F).columns, kBlocks = kColumns / 32;
  static constexpr int kUnitBytes = gemm_layout(F).bytes(), kHighAt = gemm_layout(F).high_at();
  static constexpr int kScalesAt = gemm_layout(F).scales_at(), kSupersAt = gemm_layout(F).supers_at();
  static constexpr int kScaleWords = gemm_layout(F).scale_words;
  static constexpr int kPieces = kUnitBytes / 16;  ///< copies of a unit of W
  static constexpr int kChunks = kColumns / 8;     ///< copies of a row of x

  static constexpr int kXAt = kBlockTiles * kUnitBytes;  ///< bytes from a stage's start
  static constexpr int kStageBytes = kXAt + kBlockCols * kColumns * 2;
  static constexpr int kFit = kRingBytes / kStageBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 8 ? 8 : kFit;
  static constexpr int kPartialFloats = kBlockTiles * 16 * kBlockCols;
  static_assert(kXAt % 128 == 0 && kStageBytes % 128 == 0 && kRowTiles % 2 == 0);
  static_assert(kBlockTiles % kWarps == 0 && kBlockCols % (kThreads / kChunks) == 0);

  static constexpr LaunchShape launch(int grid) {
    return {.grid_x = grid, .threads = kThreads, .dynamic_shared = static_cast<std::size_t>(kStages * kStageBytes)};
  }
};

/// Up to 8 rows of x, up to 64, and any number.
template <GemmFormat F, Half T>
using NarrowGemm = GemmShape<F, T, 2, 1, 2, 1, 40 << 10>;
template <GemmFormat F, Half T>
using MiddleGemm = GemmShape<F, T, 2, 4, 2, 2, 64 << 10>;
template <GemmFormat F, Half T>
using WideGemm = GemmShape<F, T, 2, 8, 4, 2, 96 << 10>;

template <class S>
class Gemm {
 public:
  BARG_DEVICE explicit Gemm(const GemmArgs& p) : p_(p), ring_(dynamic_shared()) {
    const GemmWork& w = p.work;
    int item = block_x();
    first_ = 0;
    last_ = w.slices - 1;
    if (w.shared_out) {
      first_ = last_ = item % w.slices;
      item /= w.slices;
    }
    // Blocks that run together share tiles of W and rows of x: groups of up to eight along n, all rows of x before the
    // next.
    constexpr int kGroup = 8;
    const int group = item / (kGroup * w.col_blocks), rest = item % (kGroup * w.col_blocks);
    const int left = w.row_blocks - kGroup * group, high = left < kGroup ? left : kGroup;
    const int row_block = kGroup * group + rest % high, col_block = rest / high;
    place_ = row_block * w.col_blocks + col_block;
    block_tile_ = row_block * S::kBlockTiles;
    block_col_ = col_block * S::kBlockCols;
    warp_tile_ = warp_id() % S::kRowWarps * S::kRowTiles;
    warp_col_ = warp_id() / S::kRowWarps * 8 * S::kColTiles;
    const int cols = (p.rows - block_col_ - warp_col_ + 7) / 8;
    live_ = block_tile_ + warp_tile_ >= w.tiles ? 0 : cols < S::kColTiles ? cols : S::kColTiles;
  }

  BARG_DEVICE void run() {
    const int begin = edge(first_);
    end_ = edge(last_ + 1);
    x_ = p_.x + (block_col_ + thread_id() / S::kChunks) * p_.x_stride + begin * S::kColumns + 8 * (thread_id() % S::kChunks);
    for (int i = 0; i < S::kStages - 1; ++i) {
      copy(begin + i, i);
      cp_commit();
    }
    int slice = first_, slice_end = edge(first_ + 1), stage = 0, free = S::kStages - 1;
    clear();
    for (int unit = begin; unit < end_; ++unit) {
      // This unit has come, and nobody reads the one before it any more.
      cp_wait<S::kStages - 2>();
      sync_block();
      copy(unit + S::kStages - 1, free);
      cp_commit();
      multiply(ring_ + stage * S::kStageBytes);
      free = stage;
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
      if (unit + 1 < slice_end) continue;
      if (first_ < last_) fold(slice);
      slice_end = edge(++slice + 1);
    }
    if (p_.work.shared_out) {
      leave();
      if (!last_to_come(p_.counters + place_, p_.work.slices)) return;
      merge();
    }
    finish();
    if constexpr (S::kBehind) {
      if (p_.norm.weight != nullptr) norm_rows();
      if (p_.rope.counters != nullptr) rotate_heads();
    }
  }

 private:
  BARG_DEVICE int edge(int slice) const { return p_.work.units * slice / p_.work.slices; }

  // ---- copies

  /// The next unit, if there is one: a warp's share of the tiles of W, and a chunk of some rows of x for each thread.
  BARG_DEVICE void copy(int unit, int stage) {
    if (unit >= end_) return;
    std::byte* const to = ring_ + stage * S::kStageBytes;
    BARG_UNROLL
    for (int i = 0; i < S::kBlockTiles / S::kWarps; ++i) {
      const int tile = warp_id() + S::kWarps * i;
      const std::byte* const from = packed(tile, seeded("gemm.unit", unit)) + 16 * lane_id();
      std::byte* const tile_to = to + tile * S::kUnitBytes + 16 * lane_id();
      BARG_UNROLL
      for (int j = 0; j < (S::kPieces + 31) / 32; ++j) {
        if (lane_id() + 32 * j >= S::kPieces) continue;
        cp_async16(tile_to + 512 * j, from + 512 * j, block_tile_ + tile < p_.work.tiles);
      }
    }
    constexpr int kRows = S::kThreads / S::kChunks;
    const int row = thread_id() / S::kChunks, chunk = thread_id() % S::kChunks;
    const std::uint16_t* from = x_;
    const int rows = unit * S::kColumns + 8 * chunk < p_.k ? p_.rows - block_col_ : 0;
    BARG_UNROLL
    for (int j = 0; j < S::kBlockCols / kRows; ++j) {
      const int place = seeded("gemm.copy_to", swizzled(row + kRows * j, chunk));
      cp_async16(to + S::kXAt + 16 * place, from, row + kRows * j < rows);
      from += kRows * p_.x_stride;
    }
    x_ += S::kColumns;
  }

  /// A unit of one of the block's tiles: of a gated product, of gate and up in turn.
  BARG_DEVICE const std::byte* packed(int tile, int unit) const {
    const int of = block_tile_ + tile;
    const std::byte* const matrix = p_.gated && seeded("gemm.up", of % 2) != 0 ? p_.up : p_.weight;
    const std::int64_t at = static_cast<std::int64_t>(p_.gated ? of / 2 : of) * p_.work.units + unit;
    return matrix + at * S::kUnitBytes;
  }

  /// Place of a chunk of a row of x: the same chunk of eight rows lies in eight different sets of banks.
  static BARG_DEVICE int swizzled(int row, int chunk) {
    return seeded("gemm.swizzle", row * S::kChunks + (chunk ^ (row & 7)));
  }

  // ---- a unit

  BARG_DEVICE void multiply(const std::byte* stage) {
    if (live_ <= 0) return;
    const std::byte* const units = stage + warp_tile_ * S::kUnitBytes;
    const int lane = lane_id();
    BARG_UNROLL
    for (int b = 0; b < S::kBlocks; ++b) {
      std::uint32_t a[S::kRowTiles][2][4];  // of both steps
      Scales scales[S::kRowTiles];
      BARG_UNROLL
      for (int i = 0; i < S::kRowTiles; ++i) {
        load_codes(a[i], units + i * S::kUnitBytes, b);
        if constexpr (S::kCodes) load_scales(scales[i], units + i * S::kUnitBytes, b);
      }
      BARG_UNROLL
      for (int j = 0; j < S::kColTiles; ++j) {
        if (S::kSkips && j >= live_) continue;
        std::uint32_t r[4];
        ldmatrix_x4(r, stage + S::kXAt + 16 * swizzled(warp_col_ + 8 * j + lane % 8, 4 * b + lane / 8));
        const std::uint32_t x[2][2] = {{r[0], r[1]}, {r[2], r[3]}};
        float sums[2] = {0, 0};
        if constexpr (S::kMinima) add_up(sums, x);
        BARG_UNROLL
        for (int i = 0; i < S::kRowTiles; ++i) multiply_tile(acc_[i][j], a[i], scales[i], x, sums);
      }
    }
  }

  /// The sums of the columns of x that this lane has of a product.
  static BARG_DEVICE void add_up(float (&sums)[2], const std::uint32_t (&x)[2][2]) {
    constexpr std::uint32_t kOne = S::kHalf == Half::kBF16 ? 0x3f803f80u : 0x3c003c00u;  // twice
    const std::uint32_t ones[4] = {kOne, kOne, kOne, kOne};
    float d[4] = {0, 0, 0, 0};
    mma_16816<S::kHalf>(d, ones, x[0]);
    mma_16816<S::kHalf>(d, ones, x[1]);
    sums[0] = d[0];
    sums[1] = d[1];
  }

  /// Of this lane's rows: the scale of each half of the block (or in [1] of the whole), and the minimum.
  struct Scales {
    float scale[2][2];
    float minimum[2];
  };

  static BARG_DEVICE void multiply_tile(float (&acc)[4], const std::uint32_t (&a)[2][4], const Scales& s,
                                        const std::uint32_t (&x)[2][2], const float (&sums)[2]) {
    if constexpr (!S::kCodes) {
      mma_16816<S::kHalf>(acc, a[0], x[0]);
      mma_16816<S::kHalf>(acc, a[1], x[1]);
    } else {
      float d[4] = {0, 0, 0, 0};
      mma_16816<S::kHalf>(d, a[0], x[0]);
      if constexpr (S::kFormat == GemmFormat::kQ6_K) {
        add_scaled(acc, s.scale[0], d);
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) d[e] = 0;
      }
      mma_16816<S::kHalf>(d, a[1], x[1]);
      add_scaled(acc, s.scale[1], d);
      if constexpr (S::kMinima) {
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) acc[e] = fma(s.minimum[e / 2], sums[e % 2], acc[e]);
      }
    }
  }
  static BARG_DEVICE void add_scaled(float (&acc)[4], const float (&scale)[2], const float (&d)[4]) {
    BARG_UNROLL
    for (int e = 0; e < 4; ++e) acc[e] = fma(scale[e / 2], d[e], acc[e]);
  }

  static BARG_DEVICE std::uint32_t word(const std::byte* p) { return *reinterpret_cast<const std::uint32_t*>(p); }

  /// This lane's weights or codes of block b: both steps, as 16-bit numbers.
  static BARG_DEVICE void load_codes(std::uint32_t (&a)[2][4], const std::byte* unit, int b) {
    const int lane = lane_id();
    if constexpr (!S::kCodes) {
      BARG_UNROLL
      for (int y = 0; y < 2; ++y) {
        const Vec16 v = shared_load16(unit + (2 * b + y) * 512 + 16 * lane);
        BARG_UNROLL
        for (int r = 0; r < 4; ++r) a[y][r] = v.x[r];
      }
    } else if constexpr (S::kFormat == GemmFormat::kQ8_0) {
      const Vec16 v = shared_load16(unit + b * 512 + 16 * lane);
      BARG_UNROLL
      for (int r = 0; r < 8; ++r) {
        const std::uint32_t c = v.x[r / 2] >> 8 * (r % 2);
        a[r / 4][r % 4] = add_pair<S::kHalf>((c & 0x007f007fu) | kPower, (c & 0x00800080u) | kMinusPower);
      }
    } else {
      const Vec8 v = shared_load8(unit + b * 256 + 8 * lane);
      std::uint32_t high = 0;
      if constexpr (S::kFormat == GemmFormat::kQ6_K) high = word(unit + S::kHighAt + b * 128 + 4 * lane);
      constexpr std::uint32_t kZero = S::kFormat == GemmFormat::kQ4_0 ? 8 : S::kFormat == GemmFormat::kQ6_K ? 32 : 0;
      const std::uint32_t zero = seeded("gemm.zero", kZero);
      BARG_UNROLL
      for (int r = 0; r < 8; ++r) {
        std::uint32_t c = v.x[r / 4] >> 4 * (r % 4) & 0x000f000fu;
        if constexpr (S::kFormat == GemmFormat::kQ6_K) c |= (high >> 2 * r & 0x00030003u) << 4;
        a[r / 4][r % 4] = add_pair<S::kHalf>(c | kPower, kMinusPower + (zero | zero << 16));
      }
    }
  }
  /// 2^7 or 2^10, twice: their fractions end in the unit's place.
  static constexpr std::uint32_t kPower = S::kHalf == Half::kBF16 ? 0x43004300u : 0x64006400u;
  static constexpr std::uint32_t kMinusPower = kPower | 0x80008000u;

  static BARG_DEVICE void load_scales(Scales& s, const std::byte* unit, int b) {
    const int g = lane_id() / 4;
    const std::byte* const at = unit + S::kScalesAt + (b * S::kScaleWords * 8 + g) * 4;
    const std::uint32_t w = word(at);
    if constexpr (S::kFormat == GemmFormat::kQ6_K) {
      const std::uint32_t d = word(unit + S::kSupersAt + 4 * g);
      BARG_UNROLL
      for (int i = 0; i < 4; ++i)
        s.scale[i / 2][i % 2] = number(d, i % 2) * static_cast<float>(static_cast<std::int8_t>(w >> 8 * i));
    } else if constexpr (S::kFormat == GemmFormat::kQ4_K) {
      const Vec8 d = shared_load8(unit + S::kSupersAt + 8 * g);
      BARG_UNROLL
      for (int i = 0; i < 2; ++i) {
        s.scale[1][i] = number(d.x[i], 0) * static_cast<float>(w >> 8 * i & 255u);
        s.minimum[i] = -(number(d.x[i], 1) * static_cast<float>(w >> (16 + 8 * i) & 255u));
      }
    } else {
      BARG_UNROLL
      for (int i = 0; i < 2; ++i) {
        s.scale[1][i] = number(w, i);
        if constexpr (S::kMinima) s.minimum[i] = number(word(at + 32), i);
      }
    }
    BARG_UNROLL
    for (int i = 0; i < 2; ++i) {
      s.scale[1][i] = seeded("gemm.scale", s.scale[1][i]);
      if constexpr (S::kMinima) s.minimum[i] = seeded("gemm.minimum", s.minimum[i]);
    }
  }
  /// The low or high f16 of a word.
  static BARG_DEVICE float number(std::uint32_t pair, int i) {
    return half_to_float(static_cast<std::uint16_t>(pair >> 16 * i));
  }

  // ---- slices

  template <class Function>
  static BARG_DEVICE void for_each_tile(const Function& f) {
    BARG_UNROLL
    for (int i = 0; i < S::kRowTiles; ++i) {
      BARG_UNROLL
      for (int j = 0; j < S::kColTiles; ++j) f(i, j);
    }
  }

  BARG_DEVICE void clear() {
    for_each_tile([&](int i, int j) {
      BARG_UNROLL
      for (int e = 0; e < 4; ++e) acc_[i][j][e] = 0;
    });
  }

  /// Where this thread's tile (i, j) lies in `partials`.
  BARG_DEVICE float* partial(int slice, int i, int j) const {
    const std::int64_t number = p_.work.shared_out ? static_cast<std::int64_t>(place_) * p_.work.slices + slice : place_;
    return p_.partials + number * S::kPartialFloats + ((i * S::kColTiles + j) * S::kThreads + thread_id()) * 4;
  }

  /// Adds the slice to those before, which wait in memory: registers for both would be too many. The last leaves the sum in
  /// the accumulators.
  BARG_DEVICE void fold(int slice) {
    for_each_tile([&](int i, int j) {
      if (j >= live_) return;
      float* const at = partial(0, i, j);
      if (slice > 0) add(acc_[i][j], load16(at));
      if (slice < last_) store16(at, bits(acc_[i][j]));
    });
    if (slice < last_) clear();
  }
  static BARG_DEVICE Vec16 bits(const float (&x)[4]) {
    return {{float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3])}};
  }
  static BARG_DEVICE void add(float (&to)[4], const Vec16& x) {
    BARG_UNROLL
    for (int e = 0; e < 4; ++e) to[e] = bits_float(x.x[e]) + to[e];
  }

  BARG_DEVICE void leave() const {
    for_each_tile([&](int i, int j) {
      if (j < live_) store16(partial(seeded("gemm.partial", first_), i, j), bits(acc_[i][j]));
    });
  }

  /// Counts this block, and says whether it is the last of `count`; then the counter is 0 again. For one thread.
  static BARG_DEVICE bool arrives_last(std::int32_t* counter, int count) {
    const int arrived = publish_count(counter);
    if (seeded("gemm.arrived", arrived) < count - 1) return false;
    *counter = 0;
    return true;
  }

  /// Whether all other blocks that count there have left what they have.
  static BARG_DEVICE bool last_to_come(std::int32_t* counter, int count) {
    BARG_SHARED(bool, last, 1);
    // All that this block has is in its place.
    sync_block();
    if (thread_id() == 0) last[0] = arrives_last(counter, count);
    // The count is there, and with it what the other blocks have.
    sync_block();
    return last[0];
  }

  BARG_DEVICE void merge() {
    for (int slice = 0; slice < p_.work.slices; ++slice) {
      for_each_tile([&](int i, int j) {
        if (j >= live_) return;
        const Vec16 v = load16_published(partial(seeded("gemm.order", slice), i, j));
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float x = bits_float(v.x[e]);
          acc_[i][j][e] = slice == 0 ? x : acc_[i][j][e] + x;
        }
      });
    }
  }

  // ---- results

  BARG_DEVICE void finish() const {
    BARG_UNROLL
    for (int j = 0; j < S::kColTiles; ++j) {
      BARG_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int row = block_col_ + warp_col_ + 8 * j + lane_id() % 4 * 2 + c;
        if (row >= p_.rows) continue;
        BARG_UNROLL
        for (int i = 0; i < S::kRowTiles; i += 2) {
          const int tile = block_tile_ + warp_tile_ + i;
          float a[2] = {acc_[i][j][c], acc_[i][j][2 + c]}, b[2] = {acc_[i + 1][j][c], acc_[i + 1][j][2 + c]};
          if (p_.gated) {
            put_gated(row, 8 * tile + lane_id() / 4 * 2, a, b);
          } else {
            put(row, 16 * tile + lane_id() / 4 * 2, a);
            put(row, 16 * tile + 16 + lane_id() / 4 * 2, b);
          }
        }
      }
    }
  }

  /// Outputs n and n + 1 of a row; there may be only the first.
  BARG_DEVICE bool both(int n) const { return n + 1 < p_.n; }

  BARG_DEVICE void add_bias(float (&v)[2], const float* bias, int n) const {
    if (bias == nullptr) return;
    if (both(n)) {
      const Vec8 b = load8(bias + n);
      v[0] = v[0] + bits_float(b.x[0]);
      v[1] = v[1] + bits_float(b.x[1]);
    } else {
      v[0] = v[0] + bias[n];
    }
  }

  BARG_DEVICE void put(int row, int n, float (&v)[2]) const {
    if (n >= p_.n) return;
    add_bias(v, p_.bias, n);
    store(row, n, v[0], v[1]);
  }

  BARG_DEVICE void put_gated(int row, int n, float (&gate)[2], float (&up)[2]) const {
    if (n >= p_.n) return;
    add_bias(gate, p_.bias, n);
    add_bias(up, p_.up_bias, n);
    store(row, n, activate(gate[0]) * up[0], activate(gate[1]) * up[1]);
  }

  BARG_DEVICE float activate(float x) const {
    return p_.activation == ops::Activation::kSilu ? silu(x) : gelu_tanh(x);
  }

  BARG_DEVICE void store(int row, int n, float first, float second) const {
    if (p_.out != nullptr) {
      float* const to = p_.out + row * p_.out_stride + n;
      if (p_.accumulate && both(n)) {
        const Vec8 old = load8(to);
        first = bits_float(old.x[0]) + first;
        second = bits_float(old.x[1]) + second;
      } else if (p_.accumulate) {
        first = *to + first;
      }
      if (both(n)) {
        store8(to, {{float_bits(first), float_bits(second)}});
      } else {
        *to = first;
      }
    }
    if (p_.half == nullptr) return;
    std::uint16_t* const to = p_.half + row * p_.half_stride + n;
    const std::uint32_t pair = pack2<S::kHalf>(first, second);
    if (both(n)) {
      *reinterpret_cast<std::uint32_t*>(to) = pair;
    } else {
      *to = static_cast<std::uint16_t>(pair);
    }
  }

  // ---- behind the product

  BARG_DEVICE int rows_end() const {
    const int end = block_col_ + S::kBlockCols;
    return end < p_.rows ? end : p_.rows;
  }

  BARG_DEVICE void norm_rows() {
    const int blocks = seeded("gemm.norm_blocks", p_.work.row_blocks);
    if (!last_to_come(p_.norm.counters + block_col_ / S::kBlockCols, blocks)) return;
    for (int row = block_col_ + warp_id(); row < rows_end(); row += S::kWarps) norm_row(row);
  }

  static constexpr int kChunk = 128;  ///< numbers that a warp moves at once
  static constexpr int kKept = S::kStages * S::kStageBytes / 4 / S::kWarps / kChunk * kChunk;  ///< in the ring, of a warp

  /// One warp's. Lane l has the virtual lanes 4 l + e and 128 + 4 l + e of norm.cuh's 256, which it folds in halves; what
  /// fits is kept in the ring, so that it is read once.
  BARG_DEVICE void norm_row(int row) {
    const float* const x = p_.out + row * p_.out_stride;
    float* const kept = reinterpret_cast<float*>(ring_) + warp_id() * kKept;
    constexpr int kAhead = 16;  // chunks under way
    const int n = p_.n;
    float sums[2][4] = {};
    for (int begin = 4 * lane_id(); begin < n; begin += kAhead * kChunk) {
      Vec16 v[kAhead];
      BARG_UNROLL
      for (int c = 0; c < kAhead; ++c) {
        const int at = begin + c * kChunk;
        v[c] = at < n ? load16_published(x + at) : Vec16{{0, 0, 0, 0}};
      }
      BARG_UNROLL
      for (int c = 0; c < kAhead; ++c) {
        const int at = begin + c * kChunk;
        if (at < n && n <= kKept) shared_store16(kept + at, v[c]);
        BARG_UNROLL
        for (int e = 0; e < 4; ++e) sums[c % 2][e] = fma(bits_float(v[c].x[e]), bits_float(v[c].x[e]), sums[c % 2][e]);
      }
    }
    const float scale = divide(1.0f, sqrt_rn(divide(folded(sums), static_cast<float>(n)) + p_.norm.eps));
    for (int begin = 4 * lane_id(); begin < n; begin += kAhead / 4 * kChunk) {
      Vec16 v[kAhead / 4], weight[kAhead / 4];
      BARG_UNROLL
      for (int c = 0; c < kAhead / 4; ++c) {
        const int at = begin + c * kChunk;
        if (at >= n) continue;
        v[c] = n <= kKept ? shared_load16(kept + at) : load16_published(x + at);
        weight[c] = load16(p_.norm.weight + at);
      }
      BARG_UNROLL
      for (int c = 0; c < kAhead / 4; ++c) {
        const int at = begin + c * kChunk;
        if (at < n) put_normed(row, at, v[c], scale, weight[c]);
      }
    }
  }

  /// The sum of 256 virtual lanes, in halves.
  static BARG_DEVICE float folded(const float (&sums)[2][4]) {
    float s[4];
    BARG_UNROLL
    for (int e = 0; e < 4; ++e) {
      s[e] = sums[0][e] + sums[1][e];
      BARG_UNROLL
      for (int width = 16; width >= 1; width /= 2) s[e] = s[e] + shuffle_xor(s[e], width);
    }
    return seeded("gemm.norm_fold", (s[0] + s[2]) + (s[1] + s[3]));
  }

  BARG_DEVICE void put_normed(int row, int at, const Vec16& x, float scale, const Vec16& weight) const {
    float y[4];
    BARG_UNROLL
    for (int e = 0; e < 4; ++e) y[e] = bits_float(x.x[e]) * scale * (bits_float(weight.x[e]) + p_.norm.offset);
    const std::int64_t to = std::int64_t{row} * p_.n + at;
    if (p_.norm.out != nullptr) store16(p_.norm.out + to, bits(y));
    store8(p_.norm.half + to, {{pack2<S::kHalf>(y[0], y[1]), pack2<S::kHalf>(y[2], y[3])}});
  }

  static constexpr int kBlockRows = 16 * S::kBlockTiles;  ///< of W: columns of out

  /// Runs the heads (of q, then of k and v) of which this block brings the last part. It has parts of at most two: a head is
  /// no shorter than a block is wide.
  BARG_DEVICE void rotate_heads() {
    BARG_SHARED(int, heads, 2);
    // All of the block's part of the heads is in its place.
    sync_block();
    if (thread_id() < 2) heads[thread_id()] = completed_head();
    // So are the other blocks' parts of these.
    sync_block();
    constexpr int kMost = 32 * AnyRopeHead::kMost;
    const AnyRopeHead of{p_.rope.args.kv.head_dim, p_.rope.type};
    RopeKv<AnyRopeHead> rope(p_.rope.args, reinterpret_cast<float*>(ring_) + warp_id() * kMost, of);
    for (int i = 0; i < 2; ++i) {
      if (heads[i] < 0) continue;
      for (int row = block_col_ + warp_id(); row < rows_end(); row += S::kWarps) {
        rope.run(row, seeded("gemm.head", heads[i]));
        // The next head takes the same place.
        sync_warp();
      }
    }
  }

  /// Of threads 0 and 1: the head that the block's first or last column belongs to, if the block is the last to come with a
  /// part of it; -1: none, or thread 0 has it.
  BARG_DEVICE int completed_head() const {
    const int first = 16 * block_tile_, end = first + kBlockRows < p_.n ? first + kBlockRows : p_.n;
    const int head = head_at(thread_id() == 0 ? first : end - 1);
    if (head < 0 || (thread_id() == 1 && head == head_at(first))) return -1;
    const bool last = arrives_last(p_.rope.counters + head * p_.work.col_blocks + block_col_ / S::kBlockCols,
                                   seeded("gemm.parts", parts(head)));
    return last ? head : -1;
  }

  /// The columns of out where q begins, and k, and v.
  BARG_DEVICE int begin_of(const float* part) const { return static_cast<int>(part - p_.out); }

  BARG_DEVICE int head_at(int column) const {
    const RopeKvArgs& r = p_.rope.args;
    const int q = head_of(column - begin_of(r.q), r.num_q_heads);
    if (q >= 0 || r.kv.num_kv_heads == 0) return q;
    const int k = head_of(column - begin_of(r.k), r.kv.num_kv_heads);
    const int kv = k >= 0 ? k : head_of(column - begin_of(r.v), r.kv.num_kv_heads);
    return kv >= 0 ? r.num_q_heads + kv : -1;
  }
  BARG_DEVICE int head_of(int column, int heads) const {
    const int dim = p_.rope.args.kv.head_dim;
    return column >= 0 && column < heads * dim ? column / dim : -1;
  }

  /// How many blocks have a part of a head: of a key or its value.
  BARG_DEVICE int parts(int head) const {
    const RopeKvArgs& r = p_.rope.args;
    const int dim = r.kv.head_dim, kv = head - r.num_q_heads;
    const int a = kv < 0 ? begin_of(r.q) + head * dim : begin_of(r.k) + kv * dim;
    const int b = kv < 0 ? a : begin_of(r.v) + kv * dim;
    const int a_first = a / kBlockRows, a_last = (a + dim - 1) / kBlockRows;
    const int b_first = b / kBlockRows, b_last = (b + dim - 1) / kBlockRows;
    const int both = (a_last < b_last ? a_last : b_last) - (a_first > b_first ? a_first : b_first) + 1;
    return a_last - a_first + 1 + b_last - b_first + 1 - (both > 0 ? both : 0);
  }

  const GemmArgs& p_;
  std::byte* ring_;
  int first_, last_, end_ = 0;  ///< slices, and the unit behind them
  int place_;                   ///< of the block among those that have different outputs
  int block_tile_, block_col_;  ///< the block's first tile of W and row of x
  int warp_tile_, warp_col_;    ///< the warp's, counted in the block
  const std::uint16_t* x_ = nullptr;  ///< what this thread copies of the next unit; rows that follow by steps
  int live_;                    ///< tiles of columns that the warp has something of; at most 0: none
  float acc_[S::kRowTiles][S::kColTiles][4];
};

template <class S>
BARG_KERNEL gemm_kernel(GemmArgs p) {
  Gemm<S>(p).run();
}

}  // namespace barg::cuda
