// Handoff: an unbounded queue with one consumer, for the two crossings between the engine thread and the
// device thread. It reuses its slots, so passing a step allocates nothing, and its consumer may spin for a
// moment before it sleeps: waking a sleeping thread costs 30 to 80 us, more than the engine needs between two
// steps.
//
// Spinning yields, so that it costs a busy machine nothing: whoever else can run on this core does.
// Threads: push() from any, pop() from one. Does its own locking.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace barg::runtime {

template <class T>
class Handoff {
 public:
  /// `spin`: how long pop() looks again and again before it sleeps.
  explicit Handoff(std::chrono::microseconds spin) : spin_(spin), slots_(8) {}

  /// False when closed.
  bool push(T&& value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      const std::size_t size = size_.load(std::memory_order_relaxed);
      if (size == slots_.size()) grow();
      slots_[(first_ + size) % slots_.size()] = std::move(value);
      size_.store(size + 1, std::memory_order_release);
    }
    ready_.notify_one();
    return true;
  }

  /// The oldest value. Empty when there is none; with `wait`, only once the queue is closed and empty.
  std::optional<T> pop(bool wait) {
    if (wait) spin();
    std::unique_lock lock(mutex_);
    if (wait) ready_.wait(lock, [&] { return closed_ || size_.load(std::memory_order_relaxed) > 0; });
    return take();
  }

  /// The oldest value, if there is one by then.
  std::optional<T> pop_within(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, time, [&] { return closed_ || size_.load(std::memory_order_relaxed) > 0; });
    return take();
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  /// REQUIRES mutex_.
  std::optional<T> take() {
    const std::size_t size = size_.load(std::memory_order_relaxed);
    if (size == 0) return std::nullopt;
    std::optional<T> value(std::move(slots_[first_]));
    first_ = (first_ + 1) % slots_.size();
    size_.store(size - 1, std::memory_order_relaxed);
    return value;
  }

  void spin() const {
    if (spin_.count() == 0 || size_.load(std::memory_order_acquire) > 0) return;
    const auto end = std::chrono::steady_clock::now() + spin_;
    do {
      std::this_thread::yield();
      if (size_.load(std::memory_order_acquire) > 0) return;
    } while (std::chrono::steady_clock::now() < end);
  }

  void grow() {
    std::vector<T> larger(2 * slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i)
      larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  const std::chrono::microseconds spin_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<T> slots_;              // guarded by mutex_; a ring of size_ values from first_ on
  std::size_t first_ = 0;             // guarded by mutex_
  std::atomic<std::size_t> size_{0};  // written under mutex_
  bool closed_ = false;               // guarded by mutex_
};

}  // namespace barg::runtime
