// The exact arithmetic of a draw: logarithm and exponential that are the same on every machine, and the
// Gumbel noise of (seed, choice, position, token id).
//
// libm's log and exp differ between machines in the last bit (it dispatches on the CPU). These use only IEEE
// operations in one order; relative error below 1e-15. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "barg/types.h"

namespace barg::runtime {

/// Natural logarithm of a positive normal number.
double exact_log(double x);
/// exp(x) for x <= 0. Below -700 and for NaN (infinity minus infinity, which an absurd penalty makes) it is
/// 0.
double exact_exp(double x);
/// exp(x) for x <= 0 in units of 2^-44, rounded down: sums of them are exact, so no order of summation matters.
std::uint64_t mass_units(double x);

/// Largest possible noise: -log(-log(1 - 2^-33)) < 22.88. The smallest is above -3.2.
inline constexpr double kMaxNoise = 22.9;

/// Names one stream of noise: a row's.
struct NoiseKey {
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;
  std::uint32_t position = 0;
};

/// Philox4x32-10, key = seed, counter = (id / 4, position, choice, 0), word id % 4.
std::uint32_t noise_word(const NoiseKey& key, TokenId id);
/// Gumbel noise -log(-log(1 - v)) with v = (word + 1/2) / 2^32: small v is the winning tail, and 1 - v is
/// exact.
double word_noise(std::uint32_t word);
/// A cheap upper bound of word_noise.
double word_noise_bound(std::uint32_t word);

}  // namespace barg::runtime
