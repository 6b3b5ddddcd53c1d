// Products of many rows by cuBLASLt (`invariant: false`): a weight is spelt out in 16 bits, then multiplied. Those with a bias
// stay with the own kernels.
#include "cuda/device_kernel.h"
#include "cuda/elementwise.cuh"
#include "cuda/gemm_unpack.cuh"
#include "cuda/ops_cuda.h"

namespace barg::cuda {
namespace {

std::size_t dense_bytes(const GemmArgs& p) { return half_bytes(p.n, p.k); }

template <GemmFormat F, Half T>
void unpack(Queue& queue, const std::byte* weight, const GemmArgs& p) {
  queue.launch(kernel<gemm_unpack_kernel<F, T>>(), {.grid_x = gemm_unpack_grid(F, p.n, p.k), .threads = kGemmUnpackThreads},
               GemmUnpackArgs{.weight = weight,
                              .n = p.n,
                              .k = p.k,
                              .rows = reinterpret_cast<std::uint16_t*>(queue.library_weight())});
}

template <Half T>
void unpack(Queue& queue, GemmFormat format, const std::byte* weight, const GemmArgs& p) {
  switch (format) {
    case GemmFormat::kF16:
      if constexpr (T == Half::kF16) return unpack<GemmFormat::kF16, T>(queue, weight, p);
      break;
    case GemmFormat::kBF16:
      if constexpr (T == Half::kBF16) return unpack<GemmFormat::kBF16, T>(queue, weight, p);
      break;
    case GemmFormat::kQ8_0: return unpack<GemmFormat::kQ8_0, T>(queue, weight, p);
    case GemmFormat::kQ4_0: return unpack<GemmFormat::kQ4_0, T>(queue, weight, p);
    case GemmFormat::kQ4_1: return unpack<GemmFormat::kQ4_1, T>(queue, weight, p);
    case GemmFormat::kQ4_K: return unpack<GemmFormat::kQ4_K, T>(queue, weight, p);
    case GemmFormat::kQ6_K: return unpack<GemmFormat::kQ6_K, T>(queue, weight, p);
  }
  refuse(queue, "a type of weights without a kernel");
}

/// out = x W^T, or added to it, with one of the product's weights.
template <Half T>
void multiply(Queue& queue, GemmFormat format, const std::byte* weight, const GemmArgs& p, float* out,
              std::int64_t out_stride) {
  unpack<T>(queue, format, weight, p);
  if (queue.stopped()) return;
  GemmLt* const library = queue.library();
  GemmLtParams params;
  params.type = T == Half::kF16 ? DType::kF16 : DType::kBF16;
  params.weight = reinterpret_cast<const std::uint16_t*>(queue.library_weight());
  params.x = p.x;
  params.x_stride = p.x_stride;
  params.rows = p.rows;
  params.n = p.n;
  params.k = p.k;
  params.out = out;
  params.out_stride = out_stride;
  params.accumulate = p.accumulate;
  params.workspace = queue.library_workspace();
  params.workspace_bytes = Queue::kLibraryWorkspace;
  const auto run = [library, params](void* stream) mutable {
    params.stream = stream;
    return library->multiply(params);
  };
  const std::int64_t floats = std::int64_t{p.rows - 1} * out_stride + p.n;
  queue.note(queue.device().call(queue.id(), run, reinterpret_cast<std::byte*>(out),
                                 static_cast<std::size_t>(floats) * sizeof(float)));
}

}  // namespace

bool library_multiplies(const Queue& queue, const GemmArgs& p) {
  return queue.library() != nullptr && p.rows > Queue::kOwnRows && p.bias == nullptr && p.up_bias == nullptr;
}

void need_library(Queue& queue, const GemmArgs& p) {
  const std::size_t rows = p.gated ? 2 * half_bytes(2 * std::int64_t{p.rows}, p.n) : 0;  // gate and up in f32
  queue.need_library(dense_bytes(p), rows);
}

template <Half T>
void multiply_by_library(Queue& queue, GemmFormat format, const GemmArgs& p) {
  if (!p.gated) return multiply<T>(queue, format, p.weight, p, p.out, p.out_stride);
  float* const gate = queue.library_rows();
  float* const up = gate + std::int64_t{p.rows} * p.n;
  multiply<T>(queue, format, p.weight, p, gate, p.n);
  multiply<T>(queue, format, p.up, p, up, p.n);
  const GateMulArgs args{.gate = gate,
                         .up = up,
                         .in_stride = p.n,
                         .rows = p.rows,
                         .dim = p.n,
                         .out = p.out,
                         .half = p.half,
                         .gate_scale = 1};
  const LaunchShape shape{.grid_x = gate_mul_grid(p.rows, p.n), .threads = kGateThreads};
  if (p.activation == ops::Activation::kSilu)
    return queue.launch(kernel<gate_mul_kernel<ops::Activation::kSilu, T>>(), shape, args);
  queue.launch(kernel<gate_mul_kernel<ops::Activation::kGeluTanh, T>>(), shape, args);
}

template void multiply_by_library<Half::kF16>(Queue&, GemmFormat, const GemmArgs&);
template void multiply_by_library<Half::kBF16>(Queue&, GemmFormat, const GemmArgs&);

}  // namespace barg::cuda
