// Device::Impl: memory, findings and counts of an emulated device. Private to emu/.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emu/emu.h"
#include "emu/fiber.h"
#include "emu/lint.h"
#include "emu/shadow.h"

namespace barg::cuda {
struct Stream {
  barg::emu::Device::Impl* device;
};
}  // namespace barg::cuda

namespace barg::emu {

class Device::Impl {
 public:
  struct Allocation {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::string name;
    Traffic traffic;
  };

  explicit Impl(const Schedule& s);
  ~Impl();

  void* allocate(std::size_t bytes, const std::string& name);
  void release(void* p);
  bool owns(const void* p) const { return p >= heap_ && p < heap_ + kHeapBytes; }
  /// The allocation that holds all `bytes` at p; nullptr = none.
  Allocation* find(const void* p, std::size_t bytes);
  /// What lies nearest, for people.
  std::string describe(const void* p) const;

  void report(Finding::Kind kind, const std::string& kernel, const Site& where, const std::string& what);

  Schedule schedule;
  std::mt19937_64 random;
  Fault fault;
  Stacks stacks;
  Shadow shadow;
  Lint lint;
  std::uint32_t era = 0;  ///< launches, and blocks, so far
  std::vector<Finding> findings;
  cuda::Stream stream{this};

 private:
  static constexpr std::size_t kHeapBytes = std::size_t{64} << 30;  ///< addresses; none is used twice
  static constexpr std::size_t kGap = 4096;

  std::byte* heap_ = nullptr;
  std::size_t used_ = kGap;
  std::map<std::uintptr_t, Allocation> allocations_;  // by first address
  std::set<std::pair<Finding::Kind, Site>> reported_;
};

std::string show(const Site& where);

}  // namespace barg::emu
