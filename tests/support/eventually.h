// eventually(): waits for what other threads bring about.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace barg::test {

/// Asks again and again; false after half a minute: a loaded machine, or one with sanitizers.
inline bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace barg::test
