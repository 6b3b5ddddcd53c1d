#include "cuda/embedding.cuh"

namespace barg::cuda {

template __global__ void embed_kernel<TableType::kF32>(EmbedArgs);
template __global__ void embed_kernel<TableType::kF16>(EmbedArgs);
template __global__ void embed_kernel<TableType::kBF16>(EmbedArgs);
template __global__ void embed_kernel<TableType::kQ8_0>(EmbedArgs);
template __global__ void embed_kernel<TableType::kQ4_0>(EmbedArgs);
template __global__ void embed_kernel<TableType::kQ4_1>(EmbedArgs);
template __global__ void embed_kernel<TableType::kQ4_K>(EmbedArgs);
template __global__ void embed_kernel<TableType::kQ6_K>(EmbedArgs);

}  // namespace barg::cuda
