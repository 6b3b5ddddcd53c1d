// plan_restore: how a run of blocks that lie in the tiers comes back: reloaded, recomputed, or both ends at
// once.
//
//   device's hit | run of n blocks, each somewhere below the device ........ | rest of what is known
//                0                s                  e                       n
//   recompute    C(0, n)                             C: seconds of prefill, beside the decodes of every step
//   reload       L(0, e) + C(e, n)                   L: seconds of reading; tiers are read side by side
//   both         max(C(0, s), L(s, e)) + C(e, n)     computed from the left, read from the right
//
// e < n where reading on would cost more than computing (the end of the run lies in a slower tier). Only the
// run is compared: what follows it costs the same either way.
//
// Pure functions, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "sched/cost_model.h"
#include "sched/tier_plan.h"

namespace barg::sched {

enum class RestoreMode : std::uint8_t { kAuto, kReload, kRecompute, kBoth };
enum class RestoreChoice : std::uint8_t { kRecompute, kReload, kBoth };
inline constexpr std::size_t kNumRestoreChoices = 3;

struct PlannerRules {
  RestoreMode mode = RestoreMode::kAuto;
  std::int32_t trial_blocks = 16;  ///< read at first from a tier that nobody has measured
  double both_gain = 0.8;          ///< both ends at once only if it takes at most this share of the better
  double deadline_most = 4;        ///< times the forecast, but not longer than recomputing would take
  double deadline_least = 1.5;     ///< times the forecast, whatever recomputing would take
  double deadline_floor_s = 0.1;   ///< machines stutter
};

/// What prefill costs now.
struct PrefillLoad {
  const CostModel* cost = nullptr;
  StepCost decodes{};             ///< rows that every step carries beside the chunk
  std::int32_t chunk_rows = 512;  ///< rows of a chunk at most
  double step_s = 0;              ///< chunks shrink so that a step with decodes takes no longer; 0 = no limit
};

struct RestoreInput {
  std::int32_t first = 0;         ///< index of the run's first block
  std::span<const Place> places;  ///< of its blocks; one that is nowhere, or in a tier that is down, ends it
  std::int32_t block_tokens = 16;
  double block_bytes = 1;  ///< read for every block
  double tail_bytes = 0;   ///< read once, whatever the run's length (groups with a window)
  std::array<PlaceSpeed, kNumPlaces> speeds{};
  PrefillLoad prefill;
  bool explore = false;  ///< if it is recomputed, read a few of its last blocks to learn the speed
};

struct RestorePlan {
  RestoreChoice choice = RestoreChoice::kRecompute;
  std::int32_t first = 0, last = 0;  ///< blocks to load; empty: none
  bool descending = false;           ///< read from the last to the first
  bool trial = false;                ///< reads to learn a speed; another plan for the rest may follow
  double recompute_s = 0, reload_s = 0, both_s = 0;  ///< the whole run by each; infinite = impossible
  double forecast_s = 0;                             ///< of the choice
  double deadline_s = 0;                             ///< after so long loading is given up
};

RestorePlan plan_restore(const RestoreInput& in, const PlannerRules& rules);

/// Blocks of [0, gap) behind position `start` to compute, so that computing them ends about when the rest of
/// the gap, read from its right end at `blocks_per_s`, has come. At least 1, at most `gap`.
std::int32_t meet(const PrefillLoad& prefill, std::int32_t start, std::int32_t gap, std::int32_t block_tokens,
                  double blocks_per_s);

/// Seconds of computing `tokens` tokens from position `start` on.
double prefill_seconds(const PrefillLoad& prefill, std::int32_t start, std::int32_t tokens);

}  // namespace barg::sched
