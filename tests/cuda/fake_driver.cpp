// A CUDA driver without a device: the functions of device_driver.h with memory of the host, streams that run at once and
// kernels that are only noted. Its one state is what the test sees through barg_fake_driver().
#include "fake_driver.h"

#include <cstring>
#include <utility>

#include "cuda/device_driver.h"

namespace {

namespace cu = barg::cuda::driver;

FakeDriver state;

template <class T>
int made(T* out) {
  *out = reinterpret_cast<T>(new char[1]);
  ++state.alive;
  return 0;
}
template <class T>
int destroyed(T thing) {
  delete[] reinterpret_cast<char*>(thing);
  --state.alive;
  return 0;
}

}  // namespace

#define BARG_ENTER(name) \
  if (const int failed = state.entered(#name); failed != 0) return failed

extern "C" {
FakeDriver* barg_fake_driver() { return &state; }

int cuInit(unsigned) {
  BARG_ENTER(cuInit);
  return state.devices > 0 ? 0 : cu::kNoDevice;
}
int cuDriverGetVersion(int* out) { return *out = state.version, 0; }
int cuDeviceGetCount(int* out) { return *out = state.devices, 0; }
int cuDeviceGet(int* out, int which) { return *out = which + 40, 0; }
int cuDeviceGetName(char* out, int size, int) { return std::strncpy(out, "Fake GPU", static_cast<std::size_t>(size)), 0; }
int cuDeviceTotalMem_v2(std::size_t* out, int) { return *out = 1 << 30, 0; }
int cuDeviceGetAttribute(int* out, int which, int device) {
  const int value = which == cu::kAttributeMajor             ? state.major
                    : which == cu::kAttributeMinor           ? state.minor
                    : which == cu::kAttributeMultiprocessors ? 132
                    : which == cu::kAttributeBlockShared     ? 227 << 10
                                                             : -1;
  *out = device == 40 ? value : -1;
  return 0;
}
int cuDevicePrimaryCtxRetain(cu::Context* out, int) {
  BARG_ENTER(cuDevicePrimaryCtxRetain);
  return made(out);
}
int cuDevicePrimaryCtxRelease_v2(int) {
  BARG_ENTER(cuDevicePrimaryCtxRelease);
  return --state.alive, 0;
}
int cuCtxSetCurrent(cu::Context) { return 0; }
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return *free = 1 << 29, *total = 1 << 30, 0; }
int cuMemAlloc_v2(cu::Address* out, std::size_t bytes) {
  BARG_ENTER(cuMemAlloc);
  if (bytes > std::size_t{1} << 30) return cu::kOutOfMemory;
  *out = reinterpret_cast<cu::Address>(new char[bytes]);
  return ++state.alive, 0;
}
int cuMemFree_v2(cu::Address p) { return destroyed(p); }
int cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  BARG_ENTER(cuMemHostAlloc);
  *out = new char[bytes];
  return ++state.alive, 0;
}
int cuMemFreeHost(void* p) { return destroyed(p); }
int cuMemcpyHtoDAsync_v2(cu::Address to, const void* from, std::size_t n, cu::Stream) {
  BARG_ENTER(cuMemcpyHtoDAsync);
  return std::memcpy(reinterpret_cast<void*>(to), from, n), 0;
}
int cuMemcpyDtoHAsync_v2(void* to, cu::Address from, std::size_t n, cu::Stream) {
  BARG_ENTER(cuMemcpyDtoHAsync);
  return std::memcpy(to, reinterpret_cast<const void*>(from), n), 0;
}
int cuMemcpyDtoDAsync_v2(cu::Address to, cu::Address from, std::size_t n, cu::Stream) {
  BARG_ENTER(cuMemcpyDtoDAsync);
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), n), 0;
}
int cuMemsetD8Async(cu::Address to, unsigned char value, std::size_t n, cu::Stream) {
  BARG_ENTER(cuMemsetD8Async);
  return std::memset(reinterpret_cast<void*>(to), value, n), 0;
}
int cuStreamCreate(cu::Stream* out, unsigned) {
  BARG_ENTER(cuStreamCreate);
  return made(out);
}
int cuStreamDestroy_v2(cu::Stream s) { return destroyed(s); }
int cuStreamSynchronize(cu::Stream) {
  BARG_ENTER(cuStreamSynchronize);
  return 0;
}
int cuStreamWaitEvent(cu::Stream, cu::Event, unsigned) {
  BARG_ENTER(cuStreamWaitEvent);
  return 0;
}
int cuStreamBeginCapture_v2(cu::Stream, int) {
  BARG_ENTER(cuStreamBeginCapture);
  return 0;
}
int cuStreamEndCapture(cu::Stream, cu::Graph* out) {
  BARG_ENTER(cuStreamEndCapture);
  return made(out);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  BARG_ENTER(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, state.capture_mode);
  return 0;
}
int cuEventCreate(cu::Event* out, unsigned) {
  BARG_ENTER(cuEventCreate);
  return made(out);
}
int cuEventDestroy_v2(cu::Event e) { return destroyed(e); }
int cuEventRecord(cu::Event, cu::Stream) {
  BARG_ENTER(cuEventRecord);
  return 0;
}
int cuEventQuery(cu::Event) {
  BARG_ENTER(cuEventQuery);
  return 0;
}
int cuEventSynchronize(cu::Event) {
  BARG_ENTER(cuEventSynchronize);
  return 0;
}
int cuGraphInstantiateWithFlags(cu::GraphExec* out, cu::Graph, unsigned long long) {
  BARG_ENTER(cuGraphInstantiate);
  return made(out);
}
int cuGraphDestroy(cu::Graph g) { return destroyed(g); }
int cuGraphLaunch(cu::GraphExec, cu::Stream) {
  BARG_ENTER(cuGraphLaunch);
  return 0;
}
int cuGraphExecDestroy(cu::GraphExec g) { return destroyed(g); }
int cuModuleLoadData(cu::Module* out, const void*) {
  BARG_ENTER(cuModuleLoadData);
  return made(out);
}
int cuModuleUnload(cu::Module m) { return destroyed(m); }
int cuModuleGetFunction(cu::Function* out, cu::Module, const char* name) {
  BARG_ENTER(cuModuleGetFunction);
  if (state.missing_from > 0) return --state.missing_from, 500;
  state.calls.back() += " mode " + std::to_string(state.capture_mode);
  if (std::strcmp(name, "missing") == 0) return 500;
  *out = reinterpret_cast<cu::Function>(&state);
  return 0;
}
int cuFuncSetAttribute(cu::Function, int which, int value) {
  BARG_ENTER(cuFuncSetAttribute);
  state.calls.back() += " " + std::to_string(which) + " " + std::to_string(value);
  return 0;
}
int cuLaunchKernelEx(const cu::LaunchConfig* c, cu::Function, void** params, void**) {
  BARG_ENTER(cuLaunchKernelEx);
  const auto number = [](unsigned n) { return " " + std::to_string(n); };
  int first = 0;
  std::memcpy(&first, params[0], sizeof(first));
  state.calls.back() += number(c->grid_x) + number(c->grid_y) + number(c->grid_z) + number(c->block_x) + number(c->block_y) +
                        number(c->block_z) + number(c->dynamic_shared) + " overlap" +
                        (c->num_attributes == 0 ? " 0" : number(static_cast<unsigned>(c->attributes[0].value.number))) +
                        " params " + std::to_string(first);
  return 0;
}
int cuGetErrorName(int result, const char** out) {
  *out = result == cu::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
         : result == cu::kNoDevice  ? "CUDA_ERROR_NO_DEVICE"
         : result == 700            ? "CUDA_ERROR_ILLEGAL_ADDRESS"
         : result == 500            ? "CUDA_ERROR_NOT_FOUND"
                                    : nullptr;
  return *out == nullptr ? 1 : 0;
}
}
