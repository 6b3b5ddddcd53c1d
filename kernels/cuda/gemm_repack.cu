#include "cuda/gemm_repack.cuh"

namespace barg::cuda {

template __global__ void gemm_repack_kernel<GemmFormat::kF16>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kBF16>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kQ8_0>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kQ4_0>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kQ4_1>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kQ4_K>(GemmRepackArgs);
template __global__ void gemm_repack_kernel<GemmFormat::kQ6_K>(GemmRepackArgs);

}  // namespace barg::cuda
