// TierStack: the tiers of one process in order, and the movement between them.
//
//   save(kEvicted, kEarly)  -> DRAM; what DRAM evicts goes to disk if it was read since, or its key is in the
//   ghost list,
//                              or it is pinned, or the write budget has slack; else it is dropped
//   save(kSecondUse)        -> disk and remote, within two seconds, from wherever the bytes are
//   get                     -> the nearest tier that has it; a part read from disk or remote also lands in
//   DRAM
//
// The decisions are store::StackPolicy (policy.h): pure bookkeeping without bytes, threads or clocks, which
// the policy-only mode of `barg bench kv` runs as well. DRAM is not a Tier but the stack's own arena
// (dram_arena.h), because everything passes through it; without it a bounded staging buffer stands between.
//
// A level may have several members (several directories): a part lives in the member that its key picks, so
// reads and writes spread over all of them.
//
// Threads: any. Calls return without waiting for a disk or a network. Owns the tiers and its threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "base/env.h"
#include "store/tier.h"

namespace barg::store {

inline constexpr std::size_t kNumTierKinds = 3;

/// What the kinds of tier do at present: the last reads (speed.h) and what is queued.
struct TierSpeed {
  bool measured = false;
  bool up = true;
  double latency_s = 0;    ///< before the first part comes
  double bytes_per_s = 0;  ///< of many
  double queued_bytes = 0;
  double age_s = 0;  ///< since the last measured read
};

struct StackOptions {
  std::uint64_t dram_bytes = 0;               ///< host memory of the DRAM tier; 0 = no such tier
  std::uint64_t staging_bytes = 64ULL << 20;  ///< in flight without a DRAM tier
  std::uint64_t disk_bytes_per_day = 0;       ///< write budget of the disk level; 0 = none
  bool disk_admit_all = false;                ///< every evicted block, not only those with a second use
  std::array<double, kNumTierKinds> ttl_s{};  ///< a part not used for so long is dropped; 0 = never
  double ghost_factor = 4;                    ///< keys remembered after eviction, in capacities
  double slow_write_s = 2;                    ///< writes are dropped while a level takes longer
  /// Tests only: may damage a part of DRAM before it is verified.
  std::function<void(const Key&, Memory)> damage = {};
};

enum class SaveWhy : std::uint8_t { kEvicted, kEarly, kSecondUse };

struct SaveItem {
  Key key;
  BlockInfo info;
  SaveWhy why = SaveWhy::kEvicted;
  std::int32_t uses = 0;  ///< reads from the device's pool
};

/// Truth about the tiers (counters grow, `tiers` are their own).
struct StackStats {
  struct PerKind {
    std::uint64_t queries = 0, hits = 0;  ///< parts looked up and found here (nearest)
    std::uint64_t bytes_read = 0, bytes_written = 0;
    std::uint64_t evictions = 0;  ///< parts dropped from this level
    std::uint64_t rereads = 0;    ///< of these: asked for again while in the ghost list
    std::uint64_t writes = 0,
                  useful_writes = 0;  ///< parts written; of these read at least once before eviction
    std::uint64_t used_bytes = 0, capacity_bytes = 0, entries = 0;
    std::uint64_t duplicate_bytes = 0;  ///< also held by a nearer level
    TierSpeed speed;
  };
  std::array<PerKind, kNumTierKinds> kinds{};
  std::array<std::uint64_t, 8> dropped{};  ///< saves not done, by DropReason
  std::uint64_t verify_ok = 0, verify_failed = 0;
  std::uint64_t late = 0;  ///< reads that came after their deadline or cancel
  std::uint64_t loads = 0, reads_in_flight = 0, writes_in_flight = 0;  ///< gauges, zero when nothing goes on
  std::uint64_t arena_bytes = 0;                                       ///< of DRAM or staging that are taken
  struct Named {
    std::string name;
    TierKind kind = TierKind::kDram;
    TierStats stats;
  };
  std::vector<Named> tiers;
};

enum class DropReason : std::uint8_t {
  kNoAdmission,
  kNoStaging,
  kBudget,
  kNoSpace,
  kDown,
  kSlow,
  kShutdown,
  kError
};
const char* drop_reason_name(DropReason r);

class StackImpl;

class TierStack {
 public:
  /// Order of `tiers` within a kind is the order of members. REQUIRES a tier or options.dram_bytes, none of
  /// `tiers` is of kind kDram, arena room for two parts of each kind (fits()), `clock` outlives the stack.
  TierStack(Domain domain, std::vector<std::unique_ptr<Tier>> tiers, StackOptions options,
            const Clock& clock);
  ~TierStack();
  TierStack(const TierStack&) = delete;
  TierStack& operator=(const TierStack&) = delete;

  /// Room for at least a few parts in DRAM or staging.
  static bool fits(const Domain& domain, std::uint64_t arena_bytes);

  const Domain& domain() const;
  bool has(TierKind kind) const;

  /// Would save() of this item copy anything? False if it is already where it should be or would be refused:
  /// then the caller need not touch the bytes. Counts a refusal. A second use whose bytes lie in DRAM is
  /// copied from there.
  bool wants(const SaveItem& item);
  /// `fill` is called before save() returns, at most once, with the memory to write the part into; no lock is
  /// held. It returns whether it did: else nothing is kept (counted). False, and not called: there is no room now
  /// (counted), or it is no longer wanted.
  bool save(const SaveItem& item, const std::function<bool(Memory)>& fill);

  /// The nearest kind that has each part: a value of TierKind, or kNumTierKinds for none or not known.
  /// `unknown` is set if a remote level might know more: then ask probe().
  void find(std::span<const Key> keys, std::span<std::uint8_t> out, bool* unknown);
  /// The same with the remote asked; `done` on a tier thread by `deadline`.
  void probe(std::vector<Key> keys, double deadline, std::function<void(std::vector<std::uint8_t>)> done);

  /// Reads parts in order, many at once. `ready` is called once an item on a tier thread: with kOk, `bytes`
  /// are the verified part, valid during the call only. After `deadline` or cancel(), bytes that come land in
  /// DRAM and `ready` gets kTimeout or kCancelled. A call of `ready` that is on its way may still run when
  /// cancel() has returned. Destruction ends what is open with kCancelled.
  struct Loaded {
    std::uint64_t tag = 0;
    Status status = Status::kOk;
    TierKind from = TierKind::kDram;
    Memory bytes;
  };
  using ReadyFn = std::function<void(const Loaded&)>;
  struct Want {
    Key key;
    BlockInfo info;
    std::uint64_t tag = 0;
  };
  Ticket load(std::vector<Want> wants, double deadline, ReadyFn ready);
  void cancel(Ticket ticket);

  /// Keeps these parts from eviction and TTL until `until`, in the levels that hold them; pins hold at most a
  /// quarter of a level. The pin that lasts longest counts; until = 0 unpins.
  void pin(std::span<const Key> keys, double until);

  std::array<TierSpeed, kNumTierKinds> speeds() const;
  StackStats stats() const;
  /// Everything admitted is written, or `deadline` has passed: false.
  bool flush(double deadline);
  /// What is due (deadlines, TTL). The stack's thread does it by itself; for tests on a clock of their own.
  void tick();

 private:
  std::unique_ptr<StackImpl> impl_;
};

}  // namespace barg::store
