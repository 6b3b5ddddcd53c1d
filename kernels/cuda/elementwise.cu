#include "cuda/elementwise.cuh"

namespace barg::cuda {

template __global__ void gate_mul_kernel<ops::Activation::kSilu, Half::kF16>(GateMulArgs);
template __global__ void gate_mul_kernel<ops::Activation::kSilu, Half::kBF16>(GateMulArgs);
template __global__ void gate_mul_kernel<ops::Activation::kGeluTanh, Half::kF16>(GateMulArgs);
template __global__ void gate_mul_kernel<ops::Activation::kGeluTanh, Half::kBF16>(GateMulArgs);

}  // namespace barg::cuda
