// What crosses between the scheduler (decides what is saved, looked up and reloaded) and the tier service (does it).
// Plain data, like sched/plan.h: commands go down after every plan, events come back before the next one. The scheduler
// never sees bytes, keys of the store or threads, so a run with tiers is replayed from the journal's events.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "barg/types.h"
#include "base/hash.h"

namespace barg::sched {

/// Where a block may lie, nearest first.
enum class Place : std::uint8_t { kDevice, kDram, kDisk, kRemote, kNowhere };
inline constexpr std::size_t kNumPlaces = 4;  ///< that hold blocks

enum class LookupId : std::uint64_t {};
enum class LoadId : std::uint64_t {};

/// A logical block as the tiers know it.
struct StoredBlock {
  Digest digest{};
  Digest parent{};
  std::int32_t depth = 0;         ///< its index in the sequence
  std::uint64_t fingerprint = 0;  ///< of its tokens
};

// ---- commands

/// Block `block` of `group` holds the content of `stored`, complete and retired.
struct SaveCommand {
  enum class Why : std::uint8_t {
    kEvicted,    ///< the plan reuses the block: its bytes are taken (or dropped) before submit() returns
    kEarly,      ///< among the coldest: may be copied any time while it is not evicted
    kSecondUse,  ///< a second request read it: also to disk and remote pool, soon
  };
  Why why = Why::kEvicted;
  std::int32_t group = 0;
  BlockId block = kNoBlock;
  StoredBlock stored;
  std::int32_t uses = 0;  ///< requests that read it from the device's pool since it was written there
};

/// Where are these consecutive blocks of one sequence?
struct LookupCommand {
  LookupId id{};
  std::vector<StoredBlock> blocks;
  double deadline = 0;  ///< the answer comes by then, with what is known
};

/// One part to be read into a block that the scheduler has reserved for it.
struct LoadPart {
  std::int32_t index = 0;  ///< of the block in its sequence
  std::int32_t group = 0;
  BlockId block = kNoBlock;
  StoredBlock stored;
};

/// Parts in the order in which they should be read. After `deadline` bytes that come are kept by the tiers (DRAM) and
/// not written to the device; the parts then end as not loaded.
struct LoadCommand {
  LoadId id{};
  std::vector<LoadPart> parts;
  double deadline = 0;
};

/// When submit() returns, nothing more is written to the blocks of this load, and no event of it comes any more.
struct CancelLoadCommand {
  LoadId id{};
};
/// The same for single parts: blocks of `id` with index in [first, last).
struct CancelPartsCommand {
  LoadId id{};
  std::int32_t first = 0, last = 0;
};

/// In order: an eviction's save precedes the load that reuses its block.
using TierCommand =
    std::variant<SaveCommand, LookupCommand, LoadCommand, CancelLoadCommand, CancelPartsCommand>;

// ---- events

/// What a tier does at present, for the planner.
struct PlaceSpeed {
  bool measured = false;     ///< nothing was read from it yet, the figures mean nothing
  double latency_s = 0;      ///< of a small read, smoothed
  double bytes_per_s = 0;    ///< of a large one, verification included, smoothed
  double queued_bytes = 0;   ///< asked for and not read yet
  bool up = true;
};

struct LookupAnswer {
  LookupId id{};
  /// [block][group]: the nearest place that has the part, never kDevice.
  std::vector<Place> places;
  std::array<PlaceSpeed, kNumPlaces> speeds{};
};

/// Every part of a load that was not cancelled ends with one of these.
struct PartLoaded {
  LoadId id{};
  std::int32_t index = 0;
  std::int32_t group = 0;
  bool ok = false;           ///< verified and in the device's block
  Place from = Place::kNowhere;
  std::uint64_t bytes = 0;
};

using TierEvent = std::variant<LookupAnswer, PartLoaded>;

}  // namespace barg::sched
