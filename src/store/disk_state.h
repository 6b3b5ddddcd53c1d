// What the parts of the disk tier share: options, the index, the counters, and how well the disk is.
//
// `mutex` guards everything below it and is never held over a call of Io. A tier that fails three times
// running goes down; the janitor probes with growing pauses whether it is back.
#pragma once

#include <atomic>
#include <expected>
#include <mutex>
#include <string>

#include "store/disk_index.h"
#include "store/disk_tier.h"

namespace barg::store {

struct DiskState {
  DiskState(const DiskOptions& o, const Domain& d, Io& i, const Clock& c)
      : options(o), domain(d), io(i), clock(c) {}

  const DiskOptions options;
  const Domain domain;
  Io& io;
  const Clock& clock;
  WriterId writer{};
  std::uint64_t segment_bytes = 0;  ///< of a segment while it is written
  std::atomic<bool> direct{true};   ///< the file system takes O_DIRECT
  std::atomic<bool> closing{false};
  std::atomic<bool> up{true};

  std::mutex mutex;
  DiskIndex index;
  TierStats stats;
  int strikes = 0;
  double probe_at = 0, probe_pause = 1;
  double read_only_until = 0, read_only_pause = 1;

  std::string path(const std::string& stem, bool sealed) const {
    return options.directory + "/" + segment_file_name(stem, sealed);
  }
  std::uint64_t unix_now() const { return options.unix_time(); }
  /// When a record written at `written` was last used, as far as we know, on our clock.
  double use_of(std::uint64_t written) const;
  bool expired(const Entry& e, double now) const {
    return options.ttl_s > 0 && now - e.last_use > options.ttl_s;
  }

  // All of these take the mutex.
  void io_failed(const std::string& what, int code);
  void no_space();
  bool read_only();
  /// The segment's file for reading; kMissing if it is gone (its parts are forgotten), kIoError if the system
  /// refuses.
  std::expected<FileRef, Status> reading(std::uint64_t serial);
  void forget_file(std::uint64_t serial);  ///< close it: it will be opened anew
  /// A record failed verification: it is forgotten, and its segment with it when that repeats (kCorrupt).
  /// kMissing: somebody else is still writing there.
  Status corrupt(const Key& key, std::uint64_t serial, std::uint64_t offset);
  /// The disk refused to read the segment: its parts are forgotten for a growing time.
  void quarantine(std::uint64_t serial);
  /// Forgets a segment; if it is ours, its file goes too, and its living parts count as evicted.
  void drop(std::uint64_t serial);
  /// Our segment that is worth least, of equals the oldest. 0: none.
  std::uint64_t victim();
  /// Drops what is worth least. False: nothing is left.
  bool evict_one();

 private:
  void close_oldest_file();
  std::uint64_t next_use_ = 0;
};

}  // namespace barg::store
