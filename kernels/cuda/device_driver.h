// The CUDA driver as a table of its functions, opened at run time, and the Device made of it: a program that holds this
// needs no CUDA library to be built or to start. The signatures are those of cuda.h, which device_driver_check.cu
// compares where there is one.
//
// Threads: open_driver() any; the device as in device.h (its context is made current where it is used).
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device.h"

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace barg::cuda::driver {

using Context = ::CUctx_st*;
using Module = ::CUmod_st*;
using Function = ::CUfunc_st*;
using Stream = ::CUstream_st*;
using Event = ::CUevent_st*;
using Graph = ::CUgraph_st*;
using GraphExec = ::CUgraphExec_st*;
using Address = unsigned long long;  ///< in the device's memory
using Result = int;                  ///< 0: fine

struct LaunchAttribute {
  int id;
  char pad[4];
  union Value {
    alignas(8) char bytes[64];
    int number;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

inline constexpr Result kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
/// Uncorrectable memory and links, what was contained, an illegal address, a timeout, a destroyed context, an assertion, the
/// hardware's stack, instructions and addresses that are none, a failed launch, tensor memory, and what it cannot name.
inline constexpr Result kLost[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999};
inline constexpr int kAttributeMultiprocessors = 16, kAttributeMajor = 75, kAttributeMinor = 76,
                     kAttributeBlockShared = 97;
inline constexpr int kFunctionMaxDynamicShared = 8;
inline constexpr int kLaunchOverlap = 6;  ///< programmatic stream serialisation
inline constexpr unsigned kStreamNonBlocking = 1, kEventNoTiming = 2, kHostPortable = 1;
inline constexpr int kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
inline constexpr int kLeastVersion = 12000, kLeastCapability = 80;

/// X(member, name in the library, parameters)
#define BARG_DRIVER_FUNCTIONS(X)                                                                          \
  X(init, cuInit, (unsigned))                                                                             \
  X(driver_version, cuDriverGetVersion, (int*))                                                           \
  X(device_count, cuDeviceGetCount, (int*))                                                               \
  X(device_get, cuDeviceGet, (int*, int))                                                                 \
  X(device_name, cuDeviceGetName, (char*, int, int))                                                      \
  X(device_memory, cuDeviceTotalMem_v2, (std::size_t*, int))                                              \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, int))                                             \
  X(context_retain, cuDevicePrimaryCtxRetain, (Context*, int))                                            \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (int))                                                 \
  X(context_set, cuCtxSetCurrent, (Context))                                                              \
  X(memory_info, cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                           \
  X(memory_allocate, cuMemAlloc_v2, (Address*, std::size_t))                                              \
  X(memory_free, cuMemFree_v2, (Address))                                                                 \
  X(host_allocate, cuMemHostAlloc, (void**, std::size_t, unsigned))                                       \
  X(host_free, cuMemFreeHost, (void*))                                                                    \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (Address, const void*, std::size_t, Stream))                    \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, Address, std::size_t, Stream))                            \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, (Address, Address, std::size_t, Stream))                        \
  X(fill, cuMemsetD8Async, (Address, unsigned char, std::size_t, Stream))                                 \
  X(stream_create, cuStreamCreate, (Stream*, unsigned))                                                   \
  X(stream_destroy, cuStreamDestroy_v2, (Stream))                                                         \
  X(stream_synchronize, cuStreamSynchronize, (Stream))                                                    \
  X(stream_wait, cuStreamWaitEvent, (Stream, Event, unsigned))                                            \
  X(capture_begin, cuStreamBeginCapture_v2, (Stream, int))                                                \
  X(capture_end, cuStreamEndCapture, (Stream, Graph*))                                                    \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, (int*))                                              \
  X(event_create, cuEventCreate, (Event*, unsigned))                                                      \
  X(event_destroy, cuEventDestroy_v2, (Event))                                                            \
  X(event_record, cuEventRecord, (Event, Stream))                                                         \
  X(event_query, cuEventQuery, (Event))                                                                   \
  X(event_synchronize, cuEventSynchronize, (Event))                                                       \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))              \
  X(graph_destroy, cuGraphDestroy, (Graph))                                                               \
  X(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                                     \
  X(exec_destroy, cuGraphExecDestroy, (GraphExec))                                                        \
  X(module_load, cuModuleLoadData, (Module*, const void*))                                                \
  X(module_unload, cuModuleUnload, (Module))                                                              \
  X(module_function, cuModuleGetFunction, (Function*, Module, const char*))                               \
  X(function_attribute, cuFuncSetAttribute, (Function, int, int))                                         \
  X(launch, cuLaunchKernelEx, (const LaunchConfig*, Function, void**, void**))                            \
  X(error_name, cuGetErrorName, (Result, const char**))

struct Table {
#define BARG_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  BARG_DRIVER_FUNCTIONS(BARG_MEMBER)
#undef BARG_MEMBER
};

}  // namespace barg::cuda::driver

namespace barg::cuda {

struct DriverOptions {
  const char* library = "libcuda.so.1";
  int device = 0;
};

/// kNoDriver, kBadDriver or kNoDevice, with the reason, where this machine cannot run CUDA kernels; that is no failure of Barg.
Status open_driver(const DriverOptions& options, std::unique_ptr<Device>& out);

}  // namespace barg::cuda
