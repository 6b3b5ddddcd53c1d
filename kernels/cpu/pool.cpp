#include "cpu/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <exception>

namespace barg::ops {
namespace {

/// 20 to 50 us at the rates that time-stamp counters have (2 to 5 GHz).
constexpr std::uint64_t kSpinTicks = 100'000;

constexpr int kFieldBits = 21;
constexpr int kMostItems = 1 << (kFieldBits - 1);  ///< that are shared out
constexpr std::uint64_t kFront = 1, kBack = std::uint64_t{1} << kFieldBits;

struct Ticket {
  std::int32_t items, back, front;
  explicit Ticket(std::uint64_t t)
      : items(static_cast<std::int32_t>(t >> (2 * kFieldBits))),
        back(static_cast<std::int32_t>(t / kBack % kBack)),
        front(static_cast<std::int32_t>(t % kBack)) {}
  bool open() const { return front + back < items; }
};

class Spin {
 public:
  /// False once it has lasted long enough.
  bool again() {
    __builtin_ia32_pause();
    return __builtin_ia32_rdtsc() - start_ < kSpinTicks;
  }

 private:
  std::uint64_t start_ = __builtin_ia32_rdtsc();
};

/// Sleeps while `word` is `value`; may also return for no reason.
void futex_wait(std::atomic<std::int32_t>& word, std::int32_t value) {
  static_assert(sizeof(word) == sizeof(std::int32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<std::int32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

WorkerPool::WorkerPool(int threads) {
  workers_.reserve(static_cast<std::size_t>(threads > 1 ? threads - 1 : 0));
  for (int i = 1; i < threads; ++i) {
    try {
      workers_.emplace_back([this](const std::stop_token& stop) { worker_loop(stop); });
    } catch (const std::exception&) {
      return;  // the system has no more threads: fewer compute the same
    }
  }
}

WorkerPool::~WorkerPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  wakes_.fetch_add(1);
  futex_wake_all(wakes_);
}

void WorkerPool::run(int items, Body body, void* context, Claims claims) {
  if (items <= 0) return;
  if (items == 1 || workers_.empty() || busy_) {
    for (int i = 0; i < items; ++i) body(context, i);
    return;
  }
  for (; items > kMostItems; --items) body(context, items - 1);
  work_ = {body, context, claims};
  busy_ = true;
  done_.store(0, std::memory_order_relaxed);
  // Sequentially consistent, as in wait_for_work(): either the sleeper sees the work or wake() sees the
  // sleeper.
  ticket_.store(static_cast<std::uint64_t>(items) << (2 * kFieldBits));
  wake();
  const int own = take_items(true);
  wait_for_workers(items - own);
  busy_ = false;
}

void WorkerPool::wake() {
  if (sleepers_.load() == 0) return;
  sleepers_.store(0);
  wakes_.fetch_add(1);
  futex_wake_all(wakes_);
}

/// Runs items until none is left to claim; how many they were. The region cannot end before its last claimed
/// item has been counted, so all of them belong to one.
int WorkerPool::take_items(bool caller) {
  for (int count = 0;; ++count) {
    // Which end is claimed is counted either way: who comes too late does not know what work_ says by now.
    const Ticket ticket(ticket_.fetch_add(caller ? kFront : kBack, std::memory_order_acq_rel));
    if (!ticket.open()) return count;
    const bool in_order = work_.claims == Claims::kInOrder;
    const int item = in_order ? ticket.front + ticket.back : caller ? ticket.front : ticket.items - 1 - ticket.back;
    work_.body(work_.context, item);
  }
}

void WorkerPool::wait_for_workers(int items) {
  Spin spin;
  while (done_.load(std::memory_order_acquire) != items) {
    if (spin.again()) continue;
    caller_sleeps_.store(1);
    const std::int32_t done = done_.load();
    if (done != items) futex_wait(done_, done);
    caller_sleeps_.store(0, std::memory_order_relaxed);
  }
}

bool WorkerPool::has_work() const {
  return Ticket(ticket_.load()).open();
}

/// False: stop.
bool WorkerPool::wait_for_work(const std::stop_token& stop) {
  for (;;) {
    for (Spin spin; spin.again();) {
      if (has_work()) return true;
    }
    const std::int32_t wakes = wakes_.load();  // before sleepers_: a wake-up that clears our mark changes it
    sleepers_.store(1);
    if (stop.stop_requested()) return false;
    if (has_work()) return true;
    futex_wait(wakes_, wakes);
  }
}

void WorkerPool::worker_loop(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "barg-worker");
  while (wait_for_work(stop)) {
    const int count = take_items(false);
    if (count == 0) continue;
    done_.fetch_add(count);
    if (caller_sleeps_.load() != 0) futex_wake_all(done_);
  }
}

}  // namespace barg::ops
