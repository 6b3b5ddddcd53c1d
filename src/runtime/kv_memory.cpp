#include "runtime/kv_memory.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace barg::runtime {

Result<KvMemory> KvMemory::create(std::span<const GroupSpec> groups, DType dtype, model::Memory& from) {
  KvMemory memory;
  for (const auto& spec : groups) {
    const bool recurrent = spec.group->kind == model::StateKind::kRecurrent;
    CHECK(spec.num_blocks > 0 && spec.block_tokens > 0);
    CHECK(recurrent ? spec.group->state_bytes > 0 : spec.head_bytes > 0 && spec.head_bytes % 2 == 0);
    const auto heads = static_cast<std::int64_t>(spec.group->num_kv_heads);
    const auto layers = static_cast<std::int64_t>(spec.group->layers.size());
    Arena arena;
    std::int64_t total = 0;
    arena.num_blocks = spec.num_blocks;
    arena.block_tokens = spec.block_tokens;
    const std::int64_t part_bytes = recurrent ? spec.group->state_bytes : spec.head_bytes;
    if (__builtin_mul_overflow(recurrent ? layers : heads * layers, part_bytes, &arena.block_stride) ||
        __builtin_mul_overflow(arena.block_stride, spec.num_blocks, &total)) {
      return fail(ErrorCode::kOutOfMemory, "the KV pool's size overflows 64 bits", "kv.memory_bytes");
    }
    arena.block = from.allocate(static_cast<std::size_t>(total), "KV pool", /*lazy=*/true);
    if (arena.block == nullptr) {
      return fail(ErrorCode::kOutOfMemory,
                  "the system refused to map " + std::to_string(total) + " bytes for the KV pool",
                  "kv.memory_bytes");
    }
    std::byte* const base = arena.block->data();
    for (std::int64_t l = 0; l < layers; ++l) {
      if (recurrent) {
        arena.states.push_back({base + l * part_bytes, arena.block_stride, spec.block_tokens});
        continue;
      }
      arena.layers.push_back(ops::KvLayerView{.base = base + l * heads * spec.head_bytes,
                                              .block_stride = arena.block_stride,
                                              .head_stride = spec.head_bytes,
                                              .v_offset = spec.head_bytes / 2,
                                              .dtype = dtype,
                                              .block_tokens = spec.block_tokens,
                                              .num_kv_heads = spec.group->num_kv_heads,
                                              .head_dim = spec.group->head_dim});
    }
    memory.arenas_.push_back(std::move(arena));
  }
  return memory;
}

}  // namespace barg::runtime
