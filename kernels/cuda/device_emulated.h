// The emulated device behind the Device interface (kernels/emu): kernels run on the host, checked, and what is issued to
// streams runs as late and in as bad an order as streams and events allow, so that a missing event gives a wrong result.
//
//   kForward   the stream that somebody waits for goes on before all others
//   kReverse   after all others
//   kRandom    any of those that can goes on
//
// Memory that was released, and pinned memory that a copy will write, is filled with 0xFF. A kernel that the checker
// finds fault with loses the device.
#pragma once

#include <memory>

#include "cuda/device.h"
#include "emu/emu.h"

namespace barg::cuda {

struct EmulatedOptions {
  emu::Schedule schedule{};              ///< of the threads of kernels
  emu::Order streams = emu::Order::kRandom;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::size_t block_shared_bytes = std::size_t{227} << 10;  ///< at most 227 KiB, as an H200's
  int multiprocessors = 4;
  std::uint64_t seed = 1;
};

class EmulatedDevice : public Device {
 public:
  static std::unique_ptr<EmulatedDevice> create(const EmulatedOptions& options);
  /// What kernels run on; for faults and counts.
  virtual emu::Device& machine() = 0;
  /// The most device memory that was allocated at a time.
  virtual std::size_t peak_bytes() const = 0;
};

}  // namespace barg::cuda
