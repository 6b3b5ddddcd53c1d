// CudaMemory: a model's memory on a CUDA device (model/memory.h). Threads: as the Queue.
#pragma once

#include "cuda/queue.h"
#include "model/memory.h"

namespace barg::runtime {

class CudaMemory final : public model::Memory {
 public:
  /// The queue outlives it and all that it gives.
  explicit CudaMemory(cuda::Queue& queue) : queue_(queue) {}
  std::unique_ptr<model::MemoryBlock> allocate(std::size_t bytes, const char* name, bool lazy) override;
  bool write(std::byte* to, const void* from, std::size_t bytes) override;

 private:
  cuda::Queue& queue_;
};

}  // namespace barg::runtime
