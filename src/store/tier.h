// Tier: a place below the device's pool where parts of KV blocks may lie: host DRAM, a directory, a remote pool.
//
// Contract of every tier:
//  1. get() reports kOk only for bytes that were verified in the destination (checksums, key, domain, length). On any
//     other status the destination's content is unspecified and nobody may use it.
//  2. Every item of a batch is reported exactly once, also after close(), never from inside the call that submitted it
//     on the caller's stack with locks held; any thread of the tier may report. A report must be quick.
//  3. No call blocks on a disk or a network. Errors, however bad, become statuses and counters; a tier that fails
//     repeatedly goes Down by itself, answers kUnavailable at once, and probes with growing pauses whether it is back.
//  4. Memory named in an item belongs to the tier until the item is reported. cancel() makes items that have not been
//     started end with kCancelled soon; started ones end as they may.
//  5. An item is visible to find() once its report was kOk (disk: after it is durable). put() of a key that is there is
//     kOk and writes nothing.
//  6. Deadlines are seconds of the Clock given at construction; 0 = none. An item that was not started by then ends
//     with kTimeout and costs nothing.
// Threads: all methods from any thread. Destruction closes first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "barg/result.h"
#include "store/block.h"
#include "store/payload_hash.h"

namespace barg::store {

enum class TierKind : std::uint8_t { kDram, kDisk, kRemote };

enum class Presence : std::uint8_t {
  kAbsent,
  kPresent,  ///< was there just now; get() may still miss
  kUnknown,  ///< only probe() can tell
};

enum class Status : std::uint8_t {
  kOk,
  kMissing,      ///< not there (any more)
  kCorrupt,      ///< there, and refused by verification; it has been quarantined and counted
  kIoError,      ///< the system or the server refused
  kNoSpace,      ///< put: no room, and none could be made
  kTimeout,
  kCancelled,
  kUnavailable,  ///< the tier is down or closed
};
const char* status_name(Status s);

/// Which batch an item came with; for cancel(). 0 is never used by a tier's user.
enum class Ticket : std::uint64_t {};

struct Report {
  Key key;
  std::uint64_t tag = 0;  ///< the item's own
  Status status = Status::kOk;
  double seconds = 0;     ///< from submission to now
  std::optional<Hash128> hash =
      {};  ///< of a get that is kOk, if the tier knows it: what it verified the bytes with
};
using ReportFn = std::function<void(const Report&)>;

struct GetItem {
  Key key;
  BlockInfo info;       ///< what the record must say: another parent, depth or fingerprint is kCorrupt
  Memory to;            ///< length = Domain::part_bytes[key.part]
  std::uint64_t tag = 0;
};

struct PutItem {
  Key key;
  BlockInfo info;
  Memory from;          ///< only read
  std::uint64_t tag = 0;
  std::optional<Hash128> hash =
      {};  ///< payload_hash() of what the bytes should be, if known: written down as it is
};

/// Counters only ever grow; gauges say what is there.
struct TierStats {
  std::uint64_t gets = 0, get_ok = 0, get_missing = 0, get_failed = 0, get_timeout = 0;
  std::uint64_t puts = 0, put_ok = 0, put_failed = 0, put_dropped = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;  ///< payload
  std::uint64_t bytes_moved = 0;                    ///< payload rewritten by cleaning, headers, padding
  std::uint64_t verify_ok = 0, verify_failed = 0;
  std::uint64_t io_errors = 0, no_space = 0;
  std::uint64_t evicted = 0;                        ///< parts dropped to make room
  std::uint64_t entries = 0, bytes_used = 0, capacity_bytes = 0;  // gauges
  std::uint64_t reads_in_flight = 0, writes_in_flight = 0;        // gauges
  bool up = true;
  std::string last_error;                           ///< one sentence, empty if none ever
};

class Tier {
 public:
  virtual ~Tier() = default;

  virtual TierKind kind() const = 0;
  /// For metrics and logs: "dram", "disk:/var/cache/barg", "redis:10.0.0.3:6379"; never a password.
  virtual const std::string& name() const = 0;
  /// It answers, as far as it knows now: stats().up. A look at a flag, so it may be asked with locks held.
  virtual bool up() const = 0;

  /// REQUIRES out.size() == keys.size(). From memory only: microseconds, so it may be asked with locks held.
  virtual void find(std::span<const Key> keys, std::span<Presence> out) = 0;
  /// Answers kUnknown keys: `done` is called once with one Presence a key (kUnknown stays where the tier could not
  /// tell by `deadline`).
  virtual void probe(std::vector<Key> keys, double deadline,
                     std::function<void(std::vector<Presence>)> done) = 0;

  virtual void get(Ticket ticket, std::vector<GetItem> items, double deadline, ReportFn report) = 0;
  virtual void put(Ticket ticket, std::vector<PutItem> items, ReportFn report) = 0;
  virtual void cancel(Ticket ticket) = 0;

  /// Removes them if they are there. A hint: a shared tier may keep what others use.
  virtual void erase(std::span<const Key> keys) = 0;
  /// They were used just now (order of eviction).
  virtual void touch(std::span<const Key> keys) = 0;

  /// Everything accepted so far is durable or reported as failed, or `deadline` has passed: false.
  virtual bool flush(double deadline) = 0;
  virtual TierStats stats() const = 0;
};

}  // namespace barg::store
