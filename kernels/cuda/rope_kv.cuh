// What stands between the q, k, v projections and attention, in one pass: RMSNorm of each head of q and k (models that
// have it), rotation of q and k, and the write of K and V into their blocks in the KV type. One warp a row and head: of a
// query, or of a key and its value; lane l has dimensions l, l + 32, ...
//
// The sum of squares of a head: a lane's elements in ascending order, then the lanes in halves (16, 8, 4, 2, 1). Rotation
// rounds both products, as the CPU does: what is stored of finite numbers has the CPU's bits.
#pragma once

#include "cuda/kv_layout.h"
#include "cuda/math.cuh"
#include "cuda/rope_kv.h"

namespace barg::cuda {

inline constexpr int kRopeWarps = 4;
inline constexpr int kRopeThreads = 32 * kRopeWarps;

/// Blocks of a launch.
BARG_DEVICE constexpr int rope_kv_grid(int rows, int num_q_heads, int num_kv_heads) {
  return (rows * (num_q_heads + num_kv_heads) + kRopeWarps - 1) / kRopeWarps;
}

/// Heads of a size and a KV type that the kernel is compiled for.
template <KvType kKv, int kDim>
struct RopeHead {
  static constexpr int kMost = kDim / 32;  ///< numbers of a lane

  static BARG_DEVICE constexpr int dim() { return kDim; }
  static BARG_DEVICE constexpr KvType type() { return kKv; }
  static BARG_DEVICE float load(const float* p) { return *p; }
};

/// Heads of any size and type, in numbers that other blocks of the launch wrote.
struct AnyRopeHead {
  static constexpr int kMost = 8;

  BARG_DEVICE int dim() const { return dim_; }
  BARG_DEVICE KvType type() const { return type_; }
  static BARG_DEVICE float load(const float* p) { return load_published(p); }

  int dim_;
  KvType type_;
};

template <class Of>
class RopeKv {
 public:
  static constexpr int kMost = Of::kMost;
  using Head = float[kMost];

  BARG_DEVICE RopeKv(const RopeKvArgs& p, float* staged, Of of) : p_(p), staged_(staged), of_(of) {}

  /// Query head `head`, or key and value of head `head` - nq.
  BARG_DEVICE void run(int row, int head) {
    row_ = row;
    if (!find_segment()) return;
    Head x;
    if (head < p_.num_q_heads) {
      float* const q = p_.q + row_ * p_.q_stride + std::int64_t{head} * of_.dim();
      load(x, q);
      rotate(x, p_.q_norm);
      BARG_UNROLL
      for (int j = 0; j < kMost; ++j) {
        if (mine(j)) q[dim(j)] = x[j];
      }
    } else {
      const std::int64_t at = row_ * p_.kv_stride + std::int64_t{head - p_.num_q_heads} * of_.dim();
      load(x, p_.k + at);
      rotate(x, p_.k_norm);
      Head v;
      load(v, p_.v + at);
      store(x, v, head - p_.num_q_heads);
    }
  }

 private:
  BARG_DEVICE int dim(int j) const { return lane_id() + 32 * j; }
  BARG_DEVICE bool mine(int j) const { return 32 * j < of_.dim(); }
  BARG_DEVICE void load(Head& x, const float* from) const {
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) x[j] = mine(j) ? of_.load(from + dim(j)) : 0;
  }

  /// Where the row's token lies: block_ and slot_. Each lane looks at one segment of 32.
  BARG_DEVICE bool find_segment() {
    for (int first = 0; first < p_.num_segments; first += 32) {
      const int i = first + lane_id();
      bool here = false;
      if (i < p_.num_segments) {
        const int begin = p_.segments[i].row_begin;
        here = row_ >= begin && row_ < begin + p_.segments[i].row_count;
      }
      const std::uint32_t found = ballot(here);
      if (found == 0) continue;
      const ops::Segment& segment = p_.segments[first + lowest_bit(found)];
      const int position = seeded("rope.position", segment.pos_begin + row_ - segment.row_begin);
      block_ = segment.block_table[position / p_.kv.block_tokens];
      slot_ = position % p_.kv.block_tokens;
      return true;
    }
    return false;
  }

  BARG_DEVICE void normalise(Head& x, const float* weight) const {
    float sum = 0;
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) sum = fma(x[j], x[j], sum);  // 0 where it has none
    BARG_UNROLL
    for (int width = 16; width >= 1; width /= 2) sum = sum + shuffle_xor(sum, width);
    const float scale = divide(1.0f, sqrt_rn(divide(sum, static_cast<float>(of_.dim())) + seeded("rope.eps", p_.norm_eps)));
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      if (mine(j)) x[j] = x[j] * scale * (weight[dim(j)] + p_.norm_offset);
    }
  }

  BARG_DEVICE void rotate(Head& x, const float* norm) const {
    if (norm != nullptr) normalise(x, norm);
    if (p_.rotary_dim == 0) return;
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      if (mine(j)) staged_[dim(j)] = x[j];
    }
    // The other half of each pair is another lane's.
    sync_warp();
    const int half = p_.rotary_dim / 2;
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      const int d = dim(j);
      if (d >= p_.rotary_dim) continue;
      const bool second = p_.interleaved ? d % 2 != 0 : d >= half;
      const int pair = p_.interleaved ? d / 2 : second ? d - half : d;
      const int other = seeded("rope.other", p_.interleaved ? d ^ 1 : second ? d - half : d + half);
      const float c = p_.cos[static_cast<std::int64_t>(row_) * half + pair];
      const float s = p_.sin[static_cast<std::int64_t>(row_) * half + pair];
      const float y = staged_[other];
      x[j] = second ? x[j] * c + y * s : x[j] * c - y * s;
    }
  }

  BARG_DEVICE void store(const Head& k, const Head& v, int head) const {
    std::byte* const plane = p_.kv.base + block_ * p_.kv.block_stride + head * p_.kv.head_stride;
    if (of_.type() == KvType::kFp8) {
      store_codes(k, plane);
      store_codes(v, plane + p_.kv.v_offset);
    } else {
      store_halves(k, v, plane);
    }
  }

  BARG_DEVICE std::uint16_t to_half(float x) const {
    return of_.type() == KvType::kF16 ? float_to_half(x) : float_to_bfloat(x);
  }
  BARG_DEVICE bool is_finite(std::uint16_t h) const {
    const std::uint16_t exponent = of_.type() == KvType::kF16 ? 0x7c00 : 0x7f80;
    return (h & exponent) != exponent;
  }

  /// See kv_layout.h on numbers that are not finite.
  BARG_DEVICE void store_halves(const Head& k, const Head& v, std::byte* plane) const {
    std::uint16_t key[kMost], value[kMost];
    bool bad = false;
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      key[j] = to_half(k[j]);
      value[j] = to_half(v[j]);
      bad = bad || !is_finite(key[j]) || !is_finite(value[j]);
    }
    const bool poisoned = ballot(bad) != 0;
    auto* const keys = reinterpret_cast<std::uint16_t*>(plane) + slot_ * of_.dim();
    auto* const values = reinterpret_cast<std::uint16_t*>(plane + p_.kv.v_offset) + slot_ * of_.dim();
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      if (!mine(j)) continue;
      keys[dim(j)] = seeded("rope.poison", poisoned) ? std::uint16_t{0x7fff} : key[j];
      values[dim(j)] = is_finite(value[j]) ? value[j] : std::uint16_t{0};
    }
  }

  /// Codes and their scale, as the CPU's: scale = largest / 448, code = x / scale; too small a scale is 0, and NaN where
  /// a number is not finite.
  BARG_DEVICE void store_codes(const Head& x, std::byte* plane) const {
    std::uint32_t most = 0;  // magnitudes compare like integers, and a NaN is above them all
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      const std::uint32_t bits = float_bits(x[j]) & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
    BARG_UNROLL
    for (int width = 16; width >= 1; width /= 2) {
      const std::uint32_t other = shuffle_xor(most, width);
      most = other > most ? other : most;
    }
    float scale = divide(bits_float(most), 448.0f), inverse = divide(1.0f, scale);
    if (scale < 1.17549435e-38f) scale = inverse = 0;
    if (most >= 0x7f800000u) {
      scale = bits_float(0x7fc00000u);
      inverse = 0;
    }
    auto* const scales = reinterpret_cast<float*>(plane + static_cast<std::int64_t>(p_.kv.block_tokens) * of_.dim());
    if (lane_id() == 0) scales[slot_] = scale;
    auto* const codes = reinterpret_cast<std::uint8_t*>(plane) + slot_ * of_.dim();
    BARG_UNROLL
    for (int j = 0; j < kMost; ++j) {
      if (!mine(j)) continue;
      const float t = seeded("rope.inverse", inverse) == 0.0f ? 0.0f : x[j] * seeded("rope.inverse", inverse);
      codes[dim(j)] = float_to_f8(t);
    }
  }

  const RopeKvArgs& p_;
  float* staged_;  ///< of this warp, [D]
  Of of_;
  int row_ = 0, slot_ = 0;
  std::int64_t block_ = 0;
};

template <KvType kKv, int kDim>
BARG_KERNEL rope_kv_kernel(RopeKvArgs p) {
  BARG_SHARED(float, staged, kRopeWarps * kDim);
  const int unit = block_x() * kRopeWarps + warp_id(), units = p.num_q_heads + p.kv.num_kv_heads;
  if (unit >= p.rows * units) return;
  using Of = RopeHead<kKv, kDim>;
  RopeKv<Of>(p, staged + warp_id() * kDim, Of{}).run(unit / units, unit % units);
}

}  // namespace barg::cuda
