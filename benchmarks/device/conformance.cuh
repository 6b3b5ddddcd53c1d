// Each wrapper of cuda/prelude.cuh and each function of cuda/math.cuh once, so that a device can be held against the
// emulator's twins on the same inputs, bit for bit. Words in, words out; a NaN of a result is always the same one.
#pragma once

#include "cuda/math.cuh"

namespace barg::cuda {

struct ConformanceArgs {
  const std::uint32_t* in;
  std::uint32_t* out;
  std::int32_t count;  ///< each kernel says of what
};

BARG_DEVICE std::uint32_t seen(std::uint32_t x) { return seeded("conformance", x); }
BARG_DEVICE std::uint32_t seen(float x) { return seen(x == x ? float_bits(x) : 0x7fc00000u); }
template <Half T>
BARG_DEVICE std::uint32_t seen_half(std::uint32_t h) {
  constexpr std::uint32_t kInfinity = T == Half::kBF16 ? 0x7f80u : 0x7c00u;
  h &= 0xffffu;
  return seen((h & 0x7fffu) > kInfinity ? 0x7fffu : h);
}
template <Half T>
BARG_DEVICE std::uint32_t seen_pair(std::uint32_t pair) {
  return seen_half<T>(pair) | seen_half<T>(pair >> 16) << 16;
}

inline constexpr int kNumberThreads = 128, kNumberWords = 24;

/// count triples of words [count, 3] -> [count, kNumberWords].
BARG_KERNEL conform_numbers_kernel(ConformanceArgs p) {
  const int i = block_x() * kNumberThreads + thread_id();
  if (i >= p.count) return;
  const std::uint32_t ua = p.in[3 * i], ub = p.in[3 * i + 1], uc = p.in[3 * i + 2];
  const float a = bits_float(ua), b = bits_float(ub), c = bits_float(uc);
  const auto low = static_cast<std::uint16_t>(ua & 0xffffu);
  const float moderate = static_cast<float>(static_cast<std::int32_t>(ua)) * 0x1p-24f;  // within +-128
  float sin, cos;
  sin_cos(static_cast<double>(ua) * (static_cast<double>(ub) * 0x1p-32), &sin, &cos);
  std::uint32_t* const out = p.out + static_cast<std::int64_t>(kNumberWords) * i;
  out[0] = seen(fma(a, b, c));
  out[1] = seen(sqrt_rn(a));
  out[2] = seen(divide(a, b));
  out[3] = seen_half<Half::kF16>(float_to_half(a));
  out[4] = seen(half_to_float(low));
  out[5] = seen_half<Half::kBF16>(float_to_bfloat(a));
  out[6] = seen(bfloat_to_float(low));
  out[7] = seen_pair<Half::kF16>(pack2<Half::kF16>(a, b));
  out[8] = seen_pair<Half::kBF16>(pack2<Half::kBF16>(a, b));
  out[9] = seen_pair<Half::kBF16>(multiply_bfloat2(ua, ub));
  out[10] = seen_pair<Half::kBF16>(add_pair<Half::kBF16>(ua, ub));
  out[11] = seen_pair<Half::kF16>(add_pair<Half::kF16>(ua, ub));
  out[12] = seen(exp2(moderate < 127.0f ? moderate : 127.0f));
  out[13] = seen(exp(a));
  out[14] = seen(a == a ? static_cast<std::uint32_t>(float_to_f8(a)) : 0u);
  out[15] = seen(f8_pair_to_bfloat(ua & 0x00ff00ffu));
  out[16] = seen(sin);
  out[17] = seen(cos);
  const double product = bits_double(double_bits(static_cast<double>(moderate))) * static_cast<double>(moderate);
  out[18] = seen(static_cast<float>(product));
  out[19] = seen(a + b);
  out[20] = seen(a * b);
  out[21] = seen(infinity());
  out[22] = seen(static_cast<float>(static_cast<std::int32_t>(ua)));
  out[23] = seen(half_to_float(float_to_half(moderate)));
}

inline constexpr int kExchangeThreads = 64, kExchangeWords = 6;

/// count blocks of a word a thread -> [thread, kExchangeWords].
BARG_KERNEL conform_exchange_kernel(ConformanceArgs p) {
  const int i = block_x() * kExchangeThreads + thread_id();
  const std::uint32_t v = p.in[i];
  std::uint32_t* const out = p.out + kExchangeWords * i;
  out[0] = seen(shuffle(v, static_cast<int>(v & 31u)));
  out[1] = seen(shuffle_xor(v, block_x() % 32));
  out[2] = seen(shuffle_up(v, 3));
  out[3] = seen(ballot((v & 1u) != 0));
  out[4] = seen(static_cast<std::uint32_t>(lowest_bit(v | 0x80000000u)));
  out[5] = seen(static_cast<std::uint32_t>(leading_zeros(v >> lane_id())));
}

inline constexpr int kMoveThreads = 32, kMoveIn = 4, kMoveWords = 28;

/// count blocks of four words a thread -> [thread, kMoveWords].
BARG_KERNEL conform_moves_kernel(ConformanceArgs p) {
  BARG_SHARED(Vec16, wide, kMoveThreads);
  BARG_SHARED(Vec8, narrow, kMoveThreads);
  const int i = block_x() * kMoveThreads + thread_id(), other = (thread_id() + 5) % kMoveThreads;
  const std::uint32_t* const in = p.in + kMoveIn * i;
  std::uint32_t* const out = p.out + kMoveWords * i;
  const Vec16 v = load16(in);
  const Vec8 w = load8(in + 2);
  store16(out, v);
  store8(out + 4, w);
  store16(out + 8, load16_stream(in));
  store16(out + 12, load16_published(in));
  store8(out + 16, load8_published(in + 2));
  out[6] = seen(load_published(reinterpret_cast<const float*>(in) + 3));
  out[7] = seen(static_cast<std::uint32_t>(grid_x()) << 16 | static_cast<std::uint32_t>(block_threads()));
  shared_store16(wide + thread_id(), v);
  shared_store8(narrow + thread_id(), w);
  // What the warp has stored is there.
  sync_warp();
  store16(out + 20, shared_load16(wide + other));
  store8(out + 18, shared_load8(narrow + other));
  store8(out + 24, Vec8{{static_cast<std::uint32_t>(warp_id()), static_cast<std::uint32_t>(block_y() + block_z())}});
  store8(out + 26, shared_load8(reinterpret_cast<const Vec8*>(wide + other) + 1));
}

inline constexpr int kRingThreads = 128, kRingStages = 4;

/// Which 16 bytes are asked for; zeros stand for the others.
BARG_DEVICE constexpr bool ring_valid(int round, int thread) { return (round + thread) % 3 != 0; }

/// count rounds of 16 bytes a thread, through a ring of asynchronous copies: each thread gives out its neighbour's.
BARG_KERNEL conform_copies_kernel(ConformanceArgs p) {
  BARG_SHARED(Vec16, ring, kRingStages * kRingThreads);
  const auto issue = [&](int round) {
    if (round < p.count) {
      const bool valid = ring_valid(round, thread_id());
      const std::int64_t at = 4 * (static_cast<std::int64_t>(round) * kRingThreads + thread_id());
      // What is not valid may be anywhere.
      cp_async16(ring + round % kRingStages * kRingThreads + thread_id(), p.in + (valid ? at : at + (std::int64_t{1} << 40)),
                 valid);
    }
    cp_commit();
  };
  for (int round = 0; round < kRingStages - 1; ++round) issue(round);
  for (int round = 0; round < p.count; ++round) {
    // This round has come, and everybody has read the one before.
    cp_wait<kRingStages - 2>();
    sync_block();
    const int other = (thread_id() + 1) % kRingThreads;
    store16(p.out + 4 * (static_cast<std::int64_t>(round) * kRingThreads + thread_id()),
            shared_load16(ring + round % kRingStages * kRingThreads + other));
    issue(round + kRingStages - 1);
  }
}

inline constexpr int kMatrixWords = 8;

/// count blocks of a warp: four words a lane, a row of four matrices -> [lane, kMatrixWords].
BARG_KERNEL conform_ldmatrix_kernel(ConformanceArgs p) {
  BARG_SHARED(Vec16, rows, 32);
  const int i = block_x() * 32 + lane_id();
  shared_store16(rows + lane_id(), load16(p.in + 4 * i));
  // The rows are there.
  sync_warp();
  std::uint32_t plain[4], turned[4];
  ldmatrix_x4(plain, rows + lane_id());
  ldmatrix_x4_trans(turned, rows + lane_id());
  std::uint32_t* const out = p.out + kMatrixWords * i;
  for (int r = 0; r < 4; ++r) {
    out[r] = seen(plain[r]);
    out[4 + r] = seen(turned[r]);
  }
}

inline constexpr int kMmaIn = 10;

template <Half T>
BARG_DEVICE void conform_mma(const ConformanceArgs& p) {
  const int i = block_x() * 32 + lane_id();
  const std::uint32_t* const in = p.in + kMmaIn * i;
  const std::uint32_t a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
  float d[4] = {bits_float(in[6]), bits_float(in[7]), bits_float(in[8]), bits_float(in[9])};
  mma_16816<T>(d, a, b);
  for (int r = 0; r < 4; ++r) p.out[4 * i + r] = seen(d[r]);
}

/// count blocks of a warp: a, b and d of each lane [lane, kMmaIn] -> d [lane, 4].
BARG_KERNEL conform_mma_f16_kernel(ConformanceArgs p) { conform_mma<Half::kF16>(p); }
BARG_KERNEL conform_mma_bf16_kernel(ConformanceArgs p) { conform_mma<Half::kBF16>(p); }

inline constexpr int kAtomicThreads = 64;

/// count blocks, a word below 2^16 a thread. out, zeros before: [0] the sum of all, [1] blocks that came, [2] the sum of
/// what blocks published, as a float; then four words a block: its sum, its sum in 64 bits, and that sum as a float.
BARG_KERNEL conform_atomics_kernel(ConformanceArgs p) {
  BARG_SHARED(std::uint32_t, sum, 1);
  BARG_SHARED(std::uint64_t, wide, 1);
  BARG_SHARED(std::int32_t, arrived, 1);
  const std::uint32_t v = p.in[block_x() * kAtomicThreads + thread_id()];
  if (thread_id() == 0) {
    sum[0] = 0;
    wide[0] = 0;
  }
  // The sums are zero.
  sync_block();
  shared_atomic_add(sum, v);
  shared_atomic_add(wide, static_cast<std::uint64_t>(v) << 20);
  atomic_add(reinterpret_cast<std::int32_t*>(p.out), static_cast<std::int32_t>(v));
  // The sums are the block's.
  sync_block();
  std::uint32_t* const mine = p.out + 4 + 4 * block_x();
  if (thread_id() == 0) {
    mine[0] = seen(sum[0]);
    mine[1] = static_cast<std::uint32_t>(wide[0]);
    mine[2] = static_cast<std::uint32_t>(wide[0] >> 32);
    mine[3] = float_bits(static_cast<float>(static_cast<std::int32_t>(sum[0])));
  }
  // What is published is written.
  sync_block();
  if (thread_id() == 0) arrived[0] = publish_count(reinterpret_cast<std::int32_t*>(p.out + 1));
  // Who comes last is known.
  sync_block();
  if (thread_id() != 0 || arrived[0] != grid_x() - 1) return;
  float total = 0;
  for (int b = 0; b < grid_x(); ++b) total = total + load_published(reinterpret_cast<const float*>(p.out + 4 + 4 * b + 3));
  p.out[2] = seen(total);
}

inline constexpr int kSharedThreads = 256;

/// count words of dynamic shared memory, as much as a block may have: word i goes to place count - 1 - i and comes back.
BARG_KERNEL conform_shared_kernel(ConformanceArgs p) {
  auto* const words = reinterpret_cast<std::uint32_t*>(dynamic_shared());
  for (int i = thread_id(); i < p.count; i += kSharedThreads) words[p.count - 1 - i] = p.in[i];
  // All words are there.
  sync_block();
  for (int i = thread_id(); i < p.count; i += kSharedThreads) p.out[i] = seen(words[i]);
}

/// A link of a chain of launches that may overlap: out = 3 in + 1, count words.
BARG_KERNEL conform_chain_kernel(ConformanceArgs p) {
  pdl_wait();
  const int i = block_x() * kNumberThreads + thread_id();
  if (i < p.count) p.out[i] = seen(3 * p.in[i] + 1);
  pdl_release();
}

}  // namespace barg::cuda
