// The CPU back end: a device is a worker pool and the table of operations for one instruction set.
//
// Invariants:
//  1. The instruction set and the number of threads never change a bit of any result, so either may be chosen
//     freely (and differ between processes that share a KV cache).
//  2. All instruction sets use the same packed weights and KV layout (layout.h): memory packed by one device
//     may be read by another.
//
// Thread rule: one thread at a time submits operations to a device's stream; it takes part in the work, and
// an operation has finished when the call returns. Different devices are independent. Not here: memory
// (callers bring it), clocks, logging, policy.
#pragma once

#include <cstdint>
#include <memory>

#include "ops.h"

namespace barg::ops {

/// kAuto picks the fastest one this machine has.
enum class Isa : std::uint8_t { kAuto, kScalar, kAvx2, kAvx512 };

/// Whether this machine can run `isa` (kAuto and kScalar: always).
bool isa_supported(Isa isa);
/// Whether `isa` computes in `recipe` on this machine. kBF16: AVX-512 where the processor has BF16 too, and
/// kScalar, which is there to check it; so never kAuto on another machine. REQUIRES isa_supported(isa).
bool recipe_supported(Isa isa, Recipe recipe);
/// What kAuto becomes on this machine.
Isa best_isa();
/// "auto", "scalar", "avx2", "avx512".
const char* isa_name(Isa isa);
/// Cores this process may run on, at least 1.
int cores_available();

struct CpuOptions {
  int threads = 0;       ///< threads that compute, the caller included; 0 = cores_available()
  Isa isa = Isa::kAuto;  ///< REQUIRES isa_supported(isa)
};

class CpuDevice {
 public:
  explicit CpuDevice(const CpuOptions& options = {});
  ~CpuDevice();
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  /// Owned by the device.
  Stream& stream() { return *stream_; }
  /// Operations come soon: sleeping threads of the device get ready. Thread rule as for operations.
  void wake();
  /// Static tables: stay valid for the life of the process.
  const OpTable& ops() const { return *ops_; }
  int threads() const { return threads_; }
  Isa isa() const { return isa_; }  ///< what kAuto became
  const char* isa_name() const { return ops::isa_name(isa_); }

 private:
  Isa isa_;
  int threads_;
  const OpTable* ops_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace barg::ops
