// What the scheduler keeps about blocks that come back from the tiers: the rules, the state of one sequence's
// restore, and the counters. The walk is in scheduler_tiers.cpp.
//
//            ask            answer, timeout        admitted: device's hit + load, one transaction
//   (none) -----> kAsked --------------------> kAnswered ------------+----> kReloading: running, not served;
//      ^             ^     a shrunk hit: again,    |                 |         | its load ends: the next leg
//      |             +-----------------------------+                 |         | of the run, or kDone
//      |                   a few times             |                 |         |
//      |                                 recompute |                 v         v a part has failed
//      |                                           |             kMeeting: running, served; its front adopts
//      |                                           v                 |     what has come when it meets it
//      +---- preempted, paused, ended ---------- kDone <-------------+
//
// A sequence in kAsked or kAnswered waits and holds nothing; kReloading and kMeeting hold the blocks that
// their load fills, and leaving them for any reason cancels what is still to come exactly once.
//
// Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sched/restore_planner.h"
#include "sched/tier_plan.h"

namespace barg::sched {

struct TierRules {
  bool enabled = false;
  PlannerRules planner;
  double load_share = 0.5;          ///< of the blocks that are free, loads may hold this share
  double lookup_timeout_s = 0.1;    ///< a lookup is answered by then; after twice this: recompute
  double answer_age_s = 5;          ///< a sequence that waits longer asks again
  std::int32_t asks = 3;            ///< lookups of one admission, if the hit shrinks below the answer
  std::int32_t lookups_most = 16;   ///< lookups that wait for their answers at once
  double early_share = 0.1;         ///< of the pool, its coldest blocks: copied before they are evicted
  std::int32_t saves_per_plan = 8;  ///< early copies a plan may ask for
  std::int32_t explore_every = 4;   ///< of so many runs too slow to read, one measures its tier again
};

enum class RestoreState : std::uint8_t { kAsked, kAnswered, kReloading, kMeeting, kDone };

/// Of one sequence, from its lookup until it leaves the running.
struct Restore {
  RestoreState state = RestoreState::kAsked;
  std::int32_t asks = 0;

  // -- the lookup and its answer
  LookupId lookup{};
  double asked_s = 0;
  std::int32_t first = 0;     ///< index of the first block asked for
  std::vector<Place> parts;   ///< [block][group], as answered
  std::vector<Place> places;  ///< of the leading blocks that can come back: the farthest of their parts
  std::array<PlaceSpeed, kNumPlaces> speeds{};

  // -- the choice
  std::int32_t planned_hit = -1;  ///< tokens on the device for which `wish` was made
  RestorePlan wish;

  // -- the load: as much of the wish as could be held at once
  struct Got {
    double bytes = 0;
    double first_s = 0, last_s = 0;  ///< since started_s
  };
  LoadId load{};
  RestorePlan plan;
  double started_s = 0, deadline_s = 0;
  std::array<Got, kNumPlaces> got{};
  bool gave_up = false;      ///< the deadline has passed
  std::int32_t lost_to = 0;  ///< behind the last block that will not come; 0 = none

  // -- predicted against actual
  bool first_admission = false;  ///< its tokens count as cached in the request's stats
  double begun_s = 0;
  std::int32_t run_end = 0;  ///< tokens; the run is back when they are processed. 0 = not measured
  RestorePlan forecast;      ///< of the whole run

  bool waits() const { return state == RestoreState::kAsked || state == RestoreState::kAnswered; }
  bool loads() const { return state == RestoreState::kReloading || state == RestoreState::kMeeting; }
};

inline constexpr std::size_t kRegretBuckets = 8;
/// Upper ends of actual / best forecast; the last bucket has none.
inline constexpr std::array<double, kRegretBuckets - 1> kRegretBounds{0.8, 1, 1.1, 1.25, 1.5, 2, 4};

/// Only ever grow.
struct TierCounters {
  std::uint64_t lookups = 0, answers = 0, lookup_timeouts = 0;
  std::uint64_t late_events = 0;  ///< of lookups and loads that nobody waits for any more
  std::uint64_t blocks_asked = 0;
  std::array<std::uint64_t, kNumPlaces + 1> blocks_found{};  ///< by place (kNowhere too), of answers
  std::array<std::uint64_t, kNumRestoreChoices> plans{};  ///< sequences with something to restore, by choice
  std::uint64_t trials = 0;                               ///< loads to learn a tier's speed
  std::uint64_t loads = 0, more_legs = 0;                 ///< load commands; of these: further legs of a run
  std::uint64_t parts_asked = 0, parts_loaded = 0, parts_failed = 0, parts_cancelled = 0;
  std::array<std::uint64_t, kNumPlaces> blocks_restored{};  ///< adopted by sequences, by place
  std::uint64_t tokens_restored = 0;
  std::uint64_t blocks_passed = 0;       ///< asked for, but computed first (both ends)
  std::uint64_t loads_cancelled = 0;     ///< by the end, pause or preemption of their sequence
  std::uint64_t deadlines = 0;           ///< loads given up
  std::uint64_t load_waits = 0;          ///< times a sequence was held back by another's load
  std::array<std::uint64_t, 3> saves{};  ///< by SaveCommand::Why
  // Of restores that came to their end:
  std::uint64_t measured = 0;
  double predicted_s = 0, actual_s = 0;
  double regret_s = 0;                                 ///< actual beyond the best forecast of the three ways
  std::array<std::uint64_t, kRegretBuckets> regret{};  ///< actual / best forecast, by kRegretBounds
};

}  // namespace barg::sched
