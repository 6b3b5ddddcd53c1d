// KvMemoryAccess: KvAccess of a pool in host memory, by memcpy. Threads as in kv_access.h: a block that is copied is
// touched by no step meanwhile, and different blocks share no byte. Borrows the pool.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kv_access.h"
#include "runtime/kv_memory.h"

namespace barg::runtime {

class KvMemoryAccess final : public KvAccess {
 public:
  explicit KvMemoryAccess(const KvMemory& memory);

  const std::vector<std::uint64_t>& part_bytes() const override { return part_bytes_; }
  bool copy_out(std::int32_t group, BlockId block, store::Memory to) override;
  bool copy_in(std::int32_t group, BlockId block, store::Memory from) override;

 private:
  std::byte* part(std::int32_t group, BlockId block, const store::Memory& other) const;

  const KvMemory& memory_;
  std::vector<std::uint64_t> part_bytes_;
};

}  // namespace barg::runtime
