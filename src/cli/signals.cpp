#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>

namespace barg::cli {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::jthread([this](std::stop_token stop) { watch(std::move(stop)); });
}

SignalWatch::~SignalWatch() {
  thread_.request_stop();
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes sigwait
}

void SignalWatch::arm(std::function<void()> first, std::function<void()> again) {
  const std::lock_guard lock(mutex_);
  first_ = std::move(first);
  again_ = std::move(again);
}

void SignalWatch::watch(std::stop_token stop) {
  const sigset_t set = watched();
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (stop.stop_requested()) return;
    const std::lock_guard lock(mutex_);
    if (!first_) std::_Exit(128 + signal);
    (++seen_ == 1 ? first_ : again_)();
  }
}

}  // namespace barg::cli
