#include "cuda/embedding.cuh"

namespace barg::cuda {

template __global__ void embed_kernel<GemmFormat::kF16>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kBF16>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kQ8_0>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kQ4_0>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kQ4_1>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kQ4_K>(EmbedArgs);
template __global__ void embed_kernel<GemmFormat::kQ6_K>(EmbedArgs);

}  // namespace barg::cuda
