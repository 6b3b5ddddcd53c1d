// KvAccess: the bytes of single KV blocks, for moving them between the device's pool and the tiers.
//
// Threads: any, several at once. A block being copied out is complete and not written by any step; a block being copied
// in belongs to the load alone. Both are the caller's duty (runtime/tier_service.h keeps it).
#pragma once

#include <cstdint>
#include <vector>

#include "barg/types.h"
#include "store/block.h"

namespace barg::runtime {

class KvAccess {
 public:
  virtual ~KvAccess() = default;
  /// Bytes of one block's part, by group.
  virtual const std::vector<std::uint64_t>& part_bytes() const = 0;
  /// REQUIRES a valid block and length = part_bytes()[group]. True when the bytes are there; false: the device is lost.
  virtual bool copy_out(std::int32_t group, BlockId block, store::Memory to) = 0;
  virtual bool copy_in(std::int32_t group, BlockId block, store::Memory from) = 0;
};

}  // namespace barg::runtime
