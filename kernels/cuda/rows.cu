// Those that are no templates are defined by being included.
#include "cuda/rows.cuh"

namespace barg::cuda {

template __global__ void keep_rows_kernel<float>(KeepRowsArgs<float>);
template __global__ void keep_rows_kernel<std::uint16_t>(KeepRowsArgs<std::uint16_t>);
template __global__ void half_rows_kernel<Half::kF16>(HalfRowsArgs);
template __global__ void half_rows_kernel<Half::kBF16>(HalfRowsArgs);

}  // namespace barg::cuda
