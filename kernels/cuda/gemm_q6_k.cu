#include "cuda/gemm.cuh"

namespace barg::cuda {

template __global__ void gemm_kernel<NarrowGemm<GemmFormat::kQ6_K, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<MiddleGemm<GemmFormat::kQ6_K, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<WideGemm<GemmFormat::kQ6_K, Half::kF16>>(GemmArgs);
template __global__ void gemm_kernel<NarrowGemm<GemmFormat::kQ6_K, Half::kBF16>>(GemmArgs);
template __global__ void gemm_kernel<MiddleGemm<GemmFormat::kQ6_K, Half::kBF16>>(GemmArgs);
template __global__ void gemm_kernel<WideGemm<GemmFormat::kQ6_K, Half::kBF16>>(GemmArgs);

}  // namespace barg::cuda
