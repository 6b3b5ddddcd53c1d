#include <algorithm>

#include "cuda/device_kernel.h"
#include "cuda/elementwise.cuh"
#include "cuda/gemm_repack.cuh"
#include "cuda/ops_cuda.h"
#include "cuda/rows.cuh"

namespace barg::cuda {
namespace {

struct Rows16 {
  const std::uint16_t* x;
  std::int64_t stride;
};

/// The rows as they were prepared, or rounded now.
template <Half T>
Rows16 rows16(Queue& queue, const float* x, std::int64_t x_stride, std::int32_t rows, std::int32_t k, void* workspace,
              const void* prepared) {
  if (prepared != nullptr) return {static_cast<const std::uint16_t*>(prepared), k};
  auto* const half = static_cast<std::uint16_t*>(workspace);
  queue.launch(kernel<half_rows_kernel<T>>(), half_rows_launch(rows, k),
               HalfRowsArgs{.x = x, .x_stride = x_stride, .rows = rows, .dim = k, .half = half});
  return {half, k};
}

/// Launches what is planned for these arguments, which have everything but `work` and scratch.
template <Half T>
void multiply(Queue& queue, GemmFormat format, GemmArgs args) {
  const GemmPlan plan = plan_gemm({.format = format,
                                   .n = args.n,
                                   .k = args.k,
                                   .gated = args.gated,
                                   .rows = args.rows,
                                   .workers = queue.workers()});
  if (queue.measuring()) return queue.need(plan.partial_bytes, plan.counters);
  args.work = plan.work;
  args.partials = queue.partials();
  args.counters = queue.counters();
  const bool found = with_gemm_shape(format, T, plan.tile, [&]<class S>() {
    queue.launch(kernel<gemm_kernel<S>>(), S::launch(plan.grid), args);
  });
  if (!found) refuse(queue, "a type of weights without a kernel");
}

}  // namespace

std::optional<GemmFormat> packed_format(DType type, Half activations, std::int64_t n, std::int64_t k) {
  const GemmFormat own = activations == Half::kF16 ? GemmFormat::kF16 : GemmFormat::kBF16;
  std::optional<GemmFormat> format;
  switch (type) {
    case DType::kF32: format = own; break;
    case DType::kF16: format = GemmFormat::kF16; break;
    case DType::kBF16: format = GemmFormat::kBF16; break;
    case DType::kQ8_0: format = GemmFormat::kQ8_0; break;
    case DType::kQ4_0: format = GemmFormat::kQ4_0; break;
    case DType::kQ4_1: format = GemmFormat::kQ4_1; break;
    case DType::kQ4_K: format = GemmFormat::kQ4_K; break;
    case DType::kQ6_K: format = GemmFormat::kQ6_K; break;
    default: return std::nullopt;
  }
  return gemm_refusal(gemm_layout(*format).name, activations, n, k).empty() ? format : std::nullopt;
}

template <Half T>
void linear(ops::Stream& stream, const ops::LinearParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.weight.dtype, T, p.weight.n, p.weight.k);
  if (!format || p.block_max != nullptr) return refuse(queue, "a product that it does not compute");
  const Rows16 x = rows16<T>(queue, p.x, p.x_stride, p.rows, p.weight.k, p.workspace, p.prepared);
  multiply<T>(queue, *format,
              {.weight = static_cast<const std::byte*>(p.weight.data),
               .up = nullptr,
               .x = x.x,
               .x_stride = x.stride,
               .rows = p.rows,
               .n = p.weight.n,
               .k = p.weight.k,
               .bias = p.bias,
               .up_bias = nullptr,
               .out = p.out,
               .out_stride = p.out_stride,
               .half = nullptr,
               .half_stride = 0,
               .accumulate = p.accumulate,
               .gated = false,
               .activation = ops::Activation::kSilu,
               .work = {},
               .partials = nullptr,
               .counters = nullptr});
}

template <Half T>
void gated_linear(ops::Stream& stream, const ops::GatedLinearParams& p) {
  Queue& queue = Queue::of(stream);
  const std::optional<GemmFormat> format = packed_format(p.gate.dtype, T, p.gate.n, p.gate.k);
  if (!format) return refuse(queue, "a product that it does not compute");
  const Rows16 x = rows16<T>(queue, p.x, p.x_stride, p.rows, p.gate.k, p.workspace, p.prepared);
  multiply<T>(queue, *format,
              {.weight = static_cast<const std::byte*>(p.gate.data),
               .up = static_cast<const std::byte*>(p.up.data),
               .x = x.x,
               .x_stride = x.stride,
               .rows = p.rows,
               .n = p.gate.n,
               .k = p.gate.k,
               .bias = p.gate_bias,
               .up_bias = p.up_bias,
               .out = p.out,
               .out_stride = p.gate.n,
               .half = static_cast<std::uint16_t*>(p.prepared_out),
               .half_stride = p.gate.n,
               .accumulate = false,
               .gated = true,
               .activation = p.activation,
               .work = {},
               .partials = nullptr,
               .counters = nullptr});
}

template void linear<Half::kF16>(ops::Stream&, const ops::LinearParams&);
template void linear<Half::kBF16>(ops::Stream&, const ops::LinearParams&);
template void gated_linear<Half::kF16>(ops::Stream&, const ops::GatedLinearParams&);
template void gated_linear<Half::kBF16>(ops::Stream&, const ops::GatedLinearParams&);

}  // namespace barg::cuda
