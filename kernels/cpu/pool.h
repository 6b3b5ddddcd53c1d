// The worker pool of one CPU device, and the Stream that carries it through the op table.
//
// A region is `items` independent pieces of work, claimed one by one from `ticket_`. The calling thread works
// too and waits only for items that somebody has claimed: a worker that is asleep or preempted costs nothing,
// so the pool is safe on cores shared with other processes. There is nothing to join and nothing to leave:
//
//   ticket_: | items (22) | back (21) | front (21) |    front + back < items: the claim is valid and work_ belongs to it
//   done_:   items that workers have finished; the caller counts its own and waits for the sum
//
// Items are claimed in order, or by the caller from the front and by the workers from the back: where items go by rows,
// the same thread then has the same rows in one operation after another, and finds what it wrote in its own caches
// (cores that share no cache make prefill a quarter slower without that).
//
// A worker without work spins for some tens of microseconds, longer than the gap between two operations of a
// layer, and then sleeps in the kernel; the caller makes a system call only if somebody may be asleep.
//
// Invariants: work_ and done_ are written by run() only while no claim is open. Which thread runs an item is
// arbitrary, so an item must not depend on it.
// Thread rule: run() and wake() from one thread at a time; run() also from inside an item, and then it does
// all of its items itself. No allocation after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace barg::ops {

class WorkerPool {
 public:
  using Body = void (*)(void* context, int item);

  /// `threads` >= 1 counts the caller: threads - 1 workers are started, or as many as the system allows.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// How items are claimed: ascending, or from both ends.
  enum class Claims : std::uint8_t { kInOrder, kBothEnds };
  /// Calls body(context, i) once for every i in [0, items), on any thread; returns when all have finished.
  void run(int items, Body body, void* context, Claims claims = Claims::kInOrder);
  /// A region comes soon: sleeping workers start to spin, so that they are awake by then.
  void wake();
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  void worker_loop(const std::stop_token& stop);
  bool wait_for_work(const std::stop_token& stop);
  bool has_work() const;
  int take_items(bool caller);
  void wait_for_workers(int items);

  struct Work {
    Body body = nullptr;
    void* context = nullptr;
    Claims claims = Claims::kInOrder;
  };
  // Written by the caller once a region, read by everybody: one cache line.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  Work work_;
  // Written by workers when they have finished, and by whoever goes to sleep.
  alignas(64) std::atomic<std::int32_t> done_{0};
  std::atomic<std::int32_t> caller_sleeps_{0};
  alignas(64) std::atomic<std::int32_t> wakes_{
      0};                                  ///< what sleeping workers wait on: changes with each wake-up
  std::atomic<std::int32_t> sleepers_{0};  ///< not 0: some worker sleeps, or is about to
  alignas(64) bool busy_ = false;          ///< a region is open; read by run(), which may be inside an item
  std::vector<std::jthread> workers_;      // last: stopped before the rest goes
};

/// What ops.h calls a stream.
struct Stream {
  explicit Stream(int threads) : pool(threads) {}
  WorkerPool pool;
};

}  // namespace barg::ops
