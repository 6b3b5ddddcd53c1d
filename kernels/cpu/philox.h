// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as gumbel_filter uses
// it: constants and the scalar form. Everything is static: see math.h. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "cpu/layout.h"
#include "math.h"

namespace barg::ops::cpu {

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxK0 = 0x9E3779B9u, kPhiloxK1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

/// The four words of the ids 4 * counter .. 4 * counter + 3.
static inline void philox_words(const GumbelFilterParams& p, std::uint32_t counter, std::uint32_t word[4]) {
  std::uint32_t c0 = counter, c1 = p.position, c2 = p.choice, c3 = 0;
  auto k0 = static_cast<std::uint32_t>(p.seed);
  auto k1 = static_cast<std::uint32_t>(p.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxM0} * c0;
    const std::uint64_t p1 = std::uint64_t{kPhiloxM1} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += kPhiloxK0;
    k1 += kPhiloxK1;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

/// Appends the hits among the ids [begin, end); begin is a multiple of 4.
static inline std::int32_t gumbel_filter_ids(const GumbelFilterParams& p, std::int32_t begin,
                                             std::int32_t end, std::int32_t* hits) {
  std::int32_t count = 0;
  std::uint32_t word[4];
  for (std::int32_t id = begin; id < end; ++id) {
    if (id % 4 == 0) philox_words(p, static_cast<std::uint32_t>(id) / 4, word);
    const auto level = static_cast<float>(static_cast<std::int32_t>(word[id % 4] >> 8));
    const auto bits = static_cast<float>(static_cast<std::int32_t>(float_bits(level)));
    if (bits <= fma(p.x[id] - p.max, p.slope, p.offset)) hits[count++] = id;
  }
  return count;
}

std::int32_t gumbel_filter_scalar(const GumbelFilterParams& p);
std::int32_t gumbel_filter_avx2(const GumbelFilterParams& p);
std::int32_t gumbel_filter_avx512(const GumbelFilterParams& p);

}  // namespace barg::ops::cpu
