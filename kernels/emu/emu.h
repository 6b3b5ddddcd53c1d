// The emulated CUDA device: kernels/cuda compiled by the host compiler and run on one thread, every CUDA thread a
// fiber, in an order that is chosen to hurt.
//
// What is the same as on a card: which thread does what, where barriers and warp collectives meet, what lies in which
// lane of ldmatrix and mma, what a program may rely on. What is not: time, the order of additions inside one mma
// (here: exact, rounded once), and that blocks run one after another.
//
// Findings. A launch reports what it did wrong, once for each place in the source: see Finding. Barriers, collectives,
// explicit accesses (16-byte moves, cp.async, ldmatrix, atomics) and the bounds of shared arrays are always checked;
// every other load and store only in programs whose kernels were compiled with the hooks (hooks.h): `hooked()`.
// After a finding that leaves nothing to go on with (a deadlock, an access outside) the launch ends; results are junk.
//
// Threads: a Device is used by one thread at a time; several may exist, also at the same time on different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/launch.h"

namespace barg::emu {

enum class Order : std::uint8_t { kForward, kReverse, kRandom };
/// When an asynchronous copy happens: at the wait that it is waited for, when it is issued, or at either by chance.
enum class Copies : std::uint8_t { kLate, kEarly, kRandom };

struct Schedule {
  Order threads = Order::kForward;  ///< which of the threads that can go on goes on
  Order blocks = Order::kForward;
  Copies copies = Copies::kLate;
  std::uint64_t seed = 1;
};

struct Finding {
  enum class Kind : std::uint8_t {
    kRace,              ///< two accesses of a byte, one of them a write, that nothing orders
    kUninitialised,     ///< a byte was read that nobody wrote
    kPending,           ///< a byte was used while an asynchronous copy to it was under way
    kOutside,           ///< no memory of the device, or beyond the end of an array
    kMisaligned,
    kDivergentBarrier,  ///< threads met at different barriers, or some had ended
    kDivergentWarp,     ///< lanes of a warp met in different collectives
    kDeadlock,
    kUnfinishedCopy,    ///< a thread ended with a copy that it had not waited for
  };
  Kind kind;
  std::string kernel, where, what;
};
const char* kind_name(Finding::Kind kind);

/// What one line of a kernel did: requests are instructions of a warp.
struct SiteCount {
  std::string where;
  bool shared = false;
  std::uint64_t requests = 0;
  std::uint64_t units = 0, ideal = 0;  ///< 32-byte sectors of global memory; cycles of the 32 shared banks
};

/// A seeded fault of the emulated program, by which the tests prove that they see such faults: of a wrapper's call at
/// a line, or of a value that the kernel passed through seeded().
struct Fault {
  enum class Kind : std::uint8_t {
    kNone,
    kNoBarrier,      ///< sync_block() returns at once
    kNoWarpBarrier,  ///< sync_warp()
    kWaitOneLess,    ///< cp_wait<n>() is cp_wait<n + 1>()
    kNoRelease,      ///< publish_count() orders nothing
    kNoCopy,         ///< cp_async16() copies nothing
    kCopyAlways,     ///< cp_async16() takes every source to be valid
    kTransposed,     ///< ldmatrix_x4() is ldmatrix_x4_trans(), and the other way round
    kWrongLanes,     ///< mma_16816() takes a[1] for a[2]
    kValue,          ///< seeded(name, x) gives value(x)
  };
  Kind kind = Kind::kNone;
  std::string file_ends_with{};
  std::uint32_t line = 0;
  std::string name{};
  std::function<double(double)> value{};
};

class Device {
 public:
  explicit Device(const Schedule& schedule = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Device memory: 256-byte aligned, full of 0xFF, nothing of it initialised, with guards at both ends.
  void* allocate(std::size_t bytes, const std::string& name);
  void release(void* p);
  void upload(void* to, const void* from, std::size_t bytes);
  void download(void* to, const void* from, std::size_t bytes);
  /// Bytes that kernels read and wrote in the allocation at `p` since the last call.
  struct Traffic {
    std::uint64_t read = 0, written = 0;
  };
  Traffic take_traffic(void* p);

  cuda::Stream& stream();
  void set_schedule(const Schedule& schedule);
  void set_fault(const Fault& fault);
  void count_sites(bool on);  ///< off at first: it takes memory
  std::vector<SiteCount> take_sites();
  std::vector<Finding> take_findings();

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Whether this program's kernels report every load and store.
bool hooked();

}  // namespace barg::emu
