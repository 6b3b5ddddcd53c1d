// SharedClock: a clock that tests move by hand, from any thread.
#pragma once

#include <atomic>

#include "base/env.h"

namespace barg::test {

class SharedClock final : public Clock {
 public:
  double now() const override { return now_.load(); }
  void advance(double seconds) { now_.store(now_.load() + seconds); }

 private:
  std::atomic<double> now_{1000};
};

}  // namespace barg::test
