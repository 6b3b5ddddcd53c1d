// The CUDA driver's Device: what it says where there is no driver or none that will do, and, with a library that stands
// for the driver, which calls it makes of the interface and what it makes of their failures.
#include "cuda/device_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "cuda/device_memory.h"
#include "cuda/kernel_images.h"
#include "fake_driver.h"

namespace barg::cuda {
namespace {

using Code = Status::Code;

Status opened(const DriverOptions& options) {
  std::unique_ptr<Device> device;
  Status status = open_driver(options, device);
  EXPECT_EQ(device != nullptr, status.ok());
  return status;
}

TEST(NoDriver, IsAnError) {
  const Status none = opened({.library = "libbarg-no-such-driver.so.1"});
  EXPECT_EQ(none.code, Code::kNoDriver);
  EXPECT_NE(none.message.find("no CUDA driver: libbarg-no-such-driver.so.1"), std::string::npos) << none.message;
  const Status other = opened({.library = "libm.so.6"});
  EXPECT_EQ(other.code, Code::kBadDriver);
  EXPECT_EQ(other.message, "the CUDA driver libm.so.6 is too old: it has no cuInit");
  // Of this machine's own: whatever it says, it says it in a sentence.
  const Status mine = opened({});
  EXPECT_TRUE(mine.ok() || !mine.message.empty());
}

class FakeDriverTest : public testing::Test {
 protected:
  FakeDriverTest() : handle_(::dlopen(BARG_FAKE_DRIVER, RTLD_NOW)) {
    fake = reinterpret_cast<FakeDriverAccess>(::dlsym(handle_, "barg_fake_driver"))();
    *fake = {};
  }
  ~FakeDriverTest() override {
    device.reset();
    EXPECT_EQ(fake->alive, 0) << "something was not destroyed, or twice";
    ::dlclose(handle_);
  }
  void open() {
    const Status status = open_driver({.library = BARG_FAKE_DRIVER}, device);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_TRUE(device->create_stream(stream).ok());
    fake->calls.clear();
  }
  bool called(const std::string& what) const { return std::count(fake->calls.begin(), fake->calls.end(), what) > 0; }

  void* handle_;
  FakeDriver* fake;
  std::unique_ptr<Device> device;
  StreamId stream{};
};

TEST_F(FakeDriverTest, SaysWhatTheDeviceIs) {
  open();
  const DeviceInfo& info = device->info();
  EXPECT_EQ(info.name, "Fake GPU");
  EXPECT_EQ(info.major, 9);
  EXPECT_EQ(info.multiprocessors, 132);
  EXPECT_EQ(info.block_shared_bytes, 232'448U);
  EXPECT_EQ(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_EQ(info.driver_version, 12040);
}

TEST_F(FakeDriverTest, SaysWhyThereIsNone) {
  const DriverOptions options{.library = BARG_FAKE_DRIVER};
  fake->version = 11080;
  EXPECT_EQ(opened(options).message, "the CUDA driver is of version 11.8, 12.0 is needed");
  EXPECT_EQ(opened(options).code, Code::kBadDriver);
  fake->version = 13000;
  EXPECT_EQ(opened({.library = BARG_FAKE_DRIVER, .device = 1}).message, "no CUDA device 1: there are 1");
  fake->minor = 5;
  fake->major = 7;
  EXPECT_EQ(opened(options).message, "Fake GPU has compute capability 7.5, 8.0 is needed");
  EXPECT_EQ(opened(options).code, Code::kNoDevice);
  fake->devices = 0;
  EXPECT_EQ(opened(options).message, "cuInit: CUDA_ERROR_NO_DEVICE (100)");
  EXPECT_EQ(opened(options).code, Code::kNoDevice);
  fake->devices = 1;
  fake->major = 9;
  for (const int why : {3, 34, 803, 999}) {  // not initialised, a stub, versions that do not fit, whatever else
    fake->failing["cuInit"] = why;
    EXPECT_EQ(opened(options).code, Code::kBadDriver) << why;
  }
  fake->failing = {{"cuDevicePrimaryCtxRetain", 2}};
  EXPECT_EQ(opened(options).code, Code::kOutOfMemory);
  fake->failing = {{"cuStreamCreate", 46}};
  EXPECT_EQ(opened(options).message, "cuStreamCreate: an unknown error (46)");
}

TEST_F(FakeDriverTest, MovesBytes) {
  open();
  DeviceArena arena;
  PinnedBuffer pinned;
  ASSERT_TRUE(DeviceArena::create(*device, 512, "arena", arena).ok());
  ASSERT_TRUE(PinnedBuffer::create(*device, 32, pinned).ok());
  std::byte* const p = arena.take(32);
  std::fill_n(pinned.data(), 32, std::byte{7});
  EXPECT_TRUE(device->upload(stream, p, pinned.data(), 32).ok());
  EXPECT_TRUE(device->fill(stream, p + 16, 9, 16).ok());
  EXPECT_TRUE(device->copy(stream, p, p + 8, 16).ok());
  EXPECT_TRUE(device->download(stream, pinned.data(), p, 32).ok());
  EXPECT_TRUE(device->synchronize(stream).ok());
  EXPECT_EQ(pinned.data()[7], std::byte{7});
  EXPECT_EQ(pinned.data()[8], std::byte{9});
}

TEST_F(FakeDriverTest, LaunchesWithWhatTheShapeSays) {
  open();
  struct Params {
    std::int32_t number;
  };
  const Kernel kernel{"some_kernel", sizeof(Params), nullptr};
  const LaunchShape shape{.grid_x = 3, .grid_y = 2, .grid_z = 4, .threads = 64, .dynamic_shared = 1024};
  EXPECT_EQ(launch(*device, stream, kernel, shape, Params{77}).message, "some_kernel: no code is loaded that has it");
  ASSERT_TRUE(device->load("").ok());
  fake->calls.clear();
  EXPECT_TRUE(launch(*device, stream, kernel, shape, Params{77}).ok());
  // Found once, as no part of a graph that is being captured; allowed its shared memory, of which it has some without.
  EXPECT_EQ(fake->calls,
            (std::vector<std::string>{"cuThreadExchangeStreamCaptureMode", "cuModuleGetFunction mode 2",
                                      "cuThreadExchangeStreamCaptureMode", "cuFuncSetAttribute 8 1024",
                                      "cuLaunchKernelEx 3 2 4 64 1 1 1024 overlap 0 params 77"}));
  EXPECT_EQ(fake->capture_mode, 0);
  LaunchShape large = shape;
  large.dynamic_shared = 100 << 10;
  fake->calls.clear();
  EXPECT_TRUE(launch(*device, stream, kernel, large, Params{78}, true).ok());
  EXPECT_TRUE(launch(*device, stream, kernel, large, Params{79}).ok());
  EXPECT_EQ(fake->calls, (std::vector<std::string>{"cuFuncSetAttribute 8 102400",
                                                   "cuLaunchKernelEx 3 2 4 64 1 1 102400 overlap 1 params 78",
                                                   "cuLaunchKernelEx 3 2 4 64 1 1 102400 overlap 0 params 79"}));
  const Status missing = launch(*device, stream, {"missing", sizeof(Params), nullptr}, shape, Params{});
  EXPECT_EQ(missing.message, "missing: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)");
}

TEST_F(FakeDriverTest, EventsAndGraphs) {
  open();
  EventId event{};
  GraphId graph{};
  bool happened = false;
  ASSERT_TRUE(device->create_event(event).ok());
  EXPECT_TRUE(device->record(stream, event).ok());
  EXPECT_TRUE(device->wait(stream, event).ok());
  EXPECT_TRUE(device->query(event, happened).ok());
  EXPECT_TRUE(happened);
  fake->failing["cuEventQuery"] = 600;
  EXPECT_TRUE(device->query(event, happened).ok());
  EXPECT_FALSE(happened);
  EXPECT_TRUE(device->synchronize(event).ok());
  EXPECT_TRUE(device->begin_capture(stream).ok());
  EXPECT_TRUE(device->end_capture(stream, graph).ok());
  EXPECT_TRUE(device->launch(stream, graph).ok());
  EXPECT_TRUE(called("cuGraphLaunch"));
  fake->failing["cuGraphInstantiate"] = 2;
  EXPECT_EQ(device->end_capture(stream, graph).code, Code::kOutOfMemory);
  EXPECT_EQ(device->launch(stream, GraphId{9}).code, Code::kInvalid);
  EXPECT_EQ(device->synchronize(EventId{9}).code, Code::kInvalid);
  EXPECT_EQ(device->synchronize(StreamId{9}).code, Code::kInvalid);
}

TEST_F(FakeDriverTest, FindsAKernelInTheImageThatHasIt) {
  open();
  ASSERT_TRUE(device->load("first").ok());
  ASSERT_TRUE(device->load("second").ok());
  fake->missing_from = 1;
  struct Params {
    std::int32_t number;
  };
  EXPECT_TRUE(launch(*device, stream, {"some_kernel", sizeof(Params), nullptr}, {}, Params{1}).ok());
  fake->missing_from = 2;
  EXPECT_EQ(launch(*device, stream, {"other_kernel", sizeof(Params), nullptr}, {}, Params{1}).message,
            "other_kernel: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)");
}

TEST_F(FakeDriverTest, LoadsEveryImageOfTheProgram) {
  open();
  EXPECT_TRUE(load_kernels(*device).ok());
  EXPECT_EQ(std::count(fake->calls.begin(), fake->calls.end(), "cuModuleLoadData"),
            static_cast<std::ptrdiff_t>(kernel_images().size()));
  if (kernel_images().empty()) return;
  fake->failing["cuModuleLoadData"] = 209;
  EXPECT_EQ(load_kernels(*device).message, std::string("kernels of ") + kernel_images()[0].name +
                                               ": cuModuleLoadData: an unknown error (209); this program has them for " +
                                               kernel_archs() + ", Fake GPU is 90");
}

TEST_F(FakeDriverTest, AnotherFailureIsNotTheEnd) {
  open();
  for (const int result : {1, 222, 701, 704, 712, 720}) {
    fake->failing["cuStreamSynchronize"] = result;
    EXPECT_EQ(device->synchronize(stream).code, Code::kInvalid) << result;
  }
  fake->failing.clear();
  EXPECT_TRUE(device->synchronize(stream).ok());
}

TEST_F(FakeDriverTest, OneIllegalAddressIsTheEnd) {
  open();
  std::byte* p = nullptr;
  EXPECT_EQ(device->allocate(std::size_t{1} << 40, "too much", p).message,
            "too much, 1099511627776 bytes: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
  EXPECT_TRUE(device->allocate(16, "little", p).ok()) << "nothing else happened";
  device->release(p);
  fake->failing["cuStreamSynchronize"] = 700;
  const Status lost = device->synchronize(stream);
  EXPECT_EQ(lost.code, Code::kLost);
  EXPECT_EQ(lost.message, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  fake->failing.clear();
  EXPECT_EQ(device->synchronize(stream).message, lost.message);
  EXPECT_EQ(device->allocate(16, "little", p).code, Code::kLost);
}

}  // namespace
}  // namespace barg::cuda
