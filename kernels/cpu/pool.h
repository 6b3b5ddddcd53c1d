// The worker pool of one CPU device, and the Stream that carries it through the op table.
//
// A region is `items` independent pieces of work, handed out by an atomic counter. The calling thread works
// too and never waits for a worker that has not joined: a worker that is asleep or preempted costs nothing,
// so the pool is safe on cores shared with other processes.
//
//   gate_: | open (1 bit) | workers inside |     open only while the caller is in run(); a worker that finds
//                                                it closed goes back to waiting for the next epoch
//
// Invariants: work_ is written only while the gate is closed and nobody is inside. Which thread runs an item
// is arbitrary, so an item must not depend on it.
// Thread rule: run() from one thread at a time. No allocation after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace barg::ops {

class WorkerPool {
 public:
  using Body = void (*)(void* context, int item);

  /// `threads` >= 1 counts the caller: threads - 1 workers are started.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Calls body(context, i) once for every i in [0, items), on any thread; returns when all have finished.
  void run(int items, Body body, void* context);
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  void worker_loop(const std::stop_token& stop);
  bool try_join();
  void take_items();

  static constexpr std::uint32_t kOpen = 1u << 31;

  struct Work {
    int items = 0;
    Body body = nullptr;
    void* context = nullptr;
  };
  Work work_;
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  std::vector<std::jthread> workers_;  // last: stopped before the rest goes
};

/// What ops.h calls a stream.
struct Stream {
  explicit Stream(int threads) : pool(threads) {}
  WorkerPool pool;
};

}  // namespace barg::ops
