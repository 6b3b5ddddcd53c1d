#include "cuda/rope_kv.cuh"

namespace barg::cuda {

template __global__ void rope_kv_kernel<KvType::kF16, 64>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kF16, 96>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kF16, 128>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kF16, 256>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kBF16, 64>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kBF16, 96>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kBF16, 128>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kBF16, 256>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kFp8, 64>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kFp8, 96>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kFp8, 128>(RopeKvArgs);
template __global__ void rope_kv_kernel<KvType::kFp8, 256>(RopeKvArgs);

}  // namespace barg::cuda
