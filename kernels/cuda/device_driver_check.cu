// Holds device_driver.h against the toolkit's cuda.h: compiled wherever nvcc is, and nothing else.
#include <cuda.h>

#include <type_traits>

#include "cuda/device_driver.h"

namespace barg::cuda::driver {
namespace {

/// The same number of parameters, each a pointer of the same depth or a number of the same size.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return std::is_same_v<A, B> || sizeof(A) == sizeof(B);
  } else {
    return !std::is_pointer_v<A> && !std::is_pointer_v<B> && sizeof(A) == sizeof(B);
  }
}
template <class... A, class... B>
constexpr bool fits(Result (*)(A...), CUresult (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return (alike<A, B>() && ...);
  }
}

#define BARG_COMPARE(member, symbol, parameters) \
  static_assert(fits(decltype(Table::member){}, static_cast<decltype(&::symbol)>(nullptr)), #symbol);
BARG_DRIVER_FUNCTIONS(BARG_COMPARE)
#undef BARG_COMPARE

static_assert(std::is_same_v<Context, CUcontext> && std::is_same_v<Module, CUmodule> && std::is_same_v<Stream, CUstream>);
static_assert(std::is_same_v<Event, CUevent> && std::is_same_v<Graph, CUgraph> && std::is_same_v<GraphExec, CUgraphExec>);
static_assert(std::is_same_v<Address, CUdeviceptr> && sizeof(Result) == sizeof(CUresult));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kFunctionMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kLaunchOverlap == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventNoTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE && kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

}  // namespace
}  // namespace barg::cuda::driver
