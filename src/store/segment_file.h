// Reading what a segment file says it holds: the table of a sealed one, the record headers of one that is
// being written or was cut short. No payload is read here. Functions over a File; any thread.
#pragma once

#include <vector>

#include "store/segment_format.h"

namespace barg::store {

struct SegmentScan {
  SegmentHeader header;
  std::vector<Record> records;
  std::uint64_t file_bytes = 0;
  std::uint64_t end = 0;  ///< of the last record: where the next one or the table begins
  bool sealed = false;    ///< the table was there and intact
};

/// The segments in a directory, newest first, so that of two records of one key the newer is taken; and who
/// has a lock file there, unless `locks` is nullptr.
Result<std::vector<SegmentName>> list_segments(Io& io, const std::string& directory,
                                               std::vector<WriterId>* locks);

/// Header (its copy at the end of a sealed segment if it is damaged) and all records: from the table, or where
/// there is none, from record headers up to the first bad one. kIo: the system refused; kBadFile,
/// kUnsupported: parse_segment_header. With `domain`, records of another one are not read: `records` is empty and `end` 0.
Result<SegmentScan> scan_segment(File& file, const Domain* domain);

/// Goes on over record headers from `scan.end`; returns how many more there were, or kIo.
Result<std::size_t> scan_tail(File& file, SegmentScan& scan);

/// Writes what seals a segment at `offset`, cuts the file there, and waits until it is durable. 0 or -errno.
int write_footer(File& file, const std::vector<Record>& records, const SegmentHeader& header,
                 std::uint64_t offset);

}  // namespace barg::store
