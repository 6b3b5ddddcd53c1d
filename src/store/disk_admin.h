// A cache directory that no process uses, for people: what is in it, whether it is whole, and making it
// smaller. One thread. Holds the locks of all its writers for as long as it lives, so nobody adopts what is
// looked at.
#pragma once

#include <string>
#include <vector>

#include "store/disk_lock.h"
#include "store/segment_file.h"

namespace barg::store {

struct StoredSegment {
  std::string file;  ///< its name in the directory
  std::uint64_t bytes = 0;
  std::string problem;  ///< why it cannot be read, in words; empty: the rest is filled in
  bool foreign_version = false;
  bool sealed = false;
  Domain domain;
  std::uint64_t created = 0;  ///< seconds since 1970
  std::uint64_t used = 0;     ///< when its last part was written
  std::vector<Record> records;
  std::uint64_t live_parts = 0, live_bytes = 0;  ///< not also in a newer segment
};

struct VerifiedSegment {
  std::uint64_t parts = 0, bytes = 0;
  std::uint64_t bad = 0;   ///< payloads that are not what their record says
  std::uint64_t torn = 0;  ///< the same in a segment whose writer died: expected, never served
  std::string io_error;    ///< empty: everything could be read
};

class StoppedStore {
 public:
  /// kUnavailable: a process has it open; kNotFound: no cache there; kIo.
  static Result<StoppedStore> open(const std::string& directory);
  StoppedStore(StoppedStore&&) = default;
  StoppedStore& operator=(StoppedStore&&) = default;
  ~StoppedStore();

  const std::vector<StoredSegment>& segments() const { return segments_; }
  /// Reads every payload of one segment.
  VerifiedSegment verify(const StoredSegment& segment) const;
  /// 0 or -errno.
  int remove(const StoredSegment& segment);

 private:
  StoppedStore() = default;
  void load(const std::string& file, bool sealed);
  void count_live();

  std::string directory_;
  std::unique_ptr<Io> io_;
  std::vector<WriterLock> locks_;
  std::vector<StoredSegment> segments_;  ///< newest first
};

}  // namespace barg::store
