// SIGINT and SIGTERM as calls on a thread of their own. Construct before any other thread exists: threads
// inherit the blocked mask. While nothing is there to shut down, a signal ends the process at once.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace barg::cli {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();  ///< no callback runs after it
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// `first` on the first signal from now on, `again` on each further one. Called on the watch's thread.
  void arm(std::function<void()> first, std::function<void()> again);

 private:
  void watch(std::stop_token stop);

  std::mutex mutex_;
  std::function<void()> first_, again_;  // guarded by mutex_
  int seen_ = 0;                         // guarded by mutex_
  std::jthread thread_;
};

}  // namespace barg::cli
