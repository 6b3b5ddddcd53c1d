#include "runtime/gumbel.h"

#include <bit>
#include <cmath>

namespace barg::runtime {

/// x = 2^e * m, m in [sqrt(1/2), sqrt(2)); with f = (m-1)/(m+1), log m = 2 (f + f^3/3 + f^5/5 + ...), |f| <
/// 0.172.
double exact_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    e -= 1;
  }
  const double f = (m - 1) / (m + 1);
  const double s = f * f;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * s;
  return 2 * f * (1 + series) + e * 0.69314718055994530942;
}

/// x = n ln2 + r, |r| <= ln2/2, Taylor to r^13.
double exact_exp(double x) {
  static constexpr double kInverseFactorials[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       1.0 / 2,      1.0,         1.0};
  if (!(x >= -700)) return 0;
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer
  const double n = (x * 1.4426950408889634074 + kRound) - kRound;
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;  // ln2 in two parts
  double series = 0;
  for (const double c : kInverseFactorials) series = series * r + c;
  return series *
         std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

std::uint64_t mass_units(double x) { return static_cast<std::uint64_t>(exact_exp(x) * 0x1p44); }

std::uint32_t noise_word(const NoiseKey& key, TokenId id) {
  std::uint32_t c0 = static_cast<std::uint32_t>(id) / 4, c1 = key.position, c2 = key.choice, c3 = 0;
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c0;
    const std::uint64_t p1 = 0xCD9E8D57ULL * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const std::uint32_t word[] = {c0, c1, c2, c3};
  return word[id % 4];
}

double word_noise(std::uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1.0p-32;
  return -exact_log(-exact_log(1.0 - v));
}

/// -log(-log(1-v)) <= -log(v) <= ln2 * (leading zeros of word + 1).
double word_noise_bound(std::uint32_t word) { return 0.69314718055994530942 * (std::countl_zero(word) + 1); }

}  // namespace barg::runtime
