// What the disk tier knows in memory: where each part lies, and which segments there are. Bookkeeping only:
// no files, no clock, no lock; the owner's mutex guards it.
//
// Order of eviction: `last_use` of a part, where using a part also counts as using the parts before it in its
// chain (within a second), so a leaf is never younger than what it hangs on. A segment's value is what its
// living parts are worth, per byte of file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/segment_file.h"

namespace barg::store {

struct Segment {
  std::string stem;
  WriterId writer{};
  std::uint64_t id = 0;
  bool own = false;  ///< written or adopted here: ours to clean and delete
  bool sealed = false;
  bool open = false;    ///< our writer appends to it
  bool opaque = false;  ///< of another domain or version, or damaged: not interpreted
  std::uint64_t file_bytes = 0;
  std::vector<Key> keys = {};  ///< of records that came from here; some may have gone since
  std::uint64_t live_count = 0;
  FileRef file = {};  ///< for reading, if open
  std::uint64_t file_used = 0;
  SegmentScan scan =
      {};           ///< of a foreign one that is still written: how far it was read (records are not kept)
  int corrupt = 0;  ///< records that failed verification
  int quarantines = 0;
  double quarantined_until = 0;  ///< 0: not
};

struct Entry {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
  Hash128 hash;
  BlockInfo info;
  double last_use = 0;
  std::uint32_t length = 0;
  std::uint32_t reads = 0;
};

class DiskIndex {
 public:
  /// Serial numbers are never used again.
  std::uint64_t add_segment(Segment segment);
  Segment* segment(std::uint64_t serial);
  std::uint64_t find_segment(const std::string& stem) const;  ///< 0: none
  const std::map<std::uint64_t, Segment>& segments() const { return segments_; }

  /// False if the key is there already.
  bool insert(std::uint64_t segment, const Record& record, double last_use);
  Entry* find(const Key& key);
  std::size_t size() const { return entries_.size(); }
  /// Marks it and the parts before it as used.
  void use(const Key& key, double now);
  /// The part now lies elsewhere: same bytes, new place.
  void relocate(const Key& key, std::uint64_t segment, std::uint64_t offset);
  bool remove(const Key& key);
  /// Removes its parts; returns how many. The segment stays.
  std::size_t clear_segment(std::uint64_t serial);
  std::size_t drop_segment(std::uint64_t serial);

  std::uint64_t own_bytes() const;
  /// Our segments that may go: all but the open one.
  std::vector<std::uint64_t> candidates() const;
  /// What a candidate is worth at `now`, per byte of file; -1: it cannot be used.
  double worth(std::uint64_t serial, double now) const;
  /// Its parts that are worth moving, best first, at most `max_bytes`: read since they were written and more
  /// recently than the average part of the store.
  std::vector<Key> hot(std::uint64_t serial, std::uint64_t max_bytes) const;

 private:
  double mean_use() const;
  void set_use(Entry& e, double use);

  std::map<std::uint64_t, Segment> segments_;
  std::unordered_map<std::string, std::uint64_t> by_stem_;
  std::unordered_map<Key, Entry, KeyHash> entries_;
  double sum_of_uses_ = 0;
  std::uint64_t next_ = 1;
};

}  // namespace barg::store
