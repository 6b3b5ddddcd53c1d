// What the CPU's code gives for the inputs of a kernel under test. Plain data in both directions: the code behind it is
// C++23 and must not be compiled with the kernels' hooks, so it lies in a library of its own. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace barg::cuda::cpu {

/// Rows `ids` of a table [vocab, dim], stored as ggml type `type`, by the CPU's `embed`.
std::vector<float> embedded(std::uint32_t type, const std::vector<std::byte>& table, int vocab, int dim,
                            const std::vector<std::int32_t>& ids, float scale);

/// cos and sin, [positions, frequencies], by the CPU's `rope_angles`.
std::pair<std::vector<float>, std::vector<float>> rope_angles(const std::vector<float>& frequencies, float scale,
                                                              const std::vector<std::int32_t>& positions);

using Ids = std::vector<std::int32_t>;

/// One choice: what is asked, and what the CPU's sampler answers.
struct Choice {
  std::vector<float> logits;  ///< the vocabulary's
  float temperature = 1, top_p = 1, min_p = 0, repetition = 1, frequency = 0, presence = 0;
  std::int32_t top_k = 0, top_logprobs = -1;
  std::uint64_t seed = 7;
  std::uint32_t number = 0;   ///< of the choice
  std::vector<std::pair<std::int32_t, float>> biases;
  Ids allowed, banned, ends;  ///< `ends` may not come yet
  std::vector<std::uint64_t> language, fits;  ///< of a constraint, or empty
  Ids prompt{1, 2, 3}, outputs;

  // Filled by answer():
  double log_min_p = 0;
  std::vector<std::uint32_t> mask, fits_mask;  ///< all masks together; empty: everything
  std::uint32_t position = 0;
  std::int32_t id = -1;  ///< -1: nothing can be chosen
  bool for_length = false;
  float logprob = 0;
  std::int32_t rank = 0;
  std::vector<std::pair<std::int32_t, float>> top;

  bool has_penalties() const { return repetition != 1 || frequency != 0 || presence != 0; }
};

void answer(Choice& c);
/// A random mixture of everything that changes a choice, answered.
Choice random_choice(std::uint64_t seed, std::int32_t vocab);

}  // namespace barg::cuda::cpu
