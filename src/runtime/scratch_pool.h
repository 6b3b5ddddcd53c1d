// ScratchPool: scratch of the rows being sampled at one time, at most one for each thread of the pool.
// Threads: with_one() from as many at once as there are scratches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/selection.h"

namespace barg::runtime {

class ScratchPool {
 public:
  ScratchPool(const ops::OpTable& table, std::int32_t vocab_size, int threads)
      : busy_(static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) scratch_.emplace_back(table, vocab_size);
  }

  /// Calls use(SampleScratch&). The scratch comes back also when `use` throws: the rows behind it would wait
  /// for it for ever.
  template <class F>
  void with_one(F&& use) {
    std::size_t i = 0;
    while (busy_[i].test_and_set(std::memory_order_acquire)) i = (i + 1) % busy_.size();
    const Lease lease{busy_[i]};
    use(scratch_[i]);
  }

 private:
  struct Lease {
    std::atomic_flag& busy;
    ~Lease() { busy.clear(std::memory_order_release); }
  };

  std::vector<SampleScratch> scratch_;
  std::vector<std::atomic_flag> busy_;
};

}  // namespace barg::runtime
