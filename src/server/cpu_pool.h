// CpuPool: a few threads for work that would hold up an io thread: parsing large JSON, rendering, tokenising.
// Bounded: a full queue refuses. Jobs run in order of arrival, each exactly once unless the pool is stopped
// first. Any thread may submit. Jobs must not throw.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace barg::server {

class CpuPool {
 public:
  using Job = std::move_only_function<void()>;

  CpuPool(std::size_t threads, std::size_t capacity) : capacity_(capacity) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~CpuPool() { stop(); }

  /// False when the queue is full or the pool is stopped; `job` is then dropped.
  bool submit(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_ || jobs_.size() >= capacity_) return false;
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
    return true;
  }

  /// Drops what waits, joins what runs. Idempotent; not from a job.
  void stop() {
    std::deque<Job> dropped;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      dropped.swap(jobs_);
    }
    ready_.notify_all();
    threads_.clear();
  }

 private:
  void work() {
    pthread_setname_np(pthread_self(), "barg-request");
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [&] { return stopped_ || !jobs_.empty(); });
        if (stopped_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;  // guarded by mutex_
  bool stopped_ = false;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace barg::server
