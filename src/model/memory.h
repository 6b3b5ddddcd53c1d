// Memory: where a model's weights, a step's buffers and its results lie: memory of the back end whose operations read
// them, which need not be the host's.
//
// Threads: one at a time. An allocation lives until its owner is destroyed, which the Memory outlives.
#pragma once

#include <cstddef>
#include <memory>

namespace barg::model {

/// An allocation; 64-byte aligned at least.
class MemoryBlock {
 public:
  virtual ~MemoryBlock() = default;
  virtual std::byte* data() const = 0;
  virtual std::size_t size() const = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;
  /// nullptr: that much is not to be had. `name` is for people. `lazy`: the host's pages may be taken as they are used.
  virtual std::unique_ptr<MemoryBlock> allocate(std::size_t bytes, const char* name, bool lazy) = 0;
  /// Copies from the host's memory, which may be used again at once. False: the device is lost.
  virtual bool write(std::byte* to, const void* from, std::size_t bytes) = 0;
};

/// The host's, in huge pages. Any thread.
Memory& host_memory();

}  // namespace barg::model
