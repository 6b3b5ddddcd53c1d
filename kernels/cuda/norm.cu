#include "cuda/norm.cuh"

namespace barg::cuda {

template __global__ void rms_norm_kernel<Half::kF16>(RmsNormArgs);
template __global__ void rms_norm_kernel<Half::kBF16>(RmsNormArgs);

}  // namespace barg::cuda
