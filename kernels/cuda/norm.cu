#include "cuda/norm.cuh"

namespace barg::cuda {

template __global__ void norm_kernel<Half::kF16>(NormArgs);
template __global__ void norm_kernel<Half::kBF16>(NormArgs);

}  // namespace barg::cuda
