#include "runtime/kv_memory_access.h"

#include <cstring>

#include "base/check.h"

namespace barg::runtime {

KvMemoryAccess::KvMemoryAccess(const KvMemory& memory) : memory_(memory) {
  for (std::size_t g = 0; g < memory.num_groups(); ++g) {
    part_bytes_.push_back(static_cast<std::uint64_t>(memory.block_stride(g)));
  }
}

std::byte* KvMemoryAccess::part(std::int32_t group, BlockId block, const store::Memory& other) const {
  const auto g = static_cast<std::size_t>(group);
  CHECK(group >= 0 && g < memory_.num_groups() && block >= 0 && block < memory_.num_blocks(g));
  CHECK(other.kind == store::MemoryKind::kHost && other.address != nullptr && other.length == part_bytes_[g]);
  return memory_.base(g) + block * memory_.block_stride(g);
}

bool KvMemoryAccess::copy_out(std::int32_t group, BlockId block, store::Memory to) {
  std::memcpy(to.address, part(group, block, to), to.length);
  return true;
}

bool KvMemoryAccess::copy_in(std::int32_t group, BlockId block, store::Memory from) {
  std::memcpy(part(group, block, from), from.address, from.length);
  return true;
}

}  // namespace barg::runtime
