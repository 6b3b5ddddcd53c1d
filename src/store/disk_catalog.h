// Which segments there are in the directory: taken in at opening, adopted from dead writers, and looked for
// again while others write. Changes the index; the files of living writers are only read. Used by one thread
// at a time.
#pragma once

#include <string>
#include <vector>

#include "store/disk_lock.h"
#include "store/disk_state.h"

namespace barg::store {

class DiskCatalog {
 public:
  explicit DiskCatalog(DiskState& state) : state_(state) {}

  /// Adopts what dead writers left, then reads what the living have.
  Result<void> open();
  /// New segments of others, more records of those they are writing, and what has gone.
  void rescan();
  /// Quarantined segments whose time has come are read again.
  void retry_quarantined();

 private:
  void adopt(const std::vector<SegmentName>& names, WriterLock& dead);
  void load(const SegmentName& name, bool own);
  Result<SegmentScan> scan(const SegmentName& name, bool own);
  int reseal(SegmentName& name, SegmentScan& scan);
  void follow(std::uint64_t serial, bool now_sealed);
  void insert(std::uint64_t serial, const std::vector<Record>& records);

  DiskState& state_;
  std::int64_t stamp_ = 0;
  bool following_ = false;  ///< somebody's open segment is known: look even if no name has changed
};

}  // namespace barg::store
