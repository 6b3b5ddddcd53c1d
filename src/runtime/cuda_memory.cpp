#include "runtime/cuda_memory.h"

#include <cstring>
#include <utility>

namespace barg::runtime {
namespace {

class DeviceBlock final : public model::MemoryBlock {
 public:
  explicit DeviceBlock(cuda::DeviceArena arena) : arena_(std::move(arena)), data_(arena_.take(arena_.size())) {}
  std::byte* data() const override { return data_; }
  std::size_t size() const override { return arena_.size(); }

 private:
  cuda::DeviceArena arena_;
  std::byte* data_;
};

}  // namespace

std::unique_ptr<model::MemoryBlock> CudaMemory::allocate(std::size_t bytes, const char* name, bool /*lazy*/) {
  cuda::DeviceArena arena;
  if (!cuda::DeviceArena::create(queue_.device(), bytes, name, arena).ok()) return nullptr;
  return std::make_unique<DeviceBlock>(std::move(arena));
}

bool CudaMemory::write(std::byte* to, const void* from, std::size_t bytes) {
  const auto read = [from](std::size_t offset, std::size_t count, std::byte* out) {
    std::memcpy(out, static_cast<const std::byte*>(from) + offset, count);
  };
  return queue_.uploader().put(to, bytes, read).ok();
}

}  // namespace barg::runtime
