#include "emu/shadow.h"

#include <algorithm>

namespace barg::emu {

void Clocks::reset(int threads) {
  width_ = static_cast<std::size_t>(threads);
  rows_.assign(width_ * width_, 0);
  for (std::size_t t = 0; t < width_; ++t) rows_[t * width_ + t] = 1;
}

void Clocks::join(int first, int count) {
  const auto from = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count);
  std::uint32_t* const front = rows_.data() + from * width_;
  for (std::size_t t = 1; t < n; ++t) {
    const std::uint32_t* row = front + t * width_;
    for (std::size_t i = 0; i < width_; ++i) front[i] = std::max(front[i], row[i]);
  }
  for (std::size_t t = 1; t < n; ++t) std::copy_n(front, width_, front + t * width_);
  for (std::size_t t = 0; t < n; ++t) ++rows_[(from + t) * width_ + from + t];
}

std::vector<std::uint32_t> Clocks::release(int thread) {
  const auto t = static_cast<std::size_t>(thread);
  const auto row = rows_.begin() + static_cast<std::ptrdiff_t>(t * width_);
  std::vector<std::uint32_t> heard(row, row + static_cast<std::ptrdiff_t>(width_));
  ++rows_[t * width_ + t];
  return heard;
}

Shadow::Cell& Shadow::cell(const std::byte* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t number = at / kPage;
  if (last_ == nullptr || number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    last_ = page.get();
    last_number_ = number;
  }
  return (*last_)[at % kPage];
}

void Shadow::initialised(const std::byte* p, std::size_t bytes, bool yes) {
  for (std::size_t i = 0; i < bytes; ++i) cell(p + i).initialised = yes;
}

void Shadow::pending(const std::byte* p, std::size_t bytes, bool yes) {
  for (std::size_t i = 0; i < bytes; ++i) cell(p + i).pending = yes;
}

void Shadow::forget(const std::byte* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) cell(p + i) = {};
}

}  // namespace barg::emu
