// The arithmetic of a choice, to the bit that of the CPU's sampler (src/runtime/gumbel.h): logits as integers that sort
// like them, masses as whole units, and the noise of a token. IEEE operations in one order, no fused ones.
#pragma once

#include "barg/types.h"
#include "cuda/math.cuh"

namespace barg::cuda {

/// Larger for a larger number; of -0 that of +0. REQUIRES no NaN.
BARG_DEVICE std::uint32_t sort_key(float x) {
  const std::uint32_t bits = float_bits(x + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
BARG_DEVICE float sorted_float(std::uint32_t key) { return bits_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key); }
BARG_DEVICE std::uint64_t sort_key(double x) {
  const std::uint64_t bits = double_bits(x + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}
inline constexpr std::uint32_t kMaskedKey = 0x007fffffu;    ///< of -infinity
inline constexpr std::uint32_t kInfinityKey = 0xff800000u;

/// A token's rank in the order of selection, the best the largest: larger logits first, lower ids first among equals.
BARG_DEVICE std::uint64_t rank_word(std::uint32_t key, std::int32_t id) {
  return std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(id);
}
BARG_DEVICE std::int32_t rank_id(std::uint64_t word) { return static_cast<std::int32_t>(~static_cast<std::uint32_t>(word)); }
BARG_DEVICE std::uint32_t rank_key(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
BARG_DEVICE float rank_float(std::uint64_t word) { return sorted_float(rank_key(word)); }

/// Natural logarithm of a positive normal number.
BARG_DEVICE double exact_log(double x) {
  const std::uint64_t bits = double_bits(x);
  int e = static_cast<int>(bits >> 52) - 1022;
  double m = bits_double((bits & 0x000fffffffffffffu) | 0x3fe0000000000000u);
  if (m < 0.70710678118654752) {
    m *= 2;
    e -= 1;
  }
  const double f = (m - 1) / (m + 1);
  const double s = f * f;
  double series = 0;
  BARG_UNROLL
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * s;
  return 2 * f * (1 + series) + e * 0.69314718055994530942;
}

/// exp(x) for x <= 0; below -700 and of NaN it is 0.
BARG_DEVICE double exact_exp(double x) {
  if (!(x >= -700)) return 0;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding and subtracting it rounds to an integer
  const double n = (x * 1.4426950408889634074 + kRound) - kRound;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double y = 1.0 / 6227020800;
  y = y * r + 1.0 / 479001600;
  y = y * r + 1.0 / 39916800;
  y = y * r + 1.0 / 3628800;
  y = y * r + 1.0 / 362880;
  y = y * r + 1.0 / 40320;
  y = y * r + 1.0 / 5040;
  y = y * r + 1.0 / 720;
  y = y * r + 1.0 / 120;
  y = y * r + 1.0 / 24;
  y = y * r + 1.0 / 6;
  y = y * r + 1.0 / 2;
  y = y * r + 1.0;
  y = y * r + 1.0;
  return y * bits_double(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

/// exp(x), x <= 0, in units of 2^-44, rounded down: sums of them do not depend on their order.
inline constexpr double kMassUnits = 17592186044416.0;
BARG_DEVICE std::uint64_t mass_units(double x) { return static_cast<std::uint64_t>(exact_exp(x) * kMassUnits); }

/// Philox4x32-10: the words of the ids 4 * counter .. 4 * counter + 3.
struct NoiseWords {
  std::uint32_t x[4];
};
BARG_DEVICE NoiseWords noise_words(std::uint64_t seed, std::uint32_t choice, std::uint32_t position, std::uint32_t counter) {
  std::uint32_t c0 = counter, c1 = position, c2 = choice, c3 = 0;
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  BARG_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Gumbel noise -log(-log(1 - v)) with v = (word + 1/2) / 2^32.
BARG_DEVICE double word_noise(std::uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * (1.0 / 4294967296.0);
  return -exact_log(-exact_log(1.0 - v));
}
/// A cheap upper bound of it.
BARG_DEVICE double word_noise_bound(std::uint32_t word) { return 0.69314718055994530942 * (leading_zeros(word) + 1); }

}  // namespace barg::cuda
