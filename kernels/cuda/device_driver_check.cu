// Holds device_driver.h against the toolkit's cuda.h: compiled wherever nvcc is, and nothing else.
#include <cuda.h>

#include <type_traits>

#include "cuda/device_driver.h"

namespace barg::cuda::driver {
namespace {

/// The same number of parameters, each a pointer or a number of the same size.
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    return true;
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
static_assert(kLost[0] == CUDA_ERROR_ECC_UNCORRECTABLE && kLost[1] == CUDA_ERROR_NVLINK_UNCORRECTABLE);
static_assert(kLost[3] == CUDA_ERROR_ILLEGAL_ADDRESS && kLost[4] == CUDA_ERROR_LAUNCH_TIMEOUT);
static_assert(kLost[5] == CUDA_ERROR_CONTEXT_IS_DESTROYED && kLost[6] == CUDA_ERROR_ASSERT);
static_assert(kLost[7] == CUDA_ERROR_HARDWARE_STACK_ERROR && kLost[8] == CUDA_ERROR_ILLEGAL_INSTRUCTION);
static_assert(kLost[9] == CUDA_ERROR_MISALIGNED_ADDRESS && kLost[10] == CUDA_ERROR_INVALID_ADDRESS_SPACE);
static_assert(kLost[11] == CUDA_ERROR_INVALID_PC && kLost[12] == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kLost[14] == CUDA_ERROR_UNKNOWN);  // contained and tensor memory: not in every cuda.h
static_assert(kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributeBlockShared == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kFunctionMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kLaunchOverlap == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventNoTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE && kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

}  // namespace
}  // namespace barg::cuda::driver
