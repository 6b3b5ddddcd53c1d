#include "store/dram_arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"

namespace barg::store {

std::optional<DramArena> DramArena::make(const std::vector<std::uint64_t>& part_bytes, std::uint64_t bytes) {
  DramArena arena;
  arena.capacity_ = bytes;
  arena.part_bytes_ = part_bytes;
  for (const std::uint64_t length : part_bytes) {
    CHECK(length > 0 && length <= std::uint64_t{1} << 40);
    std::uint32_t cls = 0;
    while (cls < arena.classes_.size() && arena.classes_[cls].stride != stride(length)) ++cls;
    arena.class_of_part_.push_back(cls);
    if (cls < arena.classes_.size()) continue;
    Class c;
    c.stride = stride(length);
    c.count = bytes / c.stride;
    c.first = static_cast<Slot>(arena.slots_.size());
    if (c.count + arena.slots_.size() >= kNone) return std::nullopt;
    auto pages = Pages::map(c.count * c.stride, false);
    if (!pages) return std::nullopt;
    c.pages = std::move(*pages);
    arena.slots_.resize(arena.slots_.size() + c.count, Entry{0, cls, {}});
    arena.classes_.push_back(std::move(c));
  }
  return arena;
}

DramArena::Slot DramArena::allocate(std::uint32_t part) {
  Class& c = classes_[class_of_part_[part]];
  if (c.stride > capacity_ - used_) return kNone;
  Slot slot = kNone;
  if (!c.free.empty()) {
    slot = c.free.back();
    c.free.pop_back();
  } else {
    // New memory: slots of other lengths may hold more than is in use.
    if (touched_ + c.stride > capacity_ && !give_back(touched_ + c.stride - capacity_)) return kNone;
    if (!c.released.empty()) {
      slot = c.released.back();
      c.released.pop_back();
    } else {
      if (c.fresh == c.count) return kNone;
      slot = c.first + static_cast<Slot>(c.fresh++);
    }
    touched_ += c.stride;
  }
  used_ += c.stride;
  slots_[slot].refs = 1;
  return slot;
}

/// Returns free slots to the system until at least `bytes` have been.
bool DramArena::give_back(std::uint64_t bytes) {
  std::uint64_t given = 0;
  for (Class& c : classes_) {
    while (given < bytes && !c.free.empty()) {
      const Slot slot = c.free.back();
      c.free.pop_back();
      c.released.push_back(slot);
      ::madvise(c.pages.data() + (slot - c.first) * c.stride, c.stride, MADV_DONTNEED);
      touched_ -= c.stride;
      given += c.stride;
    }
  }
  return given >= bytes;
}

bool DramArena::unref(Slot slot) {
  Entry& e = slots_[slot];
  CHECK(e.refs > 0);
  if (--e.refs != 0) return false;
  Class& c = classes_[e.cls];
  c.free.push_back(slot);
  used_ -= c.stride;
  return true;
}

Memory DramArena::memory(Slot slot, std::uint32_t part) const {
  const Class& c = classes_[slots_[slot].cls];
  return {MemoryKind::kHost, c.pages.data() + (slot - c.first) * c.stride, part_bytes_[part]};
}

}  // namespace barg::store
