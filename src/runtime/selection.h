// Selection: which ids of one row of adjusted logits may be drawn, and the draw. Works from the maxima of
// blocks of 64 logits (lm_head makes them on the way), so that most of the row is never looked at:
//
//   greedy        the block with the largest maximum
//   top_k         the k-th largest block maximum bounds the k-th largest logit: only blocks above it are read
//   min_p         the same with the bound that min_p gives
//   top_p alone   the head of the distribution exactly, the mass of the tail in f32 with a proven error: if
//   the
//                 boundary of the nucleus could lie on either side of a token, more of the row is computed
//                 exactly
//   temperature   a conservative test of noise plus logit in vectors (ops::GumbelFilterParams); what passes
//   is
//                 evaluated exactly
//
// Every shortcut gives the same token as the plain definition (tests/runtime/naive_sampler.h). Larger value
// first, lower id on ties, everywhere. Threads: functions of their arguments; one SampleScratch per thread at
// a time.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "barg/constraint.h"
#include "barg/types.h"
#include "ops.h"
#include "runtime/gumbel.h"

namespace barg::runtime {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

struct Candidate {
  TokenId id = kNoToken;
  double value = 0;  ///< logit / temperature
  double mass = 0;   ///< exp(value - max), in keep_top_p() mass_units() of it; set by the top_p functions
};

/// The order of selection.
template <class C>
bool better(const C& a, const C& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

/// One row: logits of the ids that may be sampled, and the largest of each ops::kBlockMax of them.
struct Row {
  std::span<float> logits;     ///< [vocab_size]
  std::span<float> block_max;  ///< [ceil(vocab_size / kBlockMax)]
};

/// Largest of logits [64 b, 64 b + 64), NaNs ignored.
float block_maximum(std::span<const float> logits, std::size_t b);

/// What sampling one row needs; sized once, so that no draw allocates.
struct SampleScratch {
  SampleScratch(const ops::OpTable& table, std::int32_t vocab_size);

  const ops::OpTable* ops;
  std::vector<Candidate> candidates;  // room for the vocabulary: untouched memory costs nothing
  std::vector<float> maxima;          // [blocks], a copy to select from; masses of blocks
  std::vector<std::int32_t> blocks;   // [blocks]
  std::vector<std::uint8_t> stale;    // [blocks]: the maximum must be computed again; all 0 between calls
  std::vector<std::int32_t> hits;
  std::vector<TokenId> ids;           // room for kListed of them
};

/// So many ids of a set are cheaper one by one than as a masked row.
inline constexpr std::int32_t kListed = 2048;
/// scratch.ids = the set, ascending. False: it has more than kListed.
bool list_ids(const TokenSet& set, SampleScratch& scratch);
/// Masks all others. `words` as in TokenSet, one for each of block_max; true maxima before and after.
void keep_only(const Row& row, std::span<const std::uint64_t> words);

/// The largest logit's lowest id; kNoToken if all are -inf.
TokenId first_max(const Row& row);

/// All logits >= floor (and above -inf) become candidates, ids ascending.
void gather(const Row& row, float floor, double temperature, std::vector<Candidate>& out);

/// A bound that no survivor of min_p (0 = off) and top_k (0 = off) lies below. `max` is the row's largest
/// logit.
float selection_floor(const Row& row, float max, double temperature, float min_p, std::int32_t top_k,
                      SampleScratch& scratch);

// The definitions, over candidates.
void keep_min_p(std::vector<Candidate>& candidates, float min_p);
void keep_top_k(std::vector<Candidate>& candidates, std::int32_t top_k);
void keep_top_p(std::vector<Candidate>& candidates, float top_p);

/// scratch.candidates = gather() of everything and keep_top_p(), without computing everything exactly. False:
/// undecided, candidates are void.
bool gather_top_p(const Row& row, float max, double temperature, float top_p, SampleScratch& scratch);

/// The candidate with the largest noised value. REQUIRES at least one candidate, in any order.
TokenId draw(const std::vector<Candidate>& candidates, const NoiseKey& key);
/// draw() over all logits of the row; `top` is first_max(), finite.
TokenId draw_row(const Row& row, TokenId top, double temperature, const NoiseKey& key,
                 SampleScratch& scratch);

}  // namespace barg::runtime
