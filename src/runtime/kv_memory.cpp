#include "runtime/kv_memory.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace barg::runtime {
namespace {

// Larger than any cache line and any vector; a page, so that blocks of one group never share one with
// another.
constexpr std::size_t kPage = 4096;

}  // namespace

Result<KvMemory> KvMemory::create(std::span<const GroupSpec> groups, DType dtype, std::int32_t block_tokens) {
  KvMemory memory;
  for (const auto& spec : groups) {
    CHECK(spec.num_blocks > 0 && spec.head_bytes > 0 && spec.head_bytes % 2 == 0);
    const auto heads = static_cast<std::int64_t>(spec.group->num_kv_heads);
    const auto layers = static_cast<std::int64_t>(spec.group->layers.size());
    Arena arena;
    std::int64_t total = 0;
    arena.num_blocks = spec.num_blocks;
    if (__builtin_mul_overflow(heads * layers, spec.head_bytes, &arena.block_stride) ||
        __builtin_mul_overflow(arena.block_stride, spec.num_blocks, &total)) {
      return fail(ErrorCode::kOutOfMemory, "the KV pool's size overflows 64 bits", "kv.memory_bytes");
    }
    arena.bytes = (static_cast<std::size_t>(total) + kPage - 1) / kPage * kPage;
    void* p = mmap(nullptr, arena.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
      return fail(ErrorCode::kOutOfMemory,
                  "the system refused to map " + std::to_string(arena.bytes) + " bytes for the KV pool",
                  "kv.memory_bytes");
    }
    arena.base = static_cast<std::byte*>(p);
    for (std::int64_t l = 0; l < layers; ++l) {
      arena.layers.push_back(ops::KvLayerView{.base = arena.base + l * heads * spec.head_bytes,
                                              .block_stride = arena.block_stride,
                                              .head_stride = spec.head_bytes,
                                              .v_offset = spec.head_bytes / 2,
                                              .dtype = dtype,
                                              .block_tokens = block_tokens,
                                              .num_kv_heads = spec.group->num_kv_heads,
                                              .head_dim = spec.group->head_dim});
    }
    memory.arenas_.push_back(std::move(arena));
  }
  return memory;
}

KvMemory::~KvMemory() { unmap(); }

KvMemory::KvMemory(KvMemory&& other) noexcept : arenas_(std::exchange(other.arenas_, {})) {}

KvMemory& KvMemory::operator=(KvMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    arenas_ = std::exchange(other.arenas_, {});
  }
  return *this;
}

void KvMemory::unmap() {
  for (auto& a : arenas_) munmap(a.base, a.bytes);
  arenas_.clear();
}

}  // namespace barg::runtime
