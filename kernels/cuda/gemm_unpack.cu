#include "cuda/gemm_unpack.cuh"

namespace barg::cuda {

template __global__ void gemm_unpack_kernel<GemmFormat::kF16, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kBF16, Half::kBF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ8_0, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ8_0, Half::kBF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_0, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_0, Half::kBF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_1, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_1, Half::kBF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_K, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ4_K, Half::kBF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ6_K, Half::kF16>(GemmUnpackArgs);
template __global__ void gemm_unpack_kernel<GemmFormat::kQ6_K, Half::kBF16>(GemmUnpackArgs);

}  // namespace barg::cuda
