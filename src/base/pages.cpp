#include "base/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

namespace barg {

std::optional<Pages> Pages::map(std::size_t bytes, bool reserve) {
  Pages out;
  if (bytes == 0) bytes = 1;
  const bool huge = bytes >= kHuge;
  if (__builtin_add_overflow(bytes, huge ? kHuge : 0, &out.mapped_)) return std::nullopt;
  void* p = ::mmap(nullptr, out.mapped_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? 0 : MAP_NORESERVE), -1, 0);
  if (p == MAP_FAILED) return std::nullopt;
  out.mapping_ = p;
  out.size_ = bytes;
  out.data_ = static_cast<std::byte*>(p);
  if (huge) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(p) % kHuge;
    if (past != 0) out.data_ += kHuge - past;
    // The whole mapping: its last, partly used huge page may reach beyond `bytes`.
    ::madvise(p, out.mapped_, MADV_HUGEPAGE);
  }
  return out;
}

Pages::~Pages() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
}

Pages::Pages(Pages&& other) noexcept { *this = std::move(other); }

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

}  // namespace barg
