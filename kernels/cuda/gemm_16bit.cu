#include "cuda/gemm.cuh"

namespace barg::cuda {

template __global__ void gemm_kernel<NarrowGemm<GemmFormat::kF16, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<MiddleGemm<GemmFormat::kF16, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<WideGemm<GemmFormat::kF16, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<NarrowGemm<GemmFormat::kBF16, Half::kBF16>>(GemmArgs);
template __global__ void gemm_kernel<MiddleGemm<GemmFormat::kBF16, Half::kBF16>>(GemmArgs);
template __global__ void gemm_kernel<WideGemm<GemmFormat::kBF16, Half::kBF16>>(GemmArgs);

}  // namespace barg::cuda
