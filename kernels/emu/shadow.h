// What is known of each byte of the emulated device: whether it was ever written, whether a copy to it is under way,
// and who used it last, so that two uses that nothing orders are found.
//
// Order within a block is kept by vector clocks: barriers join those of who meets there. A use by thread t carries t's
// own clock; it lies before what a thread u does now if u has heard of that clock. Between blocks of one launch
// nothing is ordered but by publish_count (acquire()); between launches of one stream everything is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emu/emu.h"

namespace barg::emu {

/// One row a thread: what it has heard of each thread's clock.
class Clocks {
 public:
  void reset(int threads);
  std::uint32_t own(int thread) const { return at(thread, thread); }
  bool heard(int thread, int of, std::uint32_t clock) const { return at(thread, of) >= clock; }
  /// Threads [first, first + count) met: each knows what all knew.
  void join(int first, int count);
  /// What `thread` has heard so far; what it does from now on is later.
  std::vector<std::uint32_t> release(int thread);

 private:
  std::uint32_t at(int t, int of) const { return rows_[static_cast<std::size_t>(t) * width_ + static_cast<std::size_t>(of)]; }

  std::size_t width_ = 0;
  std::vector<std::uint32_t> rows_;
};

/// The user of a byte.
struct User {
  std::uint32_t era = 0;    ///< the launch (global memory) or the block (shared)
  std::uint32_t block = 0;  ///< number within the launch
  int thread = 0;
  std::uint32_t clock = 0;
};

class Shadow {
 public:
  enum class Verdict : std::uint8_t { kFine, kRaceWithWrite, kRaceWithRead, kUninitialised, kPending };
  struct Result {
    Verdict verdict = Verdict::kFine;
    int other = 0;             ///< the thread that it races with
    std::uint32_t block = 0;
  };

  /// `ordered(block, thread, clock)`: whether that use lies before what `user` does now.
  template <class Ordered>
  Result use(const std::byte* p, std::size_t bytes, Access what, const User& user, const Ordered& ordered);

  void initialised(const std::byte* p, std::size_t bytes, bool yes);
  void pending(const std::byte* p, std::size_t bytes, bool yes);
  /// Forgets them: freed, or another block's.
  void forget(const std::byte* p, std::size_t bytes);

 private:
  struct Use {
    std::uint32_t block = 0, clock = 0;  ///< clock 0: none
    std::uint16_t thread = 0;
  };
  struct Cell {
    std::uint32_t era = 0;  ///< of the uses
    Use write, read[2];
    bool initialised = false, pending = false, atomic = false;
  };
  static constexpr std::size_t kPage = 1024;
  using Page = std::array<Cell, kPage>;

  Cell& cell(const std::byte* p);

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_number_ = 0;
  Page* last_ = nullptr;
};

template <class Ordered>
Shadow::Result Shadow::use(const std::byte* p, std::size_t bytes, Access what, const User& user, const Ordered& ordered) {
  Result result;
  const auto note = [&](Verdict v, const Use& other) {
    if (result.verdict == Verdict::kFine) result = {v, other.thread, other.block};
  };
  for (std::size_t i = 0; i < bytes; ++i) {
    Cell& c = cell(p + i);
    if (c.era != user.era) {
      c.era = user.era;
      c.write = c.read[0] = c.read[1] = {};
    }
    const auto races = [&](const Use& u) { return u.clock != 0 && !ordered(u.block, int{u.thread}, u.clock); };
    if (c.pending) note(Verdict::kPending, c.write);
    const bool both_atomic = what == Access::kAtomic && c.atomic;
    if (!both_atomic && races(c.write)) note(Verdict::kRaceWithWrite, c.write);
    if (what != Access::kWrite && !c.initialised) note(Verdict::kUninitialised, c.write);
    const Use now{user.block, user.clock, static_cast<std::uint16_t>(user.thread)};
    if (what == Access::kRead) {
      const bool same = c.read[0].block == now.block && c.read[0].thread == now.thread;
      if (!same) c.read[1] = c.read[0];
      c.read[0] = now;
      continue;
    }
    for (const Use& r : c.read) {
      if (races(r)) note(Verdict::kRaceWithRead, r);
    }
    c.write = now;
    c.read[0] = c.read[1] = {};
    c.initialised = true;
    c.atomic = what == Access::kAtomic;
  }
  return result;
}

}  // namespace barg::emu
