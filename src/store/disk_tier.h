// The disk tier: parts of KV blocks in append-only segment files of one directory, shared by any number of
// processes.
//
// Every process writes segments of its own, whose names carry its writer id, and reads everybody's: a record
// is trusted because its header and payload verify, not because of who wrote it. Only the owner deletes: a
// process owns what it wrote, and what it adopted at opening from writers whose lock file nobody holds any
// more. `capacity_bytes` bounds what it owns. Segments of another domain or format version are never
// interpreted; they are the first to go when room is needed.
//
// Threads: all methods from any thread. Owns one writer thread, some reader threads and a janitor; a part
// becomes visible when the batch it came with is durable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "barg/result.h"
#include "base/env.h"
#include "store/io_file.h"
#include "store/tier.h"

namespace barg::store {

struct DiskOptions {
  std::string directory;  ///< made if its parent exists
  std::uint64_t capacity_bytes = 0;
  double ttl_s = 0;                            ///< a part not used for so long is dropped; 0 = never
  std::uint64_t segment_bytes = 256ULL << 20;  ///< at most an eighth of the capacity is used
  bool use_io_uring = true;                    ///< where the kernel allows it
  bool use_direct_io = true;                   ///< where the file system allows it
  int io_threads = 0;                          ///< 0: two with io_uring, eight without
  double commit_delay_s = 0.05;                ///< at least so long between two commits of small batches
  double rescan_s = 0.5;                       ///< how often other writers' segments are looked for
  const Clock* clock = nullptr;                ///< outlives the tier; nullptr: a steady clock
  std::shared_ptr<Io> io;                      ///< tests: a faulty one; nullptr: the system's
  std::function<std::uint64_t()> unix_time;    ///< seconds since 1970; empty: the system's
};

/// Errors are one sentence: the directory cannot be made or written, or the capacity holds no three parts.
Result<std::unique_ptr<Tier>> open_disk_tier(const DiskOptions& options, const Domain& domain);

}  // namespace barg::store
