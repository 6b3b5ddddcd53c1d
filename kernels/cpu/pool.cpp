#include "cpu/pool.h"

namespace barg::ops {
namespace {

// About 10-20 us: longer than the gap between two operations of a layer, short enough not to take a core from
// somebody else for long.
constexpr int kSpins = 400;

void pause() { __builtin_ia32_pause(); }

}  // namespace

WorkerPool::WorkerPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { worker_loop(stop); });
  }
}

WorkerPool::~WorkerPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
}

void WorkerPool::run(int items, Body body, void* context) {
  if (items <= 0) return;
  if (items == 1 || workers_.empty()) {
    for (int i = 0; i < items; ++i) body(context, i);
    return;
  }
  work_ = {items, body, context};
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();

  take_items();

  std::uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spin = 0; inside != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      gate_.wait(inside, std::memory_order_acquire);
    }
    inside = gate_.load(std::memory_order_acquire);
  }
}

void WorkerPool::take_items() {
  const Work work = work_;
  for (int i = next_.fetch_add(1, std::memory_order_relaxed); i < work.items;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    work.body(work.context, i);
  }
}

bool WorkerPool::try_join() {
  std::uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void WorkerPool::worker_loop(const std::stop_token& stop) {
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t epoch = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; epoch == seen; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
      epoch = epoch_.load(std::memory_order_acquire);
    }
    seen = epoch;
    if (stop.stop_requested()) return;
    if (!try_join()) continue;
    take_items();
    const std::uint32_t left = gate_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if (left == 0)
      gate_.notify_all();  // the gate is closed and this was the last: the caller may sleep on it
  }
}

}  // namespace barg::ops
