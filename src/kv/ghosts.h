// Ghosts: the digests of blocks that left the cache not long ago, without their content. Who is asked for
// again while its ghost is here has earned a place in the main queue (block_pool.h).
//
// At most `capacity` of them, the oldest go first. A digest is known by its first 64 bits: a confusion costs
// a better queue, nothing else. Memory is taken once; all operations are O(1). Threads: engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/hash.h"

namespace barg::kv {

class Ghosts {
 public:
  explicit Ghosts(std::int64_t capacity);

  void insert(const Digest& d);
  /// Was it there? It is not any more.
  bool erase(const Digest& d);
  std::int64_t size() const { return size_; }

 private:
  using Word = std::uint64_t;  // 0 = nobody
  static Word word(const Digest& d);
  std::size_t home(Word w) const { return static_cast<std::size_t>(w) & (slots_.size() - 1); }
  std::size_t find(Word w) const;  // its slot, or the empty one where the search ended
  void remove(std::size_t slot);

  struct Slot {
    Word word = 0;
    std::uint32_t place = 0;  // in ring_
  };
  std::vector<Word> ring_;   // in order of insertion from next_ on; holes where somebody came back
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t next_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace barg::kv
