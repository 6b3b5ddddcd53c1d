// The CUDA sampler as its callers see it: what is asked of each row of logits, and what comes back. Plain data; any thread,
// every compiler. sampler.cuh chooses.
#pragma once

#include <cstdint>

#include "barg/types.h"

namespace barg::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kMaxTopLogprobs = 20;

struct SampleBias {
  TokenId id;
  float value;
};

/// How one row's token is chosen. Pointers are of the device's memory.
struct SampleRow {
  /// [V] or nullptr: how often each token is in the output, and kInPrompt; the chosen one is counted.
  std::uint32_t* counts;
  /// Bit id % 32 of word id / 32, [ceil(V / 32)], or nullptr for all: those that may be chosen, and of these the ones to
  /// choose among again if what was chosen is not one of them (what an output can still be completed with).
  const std::uint32_t* mask;
  const std::uint32_t* fits;
  const SampleBias* biases;  ///< by ascending id; equal ids are added in their order
  std::int32_t num_biases;
  std::int32_t top_k;  ///< 0: off
  std::uint64_t seed;
  double log_min_p;  ///< natural logarithm of min_p, by exact_log; -infinity: off
  TokenId* chosen;  ///< where the token goes as well, or 0 if there is none, so that a step behind this one may run; or nullptr
  std::uint32_t choice, position;
  float temperature;  ///< 0: the largest
  float top_p;        ///< 1: off
  float repetition, frequency, presence;  ///< 1, 0, 0: off. With others: counts
  TokenId forced;             ///< kNoToken, or what is taken whatever the logits say
  std::int32_t top_logprobs;  ///< alternatives to report, at most kMaxTopLogprobs; -1: no logarithms at all
};
inline constexpr std::uint32_t kInPrompt = 0x80000000u;

enum class SampleStatus : std::int32_t {
  kChosen,
  kNotFinite,  ///< the row has a NaN or +infinity, or nothing above -infinity
  kNothing,    ///< no token survives the masks
};

struct SampledToken {
  TokenId id;  ///< kNoToken unless kChosen
  SampleStatus status;
  std::int32_t for_length;  ///< 1: chosen again, among `fits`
  std::int32_t rank;        ///< among all of the raw row, 1 = most likely; with logarithms
  float logprob;            ///< with logarithms
};

struct SampleArgs {
  const float* logits;  ///< [R, V], row stride `stride` floats, a multiple of 4; 16-byte aligned
  std::int64_t stride;
  std::int32_t vocab;     ///< V
  float* scratch;         ///< [R, stride], used by rows with biases; nullptr where there are none
  const SampleRow* rows;  ///< [R]
  SampledToken* out;      ///< [R]
  TokenId* top_ids;       ///< [R, kMaxTopLogprobs], descending; nullptr if no row wants them
  float* top_logprobs;    ///< the same
};

/// The counts of a sequence from scratch: of one that starts, goes on after preemption, or takes back outputs.
struct SampleCounts {
  std::uint32_t* counts;  ///< [V], 16-byte aligned
  const TokenId* prompt;  ///< distinct ids below V, or none
  const TokenId* outputs; ///< in any number
  std::int32_t num_prompt, num_outputs;
};
struct SampleCountsArgs {
  const SampleCounts* sequences;  ///< a block each
  std::int32_t vocab;
};

}  // namespace barg::cuda
