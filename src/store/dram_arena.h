// DramArena: slots of host memory for parts, in which the DRAM tier keeps its parts and everything else that
// passes through the stack is staged.
//
// One run of address space for each length of part, so that parts of several groups share one budget of
// bytes; memory is touched when a slot is first used, in huge pages where a slot is large enough. A slot has
// references: the DRAM tier holds one, and so does every write or read in progress; with the last one the
// slot is free. Its bytes may be changed only by who allocated it, until it is published (set_sum).
//
// Threads: the owner's lock guards everything but the bytes of slots. Owns the memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/pages.h"
#include "store/block.h"
#include "store/payload_hash.h"

namespace barg::store {

class DramArena {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kNone = ~Slot{0};
  static constexpr std::uint64_t kAlign = 4096;  ///< of slots, for direct reads and writes

  /// What a part takes here.
  static std::uint64_t stride(std::uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

  /// Nothing when the system has no address space left. REQUIRES lengths in [1, 2^40].
  static std::optional<DramArena> make(const std::vector<std::uint64_t>& part_bytes, std::uint64_t bytes);

  /// With one reference; kNone when the budget is used up.
  Slot allocate(std::uint32_t part);
  void ref(Slot slot) { ++slots_[slot].refs; }
  /// True if that was the last one: the slot is free.
  bool unref(Slot slot);

  /// The bytes of a slot that was allocated for `part`.
  Memory memory(Slot slot, std::uint32_t part) const;
  const Hash128& sum(Slot slot) const { return slots_[slot].sum; }
  void set_sum(Slot slot, const Hash128& sum) { slots_[slot].sum = sum; }

  std::size_t slots() const { return slots_.size(); }
  std::uint64_t used() const { return used_; }  ///< by slots with references

 private:
  struct Class {
    std::uint64_t stride = 0;
    Pages pages;
    std::uint64_t count = 0, fresh = 0;  ///< slots; those never used begin at `fresh`
    Slot first = 0;                      ///< number of its first slot
    std::vector<Slot> free;              ///< used before, and touched
    std::vector<Slot> released;          ///< used before, memory given back
  };
  struct Entry {
    std::uint32_t refs = 0;
    std::uint32_t cls = 0;
    Hash128 sum;
  };

  bool give_back(std::uint64_t bytes);

  std::vector<Class> classes_;
  std::vector<std::uint32_t> class_of_part_;
  std::vector<std::uint64_t> part_bytes_;
  std::vector<Entry> slots_;
  std::uint64_t capacity_ = 0, used_ = 0;
  std::uint64_t touched_ = 0;  ///< memory that the system may have given
};

/// What a slot's sum is.
inline Hash128 part_sum(Memory memory) { return payload_hash({memory.address, memory.length}); }

}  // namespace barg::store
