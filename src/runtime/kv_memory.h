// KvMemory: the bytes of the paged KV. One arena per group of layers, mapped at start and touched lazily, so
// a large pool costs address space until it is used. In huge pages: attention reads it all in every step, and
// blocks are handed out from the lowest up, so that an idle pool holds one partly used huge page at most.
//
//   arena of group g:  | block 0 | block 1 | ...                        block_stride = layers * heads *
//   head_bytes one block's part:  | layer 0: head 0 [K plane | V plane], head 1 .. | layer 1: .. |
//
// A recurrent group's block holds one state a layer instead, f32, and spans more tokens.
//
// So a part is one contiguous run (one DMA, one iovec). The order inside a plane is the back end's business.
// Owns the mappings. Used by the device thread, and by kv_memory_access.h for blocks that no step touches; bookkeeping
// of who uses which block is src/kv's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "barg/result.h"
#include "model/forward.h"
#include "model/memory.h"
#include "ops.h"

namespace barg::runtime {

class KvMemory {
 public:
  struct GroupSpec {
    const model::LayerGroup* group;
    std::int64_t num_blocks;
    std::int64_t head_bytes;     ///< OpTable::kv_head_bytes of this group; unused if it is recurrent
    std::int32_t block_tokens;  ///< that a block of this group spans
  };

  /// Fails with kOutOfMemory when the address space or overcommit refuses. `from`: whose memory it is.
  static Result<KvMemory> create(std::span<const GroupSpec> groups, DType dtype,
                                 model::Memory& from = model::host_memory());

  /// One view per layer of the group, in the group's order. Valid as long as this object.
  const std::vector<ops::KvLayerView>& layers(std::size_t group) const { return arenas_[group].layers; }
  /// The same of a recurrent group, which has no layers().
  const std::vector<ops::StateView>& states(std::size_t group) const { return arenas_[group].states; }
  std::int32_t block_tokens(std::size_t group) const { return arenas_[group].block_tokens; }
  std::byte* base(std::size_t group) const { return arenas_[group].block->data(); }
  std::int64_t block_stride(std::size_t group) const { return arenas_[group].block_stride; }
  std::int64_t num_blocks(std::size_t group) const { return arenas_[group].num_blocks; }
  std::size_t num_groups() const { return arenas_.size(); }

 private:
  struct Arena {
    std::unique_ptr<model::MemoryBlock> block;
    std::int64_t block_stride = 0;
    std::int64_t num_blocks = 0;
    std::int32_t block_tokens = 0;
    std::vector<ops::KvLayerView> layers;
    std::vector<ops::StateView> states;
  };
  std::vector<Arena> arenas_;
};

}  // namespace barg::runtime
