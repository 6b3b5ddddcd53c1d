// Device: what the runtime asks of a GPU: memory, streams, events, copies, launches and graphs of them. Two of them: the
// CUDA driver, opened at run time (device_driver.h), and the emulated device (device_emulated.h), so that the code above
// runs, and is tested, on a machine without a GPU.
//
// Order. Work is issued to a stream and runs later, in the order of the stream; between streams only events order it.
// What a copy reads or writes belongs to the device until an event behind it was seen: pinned memory too. Graphs repeat
// what was issued between begin_capture() and end_capture(), with the parameters and addresses of then; in between
// nothing but launches, copies and fills of that stream may be asked for.
//
// Failure. Every call says how it went. kLost is for good: a kernel did something forbidden or the device is gone; every
// later call says the same, and the process should end.
//
// Ownership. Streams, events and graphs live as long as the device; memory must be released before it ends. Threads: one at a
// time, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/launch.h"

namespace barg::cuda {

struct [[nodiscard]] Status {
  enum class Code : std::uint8_t {
    kOk,
    kNoDriver,     ///< no CUDA driver on this machine, or no kernels in this program
    kBadDriver,    ///< a driver that is too old, or does not start
    kNoDevice,     ///< a driver, but no device that this program can use
    kOutOfMemory,  ///< nothing else happened: the device is as it was
    kInvalid,      ///< a call that may not be made
    kLost,
  };
  Code code = Code::kOk;
  std::string message{};  ///< one sentence, for people; empty if kOk

  bool ok() const { return code == Code::kOk; }
};

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;    ///< compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t block_shared_bytes = 0;  ///< shared memory that a block may ask for
  int driver_version = 0;      ///< 12040 is 12.4; 0: emulated
};

enum class StreamId : std::uint32_t {};
enum class EventId : std::uint32_t {};
enum class GraphId : std::uint32_t {};

/// A kernel, for both devices; device_kernel.h makes them.
struct Kernel {
  const char* name;  ///< its symbol in the loaded code, with static storage
  std::size_t params_bytes;
  void (*body)(const void* params);  ///< what the emulated device runs
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Status free_bytes(std::size_t& out) = 0;
  /// Machine code of kernels (a cubin or fatbin); valid until the device ends. The emulated device needs none.
  virtual Status load(const void* image) = 0;

  /// Device memory, 256-byte aligned, of unknown contents. `name` is for people.
  virtual Status allocate(std::size_t bytes, const char* name, std::byte*& out) = 0;
  /// Waits for all work; then the memory is gone. nullptr: nothing.
  virtual void release(std::byte* p) = 0;
  /// Memory of the host that copies reach without help. The same rules.
  virtual Status allocate_pinned(std::size_t bytes, std::byte*& out) = 0;
  virtual void release_pinned(std::byte* p) = 0;

  virtual Status create_stream(StreamId& out) = 0;
  virtual Status create_event(EventId& out) = 0;

  // Work, in the stream's order. Host memory is pinned memory.
  virtual Status upload(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Status download(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Status copy(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Status fill(StreamId s, std::byte* to, std::uint8_t value, std::size_t bytes) = 0;
  /// `params` are copied. `overlap`: the kernel may begin before the one in front of it has ended, and calls pdl_wait()
  /// before it reads what that one writes.
  virtual Status launch(StreamId s, const Kernel& kernel, const LaunchShape& shape, const void* params,
                        bool overlap) = 0;
  /// Work of a library that issues to the driver's own stream: run(stream) does, and says what went wrong (nothing: ""). It
  /// writes `bytes` at `to`. The emulated device calls it when it is the stream's turn, with nullptr.
  using LibraryCall = std::function<std::string(void* stream)>;
  virtual Status call(StreamId s, const LibraryCall& run, std::byte* to, std::size_t bytes) = 0;

  /// The event has happened when all that was issued to the stream before has run. A later record() replaces it.
  virtual Status record(StreamId s, EventId e) = 0;
  /// What is issued to the stream from now on runs after the event's latest record(); without one, as if not called.
  virtual Status wait(StreamId s, EventId e) = 0;
  /// Whether it has happened; true without a record().
  virtual Status query(EventId e, bool& happened) = 0;
  virtual Status synchronize(EventId e) = 0;
  virtual Status synchronize(StreamId s) = 0;

  virtual Status begin_capture(StreamId s) = 0;
  virtual Status end_capture(StreamId s, GraphId& out) = 0;
  virtual Status launch(StreamId s, GraphId g) = 0;
};

template <class Params>
Status launch(Device& device, StreamId s, const Kernel& kernel, const LaunchShape& shape, const Params& params,
              bool overlap = false) {
  if (sizeof(Params) != kernel.params_bytes)
    return {Status::Code::kInvalid, std::string("parameters that are not those of ") + kernel.name};
  return device.launch(s, kernel, shape, &params, overlap);
}

}  // namespace barg::cuda
