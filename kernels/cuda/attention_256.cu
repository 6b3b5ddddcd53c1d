#include "cuda/attention.cuh"

namespace barg::cuda {

template __global__ void attention_kernel<NarrowAttention<KvType::kF16, 256>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kF16, 256>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kBF16, 256>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kBF16, 256>>(AttentionArgs);
template __global__ void attention_kernel<NarrowAttention<KvType::kFp8, 256>>(AttentionArgs);
template __global__ void attention_kernel<WideAttention<KvType::kFp8, 256>>(AttentionArgs);
// For devices where a block has 99 KiB.
template __global__ void attention_kernel<InOnePlace<NarrowAttention<KvType::kF16, 256>>>(AttentionArgs);
template __global__ void attention_kernel<InOnePlace<WideAttention<KvType::kF16, 256>>>(AttentionArgs);
template __global__ void attention_kernel<InOnePlace<NarrowAttention<KvType::kBF16, 256>>>(AttentionArgs);
template __global__ void attention_kernel<InOnePlace<WideAttention<KvType::kBF16, 256>>>(AttentionArgs);

}  // namespace barg::cuda
