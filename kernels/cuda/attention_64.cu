#include "cuda/attention.cuh"

namespace barg::cuda {

template __global__ void attention_kernel<NarrowAttention<KvType::kF16, 64>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kF16, 64>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kBF16, 64>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kBF16, 64>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kFp8, 64>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kFp8, 64>>(AttentionArgs);

}  // namespace barg::cuda
