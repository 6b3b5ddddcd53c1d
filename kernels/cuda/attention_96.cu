#include "cuda/attention.cuh"

namespace barg::cuda {

template __global__ void attention_kernel<NarrowAttention<KvType::kF16, 96>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kF16, 96>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kBF16, 96>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kBF16, 96>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kFp8, 96>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kFp8, 96>>(AttentionArgs);

}  // namespace barg::cuda
