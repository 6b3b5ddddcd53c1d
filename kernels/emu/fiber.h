// Fibers: stacks that are switched by hand. A fiber never leaves the OS thread it was made on.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace barg::emu {

/// The registers of what does not run lie on its stack; this is where.
struct Context {
  void* stack_pointer = nullptr;
};

/// Leaves the running context for `to`; returns when something switches back.
void switch_context(Context& from, Context& to);

/// Memory for stacks of one size, with a page below each that must not be touched. Used again and again.
class Stacks {
 public:
  Stacks();
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// The context of stack `i` becomes one that calls `entry`, which never returns.
  Context prepare(std::size_t i, void (*entry)());
  bool contains(const void* p) const;

  static constexpr std::size_t kBytes = 64 << 10;

 private:
  static constexpr std::size_t kMost = 1024;
  std::byte* base_ = nullptr;
};

}  // namespace barg::emu
