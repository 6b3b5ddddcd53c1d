#include "model/memory.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/pages.h"

namespace barg::model {
namespace {

class HostBlock final : public MemoryBlock {
 public:
  explicit HostBlock(Pages pages) : pages_(std::move(pages)) {}
  std::byte* data() const override { return pages_.data(); }
  std::size_t size() const override { return pages_.size(); }

 private:
  Pages pages_;
};

class HostMemory final : public Memory {
 public:
  std::unique_ptr<MemoryBlock> allocate(std::size_t bytes, const char* /*name*/, bool lazy) override {
    std::optional<Pages> pages = Pages::map(bytes, !lazy);
    return pages ? std::make_unique<HostBlock>(std::move(*pages)) : nullptr;
  }
  bool write(std::byte* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return true;
  }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace barg::model
