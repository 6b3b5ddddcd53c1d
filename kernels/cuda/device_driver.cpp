#include "cuda/device_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <vector>

namespace barg::cuda {
namespace {

using Code = Status::Code;
using driver::Table;

/// The opened library; nothing of it is used after it is closed.
class Library {
 public:
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Status open(const char* name) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return {};
    const char* const why = ::dlerror();
    return {Code::kNoDriver, std::string("no CUDA driver: ") + (why != nullptr ? why : name)};
  }
  template <class F>
  bool find(const char* symbol, F& out) const {
    out = reinterpret_cast<F>(::dlsym(handle_, symbol));
    return out != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

Status fill_table(const Library& library, const char* name, Table& table) {
#define BARG_FIND(member, symbol, parameters)                                                          \
  if (!library.find(#symbol, table.member))                                                            \
    return {Code::kBadDriver, std::string("the CUDA driver ") + name + " is too old: it has no " #symbol};
  BARG_DRIVER_FUNCTIONS(BARG_FIND)
#undef BARG_FIND
  return {};
}

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

/// Whether the context is of no more use: faults of kernels, and of the device.
bool is_lost(driver::Result r) { return std::ranges::count(driver::kLost, r) > 0; }

class DriverDevice final : public Device {
 public:
  /// Frees whatever there is of it, also if open() has failed half way.
  ~DriverDevice() override;
  Status open(const DriverOptions& options);

  const DeviceInfo& info() const override { return info_; }
  Status free_bytes(std::size_t& out) override {
    std::size_t total = 0;
    return call("cuMemGetInfo", cu_.memory_info, &out, &total);
  }
  Status load(const void* image) override;

  Status allocate(std::size_t bytes, const char* name, std::byte*& out) override;
  void release(std::byte* p) override;
  Status allocate_pinned(std::size_t bytes, std::byte*& out) override;
  void release_pinned(std::byte* p) override;

  Status create_stream(StreamId& out) override;
  Status create_event(EventId& out) override;

  Status upload(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on(s, "cuMemcpyHtoDAsync", [&](auto stream) { return cu_.copy_to_device(address(to), from, bytes, stream); });
  }
  Status download(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on(s, "cuMemcpyDtoHAsync", [&](auto stream) { return cu_.copy_to_host(to, address(from), bytes, stream); });
  }
  Status copy(StreamId s, std::byte* to, const std::byte* from, std::size_t bytes) override {
    return on(s, "cuMemcpyDtoDAsync",
              [&](auto stream) { return cu_.copy_on_device(address(to), address(from), bytes, stream); });
  }
  Status fill(StreamId s, std::byte* to, std::uint8_t value, std::size_t bytes) override {
    return on(s, "cuMemsetD8Async", [&](auto stream) { return cu_.fill(address(to), value, bytes, stream); });
  }
  Status launch(StreamId s, const Kernel& kernel, const LaunchShape& shape, const void* params, bool overlap) override;
  Status call(StreamId s, const LibraryCall& run, std::byte*, std::size_t) override {
    std::string error;
    const Status status = on(s, "a library", [&](auto stream) {
      error = run(stream);
      return driver::Result{0};
    });
    return status.ok() && !error.empty() ? Status{Code::kInvalid, error} : status;
  }

  Status record(StreamId s, EventId e) override {
    return on(s, e, "cuEventRecord", [&](auto stream, auto event) { return cu_.event_record(event, stream); });
  }
  Status wait(StreamId s, EventId e) override {
    return on(s, e, "cuStreamWaitEvent", [&](auto stream, auto event) { return cu_.stream_wait(stream, event, 0); });
  }
  Status query(EventId e, bool& happened) override;
  Status synchronize(EventId e) override {
    return on(StreamId{}, e, "cuEventSynchronize", [&](auto, auto event) { return cu_.event_synchronize(event); });
  }
  Status synchronize(StreamId s) override {
    return on(s, "cuStreamSynchronize", [&](auto stream) { return cu_.stream_synchronize(stream); });
  }

  Status begin_capture(StreamId s) override {
    return on(s, "cuStreamBeginCapture",
              [&](auto stream) { return cu_.capture_begin(stream, driver::kCaptureThreadLocal); });
  }
  Status end_capture(StreamId s, GraphId& out) override;
  Status launch(StreamId s, GraphId g) override {
    if (static_cast<std::size_t>(g) >= graphs_.size()) return {Code::kInvalid, "no such graph"};
    return on(s, "cuGraphLaunch",
              [&](auto stream) { return cu_.graph_launch(graphs_[static_cast<std::size_t>(g)], stream); });
  }

 private:
  static driver::Address address(const std::byte* p) { return reinterpret_cast<driver::Address>(p); }

  Status checked(const char* what, driver::Result result);
  template <class... P, class... A>
  Status call(const char* what, driver::Result (*f)(P...), A... arguments) {
    if (!lost_.ok()) return lost_;
    if (context_ != nullptr) cu_.context_set(context_);
    return checked(what, f(arguments...));
  }
  /// One more of `all`, which `out` names.
  template <class Id, class Handle, class Create>
  Status create(const char* what, Create create, unsigned flags, std::vector<Handle>& all, Id& out);
  template <class F>
  Status on(StreamId s, const char* what, const F& f) {
    if (!lost_.ok()) return lost_;
    if (static_cast<std::size_t>(s) >= streams_.size()) return {Code::kInvalid, "no such stream"};
    cu_.context_set(context_);
    return checked(what, f(streams_[static_cast<std::size_t>(s)]));
  }
  template <class F>
  Status on(StreamId s, EventId e, const char* what, const F& f) {
    if (static_cast<std::size_t>(e) >= events_.size()) return {Code::kInvalid, "no such event"};
    return on(s, what, [&](auto stream) { return f(stream, events_[static_cast<std::size_t>(e)]); });
  }
  Status initialise();
  Status read_info();
  Status find(const Kernel& kernel, driver::Function& out);
  Status function(const Kernel& kernel, std::size_t dynamic_shared, driver::Function& out);

  struct Loaded {
    driver::Function function = nullptr;
    std::size_t dynamic_shared = 0;  ///< that it may be launched with
  };

  Library library_;
  Table cu_;
  DeviceInfo info_;
  Status lost_;
  int device_ = 0;
  driver::Context context_ = nullptr;
  std::vector<driver::Module> modules_;
  std::map<std::string, Loaded> functions_;
  std::vector<driver::Stream> streams_;  ///< the first is nobody's: what needs some stream takes it
  std::vector<driver::Event> events_;
  std::vector<driver::GraphExec> graphs_;
};

DriverDevice::~DriverDevice() {
  if (context_ == nullptr) return;
  cu_.context_set(context_);
  for (const driver::Stream s : streams_) cu_.stream_synchronize(s);
  for (const driver::GraphExec g : graphs_) cu_.exec_destroy(g);
  for (const driver::Event e : events_) cu_.event_destroy(e);
  for (const driver::Stream s : streams_) cu_.stream_destroy(s);
  for (const driver::Module m : modules_) cu_.module_unload(m);
  cu_.context_release(device_);
}

Status DriverDevice::checked(const char* what, driver::Result result) {
  if (result == 0) return {};
  const char* name = nullptr;
  if (cu_.error_name(result, &name) != 0 || name == nullptr) name = "an unknown error";
  Status status{Code::kInvalid, std::string(what) + ": " + name + " (" + std::to_string(result) + ")"};
  if (result == driver::kOutOfMemory) status.code = Code::kOutOfMemory;
  if (result == driver::kNoDevice) status.code = Code::kNoDevice;
  if (is_lost(result)) {
    status.code = Code::kLost;
    lost_ = status;
  }
  return status;
}

Status DriverDevice::open(const DriverOptions& options) {
  Status status = library_.open(options.library);
  if (status.ok()) status = fill_table(library_, options.library, cu_);
  if (status.ok()) status = initialise();
  if (status.ok()) status = call("cuDriverGetVersion", cu_.driver_version, &info_.driver_version);
  if (!status.ok()) return status;
  if (info_.driver_version < driver::kLeastVersion) {
    return {Code::kBadDriver, "the CUDA driver is of version " + version_text(info_.driver_version) + ", " +
                                  version_text(driver::kLeastVersion) + " is needed"};
  }
  int count = 0;
  status = call("cuDeviceGetCount", cu_.device_count, &count);
  if (status.ok() && options.device >= count) {
    return {Code::kNoDevice, "no CUDA device " + std::to_string(options.device) + ": there are " + std::to_string(count)};
  }
  if (status.ok()) status = call("cuDeviceGet", cu_.device_get, &device_, options.device);
  if (status.ok()) status = read_info();
  if (status.ok()) status = call("cuDevicePrimaryCtxRetain", cu_.context_retain, &context_, device_);
  StreamId first{};
  return status.ok() ? create_stream(first) : status;
}

/// A driver that does not start is a bad one, whatever it says of itself.
Status DriverDevice::initialise() {
  Status status = call("cuInit", cu_.init, 0u);
  if (!status.ok() && status.code != Code::kNoDevice) status.code = Code::kBadDriver;
  return status;
}

Status DriverDevice::read_info() {
  char name[256] = {};
  Status status = call("cuDeviceGetName", cu_.device_name, name, static_cast<int>(sizeof(name)) - 1, device_);
  info_.name = name;
  const auto attribute = [&](int which, int& out) {
    if (status.ok()) status = call("cuDeviceGetAttribute", cu_.device_attribute, &out, which, device_);
  };
  attribute(driver::kAttributeMajor, info_.major);
  attribute(driver::kAttributeMinor, info_.minor);
  attribute(driver::kAttributeMultiprocessors, info_.multiprocessors);
  int shared = 0;
  attribute(driver::kAttributeBlockShared, shared);
  info_.block_shared_bytes = static_cast<std::size_t>(std::max(shared, 0));
  if (status.ok()) status = call("cuDeviceTotalMem", cu_.device_memory, &info_.memory_bytes, device_);
  if (status.ok() && 10 * info_.major + info_.minor < driver::kLeastCapability) {
    return {Code::kNoDevice, info_.name + " has compute capability " + std::to_string(info_.major) + "." +
                                 std::to_string(info_.minor) + ", 8.0 is needed"};
  }
  return status;
}

Status DriverDevice::load(const void* image) {
  driver::Module module = nullptr;
  Status status = call("cuModuleLoadData", cu_.module_load, &module, image);
  if (status.ok()) modules_.push_back(module);
  return status;
}

Status DriverDevice::allocate(std::size_t bytes, const char* name, std::byte*& out) {
  driver::Address p = 0;
  Status status = call("cuMemAlloc", cu_.memory_allocate, &p, bytes == 0 ? 1 : bytes);
  if (!status.ok()) status.message = std::string(name) + ", " + std::to_string(bytes) + " bytes: " + status.message;
  out = reinterpret_cast<std::byte*>(p);
  return status;
}

void DriverDevice::release(std::byte* p) {
  if (p == nullptr) return;
  cu_.context_set(context_);
  cu_.memory_free(address(p));
}

Status DriverDevice::allocate_pinned(std::size_t bytes, std::byte*& out) {
  void* p = nullptr;
  Status status = call("cuMemHostAlloc", cu_.host_allocate, &p, bytes == 0 ? 1 : bytes, driver::kHostPortable);
  out = static_cast<std::byte*>(p);
  return status;
}

void DriverDevice::release_pinned(std::byte* p) {
  if (p == nullptr) return;
  cu_.context_set(context_);
  for (const driver::Stream s : streams_) cu_.stream_synchronize(s);  // no copy may still use it
  cu_.host_free(p);
}

template <class Id, class Handle, class Create>
Status DriverDevice::create(const char* what, Create create, unsigned flags, std::vector<Handle>& all, Id& out) {
  Handle handle = nullptr;
  Status status = call(what, create, &handle, flags);
  if (!status.ok()) return status;
  out = static_cast<Id>(all.size());
  all.push_back(handle);
  return {};
}

Status DriverDevice::create_stream(StreamId& out) {
  return create("cuStreamCreate", cu_.stream_create, driver::kStreamNonBlocking, streams_, out);
}

Status DriverDevice::create_event(EventId& out) {
  return create("cuEventCreate", cu_.event_create, driver::kEventNoTiming, events_, out);
}

Status DriverDevice::query(EventId e, bool& happened) {
  happened = false;
  bool pending = false;
  Status status = on(StreamId{}, e, "cuEventQuery", [&](auto, auto event) {
    const driver::Result r = cu_.event_query(event);
    pending = r == driver::kNotReady;
    return pending ? 0 : r;
  });
  happened = status.ok() && !pending;
  return status;
}

/// Finds it in what was loaded. The driver may load its code only now, which is no part of a graph being captured.
Status DriverDevice::find(const Kernel& kernel, driver::Function& out) {
  int mode = driver::kCaptureRelaxed;
  Status status = call("cuThreadExchangeStreamCaptureMode", cu_.capture_mode, &mode);
  if (!status.ok()) return status;
  status = {Code::kInvalid, "no code is loaded that has it"};
  for (auto m = modules_.begin(); out == nullptr && m != modules_.end() && status.code != Code::kLost; ++m)
    status = call("cuModuleGetFunction", cu_.module_function, &out, *m, kernel.name);
  if (out == nullptr) status.message = std::string(kernel.name) + ": " + status.message;
  const Status restored = call("cuThreadExchangeStreamCaptureMode", cu_.capture_mode, &mode);
  return out == nullptr ? status : restored;
}

/// The kernel, which may have that much shared memory. What is its own counts towards the 48 KiB that it has without
/// asking, so it is always asked for.
Status DriverDevice::function(const Kernel& kernel, std::size_t dynamic_shared, driver::Function& out) {
  Loaded& loaded = functions_[kernel.name];
  Status status = loaded.function == nullptr ? find(kernel, loaded.function) : Status{};
  if (!status.ok()) return status;
  out = loaded.function;
  if (dynamic_shared <= loaded.dynamic_shared) return {};
  status = call("cuFuncSetAttribute", cu_.function_attribute, loaded.function, driver::kFunctionMaxDynamicShared,
                static_cast<int>(dynamic_shared));
  if (status.ok()) loaded.dynamic_shared = dynamic_shared;
  return status;
}

Status DriverDevice::launch(StreamId s, const Kernel& kernel, const LaunchShape& shape, const void* params, bool overlap) {
  driver::Function f = nullptr;
  Status status = function(kernel, shape.dynamic_shared, f);
  if (!status.ok()) return status;
  driver::LaunchAttribute attribute{};
  attribute.id = driver::kLaunchOverlap;
  attribute.value.number = 1;
  driver::LaunchConfig config{static_cast<unsigned>(shape.grid_x),
                              static_cast<unsigned>(shape.grid_y),
                              static_cast<unsigned>(shape.grid_z),
                              static_cast<unsigned>(shape.threads),
                              1,
                              1,
                              static_cast<unsigned>(shape.dynamic_shared),
                              nullptr,
                              &attribute,
                              overlap ? 1u : 0u};
  void* pointers[] = {const_cast<void*>(params)};
  return on(s, kernel.name, [&](auto stream) {
    config.stream = stream;
    return cu_.launch(&config, f, pointers, nullptr);
  });
}

Status DriverDevice::end_capture(StreamId s, GraphId& out) {
  driver::Graph graph = nullptr;
  Status status = on(s, "cuStreamEndCapture", [&](auto stream) { return cu_.capture_end(stream, &graph); });
  if (!status.ok()) return status;
  driver::GraphExec exec = nullptr;
  status = call("cuGraphInstantiate", cu_.graph_instantiate, &exec, graph, 0ull);
  cu_.graph_destroy(graph);
  if (!status.ok()) return status;
  out = static_cast<GraphId>(graphs_.size());
  graphs_.push_back(exec);
  return {};
}

}  // namespace

Status open_driver(const DriverOptions& options, std::unique_ptr<Device>& out) {
  auto device = std::make_unique<DriverDevice>();
  Status status = device->open(options);
  if (status.ok()) out = std::move(device);
  return status;
}

}  // namespace barg::cuda
